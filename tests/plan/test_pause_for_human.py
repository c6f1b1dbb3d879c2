"""How pause_for_human waits for a word, and what it makes of it."""

from pathlib import Path

import pytest

from mcp_toolserver.capabilities.user import Answers
from mcp_toolserver.errors import NobodyToAsk
from tests.plan.planning import call, planner
from tests.plan.test_ask_user_question import Human, client
from tests.support.live import ERAS, text
from tests.support.workbench import Person


async def test_the_human_decides(tmp_path: Path) -> None:
    decided: tuple[tuple[Answers, str | None, str], ...] = (
        ((("continue",), ()), None, "The user lets you go on."),
        ((("continue",), ("but slowly",)), None, 'go on. They say: "but slowly"'),
        ((("stop",), ("not now",)), "denied", 'stop here. They say: "not now"'),
    )
    for answers, error, says in decided:
        person = Person(answers=answers)
        result = await call(planner(tmp_path), "pause_for_human", person, reason="Plug in the device.")
        assert (result.error, result.text.endswith(says)) == (error, True), result.text
        assert person.questions[0].text == "Plug in the device."
        assert [choice.label for choice in person.questions[0].choices] == ["continue", "stop"]
        assert not person.questions[1].required
    result = await call(planner(tmp_path), "pause_for_human", message="Look.")
    assert (result.error, result.text) == ("unavailable", str(NobodyToAsk()))
    assert (await call(planner(tmp_path), "pause_for_human")).error == "invalid_input"


@pytest.mark.parametrize("era", ERAS)
async def test_a_real_client_is_asked_once(tmp_path: Path, era: str) -> None:
    human = Human({"answer_1": "continue"})
    async with client(tmp_path, era, human) as connected:
        result = await connected.call_tool("pause_for_human", {"reason": "Look."})
        assert text(result) == "The user lets you go on."
    assert human.saw[0].message.startswith("1. Look.\n- continue\n- stop\n\n2. ")
