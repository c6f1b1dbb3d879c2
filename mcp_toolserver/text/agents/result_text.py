"""Formats agents for the model that started them."""

from mcp_toolserver.capabilities.agents import AgentState, Team

_SILENT = "(it has said nothing yet)"


def spent(state: AgentState) -> str:
    """What the agent has used so far: `3 turns, 1,234 tokens, $0.01`."""
    turns = f"{state.turns} {'turn' if state.turns == 1 else 'turns'}"
    cost = f", ${state.cost:.4f}" if state.cost else ""
    return f"{turns}, {state.tokens:,} tokens{cost}"


def ending(state: AgentState) -> str:
    """How the agent ended, or what it does."""
    match state.status:
        case "running":
            return f"running for {state.seconds:.1f} s{f': {state.step}' if state.step else ''}"
        case "finished":
            return "finished"
        case "limited":
            return f"ended before it was done: {state.detail}"
        case "failed":
            return f"failed: {state.detail}"
        case "stopped":
            return f"stopped after {state.seconds:.1f} s"
        case _:
            return "ended with the server that ran it"


def last_line(state: AgentState) -> str:
    """The handle, the end and the use of an agent, as the line after its text."""
    return f"[{state.handle} {ending(state)}; {spent(state)}]"


def result_text(state: AgentState) -> str:
    """The answer of a call that started an agent."""
    notes = "".join(f"\n[{note}]" for note in state.notes)
    if state.status == "running":
        how = f"TaskOutput waits for its result; TaskStop ends it; handle: {state.handle}"
        return f"The agent works in the background. {how}{notes}\n{last_line(state)}"
    text = state.text or _SILENT
    again = "" if state.status == "finished" else f"\n[to go on, call Agent with resume: {state.handle}]"
    return f"{text}{again}{notes}\n{last_line(state)}"


def team_text(team: Team) -> str:
    """A team and how each member is doing."""
    members = "\n".join(f"- {member.name}: {last_line(member)[1:-1]}" for member in team.members)
    return f"Team {team.name} ({team.id}), {len(team.members)} members:\n{members}"
