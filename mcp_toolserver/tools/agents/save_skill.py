"""Save instructions for a kind of work as a skill, which later sessions in this workspace list and load with
Skill. Saving under the same name replaces it. The server keeps the skill, not a file, and never in place of a
skill of the user. Save only what the user would want every session to follow, and no secrets.
"""

from typing import Annotated

from mcp_toolserver import tool as t
from mcp_toolserver.text.lines.escape_invisible import visible

_NAME = r"^[a-z0-9]+(-[a-z0-9]+)*$"


def _visible(text: str) -> str:
    shown = visible(text)
    if shown != text:
        hidden = next(one for one, other in zip(text, shown, strict=False) if one != other)
        raise ValueError(f"must not contain invisible characters such as {hidden!a}")
    return text


def _one_line(text: str) -> str:
    return " ".join(_visible(text).split())


Name = Annotated[str, t.Field(max_length=64, pattern=_NAME)]
Line = Annotated[str, t.Field(max_length=1_024), t.NotBlank, t.AfterValidator(_one_line)]


class SaveSkill(t.Args):
    name: Name = t.Field(description="Name in kebab-case, such as cut-release")
    description: Line = t.Field(description="What the skill does, in one or two sentences")
    prompt_template: Annotated[str, t.Field(max_length=65_536), t.NotBlank, t.AfterValidator(_visible)] = (
        t.Field(
            alias="promptTemplate",
            description="Instructions in Markdown; $ARGUMENTS stands for the arguments",
        )
    )
    when_to_use: Line | None = t.Field(
        default=None, alias="whenToUse", description="When a model should load the skill"
    )
    aliases: tuple[Name, ...] = t.Field(
        default=(), strict=False, max_length=8, description="Other names of the skill, in kebab-case"
    )
    user_invocable: bool = t.Field(
        default=True, alias="userInvocable", description="Whether users can call it as a prompt"
    )


async def run(args: SaveSkill, rt: t.Runtime) -> t.Output:
    is_new = await rt.skills.save(
        t.SavedSkill(
            name=args.name,
            description=args.description,
            prompt=args.prompt_template.strip("\n"),
            when_to_use=args.when_to_use or "",
            aliases=tuple(dict.fromkeys(alias for alias in args.aliases if alias != args.name)),
            user_invocable=args.user_invocable,
        )
    )
    return t.Output(f"{'Saved' if is_new else 'Replaced'} the skill {args.name!r}. Skill loads it.")


TOOL = t.ToolSpec(
    name="save_skill",
    title="Save skill",
    needs=frozenset({t.Capability.SKILLS_SAVE}),
    args=SaveSkill,
    run=run,
    kind="edit",
    subjects=lambda args: (args.name,),
    destructive=True,
    idempotent=True,
    aliases=(t.Alias("save_skill", {"prompt": "promptTemplate"}),),
)
