"""Read or change preferences stored for this workspace. Give `setting` to read one, `setting` and `value` to
change it, neither to read all. Returns lines of name and value. Permissions and server settings are read-
only.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Literal

from mcp_toolserver import tool as t

MAX_CHARACTERS = 200

YES_OR_NO = ("true", "false")

_SWITCHES = (
    "alwaysThinkingEnabled",
    "autoCompactEnabled",
    "autoDreamEnabled",
    "autoMemoryEnabled",
    "fileCheckpointingEnabled",
    "showTurnDuration",
    "terminalProgressBarEnabled",
    "todoFeatureEnabled",
    "verbose",
)

PREFERENCES: Mapping[str, tuple[str, ...]] = {
    "editorMode": ("default", "vim", "emacs"),
    "language": (),
    "model": (),
    "preferredNotifChannel": (),
    "teammateMode": ("auto", "tmux", "in-process"),
    "theme": (),
    **dict.fromkeys(_SWITCHES, YES_OR_NO),
}
"""The preferences that can be stored, each with its options; any text without."""

ConfigValue = Annotated[object, t.WithJsonSchema({"type": "string"})]
"""Some clients cannot take a union, or what may be anything; a switch understands the words too."""


class Config(t.Args):
    setting: str = t.Field(default="", max_length=100, description="Name of the preference, such as theme")
    value: ConfigValue = t.Field(default=None, description="New value: text, or true or false")
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
    if args.setting and args.setting not in (*PREFERENCES, *decided):
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
    value = _accepted(args.setting, args.value)
    before = await rt.preferences.put(args.setting, value)
    return t.Output(f"{args.setting} = {_shown(value)} (before: {_shown(before)})")


def _all(decided: Mapping[str, t.Preference]) -> list[str]:
    return [*sorted(PREFERENCES), *decided]


def _shown(value: t.Preference | None) -> str:
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)


def _accepted(key: str, value: object) -> t.Preference:
    """Check `value` and return it as it is stored under `key`. Raises: InvalidInput."""
    options = PREFERENCES[key]
    if options == YES_OR_NO:
        if isinstance(value, str) and value.lower() in YES_OR_NO:
            return value.lower() == YES_OR_NO[0]
        if not isinstance(value, bool):
            raise t.InvalidInput(f"{key} requires true or false.")
        return value
    choices = f". Options: {', '.join(options)}" if options else ""
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_CHARACTERS:
        raise t.InvalidInput(f"{key} requires text of 1 to {MAX_CHARACTERS} characters{choices}.")
    if options and value not in options:
        raise t.InvalidInput(f"Invalid value {value!r} for {key}{choices}.")
    return value


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
)
