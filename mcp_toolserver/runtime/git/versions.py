"""Reads files as git would check them out, without the filters of the configuration.

Line ends, encodings and `$Id$` are converted by git itself. A file whose attributes name a configured filter,
such as one of Git LFS, is refused: without the filter its content would be wrong.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import InvalidInput, NotFound, Unavailable
from mcp_toolserver.runtime.files.path_resolver import showable
from mcp_toolserver.runtime.git.hardening import parse_config
from mcp_toolserver.runtime.git.repository import MAX_PATHS, Repository
from mcp_toolserver.text.git.names import peeled, plain

FILE, EXECUTABLE, LINK, SUBMODULE = "100644", "100755", "120000", "160000"
"""Modes of tree entries."""

MAX_CONTENTS = 64 << 20
"""Bytes of all files that one call reads from a repository."""

MAX_FILES = 1_000
"""Files in one folder that one call reads."""

MAX_CONVERTED = 200
"""Files with converted content that one call reads; git is started for each of them."""

_CONVERSIONS = ("crlf", "eol", "ident", "working-tree-encoding")
_NO_CONVERSION = frozenset({"unspecified", "unset", "lf"})
_CONVERTING_SETTINGS = frozenset(
    {("core.eol", "crlf"), *(("core.autocrlf", value) for value in ("true", "yes", "on", "1", ""))}
)
_FILTERING = frozenset({"clean", "smudge", "process"})


@dataclass(frozen=True, kw_only=True)
class TreeEntry:
    path: str
    """Relative to the work tree."""
    mode: str
    id: str

    @property
    def is_file(self) -> bool:
        return self.mode in (FILE, EXECUTABLE)


def peeled_commit(revision: str) -> str:
    """Return `revision` so that git takes it for one commit.

    Raises:
        InvalidInput: it names something else.
    """
    if ".." in revision:
        raise InvalidInput(f"'{revision}' is a range. Name one commit.")
    return peeled(revision)


async def file_entries(repository: Repository, path: CanonicalPath, revision: str) -> list[TreeEntry]:
    """Return the entries of a file, or of those in a folder that no rule hides, in a commit, or in the index
    if `revision` is empty.

    Raises:
        InvalidInput: one is no regular file there, or it lies in another repository.
        NotFound: it is not there.
    """
    how = "Name files of one repository at a time."
    name = repository.name_of(path, how)
    if revision:
        answer = await repository.ask("ls-tree", "-r", "-z", revisions=[revision], paths=[name])
    else:
        answer = await repository.ask("ls-files", "--stage", "-z", paths=[name])
    await repository.check(answer, [revision] if revision else [])
    place = plain(revision) if revision else "the index"
    if not answer.stdout:
        raise NotFound(
            f"'{path}' is not in {place}. git_log with this path lists the commits that changed it."
        )
    lines = answer.fields
    if len(lines) > MAX_FILES:
        raise InvalidInput(f"'{path}' has {len(lines)} files in {place}, more than {MAX_FILES}. Name a part.")
    found: list[TreeEntry] = []
    for line in lines:
        head, _, inner = line.partition("\t")
        # `ls-tree` prints mode, kind and id, `ls-files` mode, id and stage.
        mode, *words = head.split(" ")
        entry = TreeEntry(path=inner, mode=mode, id=words[1] if revision else words[0])
        if repository.is_hidden(inner):
            continue
        here = repository.access.workspace.canonical(repository.workspace_path(inner))
        is_file = entry.is_file and (revision or words[1] == "0") and ".git" not in inner.lower().split("/")
        if not is_file or repository.name_of(here, how) != inner:
            raise InvalidInput(
                f"{repository.named([inner])} is no regular file in {place}: it is or lies behind a link, is "
                "a submodule or has conflicts. Name the files without it."
            )
        found.append(entry)
    return found


async def contents(repository: Repository, entries: Sequence[TreeEntry]) -> Mapping[str, bytes]:
    """Return the contents of files, by path. Raises: InvalidInput: one is stored through a filter."""
    attributes = await _attributes(repository, [entry.path for entry in entries])
    await refuse_filtered(repository, attributes)
    converts_all = any(
        (name, value.lower()) in _CONVERTING_SETTINGS
        for name, value in parse_config(repository.location.config)
    )
    converted = [entry for entry in entries if converts_all or _is_converted(attributes.get(entry.path, {}))]
    if len(converted) > MAX_CONVERTED:
        raise InvalidInput(
            f"{len(converted)} of these files have converted line ends or encodings; at most {MAX_CONVERTED} "
            "can be read in one call. Name fewer files, or ask the user to run git."
        )
    whole = {entry.path: await _converted(repository, entry) for entry in converted}
    return {**whole, **await _batch(repository, [entry for entry in entries if entry.path not in whole])}


async def refuse_filtered(repository: Repository, attributes: Mapping[str, Mapping[str, str]]) -> None:
    """Raises: InvalidInput: a configured filter applies to one of the files."""
    if filtered := filtered_paths(repository, attributes):
        raise InvalidInput(
            f"{repository.named(filtered, 5)}: stored through a filter (see .gitattributes; Git LFS is one). "
            "Filters are programs, which the git tools do not run. Leave these files out, or ask the user to "
            "do this with git."
        )


def filtered_paths(repository: Repository, attributes: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the files that a configured filter applies to."""
    drivers = {
        name.removeprefix("filter.").rpartition(".")[0]
        for name, value in parse_config(repository.location.config)
        if name.startswith("filter.") and name.rpartition(".")[2] in _FILTERING and value
    }
    return [path for path, values in attributes.items() if values.get("filter") in drivers]


