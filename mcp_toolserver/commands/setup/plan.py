"""Plans the changes to the files of a client; nothing is written here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from mcp_toolserver.commands.setup import files, jsonc
from mcp_toolserver.commands.setup.clients import OURS, Client, Confine, Entry, Format, Scope
from mcp_toolserver.commands.setup.document import Broken, Editor
from mcp_toolserver.commands.setup.files import ConfigFile
from mcp_toolserver.commands.setup.places import Places
from mcp_toolserver.commands.setup.server import is_ours
from mcp_toolserver.errors import SettingsError


def editor(form: Format) -> Editor:
    """The editor of a format; its library is imported here."""
    if form == "json":
        return jsonc
    if form == "toml":
        from mcp_toolserver.commands.setup import toml

        return toml
    from mcp_toolserver.commands.setup import yaml

    return yaml


@dataclass(kw_only=True)
class Change:
    """One file, as it was and as it is to be."""

    file: ConfigFile
    text: str
    form: Format
    is_first: bool = True
    """Whether setup has not changed the file before, so that it becomes the backup."""

    @property
    def is_hollow(self) -> bool:
        """Whether nothing but empty objects and lists is left: setup created the file."""
        return not {"#", "/"} & set(self.text) and _is_hollow(self.content())

    @property
    def is_empty(self) -> bool:
        """Whether the file stays as it is."""
        return self.text == self.file.text

    def edit(self, change: Callable[[Editor, str], str]) -> None:
        """Apply a change to the text.

        Raises:
            SettingsError: the file is not in its format; the text names the line.
        """
        try:
            self.text = change(editor(self.form), self.text)
        except Broken as error:
            raise SettingsError(f"{self.file.path}, {error}; nothing was changed") from None

    def content(self) -> JsonValue:
        """The parsed text; of an empty one, an empty object. Raises: SettingsError: as `edit`."""
        if not self.text.strip():
            return {}
        found: list[JsonValue] = []

        def parse(of: Editor, text: str) -> str:
            found.append(of.parse(text))
            return text

        self.edit(parse)
        return found[0]

    def original(self, path: Sequence[str]) -> JsonValue:
        """What the backup has at `path`."""
        backup = files.read(self.file.backup)
        return _at(Change(file=backup, text=backup.text, form=self.form).content(), path)

    def prune(self, path: Sequence[str]) -> None:
        """Remove objects and lists on the way to `path` that are empty and that the backup does not have."""
        if files.read(self.file.backup).content is None:
            return
        for end in range(len(path), 0, -1):
            place = path[:end]
            if _at(self.content(), place) in ({}, []) and self.original(place) is None:
                self.edit(lambda of, text, place=place: of.drop(text, place))


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
        return _at(self.servers.content(), (*self.client.path, name))

    def check_name(self, name: str) -> None:
        """Raises: SettingsError: another server has this name."""
        found = self.entry(name)
        if found is not None and not (isinstance(found, dict) and is_ours(found)):
            raise SettingsError(
                f"{self.servers.file.path} has another server with the name {name}; choose one with --name"
            )

    def add(self, name: str, entry: Entry) -> None:
        """Add or change the server; keys that the user added to its entry stay."""
        self.check_name(name)
        found, path = self.entry(name), (*self.client.path, name)
        if not isinstance(found, dict):
            self.servers.edit(lambda of, text: of.put(text, path, entry))
            return
        self.servers.is_first = False
        for key in sorted(found.keys() & OURS - entry.keys()):
            self.servers.edit(lambda of, text, key=key: of.drop(text, (*path, key)))
        for key, value in entry.items():
            if key in OURS or key not in found:
                self.servers.edit(lambda of, text, key=key, value=value: of.put(text, (*path, key), value))

    def remove(self, name: str) -> None:
        """Remove the server."""
        self.check_name(name)
        path = (*self.client.path, name)
        if self.entry(name) is not None:
            self.servers.edit(lambda of, text: of.drop(text, path))
        self.servers.prune(path)

    def confine(self) -> None:
        """Turn the client's own tools off."""
        for one in self.client.confine:
            change, items = self._of(one), _items(one.value)
            if items is None:
                change.edit(lambda of, text, one=one: of.put(text, one.path, one.value))
            else:
                change.edit(lambda _, text, one=one, items=items: jsonc.add_items(text, one.path, items))

    def written(self) -> list[bool]:
        """Of each value and item that `confine` writes in this scope, whether it is there."""
        found: list[bool] = []
        for one in self._confining():
            there, items = _at(self._of(one).content(), one.path), _items(one.value)
            own = _items(there) or ()
            found += [there == one.value] if items is None else [item in own for item in items]
        return found

    def lift(self) -> None:
        """Undo `confine`; a value that is not the one that it writes stays, and what the backup has."""
        for one in self._confining():
            change, items = self._of(one), _items(one.value)
            there, own = _at(change.content(), one.path), change.original(one.path)
            if items is not None and there is not None:
                items = [item for item in items if item not in (_items(own) or ())]
                change.edit(lambda _, text, one=one, items=items: jsonc.drop_items(text, one.path, items))
            elif there == one.value and own is not None:
                change.edit(lambda of, text, one=one, own=own: of.put(text, one.path, own))
            elif there == one.value:
                change.edit(lambda of, text, one=one: of.drop(text, one.path))
            change.prune(one.path)

    def _confining(self) -> list[Confine]:
        return [one for one in self.client.confine if self.scope == "user" or one.project is not None]

    def changed(self) -> list[Change]:
        """The files that change, each of which may be replaced.

        Raises:
            SettingsError: one of them may not.
        """
        found = [change for change in self.changes.values() if not change.is_empty]
        for change in found:
            files.check_writable(change.file)
        return found

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


def _at(content: JsonValue, path: Sequence[str]) -> JsonValue:
    for key in path:
        content = content.get(key) if isinstance(content, dict) else None
    return content


def _is_hollow(value: JsonValue) -> bool:
    """Whether it holds nothing but empty objects and lists."""
    if isinstance(value, dict):
        return all(_is_hollow(one) for one in value.values())
    return value == []
