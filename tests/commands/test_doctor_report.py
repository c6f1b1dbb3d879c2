"""`doctor --report`: one new file that says what was tried here, with nothing private in it."""

import json
import os
import subprocess
import sys
import urllib.parse
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver import __version__
from mcp_toolserver.commands.doctor import report as report_module
from mcp_toolserver.commands.doctor.anonymizer import LONGEST, Anonymizer, Private, is_system_path
from mcp_toolserver.commands.doctor.doctor import report
from mcp_toolserver.commands.doctor.report import installer, judged, private, write_report
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.invocation import load
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.runtime.sandbox.layers.spec import Check, Proof
from mcp_toolserver.settings import OPTIONS, TABLES
from tests import ROOT
from tests.commands.test_doctor import GOOD
from tests.support.confinement import visible_folder
from tests.support.workshop import program

MARK = "zqxv"
"""In everything that is planted, and in nothing else."""

HOST = f"{MARK}host"

RUN_ON_HOST = f"""\
import os, socket, sys
socket.sethostname("{HOST}.{MARK}.example")
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def base() -> Generator[Path]:
    with visible_folder() as folder:
        yield folder


def leaves(content: object) -> Iterator[str]:
    """Every text and key of a JSON document."""
    match content:
        case dict():
            for key, value in content.items():
                yield from (str(key), *leaves(value))
        case list():
            for value in content:
                yield from leaves(value)
        case _:
            yield str(content)


def planted_in(text: str) -> list[str]:
    """The lines that hold what was planted, in any spelling."""
    decoded = urllib.parse.unquote(urllib.parse.unquote(text))
    unescaped = decoded.encode("ascii", "ignore").decode("unicode_escape")
    return [line for one in (text, decoded, unescaped) for line in one.splitlines() if MARK in line.lower()]


@pytest.mark.skipif(sys.platform != "linux", reason="unshare is a program of Linux")
def test_nothing_private_reaches_the_report(base: Path) -> None:
    home = base / f"{MARK} home ü"
    roots = [home / f"{MARK}-Root-One", base / f"{MARK}_root_two é"]
    for folder in roots:
        folder.mkdir(parents=True)
        (folder / f"{MARK}-file.txt").write_text("", encoding="utf-8")
    (home / ".gitconfig").write_text(
        f"[user]\n\tname = Ada {MARK.title()}name\n\temail = ada@{MARK}mail.example\n", encoding="utf-8"
    )
    secrets = base / f"{MARK}-secrets"
    secrets.mkdir()
    token = secrets / "token"
    token.write_text(f"Token0{MARK.upper()}0Value0That0Is0Long", encoding="utf-8")
    token.chmod(0o644)
    config = secrets / "config.toml"
    config.write_text(
        f'web-hosts = ["{MARK}.example"]\nweb-private = ["10.{len(MARK)}.0.0/16"]\n'
        f'command-environment = ["{MARK.upper()}_VARIABLE"]\ncontainer-image = "registry/{MARK}:1"\n'
        f'[rules]\ndeny = ["Read({MARK}-rule/**)", "Edit(*.{MARK})"]\n'
        f'[agent]\nprovider = "openai"\nmodel = "{MARK}-model"\nbase-url = "http://127.0.0.1:9/{MARK}"\n'
        f'key-variable = "{MARK.upper()}_KEY"\n',
        encoding="utf-8",
    )
    said = "; ".join(
        (
            f"{roots[0]}/{MARK}-file.txt",
            str(roots[1]).upper(),
            urllib.parse.quote(str(home)),
            urllib.parse.quote(urllib.parse.quote(str(roots[1]))),
            json.dumps(str(roots[1]))[1:-1],
            f"file://{home}/x y.txt",
            f"{token.read_text(encoding='utf-8')} of {MARK}user on {HOST}",
            f"value {MARK} of a variable",
            f"{MARK.title()}name <ada@{MARK}mail.example> {MARK}-Root-One",
        )
    )
    words = base / "said"
    words.write_text(said, encoding="utf-8")
    git = program(base / "bin", "git", f'cat "{words}"')
    program(base / "bin", "bwrap", f'cat "{words}" >&2; exit 1')
    file = base / "report.json"
    place = ("--root", *map(str, roots), "--state-dir", str(base / f"{MARK}-state"))
    unshare = ("unshare", *(() if os.geteuid() == 0 else ("--user", "--map-root-user")), "--uts")
    done = subprocess.run(
        [
            *(*unshare, sys.executable, "-c", RUN_ON_HOST, sys.executable, "-m", "mcp_toolserver", "doctor"),
            *("--report", str(file), *place, "--config", str(config), "--token-file", str(token)),
        ],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=ROOT,
        env={
            **{name: value for name, value in os.environ.items() if name != "PATH"},
            "PATH": f"{base / 'bin'}:/usr/bin:/bin",
            "HOME": str(home),
            "USER": f"{MARK}user",
            f"{MARK.upper()}_KEY": f"sk-{MARK}",
            "OTHER": f"value {MARK} of a variable",
        },
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert str(file) in done.stdout
    assert "Read the file before you attach it" in done.stdout
    text = file.read_text(encoding="ascii")
    assert planted_in(text) == []
    content: dict[str, Any] = json.loads(text)
    assert content["version"] == __version__
    detail = {finding["what"]: finding.get("detail", "") for finding in content["findings"]}
    # What the report does not know is shown without its text.
    assert (detail["deny rules that commands are not kept to"], detail["model of agents"]) == ("", "")
    assert "<root 1>" in detail["paths stay in the roots"]
    assert "<root 2>" in detail["paths stay in the roots"]
    assert "<home>" in detail["git"]
    assert git not in text
    assert content["settings"]["token-file"] == "set"
    assert content["settings"]["deny"] == "2 given"
    assert content["settings"]["permission-mode"] == "read-only"
    assert {mode["mode"] for mode in content["modes"]} == {
        "read-only",
        "workspace-write",
        "danger-full-access",
    }
    tests = [test for mode in content["modes"] for test in mode["tests"].values()]
    checks = [check for test in tests for check in test["checks"]]
    assert len(checks) > 10
    assert all({"name", "held", "output"} == check.keys() for check in checks)


def test_the_output_of_a_probe_is_reported_without_what_is_private(tmp_path: Path) -> None:
    settings = load(["doctor", "--root", str(tmp_path / "Project Falcon")], {}).settings
    environ = {"HOME": "/Users/ada", "USER": "ada", "LANG": "C.UTF-8"}
    anonymous = Anonymizer(private(settings, environ), resolved=lambda path: path)
    seen = (
        f"sandbox-exec: {tmp_path}/Project Falcon/a.txt: Operation not permitted; /usr/bin/true ended with 71"
    )
    proof = Proof(
        commands="none",
        helpers="none",
        checks=(Check(name="files in the root can be read", held=False, seen=seen),),
        reasons=(f"seatbelt: {seen}",),
    )
    programs = ("/usr/bin/sandbox-exec", "/Users/ada/bin/x")
    no_desktop = {"say": "no say for ada"}
    proofs = dict.fromkeys(GOOD.proofs, proof)
    facts = replace(GOOD, proofs=proofs, no_desktop=no_desktop, programs=programs)
    found = judged(facts, report(facts), anonymous)
    (mode,) = [mode for mode in found["modes"] if mode["mode"] == "read-only"]  # pyright: ignore
    (check,) = mode["tests"]["commands"]["checks"]  # pyright: ignore
    expected = "sandbox-exec: <root 1>: Operation not permitted; /usr/bin/true ended with 71"
    assert check == {"name": "files in the root can be read", "held": False, "output": expected}  # pyright: ignore
    assert mode["tests"]["commands"]["reasons"] == [f"seatbelt: {expected}"]  # pyright: ignore
    assert found["kernel"]["programs of the sandbox"] == ["/usr/bin/sandbox-exec", "<home>"]  # pyright: ignore
    assert found["desktop"]["unavailable"] == {"say": "no say for <user>"}  # pyright: ignore


def test_every_setting_is_named_and_only_harmless_values_are_shown(base: Path) -> None:
    config = base / "config.toml"
    config.write_text('[rules]\ndeny = ["Read(x)"]\n', encoding="utf-8")
    settings = load(
        [
            *("doctor", "--config", str(config), "--port", "4711", "--host", "10.1.2.3", "--max-calls", "9"),
            *("--toolsets", "files,mine", "--permission-mode", "workspace-write", "--raw-output"),
        ],
        {},
    ).settings
    shown = dict(report_module._settings(settings))
    assert shown.keys() == {option.name for option in (*OPTIONS, *TABLES["rules"], *TABLES["agent"])}
    assert (shown["port"], shown["host"], shown["max-calls"]) == ("set", "set", 9)
    assert shown["toolsets"] == ["files", "<name>"]
    assert (shown["permission-mode"], shown["raw-output"], shown["deny"]) == (
        "workspace-write",
        True,
        "1 given",
    )


# --- the file --------------------------------------------------------------------------------------------


def reported(file: Path, *flags: str) -> int:
    invocation = load(["doctor", "--report", str(file), *flags], {})
    return write_report(invocation, HostExecutables(), {"HOME": "/nowhere"}, broker=False)


def test_an_existing_file_is_never_replaced(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    assert reported(file) == 0
    before = file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for place in (file, tmp_path / "link"):
        with pytest.raises(SettingsError, match="exists; name a new file"):
            reported(place)
    with pytest.raises(SettingsError, match="cannot create"):
        reported(tmp_path / "no/report.json")
    assert file.read_bytes() == before
    assert not (tmp_path / "elsewhere").exists()


def test_a_doctor_that_fails_is_reported_with_its_error(tmp_path: Path) -> None:
    root = tmp_path / "Secret Place"
    file = tmp_path / "report.json"
    assert reported(file, "--root", str(root)) == 0
    content = json.loads(file.read_text(encoding="ascii"))
    failure = content["failure"]
    assert failure["error"] == "SettingsError"
    assert "<root 1>" in failure["message"]
    assert any(place.startswith("commands/doctor/facts.py:") for place in failure["at"])
    assert "Secret Place" not in file.read_text(encoding="ascii")
    assert content["version"] == __version__


BEFORE_THE_FORK = "import os; del os.fork"
IN_THE_FORK = "import sys; sys.modules['mcp_toolserver.runtime.sandbox.broker.main'] = None"


def reported_in_a_process(folder: Path, *command: str) -> tuple[str, dict[str, Any]]:
    """The text of the report that a program writes for an empty root, and what it holds."""
    (folder / "root").mkdir()
    file = folder / "report.json"
    flags = ("--report", str(file), "--root", str(folder / "root"), "--state-dir", str(folder / "state"))
    done = subprocess.run(
        [sys.executable, *command, "doctor", *flags],
        env={**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("Wrote") == 1
    text = file.read_text(encoding="ascii")
    return text, json.loads(text)


@pytest.mark.parametrize(
    ("lacking", "error", "place"),
    [
        pytest.param(BEFORE_THE_FORK, "AttributeError", "runtime/processes/", id="before the fork"),
        pytest.param(IN_THE_FORK, "ModuleNotFoundError", "runtime/processes/", id="in the fork"),
    ],
)
def test_why_the_broker_does_not_start_is_reported_once(
    lacking: str, error: str, place: str, tmp_path: Path
) -> None:
    _, content = reported_in_a_process(
        tmp_path, "-c", f"from mcp_toolserver import main; {lacking}; main.main()"
    )
    assert content["broker"] is False
    assert content["failure"]["error"] == error
    assert content["failure"]["at"][0].startswith("main.py:")
    assert content["failure"]["at"][-1].startswith(place)


def test_a_simulated_mac_without_a_sandbox_gets_a_report(tmp_path: Path) -> None:
    """Whatever fails there; nothing here was executed on a Mac."""
    simulation = str(ROOT / "tests/support/stripped.py")
    text, content = reported_in_a_process(tmp_path, simulation, "darwin")
    assert str(tmp_path) not in text
    assert content["missing programs"]["desktop_say"] == "no say was found on the PATH of this server"
    assert "failure" not in content
    assert len(content["modes"]) == 3
    layers = {mode["mode"]: mode["layers"]["commands"] for mode in content["modes"]}
    assert {layers["read-only"], layers["workspace-write"]} == {"refused"}


# --- what installed it -----------------------------------------------------------------------------------


def test_what_installed_the_package_is_known_by_its_receipt_or_says_so_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipts = {
        "uv-receipt.toml": "uv tool",
        "pipx_metadata.json": "pipx",
        "../INSTALL_RECEIPT.json": "Homebrew",
    }
    for receipt, name in receipts.items():
        prefix = tmp_path / name / "libexec"
        prefix.mkdir(parents=True)
        (prefix / receipt).write_text("", encoding="utf-8")
        assert installer(prefix) == name
    assert installer(tmp_path) in ("pip, editable", "uv, editable")
    monkeypatch.setattr(report_module, "DISTRIBUTION", "pytest")
    assert installer(tmp_path) in ("pip", "uv")
    monkeypatch.setattr(report_module, "DISTRIBUTION", "no-such-package")
    assert installer(tmp_path) == "unknown"


# --- the anonymizer --------------------------------------------------------------------------------------

PRIVATE = Private(
    paths=(
        ("/Users/ada/Projekt Übung", "<root 1>"),
        ("/Users/ada", "<home>"),
        ("/private/tmp/work-1", "<root 2>"),
        ("/usr/bin", "<never>"),
    ),
    names=(("ada", "<user>"), ("falcon.local", "<host>"), ("root", "<user>"), ("", "<user>")),
    values=(
        ("hunter22", "<secret>"),
        ("read-only", "<setting>"),
        ("/usr/bin:/bin", "<never>"),
        ("ab", "<x>"),
    ),
    public=frozenset({"read-only"}),
)


ANONYMOUS = Anonymizer(PRIVATE, resolved=lambda path: path)

TEXTS: dict[str, tuple[str, str]] = {
    "as it is": ("in /Users/ada/Projekt Übung now", "in <root 1> now"),
    "another case": ("/USERS/Ada/projekt übung", "<root 1>"),
    "NFD": ("/Users/ada/Projekt U\u0308bung", "<root 1>"),
    "URL": ("/Users/ada/Projekt%20%C3%9Cbung", "<root 1>"),
    "URL of NFD": ("/Users/ada/Projekt%20U%CC%88bung", "<root 1>"),
    "URL twice": ("%2FUsers%2Fada%2FProjekt%2520%25C3%259Cbung", "<root 1>"),
    "JSON": (r"\/Users\/ada\/Projekt \u00dcbung", "<root 1>"),
    "shell": (r"/Users/ada/Projekt\ Übung", "<root 1>"),
    "bytes": (r"b'/Users/ada/Projekt \xc3\x9cbung'", "b'<root 1>'"),
    "octal": (r"/Users/ada/Projekt\040\303\234bung", "<root 1>"),
    "what follows": ("//Users/./ada//Projekt Übung/secret name.txt: no", "<root 1>: no"),
    "folder of a client": ("-Users-ada-Projekt Übung", "<root 1>"),
    "a component alone": ("Projekt Übung is one", "<name> is one"),
    "linked folders": ("/tmp/work-1 and /private/tmp/work-1", "<root 2> and <root 2>"),
    "a longer name": ("/tmp/work-12", "<path>"),
    "home": ("/Users/ada/.ssh/id", "<home>"),
    "tilde": ("~/notes/a b.txt, x", "<path>, x"),
    "unknown path": ("/Users/grace/x y: no", "<path>: no"),
    "Windows": ("C:\\Users\\Grace\\x", "<path>"),
    "relative path": ("secrets/plan.txt", "<path>"),
    "system": ("/usr/bin/git /System/x.dylib /", "/usr/bin/git /System/x.dylib /"),
    "dots": ("/usr/../Users/x", "<path>"),
    "user": ("by ADA's program", "by <user>'s program"),
    "a name in a word": ("adapter", "adapter"),
    "a long name in a word": ("xFALCON.localx", "x<host>x"),
    "public words": ("root reads read-only", "root reads read-only"),
    "value": ("hunter22 hunter%32%32", "<secret> <secret>"),
    "addresses": (
        "me@corp.example 10.1.2.3 fe80:0:0:0:1:2:3:4 127.0.0.1", "<address> <address> <address> 127.0.0.1",
    ),
    "URL of a server": ("see https://x.corp.example/a?b", "see <address>"),
    "random": ("key Ab12Ab12Ab12Ab12Ab12Ab12Ab12", "key <secret>"),
    "key": ("ghp_0123456789abcdefGHIJ", "[redacted]"),
    "numbers": ("at 12:30:45, version 1.2.3", "at 12:30:45, version 1.2.3"),
    "long": ("x " * LONGEST, f"{('x ' * LONGEST)[:LONGEST]}… (cut)"),
}  # fmt: skip


def test_what_is_private_is_replaced() -> None:
    assert {name: ANONYMOUS(text) for name, (text, _) in TEXTS.items()} == {
        name: expected for name, (_, expected) in TEXTS.items()
    }


def test_paths_of_the_system_alone_are_no_secret() -> None:
    system = ("/etc/passwd", "/dev/null", "/tmp", "/var/", "/Users")
    others = ("/tmp/x", "/var/folders/ab/x", "/home/ada", "/opt/company", "/usr/../srv")
    assert [path for path in (*system, *others) if is_system_path(path)] == [*system]
