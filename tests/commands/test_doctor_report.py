"""`doctor --report`: one new file that says what was tried here, with nothing private in it."""

import json
import os
import platform
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.commands.doctor.doctor import judged, report, write_report
from mcp_toolserver.commands.doctor.facts import MODES
from mcp_toolserver.commands.doctor.host import RootFacts
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.invocation import load
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.runtime.sandbox.broker.policy import BrokerPolicy
from mcp_toolserver.runtime.sandbox.layers.spec import Check, SandboxSpec, decode_proof, encode_proof
from mcp_toolserver.runtime.sandbox.selftest import seatbelt_selftest, selftest
from mcp_toolserver.settings import OPTIONS, TABLES
from tests import ROOT
from tests.commands.test_doctor import GOOD, LINUX, LOCKED, but
from tests.support.process_layer import ran
from tests.support.workshop import program

MARK = "zqxv"
"""In everything that is planted, and in nothing else."""

SOURCE = " ".join(file.read_text(encoding="utf-8") for file in (ROOT / "mcp_toolserver").rglob("*.py"))


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower()))


KNOWN = words(f"{SOURCE} {platform.system()} {platform.machine()} <genexpr>")
"""Every word that a report may have."""


def run(folder: Path, command: Sequence[str], *flags: str, **environ: str) -> tuple[Any, str]:
    """The report that a program writes, and what went to standard error."""
    file = folder / "report.json"
    place = ("--report", str(file), "--state-dir", str(folder / f"{MARK}-state"))
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder), **environ}
    done = ran([sys.executable, *command, "doctor", *place, *flags], env=env, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"Wrote {file}") == done.stdout.count("Read the file before") == 1
    text = file.read_text(encoding="ascii")
    assert words(text) <= KNOWN, words(text) - KNOWN
    assert MARK not in KNOWN
    assert str(folder) not in text
    return json.loads(text), done.stderr


