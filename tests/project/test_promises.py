"""docs/security.md lists every promise and names existing tests for it."""

import re

from tests import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
PROMISES = re.findall(r"^\| (P\d+) \| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)


def test_the_page_lists_every_promise_once() -> None:
    assert [name for name, *_ in PROMISES] == [f"P{number}" for number in range(1, 24)]


def test_every_promise_names_existing_tests_or_why_it_is_open() -> None:
    for name, _, proof in PROMISES:
        tests = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", proof)
        assert tests or re.match(r"open: \w", proof), name
        for file, test in tests:
            source = (ROOT / file).read_text(encoding="utf-8")
            assert re.search(rf"^(async )?def {test}\(", source, re.MULTILINE), f"{name}: {file}::{test}"
