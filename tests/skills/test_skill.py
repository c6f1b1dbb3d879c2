"""Loading skills, what they take from later calls, and those that models save."""

from pathlib import Path

import pytest

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.capabilities.skills import SavedSkill
from mcp_toolserver.errors import Conflict
from mcp_toolserver.stores.skills import StoredSkills
from tests.plan.planning import database
from tests.skills.skilled import RELEASE, call, listing, load, skill, skilled
from tests.support.workbench import Person

ONLY_READ = skill(name="release", description="Cut a release", allowed_tools="Read")


async def test_skills_are_listed_with_what_they_are_for(tmp_path: Path) -> None:
    files = {
        RELEASE: skill(description="Cut a release", when_to_use="before shipping", argument_hint="[version]"),
        ".claude/commands/fix.md": "# Fix the build\nFind out why.",
        ".claude/skills/long/SKILL.md": skill(description="word " * 200),
    }
    async with skilled(tmp_path) as made:
        assert ".agents/skills/NAME/SKILL.md" in await listing(made)
        for name, content in files.items():
            made.write(name, content)
        lines = (await listing(made)).splitlines()
    assert lines[0] == "release [version]: Cut a release Use: before shipping"
    assert lines[1].startswith("long: word")
    assert lines[1].endswith("...")
    assert lines[2] == "fix: Fix the build"


async def test_a_skill_is_returned_with_its_arguments_folder_and_files(tmp_path: Path) -> None:
    files = {
        RELEASE: skill("Cut $ARGUMENTS.", name="release"),
        ".agents/skills/release/scripts/tag.sh": "git tag",
        ".agents/skills/release/notes.md": "Notes.",
    }
    async with skilled(tmp_path, files) as made:
        said = await load(made, "release", args="v2")
        assert said.startswith('<skill_content name="release">\nCut v2.\n')
        assert f"{made.root}/.agents/skills/release\n" in said
        assert "notes.md, scripts/tag.sh" in said
        assert "read_file" in said
        assert await load(made, "release", file="scripts/tag.sh") == "git tag"
        found = await call(made, "read_file", path=".agents/skills/release/notes.md")
        assert "Notes." in found.text
        for number in range(70):
            made.write(f".agents/skills/release/f{number:03}", "x")
        assert "f059 and 12 more" in await load(made, "release")


async def test_a_skill_answers_to_each_of_its_names_and_no_other(tmp_path: Path) -> None:
    files = {".agents/skills/cut/SKILL.md": skill(name="release", aliases="[ship]")}
    contradictions: tuple[dict[str, object], ...] = (
        {"args": "x"},
        {"file": "x"},
        {"skill": "release", "args": "x", "file": "y"},
        {"skill": "release", "end": True},
        {"skill": "x" * 101},
        {"skill": 3},
    )
    async with skilled(tmp_path, files) as made:
        for name in ("release", "/release", "$release", " RELEASE ", "ship", "cut"):
            assert '"release"' in await load(made, name)
        result = await call(made, "Skill", skill="relaese")
        assert result.error == "not_found"
        assert "release" in result.text
        assert "relaese" in result.text
        for arguments in contradictions:
            assert (await call(made, "Skill", **arguments)).error == "invalid_input"
        # One for users is not for the model.
        made.write(".agents/skills/cut/SKILL.md", skill(name="release", disable_model_invocation="true"))
        assert "release" not in await listing(made)
        result = await call(made, "Skill", skill="release")
        assert result.error == "invalid_input"
        assert "for the user" in result.text
    async with skilled(tmp_path / "root") as made:
        result = await call(made, "Skill", skill="any")
        assert result.error == "not_found"
        assert "none" in result.text


async def test_a_file_that_is_not_in_the_folder_of_the_skill_is_refused(tmp_path: Path) -> None:
    files = {
        RELEASE: skill(),
        ".agents/skills/secret": "hidden",
        ".agents/skills/release/scripts/x": "x",
        ".claude/commands/fix.md": "Fix it.",
        ".claude/commands/x": "x",
    }
    outside = ("../secret", "/etc/passwd", "scripts/../../secret", "link", "none", "..", ".", "scripts")
    async with skilled(tmp_path, files) as made:
        (made.root / ".agents/skills/release/link").symlink_to("../secret")
        for file in outside:
            result = await call(made, "Skill", skill="release", file=file)
            assert result.error in ("not_found", "invalid_input"), file
            assert "hidden" not in result.text
        # A command has no files, and one that is no text is not shown.
        assert (await call(made, "Skill", skill="fix", file="x")).error == "not_found"
        assert "Folder" not in await load(made, "fix")
        made.write(".agents/skills/release/logo.png", b"\xff\xfe\0")
        result = await call(made, "Skill", skill="release", file="logo.png")
        assert result.error == "invalid_input"


