"""Read or change preferences for agents here. They answer in `language`, and use `model` where neither their
call nor their type names one; both are stored for this workspace. Give `setting` to read one, `setting` and
`value` to change it, neither to read all. Returns lines of name and value. Permissions are read-only.
"""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Literal

from mcp_toolserver import tool as t

PREFERENCES = {
    # It becomes part of the instructions of agents.
    "language": (
        re.compile(r"[^\W\d_]{1,20}(?:[ -][^\W\d_]{1,20}){0,2}"),
        "one to three words, such as German",
    ),
    "model": (re.compile(r"[\w./:@-]{1,100}"), "the name of a model"),
}

ConfigValue = Annotated[object, t.WithJsonSchema({"type": "string"})]
"""Other servers also take what is no text, and an error names the right form."""


class Config(t.Args):
    setting: str = t.Field(default="", max_length=100, description="Name of the preference, such as language")
    value: ConfigValue = t.Field(default=None, description="New value; `default` resets it")
    action: Literal["get", "set", "list"] | None = t.Field(
        default=None, description="Not needed: follows from the other arguments"
    )

    @t.model_validator(mode="after")
    def _as_the_action_says(self) -> "Config":
        implied = self.implied()
        if self.value is not None and not self.setting:
            raise ValueError("a value needs the setting that it is for")
        if self.action not in (None, implied):
            raise ValueError(
                "get takes a setting, set takes a setting and a value, list takes neither; leave action out"
            )
        return self

    def implied(self) -> str:
        """The action implied by the arguments."""
        if not self.setting:
            return "list"
        return "get" if self.value is None else "set"


async def run(args: Config, rt: t.Runtime) -> t.Output:
    decided = rt.preferences.decided
    if args.setting and args.setting not in _all(decided):
        raise t.InvalidInput(f"Unknown setting: {args.setting!r}. There are {', '.join(_all(decided))}.")
    if args.value is None:
        kept = {**await rt.preferences.kept(), **decided}
        keys = [args.setting] if args.setting else _all(decided)
        return t.Output("\n".join(f"{key} = {_shown(kept.get(key))}" for key in keys))
    if args.setting in decided:
        raise t.Denied(
            f"{args.setting} is the operator's: it was fixed when the server started, and no call changes "
            "it. Tell the user what you would need."
        )
    if not is_preference(args.setting, args.value):
        raise t.InvalidInput(f"{args.setting} requires {PREFERENCES[args.setting][1]}, or default.")
    value = None if args.value == "default" else str(args.value)
    before = await rt.preferences.put(args.setting, value)
    return t.Output(f"{args.setting} = {_shown(value)} (before: {_shown(before)})")


def is_preference(key: str, value: object) -> bool:
    """Whether `value` can be stored under `key`."""
    return key in PREFERENCES and isinstance(value, str) and PREFERENCES[key][0].fullmatch(value) is not None


def _all(decided: Mapping[str, str]) -> list[str]:
    return [*PREFERENCES, *decided]


def _shown(value: str | None) -> str:
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)


TOOL = t.ToolSpec(
    name="Config",
    title="Change preferences",
    permission=t.Permission.WORKSPACE_WRITE,
    needs=frozenset({t.Capability.PREFERENCES}),
    args=Config,
    run=run,
    subjects=lambda args: (args.setting,) if args.setting else (),
    destructive=True,
    idempotent=True,
    aliases=(t.Alias("Config", {"key": "setting"}),),
    deferred=True,
)
