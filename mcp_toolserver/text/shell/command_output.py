"""Formats the state and output of a command for the model, as it would look on a terminal, and detects in it
what probably went wrong, such as a refused write or a missing program: a hint, never a decision.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mcp_toolserver.capabilities.call_scope import Report
from mcp_toolserver.capabilities.processes import JobState
from mcp_toolserver.text.shell.script import simple_commands

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


def command_text(state: JobState, notes: Sequence[str] = ()) -> str:
    """Return the output, followed by notes on its end and `notes`, one per line."""
    text = printed(state) or ("" if state.running else "(no output)")
    return noted(text, (*_notes(state), *notes))


def noted(text: str, notes: Sequence[str]) -> str:
    """Return `text`, then each note on a line of its own."""
    return lines(text) + "\n".join(f"[{note}]" for note in notes) if notes else text


def _notes(state: JobState) -> list[str]:
    if not state.running:
        ended = [*([] if state.exit_status == 0 else [ending(state)]), *state.notes]
        return [*ended, f"ended at once; task_id {state.handle}"] if state.handle else ended
    killed = "" if state.timeout is None else f" and is killed after {state.timeout:g} s in all"
    return [
        f"{ending(state)}; it goes on in the background as {state.handle}{killed}",
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
    return "\n".join(next(filter(None, line.split("\r")[::-1]), "") for line in text.split("\n"))


_UNWRITABLE = re.compile(r"read-only file system|\berofs\b", re.IGNORECASE)
_GIT_CONFIG = re.compile(r"could not (?:write|lock) config file \S*config\b")
_NOT_SWITCHED = re.compile(
    r"^(?:error|warning): unable to (?:unlink old|unlink|create file) '?(.+?)'?: read-only file system$",
    re.MULTILINE | re.IGNORECASE,
)
"""What git says of a tracked file that it cannot replace."""
_GIT = re.compile(r"(?:^|[\s'\"/:])\.git(?:/|['\"\s:]|$)", re.MULTILINE)
_NETWORK = re.compile(
    r"could not resolve host|temporary failure in name resolution|network is unreachable"
    r"|name or service not known|\(from versions: none\)|enetunreach|eai_again"
    r"|socket: (?:permission|operation not permitted)",
    re.IGNORECASE,
)


_MISSING = re.compile(
    r"^(?:[\w./-]+: )?(?:line \d+: |\d+: )?(?P<name>[\w.+-]+): (?:command )?not found$"
    r"|^(?:\S*/)?env: .(?P<started>[\w.+-]+).: No such file or directory$",
    re.MULTILINE,
)
"""What bash, other shells and `env` say of a program that they cannot find."""

_KILLED = re.compile(r"^\S+: line \d+: +\d+ Killed\b", re.MULTILINE)
_KILLED_STATUS = 128 + 9

_NO_REPOSITORY = re.compile(r"not (?:appear to be )?a git repository|fatal: repository '.*' does not exist")

_SIGNAL = re.compile(r"\bp?kill(?:all)?\b.*operation not permitted", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Confined:
    """The permissions of commands on this host."""

    writes: bool
    git: bool
    """Whether `.git` can be written."""
    network: str
    """The setting of that name."""
    hidden_git: Callable[[], Sequence[tuple[str, str]]] = tuple
    """Returns the `.git` folders that commands see empty, each with the reason."""
    git_tools: tuple[str, ...] = ()
    """Tools that the model may call and that write in `.git`, where commands cannot."""
    token: str = ""
    """The name of the caller's token, where it limits the commands more than the server does."""


def explain(
    output: str, status: int | None, confined: Confined | None, *, read_only: bool = False
) -> tuple[str, ...]:
    """Explain in sentences why parts of a command failed, as far as its output and exit status tell.

    The whole command need not have failed: a pipeline hides the failure of its first part. `status` is None
    while it runs, and `confined` None where nothing confines commands; `read_only` says that this call may
    not write where others may.
    """
    notes = [] if confined is None else _refusals(output, confined, read_only=read_only)
    if missing := _MISSING.search(output):
        name = missing["name"] or missing["started"]
        notes.append(
            f"{name} is not on the PATH of commands here: name it by its path, or ask the user for it."
        )
    if status == _KILLED_STATUS or _KILLED.search(output):
        notes.append("A process was killed with SIGKILL, as the kernel does when memory runs out.")
    return tuple(notes)


_WAITS = {"wait", "kill", "fg"}


def script_notes(script: str) -> tuple[str, ...]:
    """What the end of a bash script undoes, as far as its text tells: processes and the working folder."""
    notes: list[str] = []
    commands = simple_commands(script)
    left = next((" ".join(one.words) for one in commands if one.followed_by == "&"), "")
    if left and not _WAITS & {one.name for one in commands}:
        notes.append(
            f"`{left[:80]}` was stopped with the script if it still ran. Start what should go on with "
            "run_in_background."
        )
    if commands and commands[-1].name in ("cd", "pushd"):
        notes.append("The working folder is not kept: send `cwd` with the next call.")
    return tuple(notes)


def _refusals(output: str, confined: Confined, *, read_only: bool) -> list[str]:
    notes: list[str] = []
    if _UNWRITABLE.search(output) or _GIT_CONFIG.search(output):
        notes.append(_why_unwritable(output, confined, read_only=read_only))
    if confined.network != "commands" and _NETWORK.search(output):
        notes.append(
            "Commands reach the network only through the proxy in HTTPS_PROXY, and something did not use it."
            if confined.network == "hosts"
            else "Commands have no network here; the operator can start the server with --network commands, "
            "or with --network hosts for some hosts."
        )
    if _NO_REPOSITORY.search(output):
        notes += [
            f"{folder} is empty for commands: {why}. The git tools, which check paths, go on working."
            for folder, why in confined.hidden_git()[:3]
        ]
    if _SIGNAL.search(output):
        notes.append("A command here can signal only the processes that it started.")
    return notes


def _why_unwritable(output: str, confined: Confined, *, read_only: bool) -> str:
    if not confined.writes:
        source, advice = "This server", "start it with --permission-mode workspace-write"
        if confined.token:
            source, advice = f"The token {confined.token!r}", "change the token"
        return f"{source} is read-only: commands write to $TMPDIR only. The operator can {advice}."
    if read_only:
        return (
            "This call does not write: plan mode is in force, or its agent, task or client may only read. "
            "Commands of it write to $TMPDIR only."
        )
    if kept := list(dict.fromkeys(_NOT_SWITCHED.findall(output))):
        named = f"{', '.join(kept[:3])}{' and others' if kept[3:] else ''}"
        return (
            f"Git did not change {named}: commands cannot write what editors, shells, agents and git act "
            "upon by themselves. `git status` shows that as changed; leave it out of commits. If it shows "
            "other changes too, git stopped halfway, and `git stash -u` undoes that. Ask the user to run the "
            "git command outside of this server."
        )
    if confined.git and _GIT_CONFIG.search(output):
        return (
            "The configuration of a repository is read-only for commands, because it names programs. Ask the "
            "user to change it."
        )
    if confined.git or not _GIT.search(output):
        return (
            "Commands write to the roots and to $TMPDIR only, where the call may write; and not to what "
            "editors, shells, agents and git act upon by themselves."
        )
    why = (
        ".git is read-only for commands here, so they cannot stage or commit; mv and rm work on files, and "
        "commits include what they did."
    )
    if confined.git_tools:
        return f"{why} Use these tools: {', '.join(confined.git_tools)}."
    return (
        f"{why} The operator can offer tools for it with --toolsets default,git, or start the server without "
        "--git protected."
    )