async def test_what_no_rule_allows_is_refused_but_the_skill_can_be_ended(tmp_path: Path) -> None:
    async with skilled(tmp_path, {"docs/a": "a", "src/b": "b"}) as made:
        made.write(RELEASE, skill(allowed_tools="Read(docs/**)"))
        await load(made, "release")
        assert (await call(made, "read_file", path="docs/a")).error is None
        refused = await call(made, "read_file", path="src/b")
        assert refused.error == "denied"
        assert "'release'" in refused.text
        assert "Skill with end: true" in refused.text
        assert (await call(made, "write_file", path="b.txt", content="x")).error == "denied"
        assert not (made.root / "b.txt").exists()
        assert (await call(made, "Skill", end=True)).text == "The skill 'release' has ended."
        assert (await call(made, "Skill", end=True)).text.startswith("No skill")
        for allowed in ("[]", "NoSuchTool", "'mcp__other__tool'"):
            made.write(RELEASE, skill(allowed_tools=allowed))
            await load(made, "release")
            assert (await call(made, "read_file", path="docs/a")).error == "denied"
            assert (await call(made, "Skill", end=True)).error is None
            assert (await call(made, "read_file", path="docs/a")).error is None


async def test_allowed_tools_never_give_rights(tmp_path: Path) -> None:
    async with skilled(tmp_path, deny=("write_file",)) as made:
        for allowed in ("'*'", "'Read *'", "'Bash WriteFile write_file'"):
            made.write(RELEASE, skill(allowed_tools=allowed))
            await load(made, "release")
            assert (await call(made, "write_file", path="b.txt", content="x")).error == "denied"
            assert not (made.root / "b.txt").exists()


async def test_everything_allowed_changes_nothing_and_the_next_skill_ends_the_active_one(
    tmp_path: Path,
) -> None:
    files = {
        RELEASE: ONLY_READ,
        ".agents/skills/all/SKILL.md": skill(allowed_tools="'*'"),
        ".agents/skills/other/SKILL.md": skill(),
    }
    async with skilled(tmp_path, files) as made:
        for name in ("all", "other"):
            assert (await call(made, "write_file", path=name, content="x")).error is None
            await load(made, "release")
            assert (await call(made, "write_file", path=name, content="y")).error == "denied"
            await load(made, name)
            assert (await call(made, "write_file", path=f"{name}.txt", content="x")).error is None


@pytest.mark.requirement("SW-55")
async def test_a_nested_skill_has_at_most_the_rights_of_the_outer_one(tmp_path: Path) -> None:
    files = {f".agents/skills/s{number}/SKILL.md": skill(allowed_tools="Skill") for number in range(5)}
    files |= {
        RELEASE: skill(allowed_tools="Read Skill"),
        ".agents/skills/inner/SKILL.md": skill(allowed_tools="Write Edit"),
        "a.txt": "a",
    }
    async with skilled(tmp_path, files) as made:
        await load(made, "release")
        await load(made, "inner")
        assert (await call(made, "write_file", path="b.txt", content="x")).error == "denied"
        assert (await call(made, "read_file", path="a.txt")).error == "denied"
        assert (await call(made, "Skill", end=True)).text == "The skill 'inner' has ended."
        assert (await call(made, "read_file", path="a.txt")).error is None
        assert (await call(made, "write_file", path="b.txt", content="x")).error == "denied"
        assert (await call(made, "Skill", end=True)).text == "The skill 'release' has ended."
        assert (await call(made, "write_file", path="b.txt", content="x")).error is None
        # Four nest, and a fifth is refused.
        for number in range(4):
            await load(made, f"s{number}")
        result = await call(made, "Skill", skill="s4")
        assert (result.error, "end: true" in result.text) == ("conflict", True)


