"""Many clients at once over HTTP, against one server process: the short form of the benchmark."""

from pathlib import Path

import pytest

from benchmarks.load import GROWTH, Load, measured, rows


@pytest.mark.long  # calls of many clients at once are checked one by one in test_named_tokens.py
def test_many_clients_of_both_eras_get_every_answer(tmp_path: Path) -> None:
    load = Load(clients=6, seconds=2.0, tree_files=50)
    figures = measured(load, tmp_path)
    assert figures.seen.errors == []
    assert all(len(seconds) > 1 for seconds in figures.seen.seconds)
    assert figures.memory_end <= GROWTH * figures.memory_warm
    assert len(rows(load, figures)) == 7
