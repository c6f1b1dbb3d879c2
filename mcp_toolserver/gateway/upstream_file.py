"""The operator's file of other MCP servers, in the `mcpServers` format of MCP clients."""

import os
import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    model_validator,
)
from pydantic_core import from_json

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.runtime.sandbox.proxy.allowed_hosts import parse_allowed_host
from mcp_toolserver.settings import expand_home
from mcp_toolserver.stores.pins import NAME
from mcp_toolserver.text.json_values import is_list, with_texts

MOST_SERVERS = 32
_MOST_BYTES = 1 << 20
_LEVELS = {level.flag: level for level in Permission}
_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\}")


def _level(value: object) -> object:
    if isinstance(value, str) and value not in _LEVELS:
        raise ValueError(f"{value!r} is none of {', '.join(_LEVELS)}")
    return _LEVELS[value] if isinstance(value, str) else value


def _offered(value: object) -> object:
    """A list of globs as the mapping that it stands for."""
    return {str(glob): None for glob in value} if is_list(value) else value


Level = Annotated[Permission, BeforeValidator(_level)]


class OAuth(BaseModel):
    """A client that is registered at the authorization server."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    client_id: str = ""
    client_secret: str = Field(default="", repr=False)
    scope: str = ""
    callback_port: int = Field(default=0, ge=0, lt=65_536)
    """For the redirect to http://127.0.0.1:PORT/callback; 0 for any that is free."""


class Upstream(BaseModel):
    """An MCP server whose tools this server offers."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str
    kind: Literal["stdio", "http", "sse"] = Field(default="stdio", alias="type")
    disabled: bool = False

    command: str = ""
    args: tuple[str, ...] = Field(default=(), strict=False)
    env: dict[str, str] = Field(default_factory=dict[str, str], repr=False)
    cwd: str = ""
    """The absolute folder that it starts in; empty for the first of `roots`."""
    mode: Level = Permission.READ_ONLY
    """What its process may change."""
    roots: tuple[str, ...] = Field(default=(), strict=False)
    """The absolute folders that `mode` is about; empty for those of this server."""
    network: Literal["none", "commands"] | Annotated[tuple[str, ...], Field(strict=False)] = "none"
    """Nothing, everything, or the domains that it may reach."""

    url: str = ""
    headers: dict[str, str] = Field(default_factory=dict[str, str], repr=False)
    oauth: OAuth = OAuth()

    tools: Annotated[dict[str, Level | None], BeforeValidator(_offered)] = Field(
        default_factory=lambda: dict[str, Permission | None]({"*": None})
    )
    """Globs on the names of its tools that are offered → the level that a call needs; None for the default.
    The first that matches counts."""
    timeout: float = Field(default=60.0, gt=0, le=3_600, strict=False)
    """Seconds for an answer."""
    required: bool = False
    """Whether this server does not start without it."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if bool(self.command) == bool(self.url) or (self.kind == "stdio") != bool(self.command):
            raise ValueError("it needs a command, or a url with the type http or sse")
        local = {"args", "env", "cwd", "mode", "roots", "network"}
        if misplaced := sorted(self.model_fields_set & (local if self.url else {"headers", "oauth"})):
            raise ValueError(f"{misplaced[0]} does not go with a {'url' if self.url else 'command'}")
        if relative := [path for path in (*self.roots, self.cwd) if path and not os.path.isabs(path)]:
            raise ValueError(f"{relative[0]!r} is not an absolute path")
        for domain in self.domains:
            parse_allowed_host(domain)
        return self

    @property
    def domains(self) -> tuple[str, ...]:
        """Those that it may reach with `network`, where that names some."""
        return self.network if isinstance(self.network, tuple) else ()

    @property
    def is_networked(self) -> bool:
        """Whether it reaches beyond the files of this machine."""
        return bool(self.url) or self.network != "none" or self.mode is Permission.DANGER_FULL_ACCESS

    @property
    def default_level(self) -> Permission:
        """The level of tools that the operator gives none: what the sandbox permits. It says nothing of what
        a server changes elsewhere over a network."""
        return Permission.DANGER_FULL_ACCESS if self.is_networked else self.mode

    @property
    def highest_level(self) -> Permission:
        """The highest level of any of its tools."""
        return max((level or self.default_level for level in self.tools.values()), default=self.default_level)

    def level(self, tool: str) -> Permission | None:
        """The level that calls of `tool` need; None if it is not offered."""
        for glob, level in self.tools.items():
            if fnmatchcase(tool, glob):
                return self.default_level if level is None else level
        return None


def read_upstreams(path: str, environ: Mapping[str, str], home: str) -> tuple[Upstream, ...]:
    """Read the file, without the entries that are disabled. In texts `${NAME}` and `${NAME:-default}` stand
    for variables, and a `~` at the start for the `home` folder. What the file has besides `mcpServers` is
    for clients.

    Raises:
        SettingsError: it cannot be read, or an entry is wrong; the text names it.
    """
    place = f"--upstreams {path}"
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        found: JsonValue = from_json(content) if len(content) <= _MOST_BYTES else None
    except OSError as error:
        raise SettingsError(f"{place}: {error.strerror or error}") from None
    except ValueError as error:
        raise SettingsError(f"{place} is not JSON: {error}") from None
    entries = found.get("mcpServers") if isinstance(found, dict) else None
    if not isinstance(entries, dict) or len(entries) > MOST_SERVERS:
        limits = f"at most {MOST_SERVERS} entries, in at most {_MOST_BYTES:,} bytes"
        raise SettingsError(f"{place} needs an object `mcpServers` with {limits}")

    def expanded(text: str) -> str:
        return _VARIABLE.sub(lambda found: _value(found, environ), expand_home(text, home))

    every = (_read(f"{place}: {name}", name, fields, expanded) for name, fields in entries.items())
    return tuple(one for one in every if not one.disabled)


def _read(place: str, name: str, fields: JsonValue, expanded: Callable[[str], str]) -> Upstream:
    """Raises: SettingsError."""
    if not NAME.fullmatch(name):
        raise SettingsError(f"{place}: a name has 1 to 64 of A-Z a-z 0-9 _ . -, and no __")
    if not isinstance(fields, dict):
        raise SettingsError(f"{place}: it must be an object")
    if fields.get("disabled") is True:
        # Its variables need not exist.
        return Upstream(name=name, disabled=True, command="true")
    try:
        given = {key: with_texts(value, expanded) for key, value in fields.items()}
        remote: dict[str, JsonValue] = {"type": "http"} if "url" in given else {}
        return Upstream.model_validate({**remote, **given, "name": name})
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, wrong["loc"]))
        raise SettingsError(
            f"{place}: {f'{where}: ' if where else ''}{wrong['msg'].removeprefix('Value error, ')}"
        ) from None
    except LookupError as missing:
        raise SettingsError(f"{place}: the variable {missing.args[0]} is not set") from None


def _value(found: re.Match[str], environ: Mapping[str, str]) -> str:
    """Raises: LookupError: the variable is not set."""
    if found["name"] not in environ and found["default"] is None:
        raise LookupError(found["name"])
    return environ.get(found["name"]) or found["default"] or ""
