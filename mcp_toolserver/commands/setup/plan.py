"""Plans the changes to the files of a client; nothing is written here."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from mcp_toolserver.commands.setup import files, jsonc
from mcp_toolserver.commands.setup.clients import OURS, Client, Confine, Entry, Format, Scope, is_ours
from mcp_toolserver.commands.setup.files import Broken, ConfigFile
from mcp_toolserver.commands.setup.places import Places
from mcp_toolserver.errors import SettingsError


@dataclass(kw_only=True)
class Change:
    """One file, as it was and as it is to be; a `SettingsError` says where it is not in its format."""

    file: ConfigFile
    text: str
    form: Format
    is_first: bool = True
    """Whether setup has not changed the file before, so that it becomes the backup."""

    @property
    def is_hollow(self) -> bool:
        """Whether nothing but empty objects and lists is left: setup created the file."""
        return not {"#", "/"} & set(self.text) and _is_hollow(self.at(()))

    def put(self, path: Sequence[str], value: JsonValue) -> None:
        """Set the value at `path`."""
        with self._named():
            self.text = self._editor().put(self.text, path, value)

    def drop(self, path: Sequence[str]) -> None:
        """Remove what is at `path`."""
        with self._named():
            self.text = self._editor().drop(self.text, path)

    def at(self, path: Sequence[str]) -> JsonValue:
        """The value at `path`; None if there is none."""
        with self._named():
            content: JsonValue = self._editor().parse(self.text) if self.text.strip() else {}
        for key in path:
            content = content.get(key) if isinstance(content, dict) else None
        return content

    def original(self, path: Sequence[str]) -> JsonValue:
        """What the backup has at `path`."""
        backup = files.read(self.file.backup)
        return Change(file=backup, text=backup.text, form=self.form).at(path)

    def prune(self, path: Sequence[str]) -> None:
        """Remove objects and lists on the way to `path` that are empty and that the backup does not have."""
        if files.read(self.file.backup).content is None:
            return
        for place in (path[:end] for end in range(len(path), 0, -1)):
            if self.at(place) in ({}, []) and self.original(place) is None:
                self.drop(place)

    def _editor(self):
        """The functions for the format; their library is imported here."""
        if self.form == "json":
            return jsonc
        if self.form == "toml":
            from mcp_toolserver.commands.setup import toml

            return toml
        from mcp_toolserver.commands.setup import yaml

        return yaml

    @contextmanager
    def _named(self) -> Generator[None]:
        try:
            yield
        except Broken as error:
            raise SettingsError(f"{self.file.path}, {error}; nothing was changed") from None


@dataclass(kw_only=True)
class Plan:
    """The changes for one client in one scope."""

    client: Client
    scope: Scope
    places: Places
    changes: dict[Path, Change] = field(default_factory=dict[Path, Change])

    @property
    def servers(self) -> Change:
        """The file with the client's servers."""
        return self._change(self.places.file(self.client, self.scope), self.client.format)

    def entry(self, name: str) -> JsonValue:
        """The entry of a server, None if there is none."""
        return self.servers.at((*self.client.path, name))

    def _own_entry(self, name: str) -> Entry | None:
        """Raises: SettingsError: another server has this name."""
        found = self.entry(name)
        if found is not None and not (isinstance(found, dict) and is_ours(found)):
            raise SettingsError(
                f"{self.servers.file.path} has another server with the name {name}; choose one with --name"
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
            self.servers.drop((*path, key))
        for key, value in entry.items():
            if key in OURS or key not in found:
                self.servers.put((*path, key), value)

    def remove(self, name: str) -> None:
        """Remove the server."""
        path = (*self.client.path, name)
        if self._own_entry(name) is not None:
            self.servers.drop(path)
        self.servers.prune(path)

    def confine(self) -> None:
        """Turn the client's own tools off."""
        for one in self.client.confine:
            change, items, value = self._of(one), _items(one.value), one.value
            if items is not None:
                there = change.at(one.path)
                there = [] if there is None else there
                if not isinstance(there, list):
                    place = ".".join(one.path)
                    raise SettingsError(f"{change.file.path}: {place} is not a list; nothing was changed")
                value = [*there, *(item for item in items if item not in there)]
            change.put(one.path, value)

    def written(self) -> list[bool]:
        """Of each value and item that `confine` writes in this scope, whether it is there."""
        found: list[bool] = []
        for one in self._confining():
            there, items = self._of(one).at(one.path), _items(one.value)
            own = _items(there) or ()
            found += [there == one.value] if items is None else [item in own for item in items]
        return found

    def lift(self) -> None:
        """Undo `confine`; a value that is not the one that it writes stays, and what the backup has."""
        for one in self._confining():
            change, items = self._of(one), _items(one.value)
            there, own = change.at(one.path), change.original(one.path)
            if items is not None and isinstance(there, list):
                kept = _items(own) or ()
                change.put(one.path, [item for item in there if item not in items or item in kept])
            elif there == one.value and own is not None:
                change.put(one.path, own)
            elif there == one.value:
                change.drop(one.path)
            change.prune(one.path)

    def _confining(self) -> list[Confine]:
        return [one for one in self.client.confine if self.scope == "user" or one.project is not None]

    def _of(self, one: Confine) -> Change:
        if self.scope == "project" and one.project is None:
            raise SettingsError(
                f"{self.client.title} has no setting per project that turns its tools off; use --scope user, "
                "or leave --confine out"
            )
        return self._change(self.places.file(self.client, self.scope, one.user, one.project), one.format)

    def _change(self, path: Path, form: Format) -> Change:
        if path not in self.changes:
            within = self.places.project if self.scope == "project" else None
            file = files.read(path, within=within)
            self.changes[path] = Change(file=file, text=file.text, form=form)
        return self.changes[path]


def _items(value: JsonValue) -> list[str] | None:
    """The items of a list of texts, None for another value. Only files in JSON have such lists."""
    texts = [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
    return texts if texts == value else None


def _is_hollow(value: JsonValue) -> bool:
    """Whether it holds nothing but empty objects and lists."""
    if isinstance(value, dict):
        return all(_is_hollow(one) for one in value.values())
    return value == []
