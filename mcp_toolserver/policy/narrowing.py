"""Rights taken from calls on top of the server's policy: by an agent's type, a skill or plan mode.

A narrowing only removes. Pure.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp_toolserver.capabilities.permissions import Capability, Permission

if TYPE_CHECKING:
    from mcp_toolserver.policy.rules import Request, Rule

_FILES = frozenset({Capability.FS_READ, Capability.FS_WRITE})


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """What calls may do at most. The defaults take nothing."""

    source: str
    """What takes the rights, as the subject of an error message: `plan mode`, `the skill 'release'`."""
    advice: str = ""
    """What to do instead, as a sentence."""
    ceiling: Permission = Permission.DANGER_FULL_ACCESS
    tools: "tuple[Rule, ...] | None" = None
    """Rules by which every subject of a call must be allowed; None: every tool."""
    exempt: str = ""
    """The absolute path of a file that calls may write nevertheless; empty for none."""

    def applies(self, request: "Request") -> bool:
        """Whether it takes rights from the call; not from one that only reads and writes the exempt file."""
        is_exempt = bool(self.exempt and request.subjects) and request.needs <= _FILES
        return not (is_exempt and all(self.exempt in subject for subject in request.subjects))
