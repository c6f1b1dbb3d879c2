"""What the tests rely on to be quick."""

from pathlib import Path

import pytest

from tests.__main__ import without_programs


@pytest.mark.xdist_group("together")
def test_groups_are_kept_together(request: pytest.FixtureRequest) -> None:
    """They share servers. An xdist that does not know this version of pytest tears them apart."""
    if request.config.getoption("loadgroup", False):
        assert request.node.nodeid.endswith("@test_gate_together")


def test_the_fast_step_runs_what_starts_no_programs() -> None:
    chosen = {Path(file).stem for file in without_programs()}
    assert {"test_every_tool", "test_dispatch", "test_patch", "test_edit_file"} <= chosen
    assert chosen.isdisjoint({"test_gate", "test_server", "test_broker", "test_load", "test_bash"})
