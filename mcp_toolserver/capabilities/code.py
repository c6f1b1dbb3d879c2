"""Queries about code: definitions, references, symbols and problems."""

from dataclasses import dataclass
from typing import Literal, Protocol

from mcp_toolserver.capabilities.files import CanonicalPath

CodeOperation = Literal[
    "goToDefinition",
    "goToImplementation",
    "findReferences",
    "hover",
    "documentSymbol",
    "workspaceSymbol",
    "prepareCallHierarchy",
    "incomingCalls",
    "outgoingCalls",
    "diagnostics",
]


@dataclass(frozen=True, kw_only=True)
class CodeQuery:
    """A query about code."""

    operation: CodeOperation
    path: CanonicalPath
    """A file; for `workspaceSymbol` also a folder."""
    line: int | None = None
    """Line number, from 1."""
    character: int | None = None
    """Character in the line, from 1."""
    symbol: str = ""
    """The symbol to find, or the symbol at the position if that is not given as numbers."""
    limit: int
    """Maximum number of places."""


@dataclass(frozen=True, kw_only=True)
class CodePlace:
    """A visible place in a file."""

    path: str
    line: int
    character: int
    text: str
    """The current text of the line, or a message about the place."""
    label: str = ""
    """Kind and name of the symbol, such as `function main`."""
    depth: int = 0
    """Nesting depth in the outline."""


@dataclass(frozen=True, kw_only=True)
class CodeAnswer:
    """The answer to a query."""

    places: tuple[CodePlace, ...] = ()
    total: int = 0
    """Number of places found, including those not returned."""
    withheld: int = 0
    """Number of examined places that are outside the roots or hidden by a rule."""
    text: str = ""
    """Hover text."""
    source: str
    """The program that answered, or the search that replaces it."""
    fallback: str = ""
    """Why a search replaces a language server, as a sentence."""
    unfinished: bool = False
    """Whether the language server is still indexing the project."""


class Languages(Protocol):
    """Queries language servers about code inside the roots; searches for symbols where none is installed."""

    async def ask(self, query: CodeQuery) -> CodeAnswer:
        """Answer a query; starts the language server on first use.

        Raises:
            InvalidInput: the position is not in the file, or something is missing in the question.
            NotFound, Denied: the file is not there, or not for reading.
            Unavailable: only a language server could answer, and none does.
            TimedOut: it did not answer in time.
        """
        ...
