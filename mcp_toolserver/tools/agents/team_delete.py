"""Stop all members of a team and everything that they started. TaskOutput can still read what each said;
Agent can resume a single one. To stop one member, use TaskStop.
"""

from typing import Annotated

from mcp_toolserver import tool as t
from mcp_toolserver.text.agents.types import team_text


class TeamDelete(t.Args):
    team_id: Annotated[str, t.Field(max_length=100), t.NotBlank] = t.Field(
        description="Id or name of the team"
    )


async def run(args: TeamDelete, rt: t.Runtime) -> t.Output:
    return t.Output(team_text(await rt.teams.delete(args.team_id)))


TOOL = t.ToolSpec(
    name="TeamDelete",
    title="Stop team of agents",
    args=TeamDelete,
    run=run,
    needs=frozenset({t.Capability.TEAMS}),
    subjects=lambda args: (args.team_id,),
    destructive=True,
    idempotent=True,
    aliases=(t.Alias("TeamDelete", {"id": "team_id", "team_name": "team_id"}),),
)
