"""Plans the changes to the files of a client; nothing is written here."""

from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from mcp_toolserver.commands.setup.clients import OURS, Client, Confine, Entry, Scope, is_ours
from mcp_toolserver.commands.setup.files import ConfigFile, read
from mcp_toolserver.commands.setup.places import Places
from mcp_toolserver.errors import SettingsError


@dataclass(kw_only=True)
class Plan:
    """The changes for one client in one scope."""

    client: Client
    scope: Scope
    places: Places
    files: dict[Path, ConfigFile] = field(default_factory=dict[Path, ConfigFile])

    @property
    def servers(self) -> ConfigFile:
        """The file with the client's servers."""
        return self._file(self.places.file(self.client, self.scope))

    def entry(self, name: str) -> JsonValue:
        """The entry of a server, None if there is none."""
        return self.servers.at((*self.client.path, name))

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
        """Remove the server."""
        path = (*self.client.path, name)
        if self._own_entry(name) is not None:
            self.servers.put(path, None)
        self.servers.prune(path)

    def confine(self) -> None:
        """Turn the client's own tools off."""
        for one in self.client.confine:
            file, items, value = self._of(one), _items(one.value), one.value
            if items is not None:
                there = file.at(one.path)
                there = [] if there is None else there
                if not isinstance(there, list):
                    place = ".".join(one.path)
                    raise SettingsError(f"{file.path}: {place} is not a list; nothing was changed")
                value = [*there, *(item for item in items if item not in there)]
            file.put(one.path, value)

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
            file, items = self._of(one), _items(one.value)
            there, own = file.at(one.path), file.backup().at(one.path)
            if items is not None and isinstance(there, list):
                kept = _items(own) or ()
                file.put(one.path, [item for item in there if item not in items or item in kept])
            elif there == one.value:
                file.put(one.path, own)
            file.prune(one.path)

    def _confining(self) -> list[Confine]:
        return [one for one in self.client.confine if self.scope == "user" or one.project is not None]

    def _of(self, one: Confine) -> ConfigFile:
        if self.scope == "project" and one.project is None:
            raise SettingsError(
                f"{self.client.title} has no setting per project that turns its tools off; use --scope user, "
                "or leave --confine out"
            )
        return self._file(self.places.file(self.client, self.scope, one.user, one.project))

    def _file(self, path: Path) -> ConfigFile:
        if path not in self.files:
            self.files[path] = read(path, within=self.places.project if self.scope == "project" else None)
        return self.files[path]


def _items(value: JsonValue) -> list[str] | None:
    """The items of a list of texts, None for another value. Only files in JSON have such lists."""
    texts = [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
    return texts if texts == value else None
