"""Load a skill: instructions that the user keeps for a kind of work. Without `skill`, list the skills with
what they are for. Call it when a skill fits the task, before you begin, and follow what it returns. `file`
reads a supporting file of the skill. While a skill with allowed-tools is active, tools that it leaves out are
refused; `end` ends it, and so does the next skill.
"""

from collections.abc import Iterator
from typing import Annotated

from mcp_toolserver import tool as t

_SHOWN = 300
"""Characters of a description in the list."""


def _plain(name: object) -> object:
    """The name without the sign by which users call skills."""
    return name.strip().removeprefix("/").removeprefix("$") if isinstance(name, str) else name


class Skill(t.Args):
    skill: Annotated[str, t.BeforeValidator(_plain)] = t.Field(
        default="", max_length=100, description="Name of the skill; without it, all are listed"
    )
    args: str = t.Field(
        default="", max_length=20_000, description="Text that replaces $ARGUMENTS in the skill"
    )
    file: str = t.Field(
        default="", max_length=1_000, description="Supporting file to read, relative to the skill's folder"
    )
    end: bool = t.Field(default=False, description="End the active skill; the only argument then")

    @t.model_validator(mode="after")
    def _one_form(self) -> "Skill":
        if self.end and (self.skill or self.args or self.file):
            raise ValueError("end takes no other argument")
        if not self.skill and (self.args or self.file):
            raise ValueError("skill must not be empty when args or file is given")
        if self.args and self.file:
            raise ValueError("give args or file, not both")
        return self


async def run(args: Skill, rt: t.Runtime) -> t.Output:
    if args.end:
        ended = rt.skills.end()
        return t.Output(f"{ended} has ended." if ended else "No skill with allowed-tools is active.")
    if not args.skill:
        return t.Output("\n".join(_lines(await rt.skills.index())))
    if args.file:
        content = await rt.skills.read(args.skill, args.file)
        try:
            return t.Output(content.decode())
        except UnicodeDecodeError:
            raise t.InvalidInput(f"{args.file!r} is not text. Use it by its path.") from None
    skill = await rt.skills.open(args.skill)
    if not skill.card.model_invocable:
        raise t.InvalidInput(
            f"The skill {skill.card.name!r} is for the user alone (disable-model-invocation). Go on without "
            "it, or tell the user about it."
        )
    rt.skills.activate(skill)
    # Few sessions load a skill, and the parser of their files comes with it.
    from mcp_toolserver.text.skills import skill_content

    return t.Output(skill_content(skill, args.args))


def _lines(index: t.SkillIndex) -> Iterator[str]:
    cards = [card for card in index.cards if card.model_invocable]
    if not cards:
        yield "There are no skills. A skill is a file .agents/skills/NAME/SKILL.md in the workspace."
    yield from map(_line, cards)
    if index.warnings:
        yield from ("", "Not used:", *index.warnings)


def _line(card: t.SkillCard) -> str:
    hint = f" {card.argument_hint}" if card.argument_hint else ""
    when = f" Use: {card.when_to_use}" if card.when_to_use else ""
    words = f"{card.description}{when}"
    cut = f"{words[: _SHOWN - 3]}..." if len(words) > _SHOWN else words
    origin = "" if card.path else " (saved by a model)"
    return f"{card.name}{hint}: {cut}{origin}"


TOOL = t.ToolSpec(
    name="Skill",
    title="Load skill",
    needs=frozenset({t.Capability.SKILLS}),
    args=Skill,
    run=run,
    kind="think",
    subjects=lambda args: (args.skill,) if args.skill else (),
    aliases=(t.Alias("skill", {"name": "skill"}),),
    profile=t.Profile.DEFAULT,
)
