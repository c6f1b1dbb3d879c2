"""Parses the language of a REPL call and formats the result for the model."""

import shlex
from collections.abc import Mapping

from mcp_toolserver.capabilities.repl import Evaluation, Language
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

_PROGRAMS: Mapping[Language, tuple[str, str]] = {"python": ("python3", "-c"), "javascript": ("node", "-e")}


def named_language(name: object) -> Language:
    """Return the language that goes by `name`.

    Raises:
        ValueError: there is none.
    """
    found = _LANGUAGES.get(name.strip().lower()) if isinstance(name, str) else None
    if found is None:
        raise ValueError("unsupported language; use python, javascript or shell")
    return found


def one_shot(spoken: Language, code: str) -> str:
    """Return a script that runs the code in a process of its own."""
    if spoken == "shell":
        return code
    name, option = _PROGRAMS[spoken]
    missing = f"No {name} was found on the PATH of commands here. Tell the user, or use another language."
    return (
        f"command -v {name} >/dev/null || {{ echo {shlex.quote(missing)} >&2; exit 127; }}\n"
        f"exec {name} {option} {shlex.quote(code)}"
    )


def evaluated(came: Evaluation, spoken: Language, *, asked: str, hidden: int) -> str:
    """Return the output, followed by notes, one per line.

    `asked` is the session that was asked for, `hidden` how many pictures could not be shown.
    """
    state = came.state
    notes = [_ending(came, spoken, asked), *state.notes]
    if hidden:
        notes.append(f"pictures left out, as too many, too large or damaged: {hidden}")
    if came.session not in ("", asked):
        notes.append(f"session {came.session}")
    nothing = "" if came.pictures else "(no output)"
    return noted(printed(state) or nothing, [note for note in notes if note])


def _ending(came: Evaluation, spoken: Language, asked: str) -> str:
    state = came.state
    after = f"timeout after {state.seconds:.1f} s"
    if came.gone:
        return f"{after}; the session {came.gone}" if came.timed_out else f"the session {came.gone}"
    said: list[str] = []
    if came.timed_out:
        said.append(f"{after}: interrupted{', and the session goes on' if came.session else ''}")
    elif spoken == "shell" and state.exit_status:
        said.append(f"exit status {state.exit_status}")
    if asked and not came.session:
        said.append("the session has ended")
    return "; ".join(said)
