"""The workflow runs on both systems what `.ci/run` runs, with no more rights than reading."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests import ROOT
from tests import __main__ as gate

FILE = ROOT / ".github/workflows/ci.yml"


TEXT = FILE.read_text(encoding="utf-8")
JOBS: dict[str, dict[str, Any]] = YAML(typ="safe").load(TEXT)["jobs"]
STEPS: list[dict[str, Any]] = [step for job in JOBS.values() for step in job["steps"]]


def test_the_gate_command_of_the_readme_runs_on_linux_and_macos() -> None:
    job = JOBS["gate"]
    systems = {system.partition("-")[0] for system in job["strategy"]["matrix"]["system"]}
    assert systems >= {"ubuntu", "macos"}
    assert job["runs-on"] == "${{ matrix.system }}"
    (step,) = [step for step in job["steps"] if step.get("run") == "bash .ci/run"]
    # On every system, and a failure fails the job.
    assert step.keys() == {"name", "run"}
    assert "continue-on-error" not in TEXT
    for name in (".ci/run", "README.md"):
        assert "<!-- gate -->" in (ROOT / name).read_text(encoding="utf-8")


def test_the_workflow_reads_only_has_no_secret_and_pins_every_action() -> None:
    assert re.findall(r"permissions:\s+(.*)", TEXT) == ["contents: read"]
    assert "secrets" not in TEXT
    assert "pull_request_target" not in TEXT
    # What somebody else writes, such as a title or the name of a branch, is not put into a script.
    assert set(re.findall(r"\$\{\{ (.*?) \}\}", TEXT)) == {"matrix.system"}
    checkouts = [step for step in STEPS if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert used
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+\.\d+\.\d+", name) for name in used), used


def test_the_gate_runs_everything_on_linux_and_on_macos_names_what_it_leaves_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    assert gate.whole() == (*gate.CHECKS, "tests")
    assert gate.left_out() == ()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert gate.whole() == (*gate.CHECKS, "portable")
    run = {Path(name).relative_to(ROOT) for name in gate.portable()}
    out = {Path(name) for name in gate.left_out() if name not in gate.DESELECTED}
    everything = {file.relative_to(ROOT) for file in (ROOT / "tests").rglob("test_*.py")}
    assert run | out == everything
    assert not run & out
    assert {Path("tests/files/test_patch.py"), Path("tests/setup/test_setup.py")} <= run
    assert {Path("tests/sandbox/test_bubblewrap.py"), Path("tests/sandbox/test_process_locks.py")} <= out
    assert set(gate.DESELECTED) <= set(gate.left_out())
    for name in gate.DESELECTED:
        file, _, test = name.partition("::")
        assert re.search(
            rf"^(async )?def {test}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE
        ), name
        assert f"--deselect={name}" in gate.STEPS["portable"][0]
