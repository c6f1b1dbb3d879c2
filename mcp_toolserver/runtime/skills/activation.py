"""The skills that take rights from the calls of their caller while they are active.

They are narrowings with the keys `skill 1`, `skill 2` and so on, one for each level of nesting, so whatever
ends a narrowing ends the skill.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mcp_toolserver.capabilities.skills import MAX_NESTED, LoadedSkill
from mcp_toolserver.errors import Conflict
from mcp_toolserver.pipeline.narrowings import Narrowings
from mcp_toolserver.policy.rules import Narrowing, Rule

IDLE_SECONDS = 1_800.0
"""Time without a call of the caller after which a skill ends."""

TOOL = "Skill"
"""The tool that every skill allows, because it ends them."""


@dataclass(frozen=True, kw_only=True)
class Activation:
    """The active skills of the caller `owner`."""

    narrowings: Narrowings
    rules: Callable[[Sequence[str]], tuple[Rule, ...]]
    owner: str

    def start(self, skill: LoadedSkill, *, is_top_level: bool) -> None:
        """See `CallSkills.activate`."""
        active = self._active()
        if is_top_level or not (active and _nests(active[-1])):
            for level in range(len(active), 0, -1):
                self.narrowings.remove(self.owner, _key(level))
            active = []
        if skill.allowed_tools is None:
            return
        if len(active) >= MAX_NESTED:
            raise Conflict(
                f"{len(active)} skills are active inside one another, and no more can be. End the last: call "
                f"{TOOL} with end: true."
            )
        narrowing = Narrowing(
            source=f"The skill {skill.card.name!r}",
            advice=f"When you are done with the skill, call {TOOL} with end: true.",
            tools=(*self.rules(skill.allowed_tools), *self.rules((TOOL,))),
        )
        self.narrowings.put(self.owner, _key(len(active) + 1), narrowing, idle_seconds=IDLE_SECONDS)

    def end(self) -> str:
        """See `CallSkills.end`."""
        active = self._active()
        if not active:
            return ""
        self.narrowings.remove(self.owner, _key(len(active)))
        return active[-1].source

    def _active(self) -> list[Narrowing]:
        found: list[Narrowing] = []
        while (narrowing := self.narrowings.get(self.owner, _key(len(found) + 1))) is not None:
            found.append(narrowing)
        return found


def _key(level: int) -> str:
    return f"skill {level}"


def _nests(narrowing: Narrowing) -> bool:
    """Whether the skill itself allows the tool; the last rule is that of every skill."""
    return any(rule.tool == TOOL for rule in (narrowing.tools or ())[:-1])
