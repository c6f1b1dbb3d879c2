"""The arguments of a call as its tool sees them: checked, and paths in canonical spelling."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue, ValidationError

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.pipeline.registry import Entry
from mcp_toolserver.policy.rules import Subject
from mcp_toolserver.text.argument_cleanup import lenient, own_name, placeholders, refusal, snake_case
from mcp_toolserver.text.file_names import path_spellings
from mcp_toolserver.text.shell.words import simple_parts
from mcp_toolserver.tool_spec import Args, Pathful, ToolSpec

if TYPE_CHECKING:
    from mcp_toolserver.runtime.host_services import HostServices

Paths = str | tuple[str, ...] | Pathful
"""The value of an argument that is marked as a path: one, several, or a text that names some."""


def checked(entry: Entry, arguments: Mapping[str, JsonValue]) -> Args:
    """The arguments as its model has them; paths are still spelt as they were sent.

    A 0 or "" that cannot be meant counts as not sent: one that its own argument refuses, or without which the
    arguments fit together.

    Raises:
        InvalidInput: names each argument that is wrong and says how.
    """
    if why := refusal(dict(arguments)):
        raise InvalidInput(f"The arguments of {entry.spec.name} hold {why}. Send plain JSON values.")
    if unused := entry.spec.ignored:
        arguments = {name: value for name, value in arguments.items() if snake_case(name) not in unused}
    sent, model = lenient(arguments, entry.spec.schema), entry.spec.args
    try:
        return model.model_validate(sent)
    except ValidationError as error:
        empty = placeholders(sent, entry.spec.schema)
        refused = empty & {detail["loc"][0] for detail in error.errors(include_input=False) if detail["loc"]}
        for unsent in (refused, empty):
            with suppress(ValidationError):
                return model.model_validate({name: sent[name] for name in sent if name not in unsent})
        raise InvalidInput(_explained(entry, error)) from None


def ignored(spec: ToolSpec, arguments: Mapping[str, JsonValue]) -> tuple[str, ...]:
    """What the answer says of arguments without effect."""
    if not spec.ignored:
        return ()
    return tuple(
        f"{name} was ignored: {spec.ignored[snake_case(name)]}"
        for name, value in arguments.items()
        if value and snake_case(name) in spec.ignored
    )


def respelt(spec: ToolSpec, args: Args, host: HostServices) -> Args:
    """The arguments as the tool sees them: paths in canonical spelling. Blocks while the paths are followed.

    Raises:
        ToolError: a path leaves the roots, or cannot be used.
    """
    if not spec.path_fields:
        return args
    canonical, spelt = host.workspace.canonical, dict[str, Paths]()
    for name in spec.path_fields:
        value: Paths = getattr(args, name)
        match value:
            case str():
                spelt[name] = canonical(value)
            case tuple():
                spelt[name] = tuple(map(canonical, value))
            case _:
                spelt[name] = value.respelt(canonical)
    return args.model_copy(update=spelt)


def as_sent(spec: ToolSpec, args: Args, sent: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The checked arguments as JSON that makes the same call; a text that names paths, such as a patch, stays
    as it was sent."""
    whole = {name for name in spec.path_fields if not isinstance(getattr(args, name), (str, tuple))}
    given = args.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude=whole)
    return {**given, **{name: sent[name] for name in whole & sent.keys()}}


def _explained(entry: Entry, error: ValidationError) -> str:
    """One line per mistake, without the values that were sent."""
    lines = [f"{entry.spec.name} cannot use these arguments:"]
    for detail in error.errors(include_url=False, include_input=False, include_context=False):
        where = ".".join(str(part) for part in detail["loc"]) or "arguments"
        if detail["type"] == "extra_forbidden":
            lines.append(f"- {where}: unknown argument; {_accepted(entry, detail['loc'])}")
        else:
            lines.append(f"- {where}: {detail['msg'].removeprefix('Value error, ')}")
    return "\n".join(lines)


def _accepted(entry: Entry, place: tuple[int | str, ...]) -> str:
    """What is accepted at `place`, where an unknown argument was sent, and the name nearest to it."""
    names = entry.spec.argument_names
    with suppress(KeyError, TypeError):
        names = tuple(_level(entry.spec.schema, place[:-1])["properties"])
    given = str(place[-1])
    if (own := own_name(given, names, {given: None})) != given:
        return f"it is another name of {own}; send one of them"
    near = "".join(f"did you mean {name}? " for name in get_close_matches(given, names, n=1))
    return f"{near}{place[0] if len(place) > 1 else 'it'} takes {', '.join(names)}"


def _level(schema: Any, place: tuple[int | str, ...]) -> Any:
    """The part of a JSON Schema for the value at `place`. Raises: KeyError, TypeError: there is none."""
    for part in place:
        schema = schema["items"] if isinstance(part, int) else schema["properties"][part]
    return schema


def about(spec: ToolSpec, args: Args) -> tuple[str, ...]:
    """The paths, commands or addresses that the call touches."""
    if spec.script and (script := spec.script(args)):
        return simple_parts(script)
    if spec.subjects is not None:
        return spec.subjects(args)
    return (*map(partial(getattr, args), spec.url_fields), *_paths(spec, args))


def argument_texts(args: Args, name: str) -> tuple[str, ...]:
    """The texts in an argument, as rules see them: one for each item, numbers and booleans as in JSON."""
    value: JsonValue = args.model_dump(mode="json", include={name}).get(name)
    items = value if isinstance(value, list) else [] if value is None else [value]
    return tuple(one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in items)


def _paths(spec: ToolSpec, args: Args) -> list[str]:
    found: list[str] = []
    for name in spec.path_fields:
        value: Paths = getattr(args, name)
        found += (value,) if isinstance(value, str) else value if isinstance(value, tuple) else value.paths
    return found


def subjects_of(spec: ToolSpec, args: Args, host: HostServices) -> tuple[Subject, ...]:
    """What the call touches, each in all its spellings."""
    if Capability.UPSTREAMS in spec.needs:
        roots = host.workspace.roots
        return tuple(path_spellings(one, next(iter(roots), "/"), roots) for one in about(spec, args))
    paths = _paths(spec, args)
    return tuple(
        [
            host.workspace.spellings(CanonicalPath(one)) if one in paths else (one,)
            for one in about(spec, args)
        ]
    )
