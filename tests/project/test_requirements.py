"""Each requirement of the source systems is proved by a test, or differs for a recorded reason.

A test names the requirements that it proves by the mark `requirement`, with literal ids; `"SW-01..SW-33"` is
a range. docs/requirements.md comes from these marks, `requirements.txt`, and `levels.txt`: the tools of the
catalogue with their levels and hints.
"""

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.generated import ENTRIES, wire

PAGE = ROOT / "docs" / "requirements.md"
FOLDER = ROOT / "tests" / "project"
UPDATE = "review the change, then run  python -m tests requirements"

INTRODUCTION = """# Requirements

Generated. The product implements five systems. Each requirement of theirs holds, and tests prove it; or it
differs, with the reason."""

LEVELS = """
## Levels and hints that differ from the catalogue

A row of the catalogue gives a tool's level, kind and hints. Ours differ where this table has a reason.

| tool | reason |
|---|---|"""

Proof = tuple[Path, str]
"""A test: its file and its name."""


def rows(file: str) -> Iterator[list[str]]:
    """The cells of a data file; a line that starts with `##` is one cell."""
    for line in (FOLDER / file).read_text(encoding="utf-8").splitlines():
        if line.startswith("##") or (line and not line.startswith("#")):
            yield line.split("\t")


def expanded(written: str) -> Iterator[str]:
    """The ids of a range such as `SW-01..SW-33`, or the one id."""
    first, _, last = written.partition("..")
    system, number = first.split("-")
    for one in range(int(number), int((last or first).split("-")[1]) + 1):
        yield f"{system}-{one:02}"


def proofs() -> dict[str, list[Proof]]:
    """The tests that prove each requirement, from their marks."""
    found = defaultdict[str, list[Proof]](list)
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        if "mark.requirement(" not in (text := file.read_text(encoding="utf-8")):
            continue
        for test in ast.walk(ast.parse(text)):
            if not isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for mark in test.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.requirement":
                    for name in (one for given in mark.args for one in expanded(ast.literal_eval(given))):
                        found[name].append((file, test.name))
    return found


PROOFS = proofs()


def requirements() -> Iterator[str]:
    for first, *rest in rows("requirements.txt"):
        if not rest:
            yield f"\n{first}\n\n| id | requirement | verdict | reason or tests |\n|---|---|---|---|"
            continue
        requirement, said = rest[0], "".join(rest[1:])
        verdict, _, reason = said.partition(": ")
        tests = [f"[{name}](../{file.relative_to(ROOT)})" for file, name in PROOFS.get(first, ())]
        shown = " ".join(filter(None, (reason, *tests)))
        verdict = verdict or ("holds" if tests else "unproved")
        yield f"| {first} | {requirement.replace('|', 'or')} | {verdict} | {shown} |"


def page() -> str:
    lines = [*requirements()]
    verdicts = [line.split(" | ")[2] for line in lines if not line.startswith("\n")]
    counts = ", ".join(f"{verdicts.count(one)} {one}" for one in ("holds", "differs", "unproved"))
    reasons = [f"| {name} | {said[0]} |" for name, _, _, _, *said in rows("levels.txt") if said]
    counted = f"\n{len(verdicts)} requirements: {counts}."
    return "\n".join((INTRODUCTION, counted, *lines, LEVELS, *reasons, ""))


def test_each_requirement_has_a_test_or_a_reason_and_each_mark_a_requirement() -> None:
    listed = {name: "".join(said[1:]) for name, *said in rows("requirements.txt") if said}
    assert PROOFS.keys() <= listed.keys()
    assert [name for name, said in listed.items() if not said and name not in PROOFS] == []
    assert {said.partition(": ")[0] for said in listed.values() if said} == {"differs"}


def test_levels_kinds_and_hints_are_those_of_the_catalogue_or_differ_for_a_reason() -> None:
    ours = {entry.spec.name: entry for entry in ENTRIES}
    wrong: list[str] = []
    for name, level, kind, hints, *reason in rows("levels.txt"):
        same = False
        if (entry := ours.get(name)) is not None:
            has = wire(entry)["annotations"]
            assert isinstance(has, dict)
            reads = bool(has["readOnlyHint"])
            said = {"destructive": has["destructiveHint"], "idempotent": has["idempotentHint"] and not reads}
            mine = {word for word, is_so in {**said, "open": has["openWorldHint"]}.items() if is_so}
            is_level = entry.spec.own_permission.flag in level.split("/")
            same = is_level and entry.spec.kind in kind.split("/") and mine == {*hints.split()} - {"-"}
        if same == bool(reason):
            wrong.append(name)
    assert wrong == []


@pytest.mark.requirement("DC-07..DC-14")
def test_the_project_has_the_files_and_uses_the_libraries_of_its_card() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {re.split(r"\W", one)[0] for one in project["dependencies"]}
    product = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "mcp_toolserver").rglob("*.py"))
    for library in ("mcp", "pydantic", "anyio", "httpx", "wcmatch"):
        assert library in needed
        assert re.search(rf"^ *(import|from) {library}\b", product, re.MULTILINE), library
    pinned = {one.partition("==")[0] for one in project["optional-dependencies"]["dev"]}
    assert {"pytest", "pytest-asyncio"} <= pinned
    for name in ("README.md", "mcp_toolserver", "tests", "claude_desktop_config.example.json"):
        assert (ROOT / name).exists(), name


def test_the_page_of_requirements_is_up_to_date(update: bool) -> None:
    if update:
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page(), UPDATE
