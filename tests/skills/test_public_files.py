"""Agent files, commands and skills as found in public load, and each field without effect is named once."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mcp_toolserver.runtime.agents.agent_files import configured_model, custom_types
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.skills import discovery
from mcp_toolserver.text.skills import skill_content
from tests.support.cases import collected

_, *FILES = Path(__file__).with_name("public_files.txt").read_text(encoding="utf-8").split("\n=== ")


def written(root: Path, text: str) -> tuple[str, dict[str, Any]]:
    """Make a file; its path, and what is expected of it."""
    head, _, content = text.partition("\n")
    path, _, expected = head.partition(" ")
    case: dict[str, Any] = {"unsupported": [], **json.loads(expected)}
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    start, end = "\ufeff" * case.pop("bom", False), "\r\n" if case.pop("crlf", False) else "\n"
    (root / path).write_text(start + content, encoding="utf-8", newline=end)
    return path, case


def test_files_in_every_documented_form_load(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(discovery, "MAX_WARNINGS", 100)
    cases = dict(written(tmp_path, text) for text in FILES)
    workspace = Workspace([str(tmp_path)])
    agents = custom_types(workspace)
    skills = discovery.Discovery().run(discovery.places_of(workspace, workspace, ()))
    known = {kind.name: asdict(kind) for kind in agents.types}
    texts: dict[str, discovery.LoadedSkill] = {}
    for source in skills.skills.values():
        assert isinstance(source, discovery.SkillSource)
        skill = texts[source.card.name] = discovery.read_skill(source)
        known[source.card.name] = {**asdict(skill.card), **asdict(skill)}
    warnings = (*agents.skipped, *skills.index().warnings)
    with collected() as check:
        for path, case in cases.items():
            with check(path):
                if "why" in case:
                    assert [case["why"] in one for one in warnings if path in one] == [True]
                    continue
                if "says" in case:
                    said = skill_content(texts[case["name"]], case.pop("arguments", "one two"))
                    assert case.pop("says") in said
                found = json.loads(json.dumps(known[case["name"]]))
                assert {**found, **case} == found
    assert len(known) >= 50
    for is_agent, said in ((True, agents.skipped), (False, skills.index().warnings)):
        used = (case["unsupported"] for path, case in cases.items() if ("/agents/" in path) is is_agent)
        assert _named(said) == Counter({field for fields in used for field in fields})


def _named(warnings: Sequence[str]) -> Counter[str]:
    """How often a field without effect is named."""
    (sentence,) = [one for one in warnings if one.startswith("Fields without effect here: ")]
    fields = sentence.partition(": ")[2].removesuffix(").").split("), ")
    return Counter(field.partition(" (")[0] for field in fields)


def test_a_model_is_found_by_its_name_or_family() -> None:
    names = ("claude-sonnet-5-5", "claude-haiku-5-5", "gpt-5", "Explore", "fast")
    asked = ("sonnet", "claude-haiku-4-5-20251001", "gpt-5", "fast", "opus", "gpt-4")
    found = ["claude-sonnet-5-5", "claude-haiku-5-5", "gpt-5", "fast", None, None]
    assert [configured_model(one, names) for one in asked] == found
