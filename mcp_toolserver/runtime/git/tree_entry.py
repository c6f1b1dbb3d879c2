"""What a path held in a commit: a file, a folder, a link or a submodule."""

from mcp_toolserver.capabilities.git import GitText
from mcp_toolserver.errors import NotFound
from mcp_toolserver.runtime.git import GitAnswer
from mcp_toolserver.runtime.git_repository import Repository
from mcp_toolserver.runtime.search_names import showable
from mcp_toolserver.text.git_revision import plain

_LINK = "120000"
_LOOKED_AT = 8_000
"""Bytes in which git, too, looks for what makes a file binary."""


async def content(repository: Repository, revision: str) -> GitText:
    """What lay at the path of `repository` in the commit `revision`.

    Raises:
        NotFound: nothing.
        InvalidInput: there is no such commit.
    """
    mode, kind, id_ = await _entry(repository, revision)
    if kind == "tree":
        return await _folder(repository, revision)
    if kind == "commit":
        return _text(repository, f"[a submodule, at its commit {id_}]")
    answer = await repository.ask("cat-file", "-p", revisions=[id_])
    if answer.status != 0:
        raise await repository.failed(answer, ())
    if b"\0" in answer.stdout[:_LOOKED_AT]:
        return _text(repository, "[a binary file]")
    text = answer.stdout.decode("utf-8", "replace")
    return _text(repository, f"[a link to {text}]" if mode == _LINK else text, complete=not answer.truncated)


async def _entry(repository: Repository, revision: str) -> tuple[str, str, str]:
    """Mode, kind and id of what lay there."""
    answer = await repository.ask("ls-tree", "-z", revisions=[revision], paths=[repository.inner])
    if answer.status != 0:
        raise await repository.failed(answer, [revision])
    head, _, _ = answer.stdout.partition(b"\t")
    match head.decode("ascii", "replace").split(" "):
        case [mode, kind, id_]:
            return mode, kind, id_
        case _:
            raise NotFound(
                f"'{repository.spelt(repository.inner)}' is not in {plain(revision)}. git_log with this path "
                "lists the commits that touch it."
            )


async def _folder(repository: Repository, revision: str) -> GitText:
    answer = await repository.ask(
        "ls-tree", "-z", "--name-only", revisions=[revision], paths=[f"{repository.inner}/"]
    )
    names = _names(answer)
    shown = repository.shown(names)
    text = "".join(f"{showable(repository.spelt(name))}\n" for name in shown)
    return GitText(
        text=text,
        folder=repository.top,
        form="folder",
        left_out=len(names) - len(shown),
        complete=not answer.truncated,
    )


def _names(answer: GitAnswer) -> list[str]:
    return [name for name in answer.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1] if name]


def _text(repository: Repository, text: str, *, complete: bool = True) -> GitText:
    return GitText(text=text, folder=repository.top, form="file", complete=complete)
