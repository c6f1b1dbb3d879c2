"""The workflow runs on both systems what `.ci/run` runs, with no more rights than reading."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from mcp_toolserver.invocation import load
from tests import ROOT
from tests import __main__ as gate

FILE = ROOT / ".github/workflows/ci.yml"


@pytest.fixture(scope="module")
def workflow() -> dict[str, Any]:
    return YAML(typ="safe").load(FILE.read_text(encoding="utf-8"))


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_the_gate_command_of_the_readme_runs_on_linux_and_macos(workflow: dict[str, Any]) -> None:
    job = workflow["jobs"]["gate"]
    systems = job["strategy"]["matrix"]["system"]
    assert any(system.startswith("ubuntu-") for system in systems)
    assert any(system.startswith("macos-") for system in systems)
    assert job["runs-on"] == "${{ matrix.system }}"
    (step,) = [step for step in job["steps"] if step.get("run") == "bash .ci/run"]
    # On every system, and a failure fails the job.
    assert step.keys() == {"name", "run"}
    assert "continue-on-error" not in FILE.read_text(encoding="utf-8")
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "<!-- gate -->" in script
    assert "<!-- gate -->" in readme


def test_the_workflow_reads_only_and_has_no_secret(workflow: dict[str, Any]) -> None:
    assert workflow["permissions"] == {"contents": "read"}
    assert all("permissions" not in job for job in workflow["jobs"].values())
    text = FILE.read_text(encoding="utf-8")
    assert "secrets" not in text
    assert "pull_request_target" not in text
    # What somebody else writes, such as a title or the name of a branch, is not put into a script.
    assert set(re.findall(r"\$\{\{ (.*?) \}\}", text)) == {"matrix.system"}
    checkouts = [step for step in steps(workflow) if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_every_action_is_pinned_to_a_version(workflow: dict[str, Any]) -> None:
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert used
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+\.\d+\.\d+", name) for name in used), used
    python = [
        step["with"]["python-version"] for step in steps(workflow) if "setup-python" in step.get("uses", "")
    ]
    classifiers = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert all(f"Programming Language :: Python :: {version}" in classifiers for version in python)


def test_the_report_is_written_by_a_command_that_exists(workflow: dict[str, Any]) -> None:
    job = workflow["jobs"]["report"]
    (line,) = [step["run"] for step in job["steps"] if "doctor" in step.get("run", "")]
    assert load(line.partition("mcp-toolserver ")[2].split(), {}).report == job["steps"][-1]["with"]["path"]


# --- what the gate runs on another system than Linux -----------------------------------------------------


def test_the_gate_runs_everything_on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    assert gate.whole() == (*gate.CHECKS, "tests", "coverage")
    assert gate.left_out() == ()


def test_the_gate_on_macos_runs_the_portable_tests_and_names_what_it_leaves_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert gate.whole() == (*gate.CHECKS, "portable")
    run = {Path(name).relative_to(ROOT) for name in gate.portable()}
    out = {Path(name) for name in gate.left_out() if name not in gate.DESELECTED}
    everything = {file.relative_to(ROOT) for file in (ROOT / "tests").rglob("test_*.py")}
    assert run | out == everything
    assert not run & out
    assert {Path("tests/files/test_patch.py"), Path("tests/setup/test_setup_macos.py")} <= run
    assert {Path("tests/sandbox/test_bubblewrap.py"), Path("tests/sandbox/test_landlock.py")} <= out
    assert set(gate.DESELECTED) <= set(gate.left_out())


def test_single_tests_that_are_left_out_exist_and_are_named() -> None:
    for name in gate.DESELECTED:
        file, _, test = name.partition("::")
        assert re.search(
            rf"^(async )?def {test}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE
        ), name
        assert f"--deselect={name}" in gate.STEPS["portable"][0]
