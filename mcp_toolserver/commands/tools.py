"""`tools`: lists the tools of this configuration, for people or in other programs' formats; `call`: runs one
through the dispatcher that clients use."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace

import anyio
from pydantic import JsonValue
from rich.console import Console
from rich.table import Table

import mcp_toolserver.protocol.translate as wire
from mcp_toolserver.app.compose import Application
from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.command_line import Invocation
from mcp_toolserver.custom_tools import registry
from mcp_toolserver.errors import UnknownTool
from mcp_toolserver.pipeline.approvals import ask_client
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.pipeline.nested_calls import ServerCaller
from mcp_toolserver.pipeline.registry import Entry
from mcp_toolserver.text.json_schema import Schema

REQUIRES = "mcp-toolserver/requires"


def tools(dispatcher: Dispatcher, form: str) -> int:
    anyio.run(dispatcher.registry.foreign.look)
    if form == "table":
        _table(dispatcher)
    else:
        print(json.dumps(_FORMS[form](dispatcher), ensure_ascii=False, indent=2))
    return 0


def _wire(dispatcher: Dispatcher) -> list[dict[str, JsonValue]]:
    return [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in wire.tools(dispatcher)]


def _size(tool: Mapping[str, JsonValue]) -> int:
    """Characters of JSON, which is what the tool costs a model's context."""
    return len(json.dumps(tool, ensure_ascii=False, separators=(",", ":")))


def _table(dispatcher: Dispatcher) -> None:
    table = Table("tool", "toolset", "permission", "hints", "kind", "characters", box=None, pad_edge=False)
    total = 0
    for entry, tool in zip(dispatcher.listed(), _wire(dispatcher), strict=True):
        size = _size(tool)
        total += size
        level = dispatcher.level(entry).flag
        table.add_row(entry.spec.name, entry.toolset, level, _hints(tool), entry.spec.kind, str(size))
    console = Console()
    console.print(table)
    count = f"{table.row_count} tools in mode {dispatcher.policy.ceiling.flag}"
    console.print(f"{count}: {total} characters in all, which a client sends to its model", soft_wrap=True)
    names = (entry.spec.name for entry in dispatcher.available)
    unlisted = dispatcher.unlisted | dispatcher.registry.foreign.unlisted
    if found := [name for name in names if name in unlisted]:
        console.print(f"Not listed, but callable (ToolSearch finds them): {', '.join(found)}", soft_wrap=True)


def _hints(tool: Mapping[str, JsonValue]) -> str:
    annotations = tool["annotations"]
    assert isinstance(annotations, dict)
    return " ".join(
        name.removesuffix("Hint") for name, value in annotations.items() if name.endswith("Hint") and value
    )


def _records(dispatcher: Dispatcher) -> JsonValue:
    return [
        {
            "name": entry.spec.name,
            "toolset": entry.toolset,
            "permission": dispatcher.level(entry).flag,
            "kind": entry.spec.kind,
            "requires": _requires(entry),
            "annotations": tool["annotations"],
            "aliases": list(entry.other_names),
            "characters": _size(tool),
        }
        for entry, tool in zip(dispatcher.listed(), _wire(dispatcher), strict=True)
    ]


def _requires(entry: Entry) -> list[JsonValue]:
    """The names of the capabilities that a call gets."""
    return [*sorted(need.label for need in entry.spec.needs)]


def _mcp(dispatcher: Dispatcher) -> JsonValue:
    """The tools as clients get them, and what each requires, which their lists have no room for."""
    listed = zip(dispatcher.listed(), _wire(dispatcher), strict=True)
    return {"tools": [{**tool, "_meta": {REQUIRES: _requires(entry)}} for entry, tool in listed]}


def _each(form: Callable[[Entry], JsonValue]) -> Callable[[Dispatcher], JsonValue]:
    return lambda dispatcher: [form(entry) for entry in dispatcher.listed()]


def _described(entry: Entry) -> tuple[str, str, Schema]:
    return entry.spec.name, entry.spec.description, entry.spec.schema


_FORMS: Mapping[str, Callable[[Dispatcher], JsonValue]] = {
    "json": _records,
    "mcp": _mcp,
    "anthropic": _each(lambda entry: registry.anthropic(*_described(entry))),
    "openai": _each(lambda entry: registry.openai(*_described(entry))),
    "acp": _each(lambda entry: {**registry.acp(entry), "requires": _requires(entry)}),
}


# --- call -----------------------------------------------------------------------------------------------

_EXAMPLE = """quote them for the shell, as in '{"path": "README.md"}'"""


async def _report(message: str) -> None:
    print(message, file=sys.stderr)


def call(app: Application, invocation: Invocation) -> int:
    """Print the result; exit status that of the command that was run, 1 on a tool error, 2 on arguments that
    are no JSON or an unknown tool."""
    return anyio.run(_call, app, invocation)


async def _call(app: Application, invocation: Invocation) -> int:
    try:
        arguments = parsed(invocation.arguments)
        # The caller is a command line: nobody is asked, and progress goes to standard error.
        caller = ServerCaller(name="mcp-toolserver call", owner=LOCAL, progress=_report)
        # A request would end with this process, before anybody could answer it.
        dispatcher = replace(app.dispatcher, approve=ask_client)
        result = await dispatcher.call(invocation.tool, arguments, caller)
    except ValueError as error:
        return _wrong(str(error))
    except UnknownTool:
        choices = ", ".join(entry.spec.name for entry in app.dispatcher.available)
        return _wrong(f"unknown tool {invocation.tool!r}; choose from {choices}")
    else:
        _print_result(result, as_json=invocation.json)
        return result.exit_status if result.error is None else 1
    finally:
        await app.aclose()


def _wrong(what: str) -> int:
    print(f"mcp-toolserver call: {what}", file=sys.stderr)
    return 2


def parsed(text: str) -> dict[str, JsonValue]:
    """The arguments of a call. Raises: ValueError: they are no JSON object."""
    try:
        arguments: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"the arguments are not JSON: {text[:200]}; {_EXAMPLE}") from None
    if not isinstance(arguments, dict):
        raise ValueError(f"the arguments must be a JSON object; {_EXAMPLE}")
    return arguments


def _print_result(result: Result, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result.envelope(), ensure_ascii=False, indent=2))
        return
    print(result.text, file=sys.stdout if result.error is None else sys.stderr)
    for image in result.images:
        print(f"[{image.mime_type}, {len(image.data)} bytes]")
