"""Show a folder and its subfolders as an indented list; a good first look at a project. Skips dot files and
files excluded by .gitignore. Symbolic links are not followed.
"""

from collections.abc import Iterator, Mapping

from mcp_toolserver import tool as t
from mcp_toolserver.text.folder_listing import branches, unseen

_ENTRIES = 500
_OF_ONE_FOLDER = 100


class Tree(t.Args):
    path: t.WorkspacePath = t.Field(default=t.ROOT, description="Folder to show; default: the first root")
    max_depth: int = t.Field(default=3, ge=1, le=64, description="Levels of folders to show")
    hidden: bool = t.Field(default=False, description="Include dot files")
    include_ignored: bool = t.Field(default=False, description="Include files excluded by .gitignore")


async def run(args: Tree, rt: t.Runtime) -> t.Output:
    query = t.FolderQuery(
        path=args.path,
        depth=args.max_depth,
        hidden=args.hidden,
        ignored=args.include_ignored,
        limit=_ENTRIES,
        each=_OF_ONE_FOLDER,
    )
    folders = await rt.fs.folders(query)
    is_cut = any(len(content.entries) < content.total for content in folders.values())
    lines = (f"{args.path.rstrip('/')}/", *branches(folders), *_notes(folders, is_cut=is_cut))
    return t.Output("\n".join(lines), truncated=is_cut)


def _notes(folders: Mapping[str, t.FolderContent], *, is_cut: bool) -> Iterator[str]:
    if not folders["."].total:
        yield "[nothing to show]"
    if is_cut:
        yield "[not all entries are shown; ls lists one folder whole]"
    if unseen(folders):
        yield "[folders with … were not looked into; give one as path, or set max_depth]"


TOOL = t.ToolSpec(
    name="tree",
    title="Show folder tree",
    needs=frozenset({t.Capability.FS_READ}),
    args=Tree,
    run=run,
    kind="search",
    idempotent=True,
)
