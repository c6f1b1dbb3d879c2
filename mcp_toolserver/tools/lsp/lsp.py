"""Ask a language server about code: definitions, references, types, symbols, calls, diagnostics. Give a
position as `line` with `query` (the name on that line) or `character`, or as `query` alone. Lines and
characters count from 1, as in read_file. If no language server is installed or it fails, a text search
answers and says so.
"""

from collections.abc import Iterator
from dataclasses import replace

from mcp_toolserver import tool as t

_PLACES = 50
_MOST = 500
"""Places that are saved where not all are shown."""
_SHOWN: dict[t.CodeOperation, int] = {"workspaceSymbol": 30, "documentSymbol": 300, "diagnostics": 100}
_SHORT = {
    "definition": "goToDefinition",
    "implementation": "goToImplementation",
    "references": "findReferences",
}
_SPELLINGS = {
    "action": "operation",
    "file_path": "path",
    "filePath": "path",
    "column": "character",
    "symbol": "query",
}


class Lsp(t.Args):
    operation: t.CodeOperation = t.Field(description="What to ask the language server")
    path: t.WorkspacePath = t.Field(
        default=t.ROOT, description="File to ask about; workspaceSymbol also takes a folder"
    )
    line: int | None = t.Field(default=None, ge=1, description="Line number, from 1")
    character: int | None = t.Field(default=None, ge=1, description="Column in characters, from 1")
    query: str = t.Field(default="", max_length=200, description="Name of the symbol to look up")

    @t.model_validator(mode="before")
    @classmethod
    def in_full(cls, given: dict[str, t.JsonValue]) -> dict[str, t.JsonValue]:
        """Take the short names of operations too."""
        asked = given.get("operation")
        short = _SHORT | {"symbols": "workspaceSymbol" if given.get("query") else "documentSymbol"}
        return {**given, "operation": short[asked]} if isinstance(asked, str) and asked in short else given


async def run(args: Lsp, rt: t.Runtime) -> t.Output:
    answer = await rt.languages.ask(
        t.CodeQuery(
            operation=args.operation,
            path=args.path,
            line=args.line,
            character=args.character,
            symbol=args.query,
            limit=_MOST,
        )
    )
    shown = replace(answer, places=answer.places[: _SHOWN.get(args.operation, _PLACES)])
    text = "\n".join(answer_lines(args.operation, shown))
    is_cut = len(shown.places) < len(answer.places)
    whole = "\n".join(answer_lines(args.operation, answer)) if is_cut else ""
    if answer.total > len(answer.places):
        text += "\n[grep_search lists all]"
    return t.Output(text, truncated=answer.total > len(shown.places), whole=whole)


_NOUNS: dict[t.CodeOperation, tuple[str, str]] = {
    "goToDefinition": ("definition", "definitions"),
    "goToImplementation": ("implementation", "implementations"),
    "findReferences": ("reference", "references"),
    "hover": ("word on this", "words on this"),
    "documentSymbol": ("symbol", "symbols"),
    "workspaceSymbol": ("symbol", "symbols"),
    "prepareCallHierarchy": ("function", "functions"),
    "incomingCalls": ("call", "calls"),
    "outgoingCalls": ("called function", "called functions"),
    "diagnostics": ("problem", "problems"),
}


def answer_lines(operation: t.CodeOperation, answer: t.CodeAnswer) -> Iterator[str]:
    """Yield an answer with its notes."""
    if answer.text:
        yield answer.text
    for place in answer.places:
        where = f"{'  ' * place.depth}{place.path}:{place.line}:{place.character}:"
        yield " ".join(filter(None, (where, place.label and f"[{place.label}]", place.text)))
    if not answer.text or answer.places:
        yield _count(operation, answer)
    if answer.withheld:
        yield f"[left out: {answer.withheld} outside the workspace, hidden by a rule, or no longer there]"
    if answer.note:
        yield f"[{answer.note}]"
    if answer.unfinished:
        yield f"[{answer.source} is still reading the project; asked later, it may know more]"
    if answer.fallback:
        yield (
            f"[fallback: {answer.source}, not a language server: comments and strings count, scopes and "
            f"types do not. {answer.fallback}]"
        )


def _count(operation: t.CodeOperation, answer: t.CodeAnswer) -> str:
    one, several = _NOUNS[operation]
    by = "" if answer.fallback else f", says {answer.source}"
    if not answer.total:
        return f"No {several} found{' inside the workspace' if answer.withheld else ''}{by}."
    noun = one if answer.total == 1 else several
    if (more := answer.total - len(answer.places)) > 0:
        return f"[{len(answer.places)} of {answer.total} {noun}; {more} more{by}]"
    return f"[{answer.total} {noun}{by}]"


TOOL = t.ToolSpec(
    name="LSP",
    title="Look up code",
    needs=frozenset({t.Capability.LANGUAGES}),
    args=Lsp,
    run=run,
    kind="search",
    idempotent=True,
    aliases=tuple(t.Alias(name, renames=_SPELLINGS) for name in ("LSP", "lsp")),
)
