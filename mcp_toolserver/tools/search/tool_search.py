"""Find tools that are not in your list and get their schemas; then call them by name."""

from mcp_toolserver import tool as t

_MOST = 10


class ToolSearch(t.Args):
    query: str = t.Field(
        default="",
        max_length=1_000,
        description="Words to find; `+word` is required; `select:A,B` gets tools by name; empty lists all",
    )
    max_results: int = t.Field(
        default=5, ge=1, le=_MOST, description=f"Most tools to return (5); at most {_MOST}"
    )


async def run(args: ToolSearch, rt: t.Runtime) -> t.Output:
    from mcp_toolserver.text.tool_search import answer, find, names

    cards = rt.catalogue()
    if not args.query.strip():
        return t.Output(names(cards))
    return t.Output(answer(find(args.query, cards, args.max_results, _MOST), cards))


TOOL = t.ToolSpec(
    name="ToolSearch",
    title="Find tools",
    needs=frozenset({t.Capability.CATALOGUE}),
    args=ToolSearch,
    run=run,
    kind="search",
    idempotent=True,
    aliases=(t.Alias("tool_search"),),
    profile=t.Profile.LEAN,
)
