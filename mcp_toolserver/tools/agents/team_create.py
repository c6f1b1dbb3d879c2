"""Start several agents that work at the same time, in the background, and can send each other messages with
SendMessage. Returns the ids of the team and of its members: TaskOutput waits for the result of a member,
TeamDelete stops all of them. Use Agent for a single task.
"""

from typing import Annotated

from mcp_toolserver import tool as t
from mcp_toolserver.text.agents.types import canonical_type, team_text

_MOST = 16

Prompt = Annotated[str, t.Field(max_length=100_000), t.NotBlank]
Name = Annotated[str, t.Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]


class TeamMember(t.Args):
    name: Name = t.Field(description="Name that others send messages to")
    prompt: Prompt = t.Field(description="The task, with all that the agent needs to know")
    subagent_type: str = t.Field(
        default="", max_length=100, description="Type of the agent; default: general-purpose"
    )

    @t.model_validator(mode="before")
    @classmethod
    def _has_task(cls, sent: object) -> object:
        if isinstance(sent, str):
            raise ValueError("a name alone is no task; send {name, prompt}, or task_description for all")
        return sent


class TeamTask(t.Args):
    prompt: Prompt = t.Field(description="The task, with all that the agent needs to know")
    description: str = t.Field(default="", max_length=200, description="Short title of the task")


def _member(member: object, task: object) -> object:
    """Other servers give members by name, with one task for all."""
    return {"name": member, "prompt": task} if isinstance(member, str) and task else member


class TeamCreate(t.Args):
    name: Name = t.Field(description="Name of the team")
    members: tuple[TeamMember, ...] = t.Field(
        default=(), strict=False, max_length=_MOST, description="Agents of the team; or give tasks"
    )
    tasks: tuple[TeamTask, ...] = t.Field(
        default=(), strict=False, max_length=_MOST, description="One agent for each, named member-1 and so on"
    )

    task_description: t.SkipJsonSchema[str] = t.Field(
        default="", max_length=100_000, description="Task of the members that are given by name only"
    )

    @t.model_validator(mode="before")
    @classmethod
    def _named(cls, sent: dict[str, object]) -> dict[str, object]:
        members, task = sent.get("members"), sent.get("task_description")
        return {**sent, "members": [_member(one, task) for one in members]} if t.is_list(members) else sent

    @t.model_validator(mode="after")
    def _one_form(self) -> "TeamCreate":
        if bool(self.members) == bool(self.tasks):
            raise ValueError("give either members or tasks")
        return self


async def run(args: TeamCreate, rt: t.Runtime) -> t.Output:
    members = [
        t.AgentTask(
            description=f"{args.name}: {member.name}",
            prompt=member.prompt,
            type=member.subagent_type,
            name=member.name,
            background=True,
        )
        for member in args.members
    ]
    tasks = [
        t.AgentTask(
            description=task.description or f"{args.name}: task {number}",
            prompt=task.prompt,
            name=f"member-{number}",
            background=True,
        )
        for number, task in enumerate(args.tasks, start=1)
    ]
    return t.Output(team_text(await rt.teams.create(args.name, [*members, *tasks])))


TOOL = t.ToolSpec(
    name="TeamCreate",
    title="Start team of agents",
    args=TeamCreate,
    run=run,
    needs=frozenset({t.Capability.TEAMS}),
    subjects=lambda args: tuple(
        sorted({canonical_type(member.subagent_type) for member in args.members} or {canonical_type("")})
    ),
    destructive=True,
    aliases=(t.Alias("TeamCreate", {"team_name": "name"}),),
)
