"""What the descriptions of tools say about the host they run on, and nothing that does not hold there."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.list_size import BUDGETS, size
from mcp_toolserver.capabilities.permissions import HostFacts, Permission
from mcp_toolserver.pipeline.registry import Registry, discover
from mcp_toolserver.text.shell.sandbox_facts import sandbox_facts
from tests.support.confinement import READ_ONLY, USERS, WORKSPACE_WRITE, scene, serving
from tests.support.live import MODES, Setup, connected

WRITE = Permission.WORKSPACE_WRITE
SHARED = HostFacts(starts_programs=True, command_sandbox="bubblewrap", shares_loopback=True, shares_tmp=True)
NOWHERE = "write nothing outside $TMPDIR"
ROOTS = "write only in the roots and $TMPDIR"
LASTS, NEW = "lasts for the session", "new and empty for each command"
ANSWERS, OWN, NONE, OPEN = (
    "answers later commands",
    "localhost of its own for each command",
    "No network, not even localhost",
    "The network is open",
)
GIT = ".git and files"
FULL = "all rights of the user"
ALL = {NOWHERE, ROOTS, LASTS, NEW, ANSWERS, OWN, NONE, OPEN, GIT, FULL}


@pytest.mark.parametrize(
    ("host", "said"),
    [
        pytest.param(SHARED, {NOWHERE, LASTS, ANSWERS}, id="read-only"),
        pytest.param(
            replace(SHARED, mode=WRITE), {ROOTS, GIT, LASTS, ANSWERS}, id="workspace-write"
        ),
        pytest.param(
            replace(SHARED, mode=WRITE, git_writable=True),
            {ROOTS, LASTS, ANSWERS},
            id="git-writable",
        ),
        pytest.param(replace(SHARED, network="commands"), {NOWHERE, LASTS, OPEN}, id="network"),
        pytest.param(replace(SHARED, shares_tmp=False), {NOWHERE, NEW, ANSWERS}, id="root-in-tmp"),
        pytest.param(
            replace(SHARED, shares_tmp=False, shares_loopback=False), {NOWHERE, NEW, OWN}, id="not-shared"
        ),
        pytest.param(
            HostFacts(starts_programs=True, command_sandbox="landlock"), {NOWHERE, NEW, NONE}, id="landlock"
        ),
        pytest.param(HostFacts(mode=Permission.DANGER_FULL_ACCESS, starts_programs=True), {FULL}, id="full"),
    ],
)  # fmt: skip
def test_the_sandbox_is_described_as_it_is(host: HostFacts, said: set[str]) -> None:
    text = sandbox_facts(host)
    assert {phrase for phrase in ALL if phrase in text} == said


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        pytest.param((), None, id="none"),
        pytest.param(("PDF",), "Also reads the text of PDF files.", id="one"),
        pytest.param(("PDF", "docx", "xlsx"), "Also reads the text of PDF, docx and xlsx files.", id="three"),
    ],
)
def test_only_documents_with_a_parser_are_promised(documents: tuple[str, ...], said: str | None) -> None:
    here = Registry(discover()).on(HostFacts(documents=documents)).find("read_file").spec.description
    assert here.partition("\n\n")[2] == (said or "")
    assert "PDF" not in here.partition("\n\n")[0]


@pytest.mark.parametrize("mode", [READ_ONLY, WORKSPACE_WRITE])
def test_a_real_server_describes_the_sandbox_of_its_mode(mode: str) -> None:
    with scene(USERS[0]) as at, serving(at, mode) as server:
        text = server.tools()["bash"]["description"]
        assert (NOWHERE in text) is (mode == READ_ONLY)
        assert (ROOTS in text) is (mode != READ_ONLY)
        assert ANSWERS in text
        assert LASTS in text
        # As the description says:
        refused = server.call("bash", command="touch here && echo written")
        assert ("written" in refused.text) is (mode != READ_ONLY)
        server.bash("echo kept > $TMPDIR/kept")
        assert server.bash("cat /tmp/kept") == "kept\n"


@pytest.mark.parametrize("mode", MODES)
async def test_the_lists_are_within_their_budgets(mode: str, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    for toolset, most in BUDGETS.items():
        setup = Setup(root=tmp_path / "root", home=tmp_path, mode=mode, flags=("--toolsets", toolset))
        async with connected(setup) as client:
            tools = (await client.list_tools()).tools
        listed = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
        assert 0 < size(listed) <= most
