"""How a command is doing, in words for the model."""

from collections.abc import Sequence

from mcp_toolserver.capabilities.calls import Report, Spill
from mcp_toolserver.capabilities.processes import JobState

_WORDS = {
    "running": "running for {}",
    "timed out": "killed after {}: timeout",
    "stopped": "stopped after {}",
    "over a limit": "killed after {}",
    "unwalled": "not run, after {}: SANDBOX_UNAVAILABLE",
    "lost": "killed after {}: its watcher ended",
}


def ending(state: JobState) -> str:
    """How it ended, or how long it has run."""
    if state.reason == "exited":
        return f"exit status {state.exit_status}{_limit(state.detail)}"
    said = _WORDS[state.reason].format(f"{state.seconds:.1f} s")
    return f"{said}: {state.detail}" if state.reason == "unwalled" else said + _limit(state.detail)


def _limit(detail: str) -> str:
    if not detail:
        return ""
    return f": it used {detail}, which only the operator of this server can allow; do less at a time"


def printed(state: JobState) -> str:
    """What it printed, with a line on what was left out."""
    if not state.omitted:
        return state.text
    gap = f"[{state.omitted} bytes left out; {_kept(state.spill, state.total)}]"
    return f"{lines(state.text)}{gap}\n{state.tail}"


def _kept(spill: Spill | None, total: int) -> str:
    if spill is None:
        return "they could not be kept"
    part = "all" if spill.size == total else f"the first {spill.size} bytes"
    return f'{part} of it: read_file, path "{spill.path}"'


def lines(text: str) -> str:
    """`text` such that what follows starts a new line."""
    return text if not text or text.endswith("\n") else f"{text}\n"


def describing(report: Report, description: str) -> Report:
    """`report`, with what the command is for before each word, where that was told."""

    async def described(message: str) -> None:
        await report(f"{description}: {message}" if description else message)

    return described


def told(state: JobState) -> str:
    """What it printed, then what there is to say of it, one line each."""
    text = printed(state) or ("" if state.running else "(no output)")
    return noted(text, _notes(state))


def noted(text: str, notes: Sequence[str]) -> str:
    """`text`, then each note on a line of its own."""
    return lines(text) + "\n".join(f"[{note}]" for note in notes) if notes else text


def _notes(state: JobState) -> list[str]:
    if not state.running:
        ended = [*([] if state.exit_status == 0 else [ending(state)]), *state.notes]
        return [*ended, f"ended at once; task_id {state.handle}"] if state.handle else ended
    return [
        f"{ending(state)}; it goes on in the background as {state.handle}, and a timeout still holds",
        f"TaskOutput reads on from offset {state.next_offset}; TaskStop ends it",
    ]
