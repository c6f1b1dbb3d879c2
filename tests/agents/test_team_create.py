"""The tool TeamCreate as a client sees it; tests/agents/test_agent_teams.py has the rest."""

import threading
from pathlib import Path

from tests.agents.agents import Says
from tests.agents.test_agent import agent_client, eras
from tests.support.live import text

EXAMPLE = {
    "name": "crew",
    "members": [
        {"name": "ann", "prompt": "Watch the tests."},
        {"name": "bob", "prompt": "Watch the tests.", "subagent_type": "Explore"},
    ],
}


@eras
async def test_a_client_starts_a_team_and_stops_it(era: str, tmp_path: Path, gate: threading.Event) -> None:
    async with agent_client(tmp_path, era, {"Watch": [Says("I wait.", after=gate)]}) as (client, _):
        created = await client.call_tool("TeamCreate", EXAMPLE)
        assert "2 members:\n- ann: agent_" in text(created)
        deleted = await client.call_tool("TeamDelete", {"team_id": "crew"})
        assert text(deleted).count("stopped after") == 2
        again = await client.call_tool("TeamDelete", {"team_id": "crew"})
        assert again.is_error
