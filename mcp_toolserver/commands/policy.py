"""`policy explain`: says by which stage and rule a call would be decided; `policy test`: compares decisions
with those that a file of cases expects.

Both decide through the dispatcher of a server with the same settings. Nothing runs, nobody is asked, and
nothing is recorded.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import anyio
from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from mcp_toolserver.app.compose import Application
from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.command_line import Invocation
from mcp_toolserver.commands.setup import yaml
from mcp_toolserver.commands.setup.jsonc import Broken
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.invocation import overridden
from mcp_toolserver.pipeline.call_record import CallRecord
from mcp_toolserver.pipeline.nested_calls import ServerCaller
from mcp_toolserver.policy.rules import Verdict
from mcp_toolserver.settings import Raw, Settings
from mcp_toolserver.text.lines.escape_invisible import visible

Build = Callable[[Settings], Application]
"""Builds a server with these settings that will run no call."""

_CHANGES: Mapping[str, str] = {
    "find": "use the name of a tool; `mcp-toolserver tools` lists them",
    "validate": "correct the arguments",
    "path": "name a path inside the roots, or add its folder with --root",
    "offered": "add the tool with --tools, unless --exclude-tools or a project hides it",
    "deny": "remove the rule; no other rule and no mode overrides it",
    "ceiling": "start the server with a higher --permission-mode; no rule raises it",
    "narrowing": "end what takes the right, such as plan mode",
    "dangerous": "nothing: catastrophic commands never run",
    "ask": "answer the question; add an allow rule that is more specific, or remove the rule",
    "allow": "remove the rule, or add an ask rule that is as specific, or a deny rule",
    "granted": "add an ask or a deny rule, or lower `granted`",
    "default": "answer the question; add an allow rule, or raise `granted` up to the mode",
    "available": "see `mcp-toolserver doctor`",
}
"""By stage, in their order, what would change a decision there."""

_STAGES = tuple(_CHANGES)

_BY_VERDICT: Mapping[str, str] = {
    "unknown": "find",
    "invalid": "validate",
    "undecided": "path",
    "refused-path": "path",
    "refused-off": "offered",
    "refused-watchdog": "dangerous",
}

_FAILED = {"find": "invalid", "validate": "invalid"}


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What would become of a call."""

    verdict: str
    stage: str
    """That decided."""
    rule: str
    source: str
    """The scope of the rule, and where it stands."""
    reason: str
    call: CallRecord


async def decide(app: Application, tool: str, arguments: Mapping[str, JsonValue]) -> Decision:
    caller = ServerCaller(name="mcp-toolserver policy", owner=LOCAL)
    call, error = await app.dispatcher.decide(tool, arguments, caller)
    decision = call.decision or Verdict(action="refuse")
    stage = _BY_VERDICT.get(call.verdict) or decision.stage
    if error and stage in ("ask", "allow", "granted", "default"):
        stage = "available"
    verdict = _FAILED.get(stage, "refuse") if error else decision.action
    by = decision if stage == decision.stage else None
    return Decision(
        verdict=verdict,
        stage=stage,
        rule=by.rule if by else "",
        source=by.source if by else "",
        reason=error or decision.reason,
        call=call,
    )


def explain(app: Application, invocation: Invocation, arguments: Mapping[str, JsonValue]) -> int:
    """Print each stage of a decision."""
    found = anyio.run(decide, app, invocation.tool, arguments)
    passed = _passed(app, found)
    decided_at = _STAGES.index(found.stage)
    for stage in _STAGES[:decided_at]:
        if stage in passed:
            print(visible(f"{stage:10}  {passed[stage]}"))
    by = f"{found.rule} ({found.source})" if found.rule else ""
    print(visible(f"{found.stage:10}  {by or 'decides'}"))
    print(visible(f"\n{found.verdict}" + (f": {found.reason}" if found.reason else "")))
    print(f"To change it: {_CHANGES[found.stage]}.")
    return 0


def _passed(app: Application, found: Decision) -> Mapping[str, str]:
    """What to say of each stage that let the call pass."""
    call, policy = found.call, app.dispatcher.policy
    needs = call.permission.flag if call.permission is not None else ""
    return {
        "find": f"{call.tool}",
        "validate": "the arguments are valid",
        "path": ", ".join(call.about) or "touches nothing that rules match",
        "offered": "switched on",
        "deny": "no deny rule matches",
        "ceiling": f"needs {needs}, and the mode is {policy.ceiling.flag}",
        "narrowing": "nothing takes the right",
        "dangerous": "no catastrophic command",
        "ask": "no ask rule decides",
        "allow": "no allow rule decides for everything that the call touches",
        "granted": f"needs {needs}, and {policy.granted.flag} runs without a question",
        "default": f"needs {needs}; only {policy.granted.flag} runs without a question",
    }


# --- test -----------------------------------------------------------------------------------------------


class Case(BaseModel):
    """A call and the decision that is expected."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = ""
    tool: str
    arguments: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    verdict: Literal["run", "ask", "refuse", "invalid"]
    rule: str | None = None
    stage: str | None = None

    def difference(self, found: Decision) -> str:
        """How the decision differs; empty if it does not."""
        wanted = {"verdict": self.verdict, "rule": self.rule, "stage": self.stage}
        got = {"verdict": found.verdict, "rule": found.rule, "stage": found.stage}
        others = [name for name, value in wanted.items() if value is not None and value != got[name]]
        return ", ".join(f"{name} {got[name]!r} and not {wanted[name]!r}" for name in others)


_CASES = TypeAdapter(list[Case])
_GROUPS = TypeAdapter(list[dict[str, JsonValue]])
_SETTINGS = TypeAdapter(dict[str, Raw])


def test(invocation: Invocation, build: Build) -> int:
    """Print each difference; exit status 1 if there is one. Raises: SettingsError: the file is invalid."""
    groups = _read(invocation.tool, invocation.settings)
    differences, number = 0, 0
    for settings, cases in groups:
        for case, found in anyio.run(_decided, build(settings), cases):
            number += 1
            if differs := case.difference(found):
                differences += 1
                shown = json.dumps(case.arguments, ensure_ascii=False)
                print(visible(f"{number} {case.id} {case.tool} {shown}: {differs}. {found.reason}"))
    print(f"{number} cases, {differences} different" if number else "no cases", file=sys.stderr)
    return 1 if differences or not number else 0


async def _decided(app: Application, cases: Sequence[Case]) -> list[tuple[Case, Decision]]:
    return [(case, await decide(app, case.tool, case.arguments)) for case in cases]


def _read(path: str, base: Settings) -> list[tuple[Settings, list[Case]]]:
    """The groups of cases in a file, each with its settings: keys of the config file override those of the
    command line, and roots are relative to the file."""
    try:
        content = yaml.parse(Path(path).read_text(encoding="utf-8"))
        return [
            _group(path, base, group) for group in _GROUPS.validate_python(content.get("groups", [content]))
        ]
    except OSError as error:
        raise SettingsError(f"cannot read the cases in {path}: {error.strerror}") from None
    except Broken as error:
        raise SettingsError(f"{path}: {error}") from None
    except (ValidationError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from None


def _group(path: str, base: Settings, group: Mapping[str, JsonValue]) -> tuple[Settings, list[Case]]:
    content = _SETTINGS.validate_python({key: value for key, value in group.items() if key != "cases"})
    if isinstance(roots := content.get("root"), list):
        content["root"] = [str(Path(path).absolute().parent / root) for root in roots]
    return overridden(base, path, content), _CASES.validate_python(group.get("cases"))
