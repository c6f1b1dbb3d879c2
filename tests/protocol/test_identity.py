"""How the server presents itself: whole, short, readable, and the same every time; and what the folders and
the declared roots of a client mean for the roots of a real server; and what the
descriptions of tools say about the host they run on.
"""

import asyncio
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import mcp_types as mcp
import pytest
from mcp import Client

from mcp_toolserver import __version__
from mcp_toolserver.capabilities.permissions import HostFacts, Permission
from mcp_toolserver.protocol.instructions import LONGEST, EnforcementStatus, instructions
from mcp_toolserver.protocol.mcp_server import WEBSITE
from mcp_toolserver.text import enforcement_summary
from mcp_toolserver.tools.shell.bash import sandbox_facts
from tests.protocol.lines import ENVELOPE, spoken
from tests.protocol.resource_clients import ERAS, place
from tests.protocol.test_protocol import Answer, named
from tests.support.confinement import READ_ONLY, USERS, WORKSPACE_WRITE, Server
from tests.support.live import Setup, connected, connected_to, serving, text

METHODS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_learns_what_the_server_is(era: str, tmp_path: Path) -> None:
    async with place(tmp_path) as made, made.client(era) as client:
        info: Any = client.server_info
        assert (info.name, info.title, info.version) == ("mcp-toolserver", "MCP toolserver", __version__)
        assert info.description
        assert info.website_url == WEBSITE
        assert {(icon.theme, icon.mime_type) for icon in info.icons} == {
            (theme, kind) for theme in ("light", "dark") for kind in ("image/png", "image/svg+xml")
        }
        assert sum(len(icon.src) for icon in info.icons) < 3_000


ROOTS: Sequence[Sequence[str]] = (
    ["/short"],
    [f"/{number}" for number in range(300)],
    ["/" + "x" * 4_000] * 3,
    ["/short", "/" + "x" * 4_000],
    ["/" + "\u202e" * 100] * 9,
)


def test_nothing_is_cut_from_the_instructions_but_whole_roots() -> None:
    summary = "y" * enforcement_summary.LONGEST
    for mode, roots in product(Permission, ROOTS):
        status = EnforcementStatus(mode=mode, commands=True, network=False, summary=summary, is_weakened=True)
        said = instructions(status, roots)
        assert len(said) <= LONGEST
        start, _, named = said.partition("Roots (relative paths start at the first):\n")
        assert mode.flag in start
        assert f"enforced here: {summary}." in start
        assert "says how to get the rest" in start
        shown = [line for line in named.splitlines() if not line.startswith("- and ")]
        assert all(
            len(line) - 2 in {len(root), 8 * 100 + 1} for line, root in zip(shown, roots, strict=False)
        )
        left = len(roots) - len(shown)
        assert (f"- and {left} more" in named) is (left > 0)


def test_the_instructions_say_how_to_commit_install_and_wait_and_nothing_of_the_kernel() -> None:
    def said(mode: Permission, **more: Any) -> str:
        asked = {"commands": True, "network": False, "summary": "Landlock", **more}
        return instructions(EnforcementStatus(mode=mode, **asked), ["/r"])

    write, read, full = Permission.WORKSPACE_WRITE, Permission.READ_ONLY, Permission.DANGER_FULL_ACCESS
    assert "Commit with git in bash" in said(write)
    assert "to install packages, ask the user" in said(write)
    assert "to install" not in said(full, network=True)
    assert "ommit" not in said(read)
    assert all("TaskOutput waits" in said(mode) for mode in Permission)
    assert "TaskOutput" not in said(write, commands=False)
    assert "Landlock" not in said(write)


BREAK_IN_A_SENTENCE = re.compile(r"(?<![\n.:])\n(?!\n|[-*•] |\d+[.)] )")


def descriptions(value: Any) -> Iterator[str]:
    """Every description in a part of a schema."""
    if isinstance(value, dict):
        if isinstance(found := value.get("description"), str):
            yield found
        for part in value.values():
            yield from descriptions(part)
    elif isinstance(value, list):
        for part in value:
            yield from descriptions(part)


