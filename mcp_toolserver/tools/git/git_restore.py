"""Restore files or folders of the work tree to their content in a commit, or in the index. This discards
uncommitted changes of these files and brings deleted files back; files that the commit lacks stay. All files
are restored or none. The index, other files and the branch stay as they are; files stored through a filter
(Git LFS) are refused.
"""

from collections.abc import Sequence

from mcp_toolserver import tool as t
from mcp_toolserver.text.git.messages import counted
from mcp_toolserver.text.undo_note import brief_undo_note, undo_help

_PATHS = 100


class GitRestore(t.Args):
    paths: t.WorkspacePaths = t.Field(
        min_length=1,
        max_length=_PATHS,
        description=f"Files or folders to restore, at most {_PATHS}; no patterns",
    )
    commit: str = t.Field(
        default="HEAD",
        min_length=1,
        max_length=256,
        description="Commit to take the content from: id, branch or tag",
    )
    staged: bool = t.Field(default=False, description="Take the staged content instead of that of `commit`")


async def run(args: GitRestore, rt: t.Runtime) -> t.Output:
    found = await rt.git.versions(args.paths, args.commit, staged=args.staged)
    versions = {version.path: version for version in found}
    same: set[str] = set()

    def change(contents: t.Contents) -> Sequence[t.FileChange]:
        same.update(path for path, content in contents.items() if content == versions[path].content)
        return [
            t.FileChange(path=path, content=version.content, executable=version.executable)
            for path, version in versions.items()
        ]

    written = await rt.fs.update_all(tuple(versions), change)
    source = "the index" if args.staged else args.commit
    created = {path for path, one in written.items() if one.created}
    lines = [
        f"- {_line(one, same=path in same, created=path in created)}{brief_undo_note(written[path].previous)}"
        for path, one in versions.items()
        if path in args.paths or path not in same
    ]
    undo = undo_help(one.previous for one in written.values())
    return t.Output("\n".join((f"Restored {counted(len(lines), 'file')} from {source}.", *undo, *lines)))


def _line(version: t.FileVersion, *, same: bool, created: bool) -> str:
    note = " (created)" if created else " (was the same)" if same else ""
    return f"{version.path}, {len(version.content):,} bytes{note}"


TOOL = t.ToolSpec(
    name="git_restore",
    title="Restore files from git",
    needs=frozenset({t.Capability.GIT, t.Capability.FS_WRITE}),
    args=GitRestore,
    run=run,
    kind="edit",
    destructive=True,
    idempotent=True,
    aliases=tuple(
        t.Alias(name, {"path": "paths", "file_path": "paths", "files": "paths", "source": "commit"})
        for name in ("GitRestore", "git_restore")
    ),
)
