"""The arguments of a call as its tool sees them: checked, and paths in canonical spelling."""

from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Protocol

from pydantic import JsonValue, ValidationError

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.pipeline.registry import Entry
from mcp_toolserver.policy.rules import Subject
from mcp_toolserver.text.argument_cleanup import lenient, placeholders, refusal
from mcp_toolserver.tool_spec import Args, Pathful

Paths = str | tuple[str, ...] | Pathful
"""The value of an argument that is marked as a path: one, several, or a text that names some."""


class PathCanonicalizer(Protocol):
    """Where paths lead."""

    def canonical(self, path: str) -> CanonicalPath:
        """Raises: ToolError: not inside a root, or not a path."""
        ...

    def spellings(self, path: CanonicalPath) -> Subject:
        """Every way a rule may name the path."""
        ...


def checked(entry: Entry, arguments: Mapping[str, JsonValue]) -> Args:
    """The arguments as its model has them; paths are still spelt as they were sent.

    Raises:
        InvalidInput: names each argument that is wrong and says how.
    """
    if why := refusal(dict(arguments)):
        raise InvalidInput(f"The arguments of {entry.spec.name} hold {why}. Send plain JSON values.")
    return _checked(entry, lenient(arguments, entry.spec.schema))


def names_paths(entry: Entry) -> bool:
    """Whether `respelt` looks at the file system."""
    return bool(entry.spec.path_fields or entry.spec.pathful_fields)


def respelt(entry: Entry, args: Args, canonicalizer: PathCanonicalizer) -> Args:
    """The arguments as the tool sees them: paths in canonical spelling. Blocks while the paths are followed.

    Raises:
        ToolError: a path leaves the roots, or cannot be used.
    """
    names = (*entry.spec.path_fields, *entry.spec.pathful_fields)
    canonical = {name: _canonical(getattr(args, name), canonicalizer) for name in names}
    return args.model_copy(update=canonical) if canonical else args


def _checked(entry: Entry, sent: Mapping[str, JsonValue]) -> Args:
    """The arguments by the tool's model. A 0 or "" that cannot be meant counts as not sent: one that its own
    argument refuses, or without which the arguments fit together.
    """
    model = entry.spec.args
    try:
        return model.model_validate(sent)
    except ValidationError as error:
        empty = placeholders(sent, entry.spec.schema)
        refused = empty & {detail["loc"][0] for detail in error.errors(include_input=False) if detail["loc"]}
        for unsent in (refused, empty):
            with suppress(ValidationError):
                return model.model_validate({name: sent[name] for name in sent if name not in unsent})
        raise InvalidInput(_explained(entry, error)) from None


def _canonical(value: Paths, canonicalizer: PathCanonicalizer) -> Paths:
    match value:
        case str():
            return canonicalizer.canonical(value)
        case tuple():
            return tuple(map(canonicalizer.canonical, value))
        case _:
            return value.respelt(canonicalizer.canonical)


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
            lines.append(f"- {where}: unknown argument; {_accepted(entry.spec.schema, detail['loc'])}")
        else:
            lines.append(f"- {where}: {detail['msg'].removeprefix('Value error, ')}")
    return "\n".join(lines)


def _accepted(schema: Mapping[str, JsonValue], place: tuple[int | str, ...]) -> str:
    """What is accepted at `place`, where an unknown argument was sent, and the name nearest to it."""
    level: JsonValue = dict(schema)
    for part in place[:-1]:
        properties = level.get("properties") if isinstance(level, dict) else None
        if isinstance(part, int):
            level = level.get("items") if isinstance(level, dict) else None
        else:
            level = properties.get(part) if isinstance(properties, dict) else None
    names = level.get("properties") if isinstance(level, dict) else None
    if not isinstance(names, dict):
        return "leave it out"
    near = get_close_matches(str(place[-1]), names, n=1)
    taken = f"{place[0]} takes" if len(place) > 1 else "it takes"
    return f"did you mean {near[0]}? {taken} {', '.join(names)}" if near else f"{taken} {', '.join(names)}"


def subjects_of(entry: Entry, args: Args, canonicalizer: PathCanonicalizer) -> tuple[Subject, ...]:
    """What the call touches, each in all its spellings."""
    given = (getattr(args, name) for name in (*entry.spec.path_fields, *entry.spec.pathful_fields))
    paths = {path: CanonicalPath(path) for value in given for path in _paths(value)}
    return tuple(
        canonicalizer.spellings(paths[subject]) if subject in paths else (subject,)
        for subject in entry.spec.subjects(args)
    )
