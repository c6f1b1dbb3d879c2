"""Parses the language of a REPL call and formats the result for the model."""

from collections.abc import Mapping

from mcp_toolserver.capabilities.processes import Evaluation, Language
from mcp_toolserver.text.shell.command_output import noted, printed

_LANGUAGES: Mapping[str, Language] = {
    "python": "python",
    "py": "python",
    "javascript": "javascript",
    "js": "javascript",
    "node": "javascript",
    "shell": "shell",
    "sh": "shell",
    "bash": "shell",
}


def named_language(name: object) -> Language:
    """Return the language that goes by `name`.

    Raises:
        ValueError: there is none.
    """
    found = _LANGUAGES.get(name.strip().lower()) if isinstance(name, str) else None
    if found is None:
        raise ValueError("unsupported language; use python, javascript or shell")
    return found


def evaluated(came: Evaluation, spoken: Language, *, asked: str, hidden: int) -> str:
    """Return the output, followed by notes, one per line.

    `asked` is the session that was asked for, `hidden` how many pictures could not be shown.
    """
    state = came.state
    notes = [_ending(came, spoken, asked), *state.notes]
    if hidden:
        notes.append(f"pictures left out, as too many, too large or damaged: {hidden}")
    is_new = came.session not in ("", asked)
    if came.interpreter and (is_new or (not asked and state.exit_status)):
        notes.append(f"interpreter: {came.interpreter}")
    if is_new:
        notes.append(f"session {came.session}")
    nothing = "" if came.pictures else "(no output)"
    return noted(printed(state) or nothing, [note for note in notes if note])


def _ending(came: Evaluation, spoken: Language, asked: str) -> str:
    state = came.state
    after = f"timeout after {state.seconds:.1f} s"
    if came.gone:
        gone = f"the {'session' if asked else 'interpreter'} {came.gone}"
        return f"{after}; {gone}" if came.timed_out else gone
    said: list[str] = []
    if came.timed_out:
        said.append(f"{after}: interrupted{', and the session goes on' if came.session else ''}")
    elif state.exit_status and (spoken == "shell" or not asked):
        said.append(f"exit status {state.exit_status}")
    if asked and not came.session:
        said.append("the session has ended")
    return "; ".join(said)
