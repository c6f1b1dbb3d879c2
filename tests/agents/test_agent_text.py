"""Types, conversations and results of agents as text."""

from dataclasses import replace

from mcp_toolserver.capabilities.agents import AgentState
from mcp_toolserver.capabilities.model import ModelTurn, ToolCall, ToolReply, UserText
from mcp_toolserver.runtime.agents.agent_files import custom_type
from mcp_toolserver.text.agents.conversation import cleaned
from mcp_toolserver.text.agents.types import BUILT_IN, canonical_type, choices, result_text
from tests.support.workbench import real_tools


def test_halves_of_surrogate_pairs_are_replaced() -> None:
    call = ToolCall(id="\ud800", name="l\ud800s", arguments={"\ud800": ["\ud800ä"]})
    turn = ModelTurn(text="\ud800", calls=(call, replace(call, arguments="\ud800")))
    first = ToolCall(id="?", name="l?s", arguments={"?": ["?ä"]})
    assert cleaned(turn) == ModelTurn(text="?", calls=(first, replace(first, arguments="?")))
    assert cleaned(UserText("\ud800")) == UserText("?")
    assert cleaned((ToolReply(id="\ud800", name="\ud800", text="\ud800"),)) == (
        ToolReply(id="?", name="?", text="?"),
    )


def test_types_have_other_spellings() -> None:
    for name, canonical in (
        ("", "general-purpose"),
        ("General Purpose", "general-purpose"),
        ("general_purpose", "general-purpose"),
        ("explorer", "Explore"),
        ("explore-agent", "Explore"),
        ("PLAN", "Plan"),
        ("verifier", "Verification"),
        (" reviewer ", "reviewer"),
    ):
        assert canonical_type(name) == canonical


def test_every_tool_that_a_type_names_exists_or_comes_with_another_part() -> None:
    known = {
        name for entry in real_tools().entries.values() for name in (entry.spec.name, *entry.other_names)
    }
    for kind in BUILT_IN.values():
        assert {*(kind.tools or ())} <= known | {"Skill"}


def test_the_texts_of_a_file_show_what_hides() -> None:
    kind = custom_type('---\nname: x\ndescription: "a\\nb\\e[2J"\n---\nHe\u202elp.')
    assert kind.description == "a b\\u{1b}[2J"
    assert kind.instructions == "He\\u{202e}lp."
    assert choices([kind]).endswith("; x (a b\\u{1b}[2J)")
    assert choices([custom_type("---\nname: y\n---\nHelp.")]).endswith("; y")


STATE = AgentState(handle="agent_1", type="Plan", description="d", turns=1, tokens=1234, seconds=61.4)


def test_an_answer_has_the_text_the_notes_and_the_last_line() -> None:
    done = replace(STATE, status="finished", text="It is so.", notes=("Look.",), turns=2, cost=0.5)
    line = "[agent_1 finished; 2 turns, 1,234 tokens, $0.5000]"
    assert result_text(done) == f"It is so.\n[Look.]\n{line}"
    silent = replace(STATE, status="stopped", cost=None)
    assert result_text(silent) == (
        "(it has said nothing yet)\n[to go on, call Agent with resume: agent_1]\n"
        "[agent_1 stopped after 61.4 s; 1 turn, 1,234 tokens]"
    )
    assert result_text(STATE).startswith("The agent works in the background. TaskOutput waits")
