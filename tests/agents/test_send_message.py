"""The tool SendMessage as a client sees it; tests/agents/test_team_create.py has the rest."""

import threading
from pathlib import Path

from tests.agents.agents import Says
from tests.agents.test_agent import agent_client, eras
from tests.support.live import text

EXAMPLE = {"to": "watcher", "message": "Look at tests/test_shop.py only."}


@eras
async def test_a_client_sends_a_running_agent_a_message(
    era: str, tmp_path: Path, gate: threading.Event
) -> None:
    script = [Says("I wait.", after=gate), Says("I read it.")]
    task = {"description": "wait", "prompt": "wait", "name": "ann", "run_in_background": True}
    async with agent_client(tmp_path, era, {"wait": script}) as (client, _):
        await client.call_tool("Agent", task)
        sent = await client.call_tool("SendMessage", {"to": "ann", "message": "go"})
        assert text(sent) == "Sent to ann."
        refused = await client.call_tool("SendMessage", {"to": "bob", "message": "go"})
        assert refused.is_error
        assert "There is: ann." in text(refused)
