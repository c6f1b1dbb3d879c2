"""Commit changed files to the current branch and return the commit with its files. Names what to commit with
`paths` or `all`; other changes, staged ones too, stay as they are. Hooks, filters and signing do not run; the
author is the user's. It pushes nothing, and does not finish a merge or rebase.
"""

from typing import Self

from mcp_toolserver import tool as t
from mcp_toolserver.text.git.messages import MAX_FILES, counted, file_lines, hidden

_MESSAGE = 16_000
_PATHS = 1_000


class GitCommit(t.Args):
    message: str = t.Field(
        default="",
        max_length=_MESSAGE,
        description=f"Commit message, at most {_MESSAGE:,} characters; may be left out with `amend`",
    )
    paths: t.WorkspacePaths = t.Field(
        default=(),
        max_length=_PATHS,
        description="Files to commit, new and deleted ones too; a folder means every change in it",
    )
    all: bool = t.Field(
        default=False, description="Commit every change in the repository of the first root, new files too"
    )
    amend: bool = t.Field(
        default=False, description="Replace the last commit, which must be your own and not pushed"
    )

    @t.model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.all and self.paths:
            raise ValueError("give either `paths` or `all`, not both")
        if not (self.all or self.paths or self.amend):
            raise ValueError("name what to commit: `paths`, or `all` for every change")
        if not self.message.strip() and (self.message or not self.amend):
            raise ValueError("`message` must say something")
        return self


class CommittedFile(t.Record):
    change: str
    """A added, M modified, D deleted, T type changed."""
    path: str


class Commit(t.Record):
    id: str
    branch: str
    author: str
    total: int
    """Files in all; more than are listed when there are very many."""
    files: list[CommittedFile]


async def run(args: GitCommit, rt: t.Runtime) -> t.Output:
    paths = (t.ROOT,) if args.all else args.paths
    found = await rt.git_changes.commit(t.CommitQuery(paths=paths, message=args.message, amend=args.amend))
    branch = found.branch or "no branch"
    verb = "Amended" if args.amend else "Committed"
    head = f"{verb} {found.id[:12]} on {branch}, {counted(len(found.files), 'file')}: {found.subject}"
    lines, whole = file_lines(found.files)
    return t.Output(
        "\n".join((head, f"Author: {found.author}", *lines, *_notes(found))),
        data=Commit(
            id=found.id,
            branch=found.branch,
            author=found.author,
            total=len(found.files),
            files=[CommittedFile(change=letter, path=path) for letter, path in found.files[:MAX_FILES]],
        ),
        truncated=bool(whole),
        whole=whole,
    )


def _notes(found: t.Committed) -> list[str]:
    notes = [*hidden(found.left_out, "change")]
    if found.nested:
        notes.append(f"[{counted(found.nested, 'path')} in repositories of their own left out]")
    if found.unsigned:
        notes.append("[not signed: signing programs do not run here]")
    return notes


TOOL = t.ToolSpec(
    name="git_commit",
    title="Commit changes",
    needs=frozenset({t.Capability.GIT_WRITE}),
    args=GitCommit,
    run=run,
    kind="edit",
    subjects=lambda args: args.paths or (".",),
    output=Commit,
    destructive=True,
    aliases=tuple(t.Alias(name, {"path": "paths", "files": "paths"}) for name in ("GitCommit", "git_commit")),
)
