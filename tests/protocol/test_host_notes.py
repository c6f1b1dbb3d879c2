"""What the descriptions of tools say about the host they run on, and nothing that does not hold there."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from mcp_toolserver.capabilities.permissions import HostFacts, Permission
from mcp_toolserver.pipeline.registry import Registry, discover
from mcp_toolserver.tools.shell.bash import sandbox_facts
from tests.support.confinement import READ_ONLY, USERS, WORKSPACE_WRITE, Server

WRITE = Permission.WORKSPACE_WRITE
SHARED = HostFacts(starts_programs=True, command_sandbox="bubblewrap", shares_loopback=True, shares_tmp=True)
NOWHERE = "write nothing outside $TMPDIR"
ROOTS = "write only in the roots and $TMPDIR"
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
ALL = {NOWHERE, ROOTS, LASTS, NEW, ANSWERS, OWN, NONE, OPEN, LISTED, GIT, FULL}


HOSTS: Mapping[str, tuple[HostFacts, set[str]]] = {
    "read-only": (SHARED, {NOWHERE, LASTS, ANSWERS}),
    "workspace-write": (replace(SHARED, mode=WRITE), {ROOTS, GIT, LASTS, ANSWERS}),
    "git-writable": (replace(SHARED, mode=WRITE, git_writable=True), {ROOTS, LASTS, ANSWERS}),
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


def test_only_documents_with_a_parser_are_promised() -> None:
    for documents, said in (
        ((), ""),
        (("PDF",), "Also reads the text of PDF files."),
        (("PDF", "docx", "xlsx"), "Also reads the text of PDF, docx and xlsx files."),
    ):
        here = Registry(discover()).on(HostFacts(documents=documents)).find("read_file").spec.description
        assert here.partition("\n\n")[2] == said
        assert "PDF" not in here.partition("\n\n")[0]


@pytest.mark.parametrize("mode", [READ_ONLY, WORKSPACE_WRITE])
def test_a_real_server_describes_the_sandbox_of_its_mode(
    mode: str, servers: Callable[[str, str], Server]
) -> None:
    server = servers(USERS[0], mode)
    text = server.tools()["bash"]["description"]
    assert (NOWHERE in text) is (mode == READ_ONLY)
    assert (ROOTS in text) is (mode != READ_ONLY)
    assert ANSWERS in text
    assert LASTS in text
    # As the description says:
    refused = server.call("bash", command="touch here && echo written && rm here")
    assert ("written" in refused.text) is (mode != READ_ONLY)
    server.bash("echo kept > $TMPDIR/kept")
    assert server.bash("cat /tmp/kept") == "kept\n"
