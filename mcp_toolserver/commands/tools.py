"""`tools`: lists the tools of this configuration, for people or in other programs' formats."""

import json
from collections.abc import Callable, Mapping

from pydantic import JsonValue
from rich.console import Console
from rich.table import Table

import mcp_toolserver.protocol.translate as wire
from mcp_toolserver.custom_tools import registry
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.pipeline.registry import Entry
from mcp_toolserver.text.json_schema import Schema


def tools(dispatcher: Dispatcher, form: str) -> int:
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
            "annotations": tool["annotations"],
            "aliases": list(entry.other_names),
            "characters": _size(tool),
        }
        for entry, tool in zip(dispatcher.listed(), _wire(dispatcher), strict=True)
    ]


def _each(form: Callable[[Entry], JsonValue]) -> Callable[[Dispatcher], JsonValue]:
    return lambda dispatcher: [form(entry) for entry in dispatcher.listed()]


def _described(entry: Entry) -> tuple[str, str, Schema]:
    return entry.spec.name, entry.spec.description, entry.spec.schema


_FORMS: Mapping[str, Callable[[Dispatcher], JsonValue]] = {
    "json": _records,
    "mcp": lambda dispatcher: {"tools": list(_wire(dispatcher))},
    "anthropic": _each(lambda entry: registry.anthropic(*_described(entry))),
    "openai": _each(lambda entry: registry.openai(*_described(entry))),
    "acp": _each(registry.acp),
}
