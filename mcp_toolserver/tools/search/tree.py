"""Show a folder with those beneath it, as an indented list: a good first look at a project. Skips dot files
and what .gitignore lists; links are not followed.
"""

from collections.abc import Iterator, Mapping

from mcp_toolserver.text.listing import branches, unseen
from mcp_toolserver.tool import (
    Args,
    CanonicalPath,
    Capability,
    Field,
    FolderContent,
    FolderQuery,
    Output,
    Permission,
    Runtime,
    ToolSpec,
    WorkspacePath,
)

_ENTRIES = 500
_OF_ONE_FOLDER = 100


class Tree(Args):
    path: WorkspacePath = Field(default=CanonicalPath("."), description="Folder")
    max_depth: int = Field(default=3, ge=1, le=64, description="Levels to show")
    hidden: bool = Field(default=False, description="Dot files too")
    include_ignored: bool = Field(default=False, description="Ignored files too")


async def run(args: Tree, rt: Runtime) -> Output:
    query = FolderQuery(
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
    return Output("\n".join(lines), truncated=is_cut)


def _notes(folders: Mapping[str, FolderContent], *, is_cut: bool) -> Iterator[str]:
    if not folders["."].total:
        yield "[nothing to show]"
    if is_cut:
        yield "[not all entries are shown; ls lists one folder whole]"
    if unseen(folders):
        yield "[folders with … were not looked into; give one as path, or set max_depth]"


TOOL = ToolSpec(
    name="tree",
    description=__doc__ or "",
    permission=Permission.READ_ONLY,
    needs=frozenset({Capability.FS_READ}),
    args=Tree,
    run=run,
    kind="search",
    subjects=lambda args: (args.path,),
    idempotent=True,
)
