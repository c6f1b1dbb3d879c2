"""Plans changes to the configuration files of a client, and replaces them: atomically, with a backup, or not
at all."""

import os
import stat
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from mcp_toolserver.commands.setup import toml, yaml
from mcp_toolserver.commands.setup.clients import OURS, Client, Entry, Scope, is_ours
from mcp_toolserver.commands.setup.places import Places
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.text import jsonc

NOT_CONFIRMED = 1
"""Exit status when nothing was written because nobody confirmed it, or the server does not start."""

MAX_BYTES = 16 * 2**20
BACKUP = ".before-mcp-toolserver"
"""The ending of a backup: the file as it was before setup first changed it."""

_BOM = "\ufeff"
_EDITORS = {".toml": toml, ".yaml": yaml}
"""By the ending of a file, what parses and edits it; `jsonc` does the others."""


@dataclass(kw_only=True)
class ConfigFile:
    """A configuration file, as it was read and as it is to be; a `SettingsError` says where it is not in its
    format."""

    path: Path
    """Where it is: the target, if the client's path is a link."""
    link: Path | None
    """The client's path, if that is a link."""
    ending: str
    """That of the client's path, which names the format."""
    content: bytes | None = None
    """None: there is no such file yet."""
    status: os.stat_result | None = None
    text: str = field(init=False)
    """As it is to be, without a byte order mark, lines ending with "\\n"; empty where there is no file."""
    text_before: str = field(init=False)
    is_first: bool = True
    """Whether setup has not changed the file before, so that it becomes the backup."""

    def __post_init__(self) -> None:
        content = self.content or b""
        # A text with both endings of lines stays as it is.
        self._line_end = "\r\n" if content.count(b"\n") == content.count(b"\r\n") > 0 else "\n"
        self._mark = _BOM if content.decode().startswith(_BOM) else ""
        self.text_before = content.decode().removeprefix(_BOM).replace(self._line_end, "\n")
        self.text = self.text_before

    @property
    def new_content(self) -> bytes:
        """The text with the byte order mark and the line endings of the file."""
        return (self._mark + self.text.replace("\n", self._line_end)).encode()

    @property
    def backup_path(self) -> Path:
        return self.path.with_name(self.path.name + BACKUP)

    @property
    def is_hollow(self) -> bool:
        """Whether nothing but empty objects and lists is left: setup created the file."""
        return not {"#", "/"} & set(self.text) and _is_hollow(self.at(()))

    def put(self, path: Sequence[str], value: JsonValue) -> None:
        with self._editor() as editor:
            self.text = editor.put(self.text, path, value)

    def at(self, path: Sequence[str]) -> JsonValue:
        """The value at `path`; None if there is none."""
        with self._editor() as editor:
            content: JsonValue = editor.parse(self.text)
        for key in path:
            content = content.get(key) if isinstance(content, dict) else None
        return content

    def prune(self, path: Sequence[str]) -> None:
        """Remove objects and lists on the way to `path` that are empty and that the backup does not have."""
        backup = self.backup()
        if backup.content is None:
            return
        for place in (path[:end] for end in range(len(path), 0, -1)):
            if self.at(place) in ({}, []) and backup.at(place) is None:
                self.put(place, None)

    @contextmanager
    def _editor(self):
        try:
            yield _EDITORS.get(self.ending, jsonc)
        except jsonc.Broken as error:
            raise SettingsError(f"{self.path}, {error}; nothing was changed") from None

    def backup(self) -> "ConfigFile":
        """The file as it was before setup first changed it; it may be missing."""
        return read(self.backup_path, ending=self.ending)

    def check_writable(self) -> None:
        """Raises: SettingsError: `write` may not replace the file: it is read-only, or another user's."""
        if self.status is None:
            return
        if not self.status.st_mode & stat.S_IWUSR or not os.access(self.path, os.W_OK):
            raise SettingsError(f"{self.path} is read-only; nothing was changed")
        if os.geteuid() not in (0, self.status.st_uid):
            raise SettingsError(f"{self.path} belongs to another user; nothing was changed")

    def write(self, *, backed_up: bool) -> None:
        """Replace the file, with the same mode and owner; if `backed_up`, keep it as the backup, unless
        there is one.

        Raises:
            SettingsError: the file changed since it was read, or cannot be written.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if backed_up and self.content is not None and not os.path.lexists(self.backup_path):
                self._replace(self.backup_path, self.content)
            self._replace(self.path, self.new_content)
            descriptor = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise SettingsError(f"cannot write {self.path}: {error.strerror}; nothing was changed") from None

    def _replace(self, target: Path, content: bytes) -> None:
        """Write `target`, next to this file, with its mode and owner, if this file is as it was read."""
        with replaced(target, content, self.status):
            if read(self.path).content != self.content:
                raise SettingsError(
                    f"{self.path} was changed by another program meanwhile; nothing was changed. Close the "
                    "client and run setup again"
                )


@contextmanager
def replaced(path: Path, content: bytes, status: os.stat_result | None) -> Generator[None]:
    """Write a temporary file next to `path` with the mode and owner in `status`; it takes the place of `path`
    after the body of the `with` statement, unless that raises."""
    descriptor, name = tempfile.mkstemp(prefix=".mcp-toolserver-", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
            opened.flush()
            if status is not None:
                owner, made = (status.st_uid, status.st_gid), os.fstat(descriptor)
                # Drives of Windows refuse a change of the owner.
                if owner != (made.st_uid, made.st_gid):
                    os.fchown(descriptor, *owner)
                os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
            os.fsync(descriptor)
        yield
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read(path: Path, *, within: Path | None = None, ending: str | None = None) -> ConfigFile:
    """Read a file that may be missing; `ending` names its format, and None is that of `path`.

    Raises:
        SettingsError: it is not a regular file, too large, not UTF-8 or not readable, or leads
            out of `within`.
    """
    real = Path(os.path.realpath(path))
    if within is not None and not real.is_relative_to(os.path.realpath(within)):
        raise SettingsError(f"{path} leads to {real}, outside {within}; nothing was changed")
    content = status = None
    try:
        status = real.stat()
        if not stat.S_ISREG(status.st_mode):
            raise SettingsError(f"{real} is not a regular file; nothing was changed")
        if status.st_size > MAX_BYTES:
            raise SettingsError(f"{real} is larger than {MAX_BYTES} bytes; nothing was changed")
        content = real.read_bytes()
        content.decode()
    except FileNotFoundError:
        status = None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise SettingsError(f"{real}, line {line}: the text is not UTF-8; nothing was changed") from None
    except OSError as error:
        raise SettingsError(f"cannot read {real}: {error.strerror}; nothing was changed") from None
    link = None if real == path else path
    return ConfigFile(path=real, link=link, ending=ending or path.suffix, content=content, status=status)


def remove(path: Path) -> None:
    """Remove a file that setup created. Raises: SettingsError: it cannot be removed."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise SettingsError(f"cannot remove {path}: {error.strerror}") from None


