"""How a command is doing, in words for the model."""

from mcp_toolserver.capabilities import JobState, Spill

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
