"""The list of what only Linux guarantees names tests that exist and points at documentation that says so."""

import ast

from mcp_toolserver.runtime.sandbox import posix
from tests import ROOT
from tests.macos.linux_guarantees import DOCUMENTED, LINUX_ONLY, SUITES, proven_by


def defined(suite: str) -> set[str]:
    """The names of the tests in a file, without those of their cases."""
    tree = ast.parse((ROOT / suite).read_text(encoding="utf-8"))
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {f"{suite}::{node.name}" for node in functions if node.name.startswith("test_")}


def test_every_entry_names_a_test_and_every_suite_keeps_some() -> None:
    tests = {suite: defined(suite) for suite in SUITES}
    existing = {*tests, *(test for found in tests.values() for test in found)}
    assert [entry for entry in LINUX_ONLY if entry.partition("[")[0] not in existing] == []
    kept = {suite for suite, found in tests.items() if not all(map(proven_by, found))}
    assert kept == set(SUITES) - set(LINUX_ONLY)


def test_the_documentation_says_what_macos_has_instead() -> None:
    pages = [
        (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        for name in ("security", "internals/seatbelt")
    ]
    assert DOCUMENTED in " ".join(" ".join((*pages, posix.__doc__ or "")).split())