def _is_hollow(value: JsonValue) -> bool:
    if isinstance(value, dict):
        return all(_is_hollow(one) for one in value.values())
    return value == []


def is_interactive() -> bool:
    """Whether the user sees questions and can answer them."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def is_confirmed(*, yes: bool) -> bool:
    """Whether the user agrees to what was shown, with `yes` in advance."""
    if yes or (is_interactive() and input("Write this? [y/N] ").strip().lower() in ("y", "yes")):
        return True
    print("Nothing was written. Without a terminal, confirm with --yes.", file=sys.stderr)
    return False


def remove_backup(file: ConfigFile) -> None:
    """Remove the backup of a file that equals it, or a file without one that setup created and emptied."""
    backup = file.backup()
    if backup.content == file.new_content:
        remove(file.backup_path)
        print(f"Removed the backup {file.backup_path}, which had the same content.")
    elif backup.content is None and file.content is not None and file.is_hollow:
        remove(file.path)
        print(f"Removed {file.path}, which had no content left.")


# --- the plan -------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Plan:
    """The changes for one client in one scope."""

    client: Client
    scope: Scope
    places: Places
    files: dict[Path, ConfigFile] = field(default_factory=dict[Path, ConfigFile])

    @property
    def servers(self) -> ConfigFile:
        return self._file(self.places.file(self.client, self.scope))

    def entry(self, name: str) -> JsonValue:
        """The entry of a server, None if there is none."""
        return self.servers.at((*self.client.path, name))

    def entries(self) -> dict[str, Entry]:
        """The entries of all servers, by name."""
        found = self.servers.at(self.client.path)
        every = found if isinstance(found, dict) else {}
        return {name: entry for name, entry in every.items() if isinstance(entry, dict)}

    def _own_entry(self, name: str) -> Entry | None:
        """Raises: SettingsError: another server has this name."""
        found = self.entry(name)
        if found is not None and not (isinstance(found, dict) and is_ours(found)):
            raise SettingsError(
                f"{self.servers.path} has another server with the name {name}; choose one with --name"
            )
        return found

    def add(self, name: str, entry: Entry) -> None:
        """Add or change the server; keys that the user added to its entry stay."""
        found, path = self._own_entry(name), (*self.client.path, name)
        if found is None:
            self.servers.put(path, entry)
            return
        self.servers.is_first = False
        for key in sorted(found.keys() & OURS - entry.keys()):
            self.servers.put((*path, key), None)
        for key, value in entry.items():
            if key in OURS or key not in found:
                self.servers.put((*path, key), value)

    def remove(self, name: str) -> None:
        path = (*self.client.path, name)
        if self._own_entry(name) is not None:
            self.servers.put(path, None)
        self.servers.prune(path)

    def confine(self) -> None:
        """Turn the client's own tools off."""
        if self.scope == "project" and self.client.confine_project is None:
            raise SettingsError(
                f"{self.client.title} has no setting per project that turns its tools off; use --scope user, "
                "or leave --confine out"
            )
        for file, path, value in self._confining():
            if (items := _items(value)) is not None:
                there = [] if (found := file.at(path)) is None else found
                if not isinstance(there, list):
                    raise SettingsError(f"{file.path}: {'.'.join(path)} is not a list; nothing was changed")
                value = [*there, *(item for item in items if item not in there)]
            file.put(path, value)

    def written(self) -> list[bool]:
        """Of each value and item that `confine` writes in this scope, whether it is there."""
        found: list[bool] = []
        for file, path, value in self._confining():
            there, items = file.at(path), _items(value)
            own = _items(there) or ()
            found += [there == value] if items is None else [item in own for item in items]
        return found

    def lift(self) -> None:
        """Undo `confine`; a value that is not the one that it writes stays, and what the backup has."""
        for file, path, value in self._confining():
            items, there, own = _items(value), file.at(path), file.backup().at(path)
            if items is not None and isinstance(there, list):
                kept = _items(own) or ()
                file.put(path, [item for item in there if item not in items or item in kept])
            elif there == value:
                file.put(path, own)
            file.prune(path)

    def _confining(self) -> Iterator[tuple[ConfigFile, tuple[str, ...], JsonValue]]:
        """The values that confine the client in this scope, with their places."""
        of = self.client
        if self.scope == "user" or of.confine_project is not None:
            file = self._file(self.places.file(of, self.scope, of.confine_user, of.confine_project))
            yield from ((file, path, value) for path, value in of.confine)

    def _file(self, path: Path) -> ConfigFile:
        if path not in self.files:
            self.files[path] = read(path, within=self.places.project if self.scope == "project" else None)
        return self.files[path]


def _items(value: JsonValue) -> list[str] | None:
    """The items of a list of texts, None for another value. Only files in JSON have such lists."""
    texts = [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
    return texts if texts == value else None
