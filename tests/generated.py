"""Files that are made from the registry: a snapshot per tool of what clients are told, and docs/tools.md with
the example of each."""

import importlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import JsonValue

from mcp_toolserver.capabilities.prices import Capability
from mcp_toolserver.labels import FILE, Shelved, module_names, written
from mcp_toolserver.protocol import translate
from mcp_toolserver.registry import Entry, discover
from mcp_toolserver.spec import Forward
from tests.examples_stage import Example, example

HERE = Path(__file__).parent
SNAPSHOTS = HERE / "snapshots"
LABELS = HERE.parent / "mcp_toolserver" / "tools" / FILE
TOOLS_PAGE = HERE.parent / "docs" / "tools.md"

ENTRIES = discover()

OPEN = frozenset(
    {
        *(Capability.PROCESS, Capability.LANGUAGES, Capability.CLONES, Capability.FETCH, Capability.SEND),
        Capability.DESKTOP_OPEN,
        Capability.DESKTOP_APP,
    }
)
"""What reaches beyond the machine."""


def wire(entry: Entry) -> dict[str, JsonValue]:
    """The tool as `tools/list` carries it on a host that confines nothing."""
    reaches = OPEN if isinstance(entry.spec.run, Forward) else OPEN & entry.spec.needs
    told = translate.tool(entry, entry.spec.permission, reaches)
    return told.model_dump(mode="json", by_alias=True, exclude_none=True)


def snapshot(entry: Entry) -> str:
    """What clients are told, and under which other names the tool answers."""
    aliases: dict[str, JsonValue] = {
        alias.name: {**alias.renames, **{own: f"{own} in other units" for own in alias.converts}}
        for alias in entry.spec.aliases
    }
    limits: dict[str, JsonValue] = {
        "deadline": entry.spec.limits.deadline,
        "outputBytes": entry.spec.limits.output_bytes,
    }
    shown = {"tool": wire(entry), "aliases": aliases, "limits": limits}
    return json.dumps(shown, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def labels() -> str:
    """The content of labels.json."""
    found = [importlib.import_module(name) for name in module_names()]
    modules = {module.TOOL.name: module.__name__ for module in found if hasattr(module, "TOOL")}
    return written(Shelved(label=entry.label, module=modules[entry.label.name]) for entry in ENTRIES)


def tools_page() -> str:
    """docs/tools.md."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield "# Tools"
    yield ""
    yield "Made from the code by `pytest --update`; do not edit."
    yield ""
    yield "| tool | toolset | permission | kind | also called |"
    yield "|---|---|---|---|---|"
    for entry in ENTRIES:
        spec = entry.spec
        names = ", ".join(f"`{name}`" for name in entry.other_names)
        link = f"[`{spec.name}`](#{spec.name.lower()})"
        yield f"| {link} | {entry.toolset} | {spec.permission.flag} | {spec.kind} | {names} |"
    for entry in ENTRIES:
        yield from _section(entry)


def _section(entry: Entry) -> Iterator[str]:
    spec = entry.spec
    yield ""
    yield f"## {spec.name}"
    yield ""
    yield spec.description.strip()
    yield ""
    yield "| argument | type | default | meaning |"
    yield "|---|---|---|---|"
    properties = entry.label.schema["properties"]
    fields = spec.args.model_fields
    defaults = {
        info.alias or name: info.get_default(call_default_factory=True) for name, info in fields.items()
    }
    required = entry.label.schema.get("required", [])
    assert isinstance(properties, dict)
    assert isinstance(required, list)
    for name, shape in properties.items():
        assert isinstance(shape, dict)
        default = "required" if name in required else json.dumps(defaults[name], default=_simple)
        yield f"| `{name}` | {_type(shape)} | {default} | {shape.get('description', '')} |"
    yield ""
    needs = "what the tool needs that it calls" if isinstance(spec.run, Forward) else spec.permission.flag
    yield f"Needs {needs}; hints: {_hints(entry)}."
    yield ""
    yield f"Ends after {spec.limits.deadline:g} s; sends at most {spec.limits.output_bytes:,} bytes of text."
    yield ""
    yield from _example(example(spec.name))


def _simple(value: object) -> object:
    return list(value) if isinstance(value, Iterable) else str(value)


def _hints(entry: Entry) -> str:
    """Those that hold on a host that confines nothing."""
    annotations = wire(entry)["annotations"]
    assert isinstance(annotations, dict)
    return ", ".join(name for name, value in annotations.items() if value) or "none"


def _example(shown: Example) -> Iterator[str]:
    """One call and its answer, as they were on a small project."""
    steps = [f"`{step['tool']}` `{_json(step['arguments'])}`" for step in shown.before]
    yield f"{'After ' + ', '.join(steps) + ', a' if steps else 'A'} call{_said(shown)}:"
    yield ""
    yield from _fenced("json", _json(shown.arguments))
    yield ""
    yield from _fenced("text", shown.answer)


def _said(shown: Example) -> str:
    if shown.says is None:
        return ""
    words = ", ".join(f"“{word}”" for answer in shown.says for word in answer)
    return f" that the user answers with {words}"


def _json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)


def _fenced(language: str, text: str) -> Iterator[str]:
    fence = "````" if "```" in text else "```"
    yield f"{fence}{language}"
    yield text.rstrip("\n")
    yield fence


def _type(shape: dict[str, JsonValue]) -> str:
    choices = shape.get("enum")
    if isinstance(choices, list):
        return " or ".join(f"`{choice}`" for choice in choices)
    return str(shape.get("type", "object"))
