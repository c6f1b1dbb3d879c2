"""Questions about code: where a name is defined, what uses it, what is wrong."""

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
    """What to ask."""

    operation: CodeOperation
    path: CanonicalPath
    """A file; for `workspaceSymbol` a folder will do."""
    line: int | None = None
    """From 1."""
    character: int | None = None
    """From 1, in characters of the line."""
    symbol: str = ""
    """What to find; or what stands at the place that was not given as numbers."""
    limit: int
    """Places to give."""


@dataclass(frozen=True, kw_only=True)
class CodePlace:
    """A place in a file that may be seen."""

    path: str
    line: int
    character: int
    text: str
    """The line, as it is now; or what is to be said of the place."""
    label: str = ""
    """What is there, such as `function main`."""
    depth: int = 0
    """How many symbols it lies in."""


@dataclass(frozen=True, kw_only=True)
class CodeAnswer:
    """What is known."""

    places: tuple[CodePlace, ...] = ()
    total: int = 0
    """How many there are, given or not."""
    withheld: int = 0
    """Of those looked at, how many lie outside the roots, or are hidden by a rule."""
    text: str = ""
    """Of a hover."""
    source: str
    """Who says so: the program's name, or the search that stands in for it."""
    fallback: str = ""
    """Why a search stands in for a language server: a sentence."""
    unfinished: bool = False
    """The language server has not yet read all of the project."""


class Languages(Protocol):
    """What language servers know of the code inside the roots; a search of symbols where there is none."""

    async def ask(self, query: CodeQuery) -> CodeAnswer:
        """Answer, with a server that is started when it is first needed.

        Raises:
            InvalidInput: the position is not in the file, or something is missing in the question.
            NotFound, Denied: the file is not there, or not for reading.
            Unavailable: only a language server could answer, and none does.
            TimedOut: it did not answer in time.
        """
        ...