async def filters(repository: Repository, paths: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    """Return the attributes of `paths` if any filter is configured; they need not be looked at otherwise."""
    if not any(name.startswith("filter.") for name, _ in parse_config(repository.location.config)):
        return {}
    return await _attributes(repository, paths)


def _is_converted(attributes: Mapping[str, str]) -> bool:
    return any(attributes.get(name, "unspecified") not in _NO_CONVERSION for name in _CONVERSIONS)


async def _attributes(repository: Repository, paths: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for some in in_parts(paths):
        answer = await repository.ask("check-attr", "-z", "filter", *_CONVERSIONS, paths=some)
        if answer.status != 0 or answer.truncated:
            raise await repository.failure(answer)
        fields = iter(answer.fields)
        for path, name, value in zip(fields, fields, fields, strict=False):
            found.setdefault(path, {})[name] = value
    return found


def in_parts(paths: Sequence[str]) -> Iterable[Sequence[str]]:
    """Split paths so that each part fits into an argument list."""
    part: list[str] = []
    for path in paths:
        part.append(path)
        if sum(map(len, part)) > MAX_PATHS:
            yield part
            part = []
    if part:
        yield part


async def _converted(repository: Repository, entry: TreeEntry) -> bytes:
    answer = await repository.ask("cat-file", "--filters", f"--path={entry.path}", revisions=[entry.id])
    await repository.check(answer)
    if answer.truncated:
        raise _too_large()
    return answer.stdout


async def _batch(repository: Repository, entries: Sequence[TreeEntry]) -> Mapping[str, bytes]:
    if not entries:
        return {}
    ids = "".join(f"{entry.id}\n" for entry in entries)
    answer = await repository.ask("cat-file", "--batch", stdin=ids.encode(), limit=MAX_CONTENTS)
    if answer.truncated:
        raise _too_large()
    found: dict[str, bytes] = {}
    rest = memoryview(answer.stdout)
    for entry in entries:
        head, _, _ = bytes(rest[:256]).partition(b"\n")
        words = head.split(b" ")
        if answer.status != 0 or len(words) != 3 or words[1] != b"blob":
            raise Unavailable(
                f"The content of '{showable(repository.workspace_path(entry.path))}' is missing in the "
                "repository. Ask the user to check it with git fsck."
            )
        start, size = len(head) + 1, int(words[2])
        found[entry.path] = bytes(rest[start : start + size])
        rest = rest[start + size + 1 :]
    return found


def _too_large() -> InvalidInput:
    return InvalidInput(
        f"The files are too large: at most {MAX_CONTENTS >> 20} MiB can be read in one call. Name fewer "
        "files, or ask the user to run git."
    )
