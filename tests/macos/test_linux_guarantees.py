"""The list of what only Linux guarantees names tests that exist and points at documentation that says so."""

import subprocess
import sys

import pytest

from mcp_toolserver.runtime.sandbox import posix
from tests import ROOT
from tests.macos.linux_guarantees import LINUX_ONLY, SUITES, Guarantee, entries, names, proven_by


@pytest.fixture(scope="module")
def collected() -> list[str]:
    """The names of all tests of the suites."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-p", "no:cacheprovider", *SUITES]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=120, check=True)
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_every_entry_names_a_test_and_every_suite_keeps_some(collected: list[str]) -> None:
    unused = [entry for entry in entries() if not any(names(entry, test) for test in collected)]
    assert unused == []
    kept = {test.partition("::")[0] for test in collected if proven_by(test) is None}
    assert kept == set(SUITES) - set(entries())


def test_no_entry_is_part_of_another() -> None:
    found = list(entries())
    assert [one for one in found if any(names(other, one) for other in found if other is not one)] == []
    assert len(found) == len(set(found))


@pytest.mark.parametrize("guarantee", LINUX_ONLY, ids=lambda one: one.documented)
def test_the_documentation_says_what_macos_has_instead(guarantee: Guarantee) -> None:
    pages = [(ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("security", "seatbelt")]
    pages.append(posix.__doc__ or "")
    assert any(guarantee.documented in " ".join(page.split()) for page in pages)
