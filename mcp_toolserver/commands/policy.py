"""`policy explain`: says by which stage and rule a call would be decided; `policy test`: compares decisions
with those that a file of cases expects.

Both decide through the dispatcher of a server with the same settings. Nothing runs, nobody is asked, and
nothing is recorded.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import anyio
from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError

from mcp_toolserver.app.compose import Application
from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.command_line import Invocation
from mcp_toolserver.commands.setup import yaml
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.invocation import overridden
from mcp_toolserver.pipeline.call_record import CallRecord
from mcp_toolserver.pipeline.nested_calls import ServerCaller
from mcp_toolserver.policy.rules import Verdict
from mcp_toolserver.settings import Raw, Settings
from mcp_toolserver.text.jsonc import Broken
from mcp_toolserver.text.lines.escape_invisible import visible

Build = Callable[[Settings], Application]
"""Builds a server with these settings that will run no call."""

_STAGES: Mapping[str, tuple[str, str]] = {
    "find": ("{tool}", "use the name of a tool; `mcp-toolserver tools` lists them"),
    "validate": ("the arguments are valid", "correct the arguments"),
    "path": ("{about}", "name a path inside the roots, or add its folder with --root"),
    "offered": ("switched on", "add the tool with --tools, unless --exclude-tools or a project hides it"),
    "deny": ("no deny rule matches", "remove the rule; no other rule and no mode overrides it"),
    "ceiling": ("needs {needs}, in the mode {mode}", "start with a higher --permission-mode"),
    "narrowing": ("nothing takes the right", "end what takes the right, such as plan mode"),
    "dangerous": ("no catastrophic command", "nothing: catastrophic commands never run"),
    "ask": ("no ask rule decides", "add an allow rule that is more specific, or remove the rule"),
    "allow": ("no allow rule decides", "remove the rule, or add an ask or deny rule"),
    "granted": ("needs {needs}; {granted} runs unasked", "add an ask or deny rule, or lower `granted`"),
    "default": ("", "add an allow rule, or raise `granted` up to the mode"),
    "available": ("", "see `mcp-toolserver doctor`"),
}
"""In order: what to say where a call passes, and what would change a decision there."""

_BY_VERDICT: Mapping[str, str] = {
    "unknown": "find",
    "invalid": "validate",
    "undecided": "path",
    "refused-path": "path",
    "refused-off": "offered",
    "refused-watchdog": "dangerous",
}

Decided = tuple[str, str, Verdict, CallRecord]
"""The verdict, the stage that decided, the rule and reason, and the call."""


async def decide(app: Application, tool: str, arguments: Mapping[str, JsonValue]) -> Decided:
    caller = ServerCaller(name="mcp-toolserver policy", owner=LOCAL)
    call, error = await app.dispatcher.decide(tool, arguments, caller)
    decision = call.decision or Verdict(action="refuse")
    stage = _BY_VERDICT.get(call.verdict) or decision.stage
    if error and stage in ("ask", "allow", "granted", "default"):
        stage = "available"
    if stage != decision.stage:
        decision = Verdict(action="refuse")
    verdict = "invalid" if stage in ("find", "validate") else decision.action
    return verdict, stage, replace(decision, reason=error or decision.reason), call


def explain(app: Application, invocation: Invocation, arguments: Mapping[str, JsonValue]) -> int:
    """Print each stage of a decision."""
    verdict, decided_at, decision, call = anyio.run(decide, app, invocation.tool, arguments)
    values = {
        "tool": call.tool,
        "about": ", ".join(call.about) or "touches nothing that rules match",
        "needs": call.permission.flag if call.permission is not None else "",
        "mode": app.policy.ceiling.flag,
        "granted": app.policy.granted.flag,
    }
    for stage, (passed, _) in _STAGES.items():
        if stage == decided_at:
            break
        print(visible(f"{stage:10}  {passed.format(**values)}"))
    rule = f"{decision.rule} ({decision.source})" if decision.rule else "decides"
    print(visible(f"{decided_at:10}  {rule}\n\n{': '.join(filter(None, (verdict, decision.reason)))}"))
    print(f"To change it: {_STAGES[decided_at][1]}.")
    return 0


# --- test -----------------------------------------------------------------------------------------------


class Case(BaseModel):
    """A call and the decision that is expected."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = ""
    tool: str
    arguments: dict[str, JsonValue] = {}
    verdict: Literal["run", "ask", "refuse", "invalid"]
    rule: str | None = None
    stage: str | None = None

    def difference(self, decided: Decided) -> str:
        """How the decision differs; empty if it does not."""
        verdict, stage, decision, _ = decided
        all_wanted = {"verdict": self.verdict, "rule": self.rule, "stage": self.stage}
        pairs = zip(all_wanted.items(), (verdict, decision.rule, stage), strict=True)
        differing = [(name, got, wanted) for (name, wanted), got in pairs if wanted not in (None, got)]
        return ", ".join(f"{name} {got!r} and not {wanted!r}" for name, got, wanted in differing)


_CASES = TypeAdapter(list[Case])
_GROUPS = TypeAdapter(list[dict[str, JsonValue]])
_SETTINGS = TypeAdapter(dict[str, Raw])


def test(invocation: Invocation, build: Build) -> int:
    """Print each difference; exit status 1 if there is one. Raises: SettingsError: the file is invalid."""
    differences, number = 0, 0

    async def decided(app: Application, cases: Sequence[Case]) -> list[Decided]:
        return [await decide(app, case.tool, case.arguments) for case in cases]

    for settings, cases in _read(invocation.tool, invocation.settings):
        for case, found in zip(cases, anyio.run(decided, build(settings), cases), strict=True):
            number += 1
            if differs := case.difference(found):
                differences += 1
                shown = json.dumps(case.arguments, ensure_ascii=False)
                print(visible(f"{number} {case.id} {case.tool} {shown}: {differs}. {found[2].reason}"))
    print(f"{number} cases, {differences} different", file=sys.stderr)
    return 1 if differences or not number else 0


def _read(path: str, base: Settings) -> list[tuple[Settings, list[Case]]]:
    """The groups of cases in a file, each with its settings: keys of the config file override those of the
    command line, and roots are relative to the file."""
    found: list[tuple[Settings, list[Case]]] = []
    try:
        content = yaml.parse(Path(path).read_text(encoding="utf-8"))
        for group in _GROUPS.validate_python(content.get("groups", [content])):
            cases = _CASES.validate_python(group.pop("cases", None))
            if isinstance(roots := group.get("root"), list):
                group["root"] = [str(Path(path).absolute().parent / str(root)) for root in roots]
            found.append((overridden(base, path, _SETTINGS.validate_python(group)), cases))
    except OSError as error:
        raise SettingsError(f"cannot read the cases in {path}: {error.strerror}") from None
    except (Broken, ValidationError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from None
    return found