@pytest.mark.parametrize("fails", [False, pytest.param(True, marks=pytest.mark.long)])
def test_nothing_private_reaches_the_report(tmp_path: Path, *, fails: bool) -> None:
    home, root, token = tmp_path / f"{MARK} home ü", tmp_path / f"{MARK}-Root é", tmp_path / f"{MARK}-token"
    for folder in (home,) if fails else (home, root):
        folder.mkdir()
    token.write_text(f"Token0{MARK.upper()}0Value0That0Is0Long", encoding="utf-8")
    token.chmod(0o644)
    config = tmp_path / f"{MARK}.toml"
    config.write_text(
        f'port = 4711\nhost = "10.1.2.3"\nweb-hosts = ["{MARK}.example"]\nmax-calls = 9\n'
        f'command-environment = ["{MARK.upper()}_VARIABLE"]\ncontainer-image = "registry/{MARK}:1"\n'
        f'[rules]\ndeny = ["Read({MARK}-rule/**)", "Edit(*.{MARK})"]\n'
        f'[agent]\nprovider = "openai"\nmodel = "{MARK}-model"\nbase-url = "http://127.0.0.1:9/{MARK}"\n'
        f'key-variable = "{MARK.upper()}_KEY"\n',
        encoding="utf-8",
    )
    program(tmp_path / "bin", "git", f"echo {MARK}")
    flags = ("--root", str(root), "--config", str(config), "--token-file", str(token))
    environ = {f"{MARK.upper()}_KEY": f"sk-{MARK}", "HOME": str(home), "USER": f"{MARK}user"}
    environ |= {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    flags += ("--exclude-tools", f"{MARK}_tool,read_file")
    content, _ = run(tmp_path, ("-m", "mcp_toolserver"), *flags, **environ)
    settings = content["settings"]
    assert settings.keys() == {option.name for option in (*OPTIONS, *TABLES["rules"], *TABLES["agent"])}
    shown = {"max-calls": 9, "port": "set", "host": "set", "container-image": "set", "git": "writable"}
    shown |= {"exclude-tools": ["other", "read_file"], "deny": "2 given", "permission-mode": "read-only"}
    assert {name: settings[name] for name in shown} == shown
    if fails:
        assert content["failure"]["error"] == "SettingsError"
        assert any(place.startswith("commands/doctor/facts.py:") for place in content["failure"]["at"])
        return
    assert (content["status"], content["mode"]) == (2, "read-only")
    assert {"what": "private files", "standing": "missing"} in content["findings"]
    assert [mode["mode"] for mode in content["modes"]] == list(MODES)
    assert content["modes"][2]["layers"]["commands"] == "not confined"
    assert all(content["modes"][0]["tests"]["server process"]["checks"].values())


@pytest.mark.parametrize("layer", ["selftest", "seatbelt_selftest"][sys.platform != "linux" :])
@pytest.mark.parametrize(
    ("end", "failed"), [("end", "temporary files can be written"), ("", "the script runs to its end")]
)
def test_failed_checks_are_named_without_output(layer: str, end: str, failed: str, tmp_path: Path) -> None:
    printed = f'root $(cat kept)"; echo "{end} {MARK}"; echo "place {MARK}'
    nothing = program(tmp_path, MARK, f'echo "{printed}"')
    sandbox = SandboxSpec(mode="read-only", roots=(), home="/", state=str(tmp_path), programs=(nothing,))

    def enforce_nothing(spec: SandboxSpec, _: object, __: str) -> tuple[int, str]:
        return 0, ran([nothing], env={}, cwd=Path(spec.roots[0])).stdout

    if layer == "selftest":
        proof = selftest.prove(sandbox, enforce_nothing, abi=7)
    else:
        (scratch := tmp_path / "scratch").mkdir()
        policy = BrokerPolicy(sandbox=sandbox, environment={}, shell=("/bin/sh", "-c"), scratch=str(scratch))
        proof = seatbelt_selftest.prove(policy)
    proof = decode_proof(encode_proof(proof))
    assert MARK in proof.reasons[0]
    check = Check(name="opens no socket", held=False, seen=MARK)
    facts = but(
        replace(GOOD, policy=replace(GOOD.policy, environment={"PATH": MARK, MARK: MARK})),
        host=replace(LINUX, distributions=("debian", MARK)),
        roots=(*GOOD.roots, RootFacts(path=MARK, file_system=f"fuse.{MARK}", ignores_case=False)),
        proofs={"read-only": proof, "workspace-write": replace(proof, checks=(check,))},
        servers=dict.fromkeys(GOOD.servers, replace(LOCKED, held=False, checks=(check,), reasons=(MARK,))),
        **dict.fromkeys(("filters", "unprotectable", "git_version", "no_model", "state_dir"), MARK),
        **dict.fromkeys(("programs", "exposed", "hiding_rules"), (MARK,)),
        no_desktop={"screen": MARK},
        hidden_git={MARK: MARK},
    )
    for mode in MODES:
        one = but(facts, mode=mode)
        found: Any = judged(one, report(one))
        assert words(json.dumps(found)) <= KNOWN
        assert failed in found["checks that layers failed"]["read-only"]
        assert found["modes"][1]["tests"]["commands"]["checks"] == {"opens no socket": False}
        assert found["machine"]["distributions"] == ["debian"]
        assert [place["file system"] for place in found["roots"]] == ["ext4", "other"]


def test_an_existing_file_is_never_replaced(tmp_path: Path) -> None:
    def reported(file: Path) -> int:
        return write_report(load(["doctor", "--report", str(file)], {}), HostExecutables(), lambda: None)

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


IN_THE_FORK = "sys.modules['mcp_toolserver.runtime.sandbox.broker.main'] = None"


@pytest.mark.parametrize(
    ("lacking", "error", "said"),
    [
        ("del os.fork", "AttributeError", ""),
        pytest.param(IN_THE_FORK, "Unavailable", "ModuleNotFoundError", marks=pytest.mark.long),
    ],
)
def test_a_broker_that_fails_is_reported_once(lacking: str, error: str, said: str, tmp_path: Path) -> None:
    script = f"from mcp_toolserver import main; import os, sys; {lacking}; main.main()"
    content, printed = run(tmp_path, ("-c", script))
    assert (content["broker"], content["failure"]["error"]) == (False, error)
    assert content["failure"]["at"][-1].startswith("runtime/processes/")
    assert said in printed
