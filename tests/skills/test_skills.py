"""Where skills are found, and that hostile files are skipped with a warning while everything else works."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.errors import SettingsError
from mcp_toolserver.pipeline.narrowings import Narrowings
from mcp_toolserver.policy.rules import Narrowing
from mcp_toolserver.runtime.agents.agent_files import configured_model, custom_types
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.skills import discovery
from mcp_toolserver.runtime.skills.discovery import MAX_BYTES, MAX_SKILLS, Discovery, places_of
from mcp_toolserver.text.skills import skill_content
from tests.protocol.resource_clients import Place
from tests.skills.skilled import RELEASE, call, listing, load, skill, skilled
from tests.support.cases import collected
from tests.support.workbench import Person

BAD = ".agents/skills/bad/SKILL.md"


async def test_the_nearest_skill_of_a_name_counts_and_the_others_are_reported(tmp_path: Path) -> None:
    files = {
        ".agents/skills/a/SKILL.md": skill("root, agents"),
        ".claude/skills/a/SKILL.md": skill("root, claude"),
        ".claude/commands/a.md": "root, command",
        "pkg/.claude/commands/a.md": "pkg, command",
        "pkg/.claude/skills/b/SKILL.md": skill("pkg"),
        "pkg/app/.agents/skills/c/SKILL.md": skill("app"),
        "other/.agents/skills/d/SKILL.md": skill("other"),
    }
    async with skilled(tmp_path, files) as made:
        inside = Person(works_in=[str(made.root / "pkg/app")])
        assert "pkg, command" in await load(made, "a", inside)
        said = (await listing(made, inside)).split("\n\n")
        assert [line.partition(":")[0] for line in said[0].splitlines()] == ["c", "b", "a"]
        assert said[1].count("has the same name and is nearer") == 3
        assert "root, agents" in await load(made, "a")
        assert (await call(made, "Skill", skill="b")).error == "not_found"
        # Its folder lies outside the folder of the client, so only this tool reads its files.
        made.write("pkg/.claude/skills/b/x.md", "the file")
        assert await load(made, "b", inside, file="x.md") == "the file"


async def test_a_folder_outside_the_roots_is_searched_if_the_operator_names_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for name, content in {
        "skills/mine/SKILL.md": skill("Mine.", description="My own", allowed_tools="Read"),
        "skills/mine/more.md": "more",
        "skills/README.md": "no skill",
        "commands/quick.md": "Quick.",
        "commands/sub/x.md": "Inner.",
    }.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(content, encoding="utf-8")
    folders = (str(home / "skills"), str(home / "commands"))
    async with skilled(tmp_path, {RELEASE: skill()}, skills=folders) as made:
        names = [line.partition(": ")[0] for line in (await listing(made)).splitlines()]
        assert names == ["release", "mine", "quick", "sub:x"]
        said = await load(made, "mine")
        assert f"{home}/skills/mine\n" in said
        # Its author asks for no approval of those tools, and takes none.
        assert (await call(made, "write_file", path="a.txt", content="x")).error is None
        assert "read_file" not in said
        assert await load(made, "mine", file="more.md") == "more"
        assert (await call(made, "read_file", path=str(home / "skills/mine/more.md"))).error == "denied"
    async with skilled(tmp_path, skills=folders, restrict_skills=True) as made:
        await load(made, "mine")
        assert (await call(made, "write_file", path="a.txt", content="x")).error == "denied"
    # Nothing above a root is read, wherever the client works.
    above = tmp_path / ".agents/skills/above/SKILL.md"
    above.parent.mkdir(parents=True)
    above.write_text(skill("Above."), encoding="utf-8")
    async with skilled(tmp_path, {RELEASE: skill()}) as made:
        assert (await call(made, "Skill", skill="mine")).error == "not_found"
        for person in (Person(), Person(works_in=[str(made.folder)])):
            assert (await listing(made, person)).splitlines() == ["release: Do it."]
    with pytest.raises(SettingsError, match="--skills"):
        async with skilled(tmp_path, skills=(str(tmp_path / "none"),)):
            raise AssertionError("it started")


async def _skipped(made: Place) -> str:
    """The warnings, while the good skill still works."""
    text, _, warnings = (await listing(made)).partition("\n\nNot used:\n")
    assert text.splitlines() == ["release: Do it."]
    assert "Do it." in await load(made, "release")
    return warnings


NO_SKILLS = (
    (b"---\nname: a\x00b\n---\nx", "'\\x00'"),
    (b"---\n" + b"a: b\n" * 20_000 + b"---\nx", "bytes of front matter"),
    (b"x" * (MAX_BYTES + 1), "at most"),
    (b"caf\xe9", "UTF-8"),
)


async def test_a_file_that_is_no_skill_is_skipped_with_a_warning(tmp_path: Path) -> None:
    async with skilled(tmp_path, {RELEASE: skill()}) as made:
        for content, why in NO_SKILLS:
            made.write(BAD, content)
            warnings = await _skipped(made)
            assert BAD in warnings
            assert why in warnings
            assert "\x1b" not in warnings
            assert (await call(made, "Skill", skill="bad")).error == "not_found"
        for path, large in ((BAD, "100,000,000 bytes"), (".agents/skills/release/special", "")):
            made.write(path, "")
            os.truncate(made.root / path, 100_000_000)
            assert large in await _skipped(made)
        assert (await call(made, "Skill", skill="release", file="special")).error == "invalid_input"
        for make in (os.mkfifo, os.mkdir):
            for path in (made.root / BAD, made.root / ".agents/skills/release/special"):
                path.unlink()
                make(path)
            assert "SKILL.md" in await _skipped(made)
            assert (await call(made, "Skill", skill="release", file="special")).error == "invalid_input"
            assert "special" not in await load(made, "release")


LINKS = (
    (".agents/skills/bad", "../../../outside/skill"),
    (BAD, "../../../../outside/skill/SKILL.md"),
    (BAD, "/dev/zero"),
    (BAD, "/proc/self/environ"),
    # Another file in the root.
    (BAD, "../../../.env"),
    (".claude/skills", "../../outside"),
    (".claude/commands/bad.md", "../../../outside/skill/SKILL.md"),
    (".agents/skills/bad", "/"),
    (".agents/skills/bad", "bad"),
)


async def test_a_link_that_leads_out_is_skipped_with_a_warning_and_one_inside_is_followed(
    tmp_path: Path,
) -> None:
    outside = tmp_path / "outside/skill"
    outside.mkdir(parents=True)
    (outside / "SKILL.md").write_text(skill("the secret"), encoding="utf-8")
    files = {RELEASE: skill(), ".env": "the secret", "shared/tidy/SKILL.md": skill("Tidy.")}
    async with skilled(tmp_path, files) as made:
        for link, target in LINKS:
            path = made.root / link
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(target)
            assert "not" in await _skipped(made), (link, target)
            for name in ("bad", "skill"):
                result = await call(made, "Skill", skill=name)
                assert result.error == "not_found"
                assert "the secret" not in result.text
            path.unlink()
            if link == BAD:
                path.parent.rmdir()
        made.write("shared/tidy/x", "x")
        (made.root / ".claude/skills").symlink_to("../shared")
        assert "Tidy." in await load(made, "tidy")
        assert await load(made, "tidy", file="x") == "x"


async def test_a_folder_with_an_invalid_name_is_skipped_with_a_warning(tmp_path: Path) -> None:
    async with skilled(tmp_path, {RELEASE: skill()}) as made:
        for name in ("a b", "a\x1b[2Jb", "a\nb", "a\u202eb", "é", "-a", "a.b", "x" * 65, "a\udcffb"):
            folder = os.fsencode(made.root / ".agents/skills") + b"/" + os.fsencode(name)
            os.mkdir(folder)
            with open(folder + b"/SKILL.md", "wb") as file:
                file.write(b"x")
            warnings = await _skipped(made)
            assert "has a name" in warnings, ascii(name)
            assert warnings.isprintable()
            os.rename(folder, made.root / "aside")
            shutil.rmtree(made.root / "aside")


async def test_more_skills_than_allowed_are_left_out_with_a_warning(tmp_path: Path) -> None:
    files = {f".agents/skills/s{number:04}/SKILL.md": "x" for number in range(MAX_SKILLS + 5)}
    async with skilled(tmp_path, files) as made:
        said = await listing(made)
        assert f"more than {MAX_SKILLS} skills" in said
        assert "s0199: x" in said
        assert "s0200" not in said
        # A flood of warnings is cut.
        for number in range(50):
            made.write(f".agents/skills/s{number:04}/SKILL.md", "")
        said = await listing(made)
        assert said.count("is not used") == discovery.MAX_WARNINGS
        assert said.endswith("There are more warnings.")


async def test_a_rule_that_hides_files_hides_skills_and_their_files(tmp_path: Path) -> None:
    key = ".agents/skills/release/key.pem"
    hidden = {".agents/skills/hidden/SKILL.md": skill("the secret", aliases="[alias]")}
    for deny in (
        "read_file(.agents/skills/hidden/**)",
        "read_file(**/hidden/**)",
        "read_file(.agents/**)",
        "capability:fs_read(.agents/skills/hidden/SKILL.md)",
    ):
        async with skilled(tmp_path, hidden, deny=(deny, "read_file(*.pem)")) as made:
            said = await listing(made)
            assert "hidden" not in said, deny
            assert "not used" not in said
            for name in ("hidden", "alias"):
                assert (await call(made, "Skill", skill=name)).error == "not_found"
    async with skilled(tmp_path, {RELEASE: skill(), key: "the secret"}, deny=("read_file(*.pem)",)) as made:
        assert "key.pem" not in await load(made, "release")
        result = await call(made, "Skill", skill="release", file="key.pem")
        assert (result.error, "the secret" in result.text) == ("denied", False)


async def test_a_rule_denies_a_skill_by_any_of_its_names(tmp_path: Path) -> None:
    files = {RELEASE: skill("the secret", aliases="[ship]"), ".agents/skills/other/SKILL.md": skill()}
    async with skilled(tmp_path, files, deny=("Skill(release)",)) as made:
        for name in ("release", "RELEASE", "ship", "/ship"):
            result = await call(made, "Skill", skill=name)
            assert result.error in ("denied", "not_found")
            assert "the secret" not in result.text
        assert (await listing(made)).startswith("other")
        await call(made, "save_skill", name="mine", description="d", prompt="p", aliases=["also"])
        assert (await call(made, "Skill", skill="also")).error is None
    async with skilled(tmp_path, deny=("Skill(mine)",)) as made:
        assert "mine" not in await listing(made)
        assert (await call(made, "Skill", skill="mine")).error == "denied"


async def test_a_file_that_is_no_skill_any_more_when_it_is_loaded_is_a_conflict(tmp_path: Path) -> None:
    workspace_root = tmp_path / "root"
    (workspace_root / ".agents/skills/a").mkdir(parents=True)
    file = workspace_root / ".agents/skills/a/SKILL.md"
    file.write_text(skill(), encoding="utf-8")
    workspace = Workspace([str(workspace_root)])
    (source,) = Discovery().run(places_of(workspace, workspace, ())).skills.values()
    assert isinstance(source, discovery.SkillSource)
    file.write_text("---\n", encoding="utf-8")
    with pytest.raises(discovery.Conflict, match="changed meanwhile"):
        discovery.read_skill(source)


def test_a_skill_ends_after_half_an_hour_without_a_call() -> None:
    now = [0.0]
    narrowings = Narrowings(lambda: now[0])
    lasting, idle = Narrowing(source="plan mode"), Narrowing(source="a skill")
    narrowings.put("me", "plan", lasting)
    narrowings.put("me", "skill 1", idle, idle_seconds=1_800)
    narrowings.adopt("my agent", "me")
    for owner in ("me", "my agent", "me"):
        now[0] += 1_800
        assert narrowings.of(owner) == (lasting, idle)
    now[0] += 1_801
    assert narrowings.of("me") == (lasting,)
    narrowings.put("me", "skill 1", idle)
    now[0] += 9_999
    assert narrowings.of("me") == (lasting, idle)
    narrowings.remove("me", "plan")
    narrowings.put("me", "skill 1", idle, idle_seconds=1)
    narrowings.remove("me", "skill 1")
    now[0] += 9_999
    assert narrowings.of("me") == ()


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
