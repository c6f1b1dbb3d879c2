"""Find files and folders of the workspace with the operating system's search index: names and contents on
macOS, mostly names on Linux. The index may be out of date; glob_search and grep_search read the files
themselves.
"""

from mcp_toolserver import tool as t

_MOST = 2_000
_SHOWN = 100


class Mdfind(t.Args):
    query: str = t.Field(
        min_length=1,
        max_length=1_000,
        description="Words to search for, or a query in the syntax of the index",
    )
    path: t.WorkspacePath = t.Field(default=t.ROOT, description="Folder to search; default: the first root")


async def run(args: Mdfind, rt: t.Runtime) -> t.Output:
    found = await rt.desktop.find(args.query, args.path, _MOST)
    shown = found.files[:_SHOWN]
    is_cut = len(shown) < len(found.files)
    notes = (
        "" if found.files else "[nothing found; the index may be old or leave this folder out]",
        f"[{len(shown)} shown; ask for less to see others]" if found.more or is_cut else "",
        f"[{found.withheld} left out: hidden, or outside the workspace]" if found.withheld else "",
    )
    return t.Output(
        "\n".join((*shown, *filter(None, notes))),
        truncated=found.more or is_cut,
        whole="\n".join(found.files) if is_cut else "",
    )


TOOL = t.ToolSpec(
    name="mdfind",
    title="Search the desktop index",
    needs=frozenset({t.Capability.DESKTOP_FIND}),
    args=Mdfind,
    run=run,
    kind="search",
    idempotent=True,
)
