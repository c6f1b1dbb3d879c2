"""Ask a language server about code: definitions, references, types, symbols, calls, diagnostics. Give a
position as `line` with `query` (the name on that line) or `character`, or as `query` alone. Lines and
characters count from 1, as in read_file. If no language server is installed or it fails, a text search
answers and says so.
"""

from pydantic import JsonValue

from mcp_toolserver import tool as t
from mcp_toolserver.text.code.answer_text import answer_lines

_PLACES = 50
_LIMITS: dict[t.CodeOperation, int] = {"workspaceSymbol": 30, "documentSymbol": 300, "diagnostics": 100}
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
        default=t.CanonicalPath("."), description="File to ask about; workspaceSymbol also takes a folder"
    )
    line: int | None = t.Field(default=None, ge=1, description="Line number, from 1")
    character: int | None = t.Field(default=None, ge=1, description="Column in characters, from 1")
    query: str = t.Field(default="", max_length=200, description="Name of the symbol to look up")

    @t.model_validator(mode="before")
    @classmethod
    def in_full(cls, given: dict[str, JsonValue]) -> dict[str, JsonValue]:
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
            limit=_LIMITS.get(args.operation, _PLACES),
        )
    )
    text = "\n".join(answer_lines(args.operation, answer))
    return t.Output(text, truncated=answer.total > len(answer.places))


TOOL = t.ToolSpec(
    name="LSP",
    title="Look up code",
    description=__doc__ or "",
    permission=t.Permission.DANGER_FULL_ACCESS,
    needs=frozenset({t.Capability.LANGUAGES}),
    args=Lsp,
    run=run,
    kind="search",
    subjects=lambda args: (args.path,),
    idempotent=True,
    aliases=tuple(t.Alias(name, renames=_SPELLINGS) for name in ("LSP", "lsp")),
)