def test_two_servers_say_the_same_byte_by_byte_in_sentences_without_breaks(tmp_path: Path) -> None:
    setup = Setup.below(tmp_path, "danger-full-access")
    messages = [
        {"jsonrpc": "2.0", "id": n, "method": method, "params": ENVELOPE}
        for n, method in enumerate(("server/discover", *METHODS))
    ]
    first, second = (sorted(spoken(setup, *messages)) for _ in range(2))
    assert first == second
    answers = {answer["id"]: answer["result"] for answer in map(json.loads, first)}
    assert sorted(answers) == [0, 1, 2, 3, 4]
    tools = answers[1]["tools"]
    shown = {"instructions": [answers[0]["instructions"].strip()]}
    # Nor does it hide that it was started outside its roots.
    assert APART in answers[0]["instructions"]
    assert os.getcwd() in answers[0]["instructions"]
    shown |= {thing["name"]: list(descriptions(thing)) for thing in tools}
    for number, key in enumerate(("prompts", "resources", "resourceTemplates"), 2):
        shown |= {thing["name"]: list(descriptions(thing)) for thing in answers[number][key]}
    assert len(shown) > 40
    broken = {name for name, texts in shown.items() if any(map(BREAK_IN_A_SENTENCE.search, texts))}
    assert broken == set()
    first_lines = {tool["name"]: tool["description"].partition("\n")[0] for tool in tools}
    wrong = {name for name, line in first_lines.items() if not re.match(r"[A-Z][a-z]+\b.{10,}[.]$", line)}
    assert wrong == set()


APART = "is outside all roots"
STATUS = EnforcementStatus(
    mode=Permission.WORKSPACE_WRITE, commands=True, network=False, summary="x" * enforcement_summary.LONGEST
)


