"""Start an agent: another model that works on a task with the tools of this server and returns its result.
Use it for searches and work whose details you do not need to see. It knows only what `prompt` says, asks
nobody, and never has more rights than you. Types: `general-purpose` has your tools; `Explore` finds and
reads; `Plan` reads and plans; `Verification` runs tests; others come from files in .claude/agents and
.agents/agents. Returns its last answer and its id. In the background it returns the id at once: TaskOutput
waits for the result, TaskStop ends the agent and all that it started. `resume` continues an ended agent.
"""

from typing import Annotated, Literal

from mcp_toolserver import tool as t
from mcp_toolserver.text.agents.types import canonical_type, result_text
from mcp_toolserver.text.board import headline

_OTHER_MODES = {
    "plan": "read-only",
    "acceptEdits": "workspace-write",
    "default": "danger-full-access",
    "auto": "danger-full-access",
    "dontAsk": "danger-full-access",
    "bypassPermissions": "danger-full-access",
}
"""Modes of other clients. No mode raises a right, so those that ask for more ask for the caller's."""

_PERMISSIONS = {permission.flag: permission for permission in t.Permission}


class Agent(t.Args):
    description: str = t.Field(
        default="", max_length=200, description="Short title of the task; default: its first line"
    )
    prompt: Annotated[str, t.Field(max_length=100_000), t.NotBlank] = t.Field(
        description="The task, with all that the agent needs to know"
    )
    subagent_type: str = t.Field(
        default="", max_length=100, description="Type of the agent; default: general-purpose"
    )
    name: str = t.Field(
        default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9_-]{0,63})?$", description="Name for messages to it"
    )
    model: str = t.Field(default="", max_length=100, description="Another model than the one of its type")
    max_turns: int | None = t.Field(default=None, ge=1, le=1_000, description="Most answers of its model")
    run_in_background: bool = t.Field(default=False, description="Return its id at once")
    resume: str = t.Field(default="", max_length=100, description="Id of an ended agent to continue")
    team_name: str = t.Field(default="", max_length=100, description="Name of a team of yours that it joins")
    isolation: Literal["worktree"] | None = t.Field(
        default=None, description="`worktree`: it works in a git worktree of its own"
    )
    mode: Annotated[
        Literal["read-only", "workspace-write", "danger-full-access"] | None,
        t.BeforeValidator(lambda mode: _OTHER_MODES.get(mode, mode) if isinstance(mode, str) else mode),
    ] = t.Field(default=None, description="Lower its permission; nothing raises it above yours")
    # Other servers have it.
    skills: t.SkipJsonSchema[tuple[str, ...]] = t.Field(
        default=(), strict=False, max_length=20, description="Skills that it loads first"
    )

    @t.model_validator(mode="before")
    @classmethod
    def _described(cls, sent: dict[str, object]) -> dict[str, object]:
        """The description alone is the task."""
        return {"prompt": sent["description"], **sent} if "description" in sent else sent


def _with_skills(prompt: str, skills: tuple[str, ...]) -> str:
    """The prompt with the skills to load first."""
    return f"{prompt}\n\nLoad these skills first: {', '.join(skills)}." if skills else prompt


async def run(args: Agent, rt: t.Runtime) -> t.Output:
    task = t.AgentTask(
        description=args.description.strip() or headline(args.prompt),
        prompt=_with_skills(args.prompt, args.skills),
        type=args.subagent_type,
        name=args.name,
        model=args.model,
        max_turns=args.max_turns,
        background=args.run_in_background,
        resume=args.resume,
        in_worktree=args.isolation == "worktree",
        ceiling=_PERMISSIONS[args.mode or t.Permission.DANGER_FULL_ACCESS.flag],
        team=args.team_name,
    )
    state = await rt.agents.run(task, rt.report)
    if state.status not in ("running", "finished"):
        raise t.Failed(result_text(state))
    return t.Output(result_text(state))


TOOL = t.ToolSpec(
    name="Agent",
    title="Start agent",
    args=Agent,
    run=run,
    needs=frozenset({t.Capability.AGENTS}),
    subjects=lambda args: (args.resume or canonical_type(args.subagent_type),),
    destructive=True,
    may_be_long=True,
    aliases=(*(t.Alias(name, {"background": "run_in_background"}) for name in ("Agent", "Task", "task")),),
    ignored={
        "metadata": "it is not kept",
        "mcp_servers": "agents have the tools of this server",
        "window": "agents get no screenshots",
    },
    # The operator's limit on the time of an agent, at most an hour, ends it before. It may wait for a place.
    limits=t.Limits(deadline=14_400.0),
    profile=t.Profile.DEFAULT,
)
