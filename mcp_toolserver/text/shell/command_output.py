"""Formats the state and output of a command for the model, as it would look on a terminal."""

import re
from collections.abc import Sequence

from mcp_toolserver.capabilities.call_scope import Report
from mcp_toolserver.capabilities.processes import JobState

_WORDS = {
    "running": "running for {}",
    "timed out": "killed after {}: timeout",
    "stopped": "stopped after {}",
    "over a limit": "killed after {}",
    "uncovered": "stopped after {}",
    "sandbox_failed": "not run, after {}: SANDBOX_UNAVAILABLE",
    "unverified": "killed after {}: its supervisor could not verify protected names",
    "lost": "killed after {}: its supervisor ended without a report",
}


def ending(state: JobState) -> str:
    """Say how the job is doing: how the command ended, or how long it has run."""
    if state.status:
        return state.status
    if state.reason == "exited":
        return f"exit status {state.exit_status}{_limit(state.detail)}"
    said = _WORDS[state.reason].format(f"{state.seconds:.1f} s")
    if state.reason == "timed out" and state.timeout is not None and state.timeout < 1:
        said += f" ({1000 * state.timeout:g} ms; for seconds send {1000_000 * state.timeout:g})"
    return (
        f"{said}: {state.detail}"
        if state.reason in ("uncovered", "sandbox_failed")
        else said + _limit(state.detail)
    )


def _limit(detail: str) -> str:
    if not detail:
        return ""
    return f": it used {detail}, which only the operator of this server can allow; do less at a time"


def printed(state: JobState) -> str:
    """Return the output as on a terminal, with a note about omitted parts."""
    text = as_on_terminal(state.text)
    if not state.omitted:
        return text
    gap = f"[{state.omitted} bytes left out; {_saved(state)}]"
    return f"{lines(text)}{gap}\n{as_on_terminal(state.tail)}"


def _saved(state: JobState) -> str:
    because = f", because {state.unsaved}" if state.unsaved else ""
    if state.saved_output is None:
        return f"they could not be saved{because}"
    where = f'read_file, path "{state.saved_output.path}"'
    if state.saved_output.size == state.total:
        return f"all of it: {where}"
    return f"the first {state.saved_output.size} bytes of it: {where}; the rest could not be saved{because}"


def lines(text: str) -> str:
    """End `text` with a line feed, so that what follows starts a new line."""
    return text if not text or text.endswith("\n") else f"{text}\n"


def describing(report: Report, description: str) -> Report:
    """Wrap `report` to put the purpose of the command, if given, in front of each message."""

    async def described(message: str) -> None:
        await report(f"{description}: {message}" if description else message)

    return described


def command_text(state: JobState) -> str:
    """Return the output, followed by notes, one per line."""
    text = printed(state) or ("" if state.running else "(no output)")
    return noted(text, _notes(state))


def noted(text: str, notes: Sequence[str]) -> str:
    """Return `text`, then each note on a line of its own."""
    return lines(text) + "\n".join(f"[{note}]" for note in notes) if notes else text


def _killed_later(state: JobState) -> str:
    return "" if state.timeout is None else f" and is killed after {state.timeout:g} s in all"


def _notes(state: JobState) -> list[str]:
    if not state.running:
        ended = [*([] if state.exit_status == 0 else [ending(state)]), *state.notes]
        return [*ended, f"ended at once; task_id {state.handle}"] if state.handle else ended
    return [
        f"{ending(state)}; it goes on in the background as {state.handle}{_killed_later(state)}",
        f"TaskOutput reads on from offset {state.next_offset}; TaskStop ends it",
    ]


_STYLE = re.compile(r"\x1b\[[0-9;:]*m|\x1b\(B|(?<=\r)\x1b\[[0-2]?K|\x1b\[[0-2]?K(?=\r)")
"""Colours and styles, the reset of the character set that `tput sgr0` adds, and what erases a line that is
written again from its start. Anything else may move text, so it stays and is escaped."""


def as_on_terminal(text: str) -> str:
    """Remove colours from `text`; of a line that was written several times, keep what was written last."""
    if "\x1b" in text:
        text = _STYLE.sub("", text)
    if text.count("\r") == text.count("\r\n"):
        return text
    return "\n".join(map(_last_state, text.split("\n")))


def _last_state(line: str) -> str:
    if "\r" not in line:
        return line
    return next((state for state in reversed(line.split("\r")) if state), "")
