"""Agent files, commands and skills as found in public load, and each field without effect is named once."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from mcp_toolserver.runtime.agents.agent_files import configured_model, custom_types
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.skills.discovery import Discovery, SkillSource, places_of, read_skill
from mcp_toolserver.text.skills import skill_content
from tests.support.cases import collected

FILES = Path(__file__).with_name("public_files.txt").read_text(encoding="utf-8").split("\n=== ")[1:]


def written(root: Path) -> list[tuple[bool, dict[str, Any]]]:
    """What is expected of each file, which this makes, and whether it is one of an agent."""
    cases: list[tuple[bool, dict[str, Any]]] = []
    for text in FILES:
        head, _, content = text.partition("\n")
        path, _, expected = head.partition(" {")
        case: dict[str, Any] = {"unsupported": [], **json.loads(f"{{{expected}")}
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        start, end = "\ufeff" * case.pop("bom", False), "\r\n" if case.pop("crlf", False) else "\n"
        (root / path).write_text(start + content, encoding="utf-8", newline=end)
        cases.append(("/agents/" in path, case))
    return cases


def named(sentence: str) -> Counter[str]:
    """How often a sentence about fields without effect names each."""
    fields = sentence.removeprefix("Fields without effect here: ").removesuffix(").").split("), ")
    return Counter(field.partition(" (")[0] for field in fields)


def test_files_in_every_documented_form_load(tmp_path: Path) -> None:
    cases, workspace = written(tmp_path), Workspace([str(tmp_path)])
    assert len(cases) >= 50
    agents, found = custom_types(workspace), Discovery().run(places_of(workspace, workspace, ()))
    types = {one.name: one for one in agents.types}
    with collected() as check:
        for is_agent, case in cases:
            name = case["name"]
            with check(name):
                if is_agent:
                    kind = types[name]
                    known: dict[str, Any] = {
                        "tools": None if kind.tools is None else list(kind.tools),
                        "denied": list(kind.denied),
                        "model": kind.model or "inherit",
                        "ceiling": kind.ceiling.flag,
                        "worktree": kind.in_worktree,
                        "unsupported": sorted(kind.unsupported),
                    }
                    assert kind.description
                else:
                    source = found.skills[name.lower()]
                    assert isinstance(source, SkillSource)
                    skill = read_skill(source)
                    known = {
                        "tools": skill.allowed_tools and list(skill.allowed_tools),
                        "hint": skill.card.argument_hint,
                        "unsupported": sorted(skill.card.unsupported),
                    }
                    assert case.pop("says", "") in skill_content(skill, case.pop("arguments", "one two"))
                assert {**known, **case} == {"name": name, **known}
    for is_agent, warnings in ((True, agents.skipped), (False, found.index().warnings)):
        [sentence] = warnings
        fields = {field for kind, case in cases if kind is is_agent for field in case["unsupported"]}
        assert named(sentence) == Counter(fields)


def test_a_model_is_found_by_its_name_or_family() -> None:
    names = ("claude-sonnet-5-5", "claude-haiku-5-5", "gpt-5", "Explore", "fast")
    for asked, found in (
        ("sonnet", "claude-sonnet-5-5"),
        ("claude-haiku-4-5-20251001", "claude-haiku-5-5"),
        ("gpt-5", "gpt-5"),
        ("fast", "fast"),
        ("opus", None),
        ("gpt-4", None),
    ):
        assert configured_model(asked, names) == found
