"""The pages for developers are correct: examples, layers, packages, settings, variables, promises. The
workflow runs on both systems what `.ci/run` runs, with no more rights than reading."""

import json
import os
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ruamel.yaml import YAML

from mcp_toolserver.settings import PREFIX
from tests import ROOT
from tests import __main__ as gate
from tests.support import official
from tests.support.process_layer import ran

PACKAGE = ROOT / "mcp_toolserver"
PAGES = (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_to_pages_and_sections_that_exist() -> None:
    for file in PAGES:
        written = file.read_text(encoding="utf-8")
        assert not re.search(r"^(<{7}|>{7}) ", written, re.MULTILINE), f"a merge is half done in {file}"
        text = re.sub(r"^```.*?^```$", "", written, flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text)):
            path, _, section = target.partition("#")
            found = file.parent / path if path else file
            assert found.is_file(), (file, target)
            assert not section or section in anchors(found.read_text(encoding="utf-8")), (file, target)


def test_the_pages_are_short() -> None:
    # The table of requirements is looked up, not read.
    pages = [file for file in PAGES if file.name != "requirements.md"]
    words = {file: len(re.findall(r"\S*\w\S*", file.read_text(encoding="utf-8"))) for file in pages}
    assert words[ROOT / "README.md"] < 900
    assert sum(words.values()) <= 30_000


TOOL, TEST = re.findall(r"^```python\n(.*?)^```$", page("internals/adding-a-tool"), re.MULTILINE | re.DOTALL)
"""The example of the page, and its test."""


@pytest.mark.long
def test_the_example_tool_passes_the_type_check_of_the_tools(tmp_path: Path) -> None:
    (tmp_path / "count_lines.py").write_text(TOOL, encoding="utf-8")
    config = {"strict": ["."], "pythonVersion": "3.11", "extraPaths": [str(ROOT)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    pyright = str(Path(sys.executable).with_name("pyright"))
    command = [pyright, "--pythonpath", sys.executable, "--outputjson"]
    checked = ran(command, cwd=tmp_path, env=os.environ)
    found = json.loads(checked.stdout)
    assert found["summary"]["filesAnalyzed"] == 1
    assert not found["generalDiagnostics"]


async def test_the_example_test_passes_and_its_call_has_arguments_of_the_tool(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = ModuleType("mcp_toolserver.tools.files.count_lines")
    exec(compile(TOOL, "count_lines.py", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names: dict[str, Any] = {}
    exec(compile(TEST, "test_count_lines.py", "exec"), names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert len(tests) == 2
    for number, test in enumerate(tests):
        await test(tmp_path / str(number))
    (arguments,) = re.findall(r"^EXAMPLE = (.*)$", TEST, re.MULTILINE)
    assert module.CountLines.model_validate_json(arguments)


def test_the_page_names_files_that_exist() -> None:
    for name in ("adding-a-tool", "contributing", "architecture"):
        for file in re.findall(r"`((?:tests|mcp_toolserver|docs)/[\w/.-]+\.\w+)`", page(f"internals/{name}")):
            assert (ROOT / file).is_file(), file


LAYERS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]


@pytest.mark.requirement("GR-64")
def test_the_drawing_of_the_layers_is_the_contract() -> None:
    drawing = page("internals/architecture").partition("## Layers")[2].split("```\n")[1]
    drawn = [line.split("  ")[0] for line in drawing.splitlines()]
    assert drawn == LAYERS["contracts"][0]["layers"]


def test_every_folder_has_one_paragraph_and_every_module_that_is_named_exists() -> None:
    text = page("internals/architecture")
    paragraphs = text.partition("## Folders")[2].partition("\n## ")[0]
    folders = [path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()]
    assert sorted(re.findall(r"^\*\*`(\w+)/`\*\*", paragraphs, re.MULTILINE)) == sorted(folders)
    for path in re.findall(r"`((?:\w+/)+(?:\w+\.py)?|\w+\.py)`", text):
        assert any(PACKAGE.rglob(path.rstrip("/"))), path


READ_ELSEWHERE = {
    "runtime/processes/broker_client.py": "start_apart, which only the tests use, passes all of it on",
    "runtime/repl/sandboxed/driver.py": "runs in the session's own process",
    "runtime/repl/sandboxed/python_session.py": "runs in the session's own process",
}


def test_only_the_start_reads_the_environment() -> None:
    readers = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if re.search(r"\bos\.(environ|getenv)\b", path.read_text(encoding="utf-8"))
    }
    assert readers - READ_ELSEWHERE.keys() == {"main.py", "app/confinement.py"}
    assert "`main.py` and `app/confinement.py` alone read the environment" in " ".join(
        page("internals/architecture").split()
    )


def test_the_variables_of_the_tests_are_none_of_the_server() -> None:
    """The server refuses a variable with its own prefix that it does not know."""
    variables = {official.CACHE, official.WITHOUT}
    assert variables <= set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", page("internals/contributing")))
    assert not any(name.startswith(PREFIX) for name in variables)


PROMISES = re.findall(r"^\| (P\d+) \| ([^|]+) \| ([^|]+) \|$", page("security"), re.MULTILINE)


def test_every_promise_names_existing_tests_or_why_it_is_open() -> None:
    assert [name for name, *_ in PROMISES] == [f"P{number}" for number in range(1, 24)]
    for name, _, proof in PROMISES:
        tests = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", proof)
        assert tests or re.match(r"open: \w", proof), name
        for file, test in tests:
            source = (ROOT / file).read_text(encoding="utf-8")
            assert re.search(rf"^(async )?def {test}\(", source, re.MULTILINE), f"{name}: {file}::{test}"


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
