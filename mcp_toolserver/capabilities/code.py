"""Queries about code: definitions, references, symbols, problems, and changes that a server proposes."""

from dataclasses import dataclass
from typing import Literal

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

CodeEditOperation = Literal["rename", "codeAction", "format"]


@dataclass(frozen=True, kw_only=True)
class _SymbolQuery:
    """A query about a position in a file."""

    path: CanonicalPath
    """A file; for `workspaceSymbol` also a folder."""
    line: int | None = None
    """Line number, from 1."""
    character: int | None = None
    """Character in the line, from 1."""
    symbol: str = ""
    """The symbol to find, or the symbol at the position if that is not given as numbers."""


@dataclass(frozen=True, kw_only=True)
class CodeQuery(_SymbolQuery):
    """A query about code."""

    operation: CodeOperation
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
    note: str = ""
    """Which of several positions the answer is about, as a sentence."""
    fallback: str = ""
    """Why a search replaces a language server, as a sentence."""
    unfinished: bool = False
    """Whether the language server is still indexing the project."""


@dataclass(frozen=True, kw_only=True)
class CodeEditQuery(_SymbolQuery):
    """A change to propose."""

    operation: CodeEditOperation
    new_name: str = ""
    """For `rename`."""
    action: str = ""
    """For `codeAction`: the title of the one to propose; empty to list them."""


@dataclass(frozen=True, kw_only=True)
class ProposedFile:
    """One file of a proposed change."""

    path: CanonicalPath
    before: bytes | None
    """The content that the change is based on; None for no file."""
    after: bytes | None
    """None to remove the file, which is then moved."""
    like: CanonicalPath | None = None
    """The file that this one is moved from."""
    edits: int = 0
    """Number of replaced ranges."""


@dataclass(frozen=True, kw_only=True)
class CodeEdit:
    """A proposed change: nothing is changed yet."""

    title: str
    symbol: str = ""
    """The name before it is renamed."""
    files: tuple[ProposedFile, ...] = ()
    references: tuple[CodePlace, ...] = ()
    """Of a renamed symbol, as the program finds them; none where it cannot."""
    actions: tuple[str, ...] = ()
    """Titles of what can be proposed, with their kind in brackets, where no action was named."""
    source: str
    """The program that proposes it."""
    notes: tuple[str, ...] = ()
    """Which of several positions it is about, what of the proposal is left out, and what else has the old
    name; sentences."""