async def test_a_skill_takes_nothing_from_other_clients_and_ends_with_its_own(tmp_path: Path) -> None:
    first, second = Person(owner="first"), Person(owner="second")
    async with skilled(tmp_path, {RELEASE: ONLY_READ}) as made:
        await load(made, "release", first)
        assert (await call(made, "ls", first, path=".")).error == "denied"
        assert (await call(made, "ls", second, path=".")).error is None
        made.app.changes.forget("first")
        assert (await call(made, "ls", first, path=".")).error is None


SAVED = {"name": "tidy-up", "description": "Tidy  the\ncode", "promptTemplate": "Tidy $ARGUMENTS."}


async def test_a_saved_skill_outlives_the_server_and_leaves_the_files_alone(tmp_path: Path) -> None:
    async with skilled(tmp_path) as made:
        result = await call(made, "save_skill", **SAVED, whenToUse="always", aliases=["clean", "clean"])
        assert result.text.startswith("Saved the skill 'tidy-up'")
        assert list(made.root.iterdir()) == []
    async with skilled(tmp_path, permission_mode=Permission.READ_ONLY) as made:
        assert await listing(made) == "tidy-up: Tidy the code Use: always (saved by a model)"
        said = await load(made, "clean", args="src")
        assert "Tidy src." in said
        assert "A model saved this skill" in said
        assert (await call(made, "save_skill", **SAVED)).error == "denied"
        assert (await call(made, "Skill", skill="tidy-up", file="x")).error == "not_found"
    async with skilled(tmp_path, permission_mode=Permission.DANGER_FULL_ACCESS) as made:
        result = await call(made, "save_skill", name="tidy-up", description="Other", prompt="Now this.")
        assert result.text.startswith("Replaced")
        assert "Now this." in await load(made, "tidy-up")


async def test_a_saved_skill_never_takes_the_place_of_one_of_the_user(tmp_path: Path) -> None:
    async with skilled(tmp_path, {RELEASE: skill(aliases="[ship]")}) as made:
        for taken in ("release", "ship"):
            for arguments in ({**SAVED, "name": taken}, {**SAVED, "aliases": [taken]}):
                result = await call(made, "save_skill", **arguments)
                assert result.error == "conflict"
                assert RELEASE in result.text


async def test_a_file_of_the_user_that_comes_later_counts_and_is_reported(tmp_path: Path) -> None:
    async with skilled(tmp_path) as made:
        await call(made, "save_skill", **{**SAVED, "aliases": ["release"]})
        # A name counts before an alias.
        made.write(".agents/skills/other/SKILL.md", skill(aliases="[tidy-up]"))
        assert "A model saved" in await load(made, "tidy-up")
        made.write(".agents/skills/tidy-up/SKILL.md", skill("The user's."))
        assert "The user's." in await load(made, "tidy-up")
        assert "saved skill 'tidy-up' is not used" in await listing(made)
        made.write(RELEASE, skill("Also the user's."))
        assert "Also the user's." in await load(made, "release")


WRONG: tuple[dict[str, object], ...] = (
    *({"name": name} for name in ("Tidy", "../tidy", "a" * 65, "tidy\n")),
    *({"promptTemplate": text} for text in ("  \n", "x" * 65_537, "a\u202eb", "a\x1b[2Jb")),
    *({"description": text} for text in ("", "x" * 1_025, "a\x00b")),
    *({"aliases": ["Not Kebab"]}, {"aliases": [f"a{number}" for number in range(9)]}, {"whenToUse": " "}),
)


async def test_what_cannot_be_saved_is_refused(tmp_path: Path) -> None:
    async with skilled(tmp_path) as made:
        for wrong in WRONG:
            assert (await call(made, "save_skill", **{**SAVED, **wrong})).error == "invalid_input", wrong
        assert "There are no skills" in await listing(made)


async def test_a_limited_number_of_skills_is_kept_for_each_user(tmp_path: Path) -> None:
    stored = StoredSkills(database(tmp_path), kept=2)

    def numbered(number: int) -> SavedSkill:
        return SavedSkill(name=f"s{number}", description="d", prompt="p", user_invocable=False)

    assert await stored.put("", numbered(1))
    assert await stored.put("", numbered(2))
    with pytest.raises(Conflict):
        await stored.put("", numbered(3))
    assert not await stored.put("", numbered(2))
    assert await stored.put("somebody", numbered(3))
    assert await stored.all("") == (numbered(1), numbered(2))
    assert await stored.all("somebody") == (numbered(3),)
