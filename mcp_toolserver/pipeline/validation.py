"""The arguments of a call as its tool sees them: checked, and paths in canonical spelling."""

from collections.abc import Mapping
from typing import Protocol

from pydantic import JsonValue, ValidationError

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.policy.rules import Subject
from mcp_toolserver.registry import Entry
from mcp_toolserver.spec import Args, Pathful
from mcp_toolserver.text.arguments import lenient, refusal

Paths = str | tuple[str, ...] | Pathful
"""The value of an argument that is marked as a path: one, several, or a text that names some."""


class Places(Protocol):
    """Where paths lead."""

    def canonical(self, path: str) -> CanonicalPath:
        """Raises: ToolError: not inside a root, or not a path."""
        ...

    def spellings(self, path: CanonicalPath) -> Subject:
        """Every way a rule may name the path."""
        ...


def validated(entry: Entry, arguments: Mapping[str, JsonValue], places: Places) -> Args:
    """The arguments as the tool sees them: checked, and paths in canonical spelling.

    Raises:
        InvalidInput: names each argument that is wrong and says how.
        Denied: a path leaves the roots.
    """
    if why := refusal(dict(arguments)):
        raise InvalidInput(f"The arguments of {entry.spec.name} hold {why}. Send plain JSON values.")
    try:
        args = entry.spec.args.model_validate(lenient(arguments, entry.label.schema))
    except ValidationError as error:
        raise InvalidInput(_explained(entry, error)) from None
    given = {name: getattr(args, name) for name in (*entry.label.path_fields, *entry.label.pathful_fields)}
    respelt = {name: there for name, value in given.items() if (there := _canonical(value, places)) != value}
    return args.model_copy(update=respelt) if respelt else args


def _canonical(value: Paths, places: Places) -> Paths:
    match value:
        case str():
            return places.canonical(value)
        case tuple():
            return tuple(map(places.canonical, value))
        case _:
            return value.respelt(places.canonical)


def _paths(value: Paths) -> tuple[str, ...]:
    match value:
        case str():
            return (value,)
        case tuple():
            return value
        case _:
            return value.paths


def _explained(entry: Entry, error: ValidationError) -> str:
    """One line per mistake, without the values that were sent."""
    lines = [f"{entry.spec.name} cannot use these arguments:"]
    for detail in error.errors(include_url=False, include_input=False, include_context=False):
        where = ".".join(str(part) for part in detail["loc"]) or "arguments"
        if detail["type"] == "extra_forbidden":
            accepted = ", ".join(entry.label.argument_names.values())
            lines.append(f"- {where}: unknown argument; it takes {accepted}")
        else:
            lines.append(f"- {where}: {detail['msg'].removeprefix('Value error, ')}")
    return "\n".join(lines)


def subjects_of(entry: Entry, args: Args, places: Places) -> tuple[Subject, ...]:
    """What the call touches, each in all its spellings."""
    given = (getattr(args, name) for name in (*entry.label.path_fields, *entry.label.pathful_fields))
    paths = {path for value in given for path in _paths(value)}
    return tuple(
        places.spellings(CanonicalPath(subject)) if subject in paths else (subject,)
        for subject in entry.spec.subjects(args)
    )
