"""Skills that models save: they last, are marked as such, and never take the place of one of the user."""

from pathlib import Path

import pytest

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.capabilities.skills import SavedSkill
from mcp_toolserver.errors import Conflict
from mcp_toolserver.stores.skills import StoredSkills
from tests.plan.planning import database
from tests.skills.skilled import RELEASE, call, listing, load, skill, skilled

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
