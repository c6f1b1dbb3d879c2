"""What a human is asked about a call, and what the answer is bound to.

An approval is valid for exactly what its question showed: tool, arguments, the current content of a file that
is edited, permission, the rule that asked and the policy.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader, FileIO
from typing import TYPE_CHECKING

from pydantic import JsonValue

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import NotFound, ToolError
from mcp_toolserver.pipeline.call_record import CallRecord
from mcp_toolserver.policy.rules import Narrowing, Policy, Request, Rule
from mcp_toolserver.text.lines.escape_invisible import escape, visible
from mcp_toolserver.tool_spec import Args, ToolSpec

if TYPE_CHECKING:
    from mcp_toolserver.runtime.host_services import HostServices

MOST_SHOWN = 16_000
"""Characters of a question to the user of a client; ..."""

MOST_STORED = 200_000
"""... of one that the operator reads in a terminal."""

_MOST_READ = 10 << 20
"""Bytes of a file that a diff is made of; tools change no longer one."""

Ask = Callable[[str], Awaitable[bool | None]]
"""Asks the user of a client yes or no; None if nobody could be asked, or answered in time."""


@dataclass(frozen=True, kw_only=True)
class Inquiry:
    """A call that needs an approval."""

    call: CallRecord
    """Its verdict says how it was answered."""
    request: Request
    arguments: Mapping[str, JsonValue]
    """As its tool gets them."""
    owner: str
    roots: Sequence[str]
    """Where it may work: relative paths begin in the first."""
    policy: Policy
    reason: str
    """Why it needs an approval."""
    rules: Callable[[Sequence[str]], Sequence[Rule]]
    """Parses rules; omits those that cannot be parsed."""
    diff: str = ""
    """What it would change in a file."""
    content: str = ""
    """A digest of the content with which the diff begins."""

    @property
    def is_once(self) -> bool:
        """Whether an answer is for one call only: for a run outside the sandbox, and where a hook asks."""
        return bool(self.request.outside or self.call.hooked.asks)

    def is_covered(self, pattern: str) -> bool:
        """Whether a remembered rule is about everything that the call touches."""
        rules = Narrowing(source="", tools=tuple(self.rules((pattern,))))
        return not self.is_once and not rules.refusal(self.request)

    @property
    def digest(self) -> str:
        """A digest of all that an answer is bound to."""
        request = self.request
        shown = (request.tool, request.through, request.subjects, self.reason, request.preview, self.content)
        return digest(*shown, dict(self.arguments), self.owner, [*self.roots], self.mark)

    @property
    def mark(self) -> str:
        """A digest of the policy, of what asked, and of the permission."""
        policy, level = self.policy, self.request.level.flag
        rules = [[rule.text for rule in rules] for rules in (policy.deny, policy.ask, policy.allow)]
        return digest(policy.ceiling.flag, policy.granted.flag, rules, self.call.rule, level)

    def question(self, most: int, where: str) -> str:
        """The question, with escapes. After `most` characters, more for a preview, it says how many are
        missing; `where` says where they are."""
        request, script = self.request, self.request.script
        subjects = [subject[0] for subject in request.subjects if not script or subject[0] != script.strip()]
        given = [
            f"{json.dumps(name)[1:-1]}: {json.dumps(value, ensure_ascii=value == script)}"
            for name, value in self.arguments.items()
        ]
        parts = [one for one in (*(ascii(one)[1:-1] for one in subjects), self.diff, *given) if one]
        if request.preview:
            parts = [ascii(line)[1:-1] for line in request.preview.split("\n")]
            most = MOST_STORED
        text = visible("\n".join(parts)).replace("\r", escape("\r"))
        if len(text) > most:
            missing = f"{len(text) - most:,} more characters of this call are not shown here; {where}"
            text = f"{text[:most]}\n[{missing}. SHA-256 of the call: {self.digest}]"
        return f"Allow {request.tool} ({request.level.flag})?\n{text}\n{visible(self.reason)}"

    def refusal(self, remedy: str = "") -> str:
        """Why the call does not run without a yes."""
        return (
            f"{self.request.tool} needs a human's approval and did not get it. {self.reason} "
            f"{remedy}Go on without it, or tell the user what you wanted to do."
        )

    def nobody(self) -> str:
        """Why the call does not run if nobody can be asked, and what the operator can do."""
        subjects, tool, rule = self.request.subjects, self.request.tool, self.call.rule
        allow = f"{tool}({visible(subjects[0][0])[:200]})" if len(subjects) == 1 else tool
        remedy = f"change the ask rule {rule}" if rule else f"add the allow rule {allow}"
        return self.refusal(f"Nobody can be asked; the operator can {remedy} in the config file. ")


Approve = Callable[[Inquiry, Ask], Awaitable[str]]
"""Gets the answer to an inquiry; returns why the call must not run, empty if it may."""


async def ask_client(inquiry: Inquiry, ask: Ask) -> str:
    """Get an answer where only the user of the client can give one."""
    granted = await ask(inquiry.question(MOST_SHOWN, "nothing shows them"))
    inquiry.call.verdict = "asked-yes" if granted else "asked-no"
    return inquiry.nobody() if granted is None else "" if granted else inquiry.refusal()


async def change_of(spec: ToolSpec, args: Args, host: "HostServices") -> tuple[str, str]:
    """What a call would change, as a diff, and a digest of the content before; empty if its tool cannot tell.
    Why there is no diff is for the human only: the model may not know what is in the file."""
    if (content_after := spec.content_after) is None:
        return "", ""
    # Few calls are asked about.
    from mcp_toolserver.text.edit.unified_diff import unified

    path, workspace = CanonicalPath(str(getattr(args, spec.path_fields[0]))), host.workspace

    def compared() -> tuple[str, str]:
        before = b""
        try:
            # It does not count as read by the session.
            with suppress(NotFound), BufferedReader(FileIO(workspace.open_file(path))) as file:
                before = file.read(_MOST_READ)
            after = content_after(args, before).decode()
            diff = unified(before.decode(), after, path, limit=MOST_STORED).rstrip("\n")
        except (ToolError, UnicodeError) as error:
            diff = f"(no diff: {' '.join(str(error).split())})"
        return diff, hashlib.sha256(before).hexdigest()

    return await workspace.read(path, compared)


def digest(*parts: object) -> str:
    """A digest of values of JSON."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
