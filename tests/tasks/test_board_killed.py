"""What the board acknowledged stays true after a kill of its server; see `tests.tasks.killed_boards`."""

import pytest

from tests.support.extent import rounds
from tests.tasks.killed_boards import scenes


@pytest.mark.rounds
def test_killed_servers_lose_nothing_and_run_nothing_twice() -> None:
    for scene in scenes(rounds(4, 200), seed=11):
        assert scene.wrong == []
        assert scene.known
