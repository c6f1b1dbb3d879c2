"""Reads repositories with git and omits what the operator's rules hide.

If anything is hidden, a patch takes two commands: one lists the changed files, the other prints the patch of
the visible ones. The output of git is never parsed to remove hidden files.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mcp_toolserver.capabilities.call_scope import Scope
from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.git import (
    DiffForm,
    FileVersion,
    GitChange,
    GitCommit,
    GitLine,
    GitOverview,
    GitState,
    GitText,
    HistoryQuery,
    ShowForm,
)
from mcp_toolserver.errors import Denied, InvalidInput, NotFound
from mcp_toolserver.runtime.files.path_resolver import showable
from mcp_toolserver.runtime.git.hardening import parse_config
from mcp_toolserver.runtime.git.repository import MAX_PATHS, Repository, RepositoryAccess, open_repository
from mcp_toolserver.runtime.git.versions import EXECUTABLE, contents, file_entries, peeled_commit
from mcp_toolserver.text.git.log import BRANCH_FORMAT, COMMIT_FORMAT, blamed, commits, references, remotes
from mcp_toolserver.text.git.names import peeled, plain
from mcp_toolserver.text.git.status import parsed

LAST_COMMITS = 10
MOST_COMMITS = 10_000
"""The overview counts at most this many commits."""

MAX_NAMES = 16 << 20
"""Bytes of output for the list of all files."""

_LINK = "120000"
_BINARY_CHECK_BYTES = 8_000
"""Git also searches this many bytes for a NUL to detect binary files."""

_HEADER = "--format=commit %H%nparents %P%nauthor %an <%ae>%ndate %aI%n%n%B"


@dataclass(frozen=True, kw_only=True)
class GitReader:
    """Reading git repositories inside the roots. None of a repository's programs runs, and nothing changes.

    All methods raise `NotFound` (no repository, or no such file), `Denied` (the repository lies outside the
    roots or is set up to lead git astray; a rule hides the path), `InvalidInput` (no such commit), `TimedOut`
    and `Unavailable`. Names and contents that a rule of the operator hides are left out.
    """

    access: RepositoryAccess
    scope: Scope

    async def status(self, path: CanonicalPath) -> GitState:
        async with open_repository(self.access, path) as repository:
            options = ("--porcelain=v2", "--branch", "--untracked-files=normal", "-z")
            answer = await repository.ask("status", *options, paths=repository.paths)
            await repository.check(answer)
            found = parsed(answer.stdout, complete=not answer.truncated)
            visible = (change for change in found.changes if not repository.is_hidden(change.path))
            changes = tuple(_displayed(repository, change) for change in visible)
            return replace(found, changes=changes, left_out=len(found.changes) - len(changes))

    async def history(self, query: HistoryQuery) -> tuple[tuple[GitCommit, ...], bool]:
        """Return the commits, newest first, and whether there are older ones."""
        async with open_repository(self.access, query.path) as repository:
            return await _history(repository, query)

    async def diff(self, path: CanonicalPath, revision: str, *, staged: bool, form: DiffForm) -> GitText:
        """Compare the files with the commit `revision`, or its two, or the index if it is empty; if `staged`,
        compare the index with the commit, which is HEAD unless given."""
        revisions = _parse_revision(revision)
        async with open_repository(self.access, path) as repository:
            patch = _PatchQuery(
                repository=repository,
                subcommand="diff",
                options=("--cached",) if staged else (),
                revisions=revisions,
            )
            return await patch.run(form)

    async def show(self, path: CanonicalPath, revision: str, form: ShowForm) -> GitText:
        """Show a commit; of a `path` that is no folder, its content there."""
        revisions = _parse_revision(revision)
        async with open_repository(self.access, path) as repository:
            if repository.kind != "folder":
                return await _read_entry(repository, revisions[0])
            patch = _PatchQuery(
                repository=repository, subcommand="show", options=(_HEADER,), revisions=revisions
            )
            if form == "metadata":
                return await patch.metadata()
            return await patch.run(form)

    async def blame(self, path: CanonicalPath, revision: str, first: int, last: int) -> tuple[GitLine, ...]:
        """Return these lines as of the commit, or of the work tree if it is empty; fewer if the file ends
        before."""
        revisions = _parse_revision(revision)
        async with open_repository(self.access, path) as repository:
            lines = f"-L{first},{last}"
            answer = await repository.ask(
                "blame", "--porcelain", lines, revisions=revisions, paths=[repository.relative]
            )
            if answer.status != 0:
                for one in revisions:
                    if not await repository.has(one):
                        raise InvalidInput(
                            f"'{revision}' is no commit of the repository in '{repository.top}'."
                        )
                raise NotFound(
                    f"'{path}' has no committed line {first} (git exit status {answer.status}): the file is "
                    "not committed, or shorter. git_status shows what is committed; read_file shows the file."
                )
            return tuple(blamed(answer.stdout[: answer.stdout.rfind(b"\n")]))

    async def versions(
        self, paths: Sequence[CanonicalPath], revision: str, *, staged: bool
    ) -> tuple[FileVersion, ...]:
        """Return files of one repository, also those in folders, in the commit `revision`, or if `staged` in
        the index.

        Raises:
            InvalidInput: one of them is no regular file there, or is stored through a filter.
            Denied: a rule forbids one of them.
        """
        async with open_repository(self.access, paths[0]) as repository:
            revision = "" if staged else peeled_commit(revision)
            named = [entry for path in paths for entry in await file_entries(repository, path, revision)]
            entries = {repository.workspace_path(entry.path): entry for entry in named}
            for path in entries:
                if why := self.scope.forbids(*self.access.workspace.spellings(path)):
                    raise Denied(f"'{showable(path)}': {why}")
            found = await contents(repository, list(entries.values()))
            return tuple(
                FileVersion(path=path, content=found[entry.path], executable=entry.mode == EXECUTABLE)
                for path, entry in entries.items()
            )

    async def overview(self, path: CanonicalPath) -> GitOverview:
        async with open_repository(self.access, path) as repository:
            names = await repository.ask(
                "for-each-ref", BRANCH_FORMAT, "--sort=-committerdate",
                revisions=["refs/heads", "refs/remotes", "refs/tags"],
            )  # fmt: skip
            branches, tags = references(names.stdout)
            whole = replace(repository, relative=".")
            last, _ = await _history(whole, HistoryQuery(path=repository.top, count=LAST_COMMITS))
            counted = await repository.ask(
                "rev-list", "--count", f"--max-count={MOST_COMMITS}", revisions=["HEAD"]
            )
            listed = await repository.ask("ls-files", "-z", limit=MAX_NAMES)
            files = listed.fields
            return GitOverview(
                folder=repository.top,
                branches=branches,
                tags=tags,
                remotes=remotes(parse_config(repository.location.config)),
                commits=last,
                all_commits=int(counted.stdout or b"0"),
                files=tuple(map(showable, repository.visible(files))),
                complete=not listed.truncated,
            )


def _parse_revision(revision: str) -> tuple[str, ...]:
    return (peeled(revision),) if revision else ()


def _displayed(repository: Repository, change: GitChange) -> GitChange:
    folder = "/" if change.path.endswith("/") else ""
    hidden = not change.origin or repository.is_hidden(change.origin)
    path = f"{showable(repository.workspace_path(change.path))}{folder}"
    origin = "" if hidden else showable(repository.workspace_path(change.origin))
    # `replace` is slow; skip it if nothing changes.
    if (path, origin) == (change.path, change.origin):
        return change
    return replace(change, path=path, origin=origin)


async def _history(repository: Repository, query: HistoryQuery) -> tuple[tuple[GitCommit, ...], bool]:
    revisions = _parse_revision(query.revision)
    words = {"author": query.author, "since": query.since, "until": query.until}
    narrowing = [f"--{name}={value}" for name, value in words.items() if value]
    answer = await repository.ask(
        "log", COMMIT_FORMAT, "-z", "--fixed-strings", "--regexp-ignore-case", *narrowing,
        f"--max-count={query.count + 1}", f"--skip={query.offset}",
        revisions=revisions, paths=repository.paths,
    )  # fmt: skip
    if answer.status != 0:
        if not revisions and not await repository.has("HEAD"):
            return (), False
        raise await repository.failure(answer, revisions)
    found = commits(answer.stdout)
    return found[: query.count], answer.truncated or len(found) > query.count


@dataclass(frozen=True, kw_only=True)
class _PatchQuery:
    repository: Repository
    subcommand: Literal["diff", "show"]
    options: tuple[str, ...]
    revisions: tuple[str, ...]

    async def metadata(self) -> GitText:
        """Return the commit's metadata without its changes."""
        found = await self._run(("--no-patch",), (), "metadata", 0)
        return replace(found, text=f"{found.text.rstrip()}\n")

    async def run(self, form: Literal["patch", "stat"]) -> GitText:
        """Return the patch, or the statistics if the patch is too long."""
        paths, left_out = await self._visible()
        if left_out and not paths and self.subcommand == "show":
            return replace(await self.metadata(), left_out=left_out)
        if left_out and not paths:
            return GitText(text="", folder=self.repository.top, form="patch", left_out=left_out)
        renames = ("--no-renames",) if left_out else ()
        if form == "patch":
            found = await self._run(("--patch", *renames), paths, "patch", left_out)
            if found.complete:
                return found
        found = await self._run(("--stat", *renames), paths, "stat", left_out)
        return replace(found, complete=form == "stat" and found.complete)

    async def _run(
        self, options: Sequence[str], paths: Sequence[str], form: Literal["patch", "stat", "metadata"],
        left_out: int,
    ) -> GitText:  # fmt: skip
        answer = await self.repository.ask(
            self.subcommand, *self.options, *options, revisions=self.revisions, paths=paths
        )
        await self.repository.check(answer, self.revisions)
        return GitText(
            text=answer.stdout.decode("utf-8", "replace"),
            folder=self.repository.top,
            form=form,
            left_out=left_out,
            complete=not answer.truncated,
        )

    async def _visible(self) -> tuple[tuple[str, ...], int]:
        """Return the pathspecs to print and the number of hidden files."""
        repository = self.repository
        if not repository.access.may_hide:
            return repository.paths, 0
        options = [option for option in self.options if not option.startswith("--format")]
        if self.subcommand == "show":
            # For a merge, a patch covers fewer files than the statistics; list the files of both.
            options += ["--format=", "--first-parent"]
        answer = await repository.ask(
            self.subcommand, *options, "--name-only", "--no-renames", "-z",
            revisions=self.revisions, paths=repository.paths,
        )  # fmt: skip
        await repository.check(answer, self.revisions)
        names = [name for name in answer.fields if name]
        shown = repository.visible(names)
        hidden = set(names) - set(shown)
        if not hidden:
            return repository.paths, 0
        # A pathspec matches everything below it, and a path may be a file now and a folder earlier.
        shown = [name for name in shown if not any(other.startswith(f"{name}/") for other in hidden)]
        if answer.truncated or sum(map(len, shown)) > MAX_PATHS:
            raise InvalidInput(
                "Too many files changed, and a rule of the operator hides some of them. Set `path` to a "
                "folder or a file."
            )
        return tuple(shown), len(names) - len(shown)


