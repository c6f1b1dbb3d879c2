"""What a tool declares that its calls may touch: enforced by the server, and never a right."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_toolserver.app.compose import build_application
from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.custom_tools import RegistrationError, RequirementSet, define_tool
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.invocation import load
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.policy.requirements import narrowing
from mcp_toolserver.policy.rules import Policy, Request
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.tool_spec import ToolSpec
from tests.support.cases import collected
from tests.support.extent import rounds
from tests.support.workbench import Person

TOOLS = """
from mcp_toolserver.custom_tools import define_tool
from mcp_toolserver.tool import *

WRITES = Permission.WORKSPACE_WRITE
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}

def tool(name, requires, **declared):
    return define_tool(name, "Says that it ran.", lambda args, _: "ran", TEXTS, requires=requires, **declared)

class Count(Args):
    path: WorkspacePath = Field(description="File")

async def run(args, rt):
    return Output("ran")

native = ToolSpec(
    name="native", description="Reads.", permission=Permission.READ_ONLY,
    needs=frozenset({Capability.FS_READ}),
    args=Count, run=run, kind="read", subjects=lambda args: (args.path,),
    requires=RequirementSet.model_validate({"fs": {"read": ["{workspace}/docs/**"]}}),
)
SHELL = [
    {"cmd": "git", "args": ["log", {"prefix": "--max-count="}, {"wildcard": True}]},
    {"cmd": "git", "args": ["status"]},
]
TOOLS = [
    native,
    tool("reads", {"fs": {"read": ["{workspace}/docs/**"], "write": ["{workspace}/out"]}}, is_read_only=True),
    tool("writes", {"fs": {"read": ["{workspace}"], "write": ["{workspace}/out/*"]}}, permission=WRITES),
    tool("anywhere", {"fs": {"read": ["{workspace}"]}}, is_read_only=True),
    tool("fetches", {"net": {"hosts": ["example.com", "*.example.org"]}}, is_read_only=True),
    tool("runs", {"shell": SHELL}, is_read_only=True, kind="execute"),
    tool("nothing", {}, is_read_only=True),
    tool("user", {"fs": {"read": ["{user-data}"]}}, is_read_only=True),
    tool("mixed", {"fs": {"read": ["{user-data}", "{workspace}/docs"]}}, is_read_only=True),
]
"""
RUNS: Mapping[str, Sequence[str]] = {
    "native": ("docs/a", "docs/b/c", "{root}/docs/a"),
    "reads": ("docs/a", "./docs/b/../a", "{root}/docs/a", "{second}/docs/a", "out"),
    "writes": ("out/a", "{root}/out/a"),
    "anywhere": ("a", "docs/../a", "{second}/x"),
    "fetches": ("https://example.com/a", "http://a.example.org"),
    "runs": ("git status", "git  'status'", "git log --max-count=3 main"),
    "mixed": ("docs",),
}
REFUSED: Mapping[str, Sequence[str]] = {
    "native": ("a", "docs/../a", "out/a"),
    "reads": ("a", "docs/../a", "{root}/docs/../a", "/etc/passwd", "", "out/a", "https://example.com/docs/a"),
    "writes": ("a", "docs/a", "out", "out/a/b", "out/../a"),
    "anywhere": (
        *("../a", "/etc/passwd", "{root}/../a", "{root}x/a"),
        *("https://example.com", "HTTPS://a", "file:/etc/x"),
    ),
    "fetches": ("https://example.com.evil/", "https://example.org/", "https://a@example.com/", "example.com"),
    "runs": (
        *("git", "git status -s", "git status; rm x", "git log --max-count=3 --all", "git log --max-count=3"),
        *("git log --max-count=$(rm x) main", "git log -p main", "git log --max-count=3 a\nrm"),
        *("/bin/git status",),
        *("git log --max-count=3 *", "git status > a", "git 'status", "", "git log --max-count=3 main x"),
    ),
    "nothing": ("a", "", "https://example.com", "git status"),
    "user": ("a", "/etc/passwd"),
    "mixed": ("docs/a", "a"),
}


def server(folder: Path, tools: str) -> Dispatcher:
    """With these tools, on the folders `root` and `second`."""
    (file := folder / "tools.py").write_text(tools, encoding="utf-8")
    (config := folder / "config.toml").write_text(f'tool-files = ["{file}"]', encoding="utf-8")
    argv = ["--config", str(config), "--state-dir", str(folder / "state"), "--toolsets", "all"]
    for name in ("root", "second"):
        (folder / name / "docs").mkdir(parents=True, exist_ok=True)
        argv += ["--root", str(folder / name)]
    settings = load([*argv, "--permission-mode", "workspace-write"], {}).settings
    return build_application(settings, None, HostExecutables(), held_by=None).dispatcher


@pytest.mark.requirement("GR-38", "GR-39", "GR-40", "GR-42", "GR-43")
async def test_calls_touch_only_what_their_tool_declares(tmp_path: Path) -> None:
    at = server(tmp_path, TOOLS)
    with collected() as case:
        for wanted, rows in ((None, RUNS), ("denied", REFUSED)):
            for name, texts in rows.items():
                for text in texts:
                    with case(f"{name} {text!r}"):
                        sent = re.sub("{(root|second)}", rf"{tmp_path}/\1", text)
                        result = await at.call(name, {"path": sent}, Person(says=True))
                        assert result.error == wanted, result.text
                        assert wanted is None or "requirement set" in result.text


@pytest.mark.requirement("GR-41", "GR-42")
def test_what_is_undefined_or_left_out_stops_the_start(tmp_path: Path) -> None:
    def declared(**requires: Any) -> None:
        define_tool("mine", "Mine.", lambda _: 1, is_read_only=True, requires=requires)

    with collected() as case:
        for requires, says in (
            ({"fs": {"read": ["{home}/x"]}}, "home is undefined"),
            ({"fs": {"write": ["docs"]}}, "must begin with"),
            ({"shell": [{"cmd": ""}]}, "shell"),
            ({"shell": [{"cmd": "ls", "args": [{"suffix": "x"}]}]}, "requires.shell.0.args.0"),
            ({"files": {}}, "files"),
        ):
            with case(says), pytest.raises(RegistrationError, match=says):
                declared(**requires)
        for old, new, says in (
            ('"read": ["{workspace}/docs/**"]}}),', '"write": []}}),', "native needs fs_read"),
            (
                '{"fs": {"read": ["{workspace}/docs/**"]}}),',
                '{"capabilities": ["fs_raed"]}),',
                "fs_raed|fs_read",
            ),
            ('tool("nothing", {}', 'tool("nothing", {"capabilities": ["files"]}', "files, which is no"),
            ('"{workspace}/docs/**"]}}),', '"{workspace}/../x"]}}),', "cannot hold"),
            ('["example.com"', '["exa mple"', "host"),
        ):
            assert old in TOOLS
            with case(says), pytest.raises(SettingsError, match=says):
                server(tmp_path, TOOLS.replace(old, new, 1))
    # One that is listed by its name has what it needs, though none of its calls may touch a file.
    server(
        tmp_path,
        TOOLS.replace('{"fs": {"read": ["{workspace}/docs/**"]}}),', '{"capabilities": ["fs_read"]}),'),
    )


PATTERNS = st.lists(st.sampled_from(["{workspace}", "/**", "{ad-hoc}/a", "{user-data}", "/w/a"]), max_size=3)
SETS = st.fixed_dictionaries(
    {
        "fs": st.fixed_dictionaries({"read": PATTERNS, "write": PATTERNS}),
        "net": st.fixed_dictionaries({"hosts": st.lists(st.sampled_from(["*", "example.com"]), max_size=2)}),
        "shell": st.just([{"cmd": "ls", "args": [{"wildcard": True}]}]),
        "capabilities": st.just([need.label for need in Capability]),
    }
)
SUBJECTS = st.sampled_from(["a", "/w/a", "/etc/passwd", "https://example.com/", "ls a", ""])


@pytest.mark.rounds
@pytest.mark.requirement("GR-38")
@settings(max_examples=rounds(40, 200))
@given(
    SETS,
    SUBJECTS,
    st.sampled_from(Permission),
    st.sampled_from(Permission),
    st.sampled_from(["read", "execute"]),
)
def test_no_requirement_set_turns_a_refusal_or_a_question_into_a_run(
    declared: dict[str, Any], subject: str, level: Permission, ceiling: Permission, kind: Any
) -> None:
    spec: ToolSpec = define_tool("mine", "Mine.", lambda _: 1, permission=level, kind=kind).spec
    variables = {"workspace": ("/w",), "ad-hoc": ("/tmp",), "user-data": ()}
    bare = Policy(ceiling=ceiling, granted=Permission.READ_ONLY)
    narrowed = bare.narrowed([narrowing(spec, RequirementSet.model_validate(declared), variables)])
    request = Request(tool="mine", level=level, subjects=((subject,),), needs=spec.needs)
    if narrowed.decide(request).action != "refuse":
        assert narrowed.decide(request) == bare.decide(request)
