"""Reads a file, folder, link or submodule from a commit."""

from mcp_toolserver.capabilities.git import GitText
from mcp_toolserver.errors import NotFound
from mcp_toolserver.runtime.git.repository import Repository
from mcp_toolserver.runtime.git.runner import GitResult
from mcp_toolserver.runtime.search.display_path import showable
from mcp_toolserver.text.git.names import plain

_LINK = "120000"
_BINARY_CHECK_BYTES = 8_000
"""Git also searches this many bytes for a NUL to detect binary files."""


async def read_entry(repository: Repository, revision: str) -> GitText:
    """Return the content at the repository's path in the commit `revision`.

    Raises:
        NotFound: the path does not exist in it.
        InvalidInput: there is no such commit.
    """
    mode, kind, id_ = await _entry(repository, revision)
    if kind == "tree":
        return await _list_folder(repository, revision)
    if kind == "commit":
        return _git_text(repository, f"[a submodule, at its commit {id_}]")
    answer = await repository.ask("cat-file", "-p", revisions=[id_])
    if answer.status != 0:
        raise await repository.failure(answer, ())
    if b"\0" in answer.stdout[:_BINARY_CHECK_BYTES]:
        return _git_text(repository, "[a binary file]")
    text = answer.stdout.decode("utf-8", "replace")
    return _git_text(
        repository, f"[a link to {text}]" if mode == _LINK else text, complete=not answer.truncated
    )


async def _entry(repository: Repository, revision: str) -> tuple[str, str, str]:
    """Return mode, kind and id of the tree entry."""
    answer = await repository.ask("ls-tree", "-z", revisions=[revision], paths=[repository.relative])
    if answer.status != 0:
        raise await repository.failure(answer, [revision])
    head, _, _ = answer.stdout.partition(b"\t")
    match head.decode("ascii", "replace").split(" "):
        case [mode, kind, id_]:
            return mode, kind, id_
        case _:
            raise NotFound(
                f"'{repository.workspace_path(repository.relative)}' is not in {plain(revision)}. git_log "
                "with this path lists the commits that changed it."
            )


async def _list_folder(repository: Repository, revision: str) -> GitText:
    answer = await repository.ask(
        "ls-tree", "-z", "--name-only", revisions=[revision], paths=[f"{repository.relative}/"]
    )
    names = _names(answer)
    shown = repository.visible(names)
    text = "".join(f"{showable(repository.workspace_path(name))}\n" for name in shown)
    return GitText(
        text=text,
        folder=repository.top,
        form="folder",
        left_out=len(names) - len(shown),
        complete=not answer.truncated,
    )


def _names(answer: GitResult) -> list[str]:
    return [name for name in answer.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1] if name]


def _git_text(repository: Repository, text: str, *, complete: bool = True) -> GitText:
    return GitText(text=text, folder=repository.top, form="file", complete=complete)