async def _read_entry(repository: Repository, revision: str) -> GitText:
    """Return the file, folder, link or submodule at the repository's path in the commit `revision`."""
    answer = await repository.ask("ls-tree", "-z", revisions=[revision], paths=[repository.relative])
    await repository.check(answer, [revision])
    if not answer.stdout:
        raise NotFound(
            f"'{repository.workspace_path(repository.relative)}' is not in {plain(revision)}. git_log "
            "with this path lists the commits that changed it."
        )
    mode, kind, id_ = answer.stdout.partition(b"\t")[0].decode("ascii").split(" ")
    if kind == "tree":
        return await _list_folder(repository, revision)
    if kind == "commit":
        return GitText(text=f"[a submodule, at its commit {id_}]", folder=repository.top, form="file")
    answer = await repository.ask("cat-file", "-p", revisions=[id_])
    await repository.check(answer)
    if b"\0" in answer.stdout[:_BINARY_CHECK_BYTES]:
        return GitText(text="[a binary file]", folder=repository.top, form="file")
    text = answer.stdout.decode("utf-8", "replace")
    return GitText(
        text=f"[a link to {text}]" if mode == _LINK else text,
        folder=repository.top,
        form="file",
        complete=not answer.truncated,
    )


async def _list_folder(repository: Repository, revision: str) -> GitText:
    options = ("-z", "--name-only")
    answer = await repository.ask(
        "ls-tree", *options, revisions=[revision], paths=[f"{repository.relative}/"]
    )
    names = answer.fields
    shown = repository.visible(names)
    return GitText(
        text="".join(f"{showable(repository.workspace_path(name))}\n" for name in shown),
        folder=repository.top,
        form="folder",
        left_out=len(names) - len(shown),
        complete=not answer.truncated,
    )
