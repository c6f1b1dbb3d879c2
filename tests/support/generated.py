"""Files that are made from the registry: a snapshot per tool of what clients see, docs/tools.md, and a page
per toolset."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from pydantic import JsonValue

from mcp_toolserver.capabilities.permissions import Capability, HostFacts, Permission
from mcp_toolserver.pipeline.registry import Entry, discover
from mcp_toolserver.protocol import translate
from mcp_toolserver.tool_spec import Forward
from tests import ROOT

SNAPSHOTS = ROOT / "tests" / "snapshots"
TOOLS_PAGE = ROOT / "docs" / "tools.md"

ENTRIES = discover()

OPEN = frozenset(
    need
    for need in Capability
    if need.value.open_world(
        HostFacts(
            mode=Permission.DANGER_FULL_ACCESS,
            network="commands",
            starts_programs=True,
            upstreams="networked",
        )
    )
)
"""What reaches beyond the machine, on a host that confines nothing."""


def wire(entry: Entry) -> dict[str, JsonValue]:
    """The tool as `tools/list` carries it on a host that confines nothing."""
    reaches = OPEN if isinstance(entry.spec.run, Forward) else OPEN & entry.spec.needs
    listed = translate.tool(entry, entry.spec.own_permission, reaches)
    return listed.model_dump(mode="json", by_alias=True, exclude_none=True)


def snapshot_file(entry: Entry) -> Path:
    return SNAPSHOTS / entry.toolset / f"{entry.spec.name}.json"


def snapshot(entry: Entry) -> str:
    """What clients see of the tool, and under which other names the tool answers."""
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


def tools_pages() -> dict[Path, str]:
    """docs/tools.md with a line for each tool, and docs/tools/<toolset>.md with its arguments."""
    # The toolsets with the tools of the smallest selections come first.
    ordered = sorted(ENTRIES, key=lambda entry: (entry.spec.profile, entry.toolset))
    toolsets = {entry.toolset: [one for one in ENTRIES if one.toolset == entry.toolset] for entry in ordered}
    folder = TOOLS_PAGE.with_suffix("")
    pages = {TOOLS_PAGE: _table(toolsets)}
    pages |= {folder / f"{name}.md": _toolset(name, entries) for name, entries in toolsets.items()}
    return {path: "\n".join(lines) + "\n" for path, lines in pages.items()}


_INTRODUCTION = """# Tools

Generated. The page of each toolset has the arguments.

[Settings](configuration.md#tools) choose what the server lists. *In* names the smallest selection with the
tool; with `default`, `ToolSearch` finds those *found*. A tool that needs a program or an extra is listed
only where that is installed. `mcp-toolserver tools --format mcp` prints descriptions and schemas.

The permission is that of a call where nothing confines commands. Where the sandbox holds, `bash`, `REPL`,
`PowerShell`, `LSP` and `TaskStop` are offered in every mode, and the kernel keeps them within it.

Every tool also takes the argument names of common other servers, such as `file_path` for `path`. Arguments
in bold are required. Paths are relative to the first root, or absolute. A call ends after 60 s, unless the
page gives another time."""


def _table(toolsets: Mapping[str, Sequence[Entry]]) -> Iterator[str]:
    yield _INTRODUCTION
    yield "\n| tool | permission, in | does |\n|---|---|---|"
    for toolset, entries in toolsets.items():
        yield f"| **[{toolset}](tools/{toolset}.md)** | | |"
        for entry in entries:
            name = f"[`{entry.spec.name}`](tools/{toolset}.md#{entry.spec.name.lower()})"
            does = re.split(r"[;:] | \(|, (?:and|by|such|with|without) ", _does(entry))[0].rstrip(".")
            profile = "found" if entry.spec.deferred else entry.spec.profile.name.lower()
            yield f"| {name} | {entry.spec.own_permission.flag}, {profile} | {does} |"


def _toolset(toolset: str, entries: Sequence[Entry]) -> Iterator[str]:
    yield f"# Toolset {toolset}\n"
    yield str(import_module(f"mcp_toolserver.tools.{toolset}").__doc__).strip() + " [Tools](../tools.md)."
    for entry in entries:
        spec = entry.spec
        yield f"\n## {spec.name}\n"
        yield f"{_does(entry)} *{'; '.join(_facts(entry))}*\n"
        fields = {info.alias or name: info for name, info in spec.args.model_fields.items()}
        defaults = {name: info.get_default(call_default_factory=True) for name, info in fields.items()}
        # A backslash ends a line of a paragraph.
        yield "\\\n".join(_arguments(spec.schema, defaults))


def _facts(entry: Entry) -> Iterator[str]:
    spec = entry.spec
    yield "permission of the tool called" if isinstance(spec.run, Forward) else spec.own_permission.flag
    if entry.other_names:
        yield f"also {', '.join(f'`{name}`' for name in entry.other_names)}"
    if spec.limits.deadline != 60:
        yield f"{spec.limits.deadline:g} s"


def _does(entry: Entry) -> str:
    """The first sentence of the description."""
    return re.split(r"(?<=\.)\s", entry.spec.description)[0]


def _arguments(
    schema: Mapping[str, JsonValue], defaults: Mapping[str, object], above: str = ""
) -> Iterator[str]:
    """A line for each argument, followed by those of the fields of its items."""
    properties, required = schema["properties"], schema.get("required", [])
    assert isinstance(properties, dict)
    assert isinstance(required, list)
    for name, shape in properties.items():
        assert isinstance(shape, dict)
        if above and "description" not in shape:
            continue
        shown = f"**`{above}{name}`**" if name in required else f"`{above}{name}`"
        meaning = re.split(r"[;.] |, (?:relative|such|for|from|with) ", str(shape["description"]))[0]
        default, choices = defaults.get(name), shape.get("enum")
        usual = f" ({json.dumps(default)})" if default and isinstance(default, int | str) else ""
        one_of = f": {', '.join(f'`{one}`' for one in choices)}" if isinstance(choices, list) else ""
        yield f"{shown}{usual if str(default) not in meaning else ''}: {meaning}{one_of}"
        items = shape.get("items")
        if isinstance(items, dict) and "properties" in items:
            yield from _arguments(items, {}, f"{above}{name}[].")
