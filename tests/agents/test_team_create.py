"""The tool TeamCreate as a client sees it; tests/agents/test_agent_teams.py has the rest."""

import threading
from pathlib import Path

import pytest

from tests.agents.agents import Says, model_api
from tests.agents.test_agent import settings
from tests.protocol.resource_clients import ERAS, place
from tests.support.live import text

EXAMPLE = {
    "name": "crew",
    "members": [
        {"name": "ann", "prompt": "Watch the tests."},
        {"name": "bob", "prompt": "Watch the tests.", "subagent_type": "Explore"},
    ],
}


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_starts_a_team_and_stops_it(era: str, tmp_path: Path) -> None:
    gate = threading.Event()
    try:
        with model_api({"Watch": [Says("I wait.", after=gate)]}) as model:
            async with place(tmp_path, **settings(model.url)) as made, made.client(era) as client:
                created = await client.call_tool("TeamCreate", EXAMPLE)
                assert "2 members:\n- ann: agent_" in text(created)
                deleted = await client.call_tool("TeamDelete", {"team_id": "crew"})
                assert text(deleted).count("stopped after") == 2
                again = await client.call_tool("TeamDelete", {"team_id": "crew"})
                assert again.is_error
    finally:
        gate.set()


@pytest.mark.parametrize("era", ERAS)
async def test_without_a_model_teams_are_not_listed(era: str, tmp_path: Path) -> None:
    async with place(tmp_path) as made, made.client(era) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert not names & {"TeamCreate", "TeamDelete", "SendMessage"}