def answering(answers: Sequence[Answer]) -> Any:
    """A client that gives the last of these answers to roots/list."""

    async def roots(_: object) -> Answer:
        return answers[-1]

    return roots


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    for name in ("root/inner", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    return Setup(root=tmp_path / "root", home=tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(("use", "refused"), [("narrow", True), ("ignore", False)])
async def test_the_first_call_says_how_to_use_a_server_whose_roots_the_client_does_not_name(
    use: str, refused: bool, setup: Setup
) -> None:
    setup = replace(setup, flags=("--client-roots", use))
    roots = answering([named(setup.home / "elsewhere")])
    async with connected(setup, list_roots_callback=roots) as client:
        for tool, arguments in (("ls", {}), ("bash", {"command": "true"})):
            result = await client.call_tool(tool, arguments)
            assert result.is_error is refused, tool
            assert ("--client-roots ignore" in text(result)) is refused, tool


FIRST: dict[str, Answer] = {
    "the Inspector and mcp-use": mcp.ListRootsResult(roots=[]),
    "a proxy of FastMCP whose client has no roots": mcp.ErrorData(code=-32601, message="Method not found"),
}
"""What clients that declare roots and name none answer."""


async def test_a_client_that_names_no_roots_calls_tools_and_a_command_keeps_those_of_its_call(
    setup: Setup,
) -> None:
    (setup.root / "f").write_text("outer", encoding="utf-8")
    calls = (("read_file", {"path": "f"}), ("bash", {"command": "cat f"}))

    with serving(replace(setup, mode="workspace-write"), "http") as url:
        for answer in FIRST.values():
            answers = [answer]
            roots = answering(answers)
            async with connected_to(url, "http", mode="legacy", list_roots_callback=roots) as client:
                # The folder of the server says nothing of the client's.
                assert client.instructions
                assert APART not in client.instructions
                results = await asyncio.gather(*(client.call_tool(*call) for call in calls))
                assert ["outer" in text(result) for result in results] == [True, True], answer
                await keeps_its_roots(client, setup, answers)


async def keeps_its_roots(client: Client, setup: Setup, answers: list[Answer]) -> None:
    """Whether a command that runs keeps the root when its client names another."""

    async def said(tool: str, **arguments: object) -> str:
        return text(await client.call_tool(tool, arguments))

    script = f"cd {setup.root}; until rm inner/go; do sleep 0.1; done 2>&-; cat f"
    command = await said("bash", command=script, run_in_background=True)
    answers.append(named(setup.root / "inner"))
    await client.session.send_roots_list_changed()
    assert "outer" not in await said("bash", command=f"cat {setup.root}/f")
    assert (await said("glob_search", pattern="*")).startswith("No file matches")
    await said("write_file", path="go", content="")
    handle = re.findall(r"bg_\w+", command)[0]
    assert "outer" in await said("TaskOutput", task_id=handle, until="end", wait_ms=20_000)


def test_folders_meet_where_one_lies_in_the_other_and_a_long_one_leaves_room() -> None:
    for root, folder, apart in (
        ("/a/b", "/a/b", False),
        ("/a", "/a/b", False),
        ("/a/b", "/a", False),
        ("/a/b", "/", False),
        ("/", "/a", False),
        ("/a/b", "/a/bc", True),
        ("/a/b", "", False),
    ):
        assert (APART in instructions(STATUS, [root], folder)) is apart, (root, folder)
    text = instructions(STATUS, ["/a"], f"/{'x' * 4_000}")
    assert APART in text
    assert "- /a\n" in text
    assert len(text) <= LONGEST


WRITE = Permission.WORKSPACE_WRITE
SHARED = HostFacts(starts_programs=True, command_sandbox="bubblewrap", shares_loopback=True, shares_tmp=True)
NOWHERE = "write nothing outside $TMPDIR"
IN_ROOTS = "write only in the roots and $TMPDIR"
LASTS, NEW = "lasts for the session", "new and empty for each command"
ANSWERS, OWN, NONE, OPEN, LISTED = (
    "answers later commands",
    "localhost of its own for each command",
    "No network, not even localhost",
    "The network is open",
    "the hosts that the operator listed",
)
GIT = ".git and files"
FULL = "all rights of the user"
ALL = {NOWHERE, IN_ROOTS, LASTS, NEW, ANSWERS, OWN, NONE, OPEN, LISTED, GIT, FULL}


HOSTS: Mapping[str, tuple[HostFacts, set[str]]] = {
    "read-only": (SHARED, {NOWHERE, LASTS, ANSWERS}),
    "workspace-write": (replace(SHARED, mode=WRITE), {IN_ROOTS, GIT, LASTS, ANSWERS}),
    "git-writable": (replace(SHARED, mode=WRITE, git_writable=True), {IN_ROOTS, LASTS, ANSWERS}),
    "network": (replace(SHARED, network="commands"), {NOWHERE, LASTS, OPEN}),
    "hosts": (replace(SHARED, network="hosts"), {NOWHERE, LASTS, LISTED}),
    "root-in-tmp": (replace(SHARED, shares_tmp=False), {NOWHERE, NEW, ANSWERS}),
    "not-shared": (replace(SHARED, shares_tmp=False, shares_loopback=False), {NOWHERE, NEW, OWN}),
    "landlock": (HostFacts(starts_programs=True, command_sandbox="landlock"), {NOWHERE, NEW, NONE}),
    "full": (HostFacts(mode=Permission.DANGER_FULL_ACCESS, starts_programs=True), {FULL}),
}


def test_the_sandbox_is_described_as_it_is() -> None:
    said = {name: sandbox_facts(host) for name, (host, _) in HOSTS.items()}
    found = {name: {phrase for phrase in ALL if phrase in text} for name, text in said.items()}
    assert found == {name: phrases for name, (_, phrases) in HOSTS.items()}


@pytest.mark.parametrize("mode", [READ_ONLY, WORKSPACE_WRITE])
def test_a_real_server_describes_the_sandbox_of_its_mode(
    mode: str, servers: Callable[[str, str], Server]
) -> None:
    server = servers(USERS[0], mode)
    text = server.tools()["bash"]["description"]
    assert (NOWHERE in text) is (mode == READ_ONLY)
    assert (IN_ROOTS in text) is (mode != READ_ONLY)
    assert ANSWERS in text
    assert LASTS in text
    # As the description says:
    refused = server.call("bash", command="touch here && echo written && rm here")
    assert ("written" in refused.text) is (mode != READ_ONLY)
    server.bash("echo kept > $TMPDIR/kept")
    assert server.bash("cat /tmp/kept") == "kept\n"
