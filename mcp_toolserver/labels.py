"""What is known of a tool without importing it.

A client waits while a server starts, and importing every tool took a sixth of that. `tools/labels.json` holds
what a start needs to know of each; `pytest --update` makes it from the tools. A tool is imported when it is
first called; one that is not what its label says is not run.
"""

import importlib
import json
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mcp_toolserver import tools
from mcp_toolserver.capabilities.prices import Capability, Permission
from mcp_toolserver.errors import RegistrationError
from mcp_toolserver.spec import Forward, Kind, PathMark, PathsMark, Profile, ToolSpec, UrlMark
from mcp_toolserver.text.schema import Schema, plain_schema

FILE = "labels.json"


@dataclass(frozen=True, kw_only=True)
class Label:
    """What clients are told of a tool, and what is decided about it before it runs. See `ToolSpec`."""

    name: str
    description: str
    permission: Permission
    needs: frozenset[Capability]
    kind: Kind
    destructive: bool
    idempotent: bool
    profile: Profile
    aliases: tuple[str, ...]
    """Every name that it lists as an alias, its own among them if it does."""
    forwards: bool
    """A call of it is a call of another tool."""
    schema: Schema
    """The JSON Schema of the arguments."""
    output_schema: Schema | None
    """The JSON Schema of the structured result, for record-like tools."""
    argument_names: Mapping[str, str]
    """Attribute of the model → name on the wire."""
    path_fields: tuple[str, ...]
    """The arguments that are paths."""
    pathful_fields: tuple[str, ...]
    """The arguments that name paths somewhere inside."""
    url_fields: tuple[str, ...]
    """The arguments that are addresses of the web."""

    @classmethod
    def of(cls, spec: ToolSpec, schema: Schema | None = None) -> "Label":
        """The label of a tool, with another `schema` than that of its model where one is given."""
        fields = spec.args.model_fields
        return cls(
            name=spec.name,
            description=spec.description,
            permission=spec.permission,
            needs=spec.needs,
            kind=spec.kind,
            destructive=spec.destructive,
            idempotent=spec.idempotent,
            profile=spec.profile,
            aliases=tuple(alias.name for alias in spec.aliases),
            forwards=isinstance(spec.run, Forward),
            schema=plain_schema(spec.args) if schema is None else schema,
            output_schema=plain_schema(spec.output) if spec.output else None,
            argument_names={name: info.alias or name for name, info in fields.items()},
            path_fields=_marked(spec, PathMark),
            pathful_fields=_marked(spec, PathsMark),
            url_fields=_marked(spec, UrlMark),
        )


def _marked(spec: ToolSpec, mark: type[PathMark | PathsMark | UrlMark]) -> tuple[str, ...]:
    fields = spec.args.model_fields
    return tuple(name for name, info in fields.items() if any(isinstance(m, mark) for m in info.metadata))


@dataclass(frozen=True, kw_only=True)
class Shelved:
    """One of the server's own tools, before it is imported."""

    label: Label
    module: str

    @property
    def toolset(self) -> str:
        """The folder that it lies in."""
        return self.module.split(".")[2]

    def taken(self) -> ToolSpec:
        """The tool.

        Raises:
            RegistrationError: it is not what its label says; `pytest --update` makes labels anew.
        """
        spec = importlib.import_module(self.module).TOOL
        if Label.of(spec, self.label.schema) != self.label:
            raise RegistrationError(f"{self.module} is not what {FILE} says: run pytest --update")
        return spec


def module_names() -> Iterator[str]:
    """Every module beneath `tools/<toolset>/`."""
    for info in pkgutil.walk_packages(tools.__path__, f"{tools.__name__}."):
        if not info.ispkg:
            yield info.name


def written(shelved: Iterable[Shelved]) -> str:
    """The content of `labels.json`."""
    records = [{"module": one.module, **_plain(one.label)} for one in shelved]
    return json.dumps(records, ensure_ascii=False, indent=1) + "\n"


def _plain(label: Label) -> dict[str, Any]:
    return {
        **vars(label),
        "permission": label.permission.name,
        "needs": sorted(need.value for need in label.needs),
        "profile": label.profile.name,
    }


def shelf() -> tuple[Shelved, ...]:
    """Every tool of the server's own, by name, as `labels.json` has it."""
    content = pkgutil.get_data(tools.__name__, FILE) or b"[]"
    return tuple(Shelved(module=record.pop("module"), label=_label(record)) for record in json.loads(content))


def _label(record: Mapping[str, Any]) -> Label:
    fields = dict(record)
    fields["permission"] = Permission[record["permission"]]
    fields["needs"] = frozenset(map(Capability, record["needs"]))
    fields["profile"] = Profile[record["profile"]]
    fields.update((name, tuple(record[name])) for name in _TUPLES)
    return Label(**fields)


_TUPLES = ("aliases", "path_fields", "pathful_fields", "url_fields")
