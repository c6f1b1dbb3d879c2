"""Find tools that are not in your list and get their schemas; then call them by name."""

from mcp_toolserver.tool import (
    Alias,
    Args,
    Capability,
    Field,
    Output,
    Permission,
    Profile,
    Runtime,
    ToolSpec,
)

_MOST = 10


class ToolSearch(Args):
    query: str = Field(
        default="",
        max_length=1_000,
        description="Words to find; `+word` is required; `select:A,B` gets tools by name; empty lists all",
    )
    max_results: int = Field(
        default=5, ge=1, le=_MOST, description=f"Most tools to return (5); at most {_MOST}"
    )


async def run(args: ToolSearch, rt: Runtime) -> Output:
    from mcp_toolserver.text.tool_search import answer, find, names

    cards = rt.catalogue()
    if not args.query.strip():
        return Output(names(cards))
    return Output(answer(find(args.query, cards, args.max_results, _MOST), cards))


TOOL = ToolSpec(
    name="ToolSearch",
    title="Find tools",
    description=__doc__ or "",
    permission=Permission.READ_ONLY,
    needs=frozenset({Capability.CATALOGUE}),
    args=ToolSearch,
    run=run,
    kind="search",
    subjects=lambda _: (),
    idempotent=True,
    aliases=(Alias("tool_search"),),
    profile=Profile.LEAN,
)
