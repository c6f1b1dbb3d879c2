"""The recorded first calls of models: what most of them asked for is done at once."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.agent.first_calls import recorded, replay

pytestmark = pytest.mark.long

EXPECTED: Mapping[str, float] = {"claude-code": 0.93, "listed": 0.96, "other-servers": 0.78}
"""By style the share of calls that do what was asked."""


@pytest.mark.parametrize("style", EXPECTED)
def test_first_calls_do_what_was_asked(style: str, tmp_path: Path) -> None:
    outcomes = replay(recorded()[style], tmp_path)
    failed = [f"{one.call.task}: {one.call.tool} {one.answer[:200]}" for one in outcomes if not one.done]
    assert len(failed) <= (1 - EXPECTED[style]) * len(outcomes), "\n".join(failed)
