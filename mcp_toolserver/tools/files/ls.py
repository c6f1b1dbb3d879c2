"""List a folder, sorted by name. Folder names end in /; special files are labelled. Symbolic links are not
followed.
"""

from collections.abc import Iterator

from mcp_toolserver import tool as t
from mcp_toolserver.text.folder_listing import detailed, named

_ENTRIES = 200


class Ls(t.Args):
    path: t.WorkspacePath = t.Field(default=t.ROOT, description="Folder to list; default: the first root")
    hidden: bool = t.Field(default=False, description="Include dot files")
    details: bool = t.Field(default=False, description="Show size and modification time")
    limit: int = t.Field(default=_ENTRIES, ge=1, description=f"Most entries to return ({_ENTRIES})")
    offset: int = t.Field(default=0, ge=0, description="Entries to skip, for the next page")


async def run(args: Ls, rt: t.Runtime) -> t.Output:
    query = t.FolderQuery(
        path=args.path,
        hidden=args.hidden,
        details=args.details,
        limit=args.limit,
        each=args.limit,
        skip=args.offset,
    )
    content = (await rt.fs.folders(query))["."]
    shown = detailed if args.details else named
    is_cut = args.offset + len(content.entries) < content.total or not content.complete
    return t.Output("\n".join((*map(shown, content.entries), *_notes(args, content))), truncated=is_cut)


def _notes(args: Ls, content: t.FolderContent) -> Iterator[str]:
    end = args.offset + len(content.entries)
    if not content.entries and not args.offset:
        yield "[the folder is empty]" if not content.dots else "[no other entries]"
    elif end < content.total:
        yield f"[entries {args.offset + 1:,}-{end:,} of {content.total:,}; go on with offset={end}]"
    elif not content.entries:
        yield f"[nothing at offset {args.offset}: the folder has {content.total:,} entries]"
    if not content.complete:
        yield "[the folder is so large that not all names were looked at; glob_search finds the others]"
    if content.dots:
        yield f"[{content.dots:,} dot files are not shown; set `hidden` to see them]"


TOOL = t.ToolSpec(
    name="ls",
    title="List folder",
    needs=frozenset({t.Capability.FS_READ}),
    args=Ls,
    run=run,
    kind="read",
    idempotent=True,
    aliases=(t.Alias("list_dir"), t.Alias("list_directory"), t.Alias("LS")),
    profile=t.Profile.DEFAULT,
)
