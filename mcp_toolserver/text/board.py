"""Dependencies of tasks on a board, and how tasks are shown."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pydantic import JsonValue

from mcp_toolserver.capabilities.tasks import FINAL, TaskStatus, TaskSummary
from mcp_toolserver.text.json_values import is_list, is_object

SUBJECT = 200
"""Maximum characters of a subject."""

_FAILURES: Mapping[TaskStatus, str] = {"failed": "failed", "cancelled": "was cancelled"}

Dependencies = Mapping[str, Sequence[str]]
"""Task → the tasks it depends on."""


def blocking(task: str, statuses: Mapping[str, TaskStatus], dependencies: Dependencies) -> str:
    """Why `task` can never start, as a sentence; empty if it can."""
    for one in reachable(dependencies.get(task, ()), dependencies):
        if (how := _FAILURES.get(statuses[one])) is not None:
            return f"{one}, which it depends on, {how}."
    return ""


def reachable(starts: Iterable[str], dependencies: Dependencies) -> Iterator[str]:
    """`starts`, and all that they depend on, directly or not."""
    seen: set[str] = set()
    stack = list(reversed(tuple(starts)))
    while stack:
        if (one := stack.pop()) not in seen:
            seen.add(one)
            yield one
            stack.extend(dependencies.get(one, ()))


def headline(*texts: str) -> str:
    """The first line of the first of `texts` that is not blank, shortened to a subject."""
    found = next(text for text in texts if text.strip())
    line = found.strip().splitlines()[0].strip()
    return line if len(line) <= SUBJECT else f"{line[: SUBJECT - 1]}…"


def task_line(task: TaskSummary) -> str:
    """Format a task as a line."""
    return f"{task.id} [{task.shown_status}] {task.subject}{''.join(_remarks(task))}"


SCOPES = ("workspace", "module", "single_file", "custom")

_PACKET = (
    ("objective", "Objective"),
    ("scope", "Scope"),
    ("repo", "Repository"),
    ("branch_policy", "Branch policy"),
    ("commit_policy", "Commit policy"),
    ("reporting_contract", "What to report"),
    ("escalation_policy", "When to stop and report instead of going on"),
)


def packet_errors(packet: object) -> list[str]:
    """Everything that is wrong with a task packet as it was sent, one sentence each. Values of wrong types
    are left to validation."""
    if not is_object(packet):
        return []
    errors = [f"{name} must not be empty" for name, _ in _PACKET if _is_blank(packet.get(name))]
    scope = packet.get("scope")
    if isinstance(scope, str) and scope.strip() and scope not in SCOPES:
        errors.append(f"scope must be one of {', '.join(SCOPES)}")
    if scope in ("module", "single_file") and _is_blank(packet.get("scope_path")):
        errors.append(f"scope_path is required for scope {scope}")
    tests = packet.get("acceptance_tests")
    if not tests:
        errors.append("acceptance_tests must name at least one test")
    elif is_list(tests):
        blank = (number for number, test in enumerate(tests) if _is_blank(test))
        errors.extend(f"acceptance_tests[{number}] must not be empty" for number in blank)
    return errors


def packet_prompt(packet: Mapping[str, JsonValue]) -> str:
    """The prompt for the agent that runs a valid task packet."""
    lines = [f"{title}: {packet[name]}" for name, title in _PACKET]
    lines.insert(2, f"Path: {packet['scope_path']}")
    tests = packet["acceptance_tests"]
    assert isinstance(tests, list)
    return "\n".join((*lines, "Done when all of this succeeds:", *(f"- {test}" for test in tests)))


def _is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _remarks(task: TaskSummary) -> Iterator[str]:
    if task.worker:
        yield f" (owner: {task.worker})"
    if task.runs:
        yield f" (runs a {task.runs})"
    if task.blocked_by and task.status not in FINAL and not task.is_blocked:
        yield f"; waits for {', '.join(task.blocked_by)}"
    if task.reason:
        yield f"; {task.reason}"
