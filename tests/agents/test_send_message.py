"""The tool SendMessage as a client sees it; tests/agents/test_agent_teams.py has the rest."""

import threading
from pathlib import Path

import pytest

from tests.agents.agents import Says, model_api
from tests.agents.test_agent import settings
from tests.protocol.resource_clients import ERAS, place
from tests.support.live import text

EXAMPLE = {"to": "watcher", "message": "Look at tests/test_shop.py only."}


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_sends_a_running_agent_a_message(era: str, tmp_path: Path) -> None:
    gate = threading.Event()
    script = [Says("I wait.", after=gate), Says("I read it.")]
    task = {"description": "wait", "prompt": "wait", "name": "ann", "run_in_background": True}
    try:
        with model_api({"wait": script}) as model:
            async with place(tmp_path, **settings(model.url)) as made, made.client(era) as client:
                await client.call_tool("Agent", task)
                sent = await client.call_tool("SendMessage", {"to": "ann", "message": "go"})
                assert text(sent) == "Sent to ann."
                refused = await client.call_tool("SendMessage", {"to": "bob", "message": "go"})
                assert refused.is_error
                assert "There is: ann." in text(refused)
                gate.set()
    finally:
        gate.set()
