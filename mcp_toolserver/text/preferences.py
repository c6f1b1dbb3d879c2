"""The preferences that can be stored, and their allowed values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mcp_toolserver.capabilities.stored import Preference
from mcp_toolserver.errors import InvalidInput

MAX_CHARACTERS = 200

YES_OR_NO = ("true", "false")


@dataclass(frozen=True)
class TextPreference:
    """A text preference: one of `options`, or any text if there are none."""

    options: tuple[str, ...] = ()

    def accepted(self, key: str, value: object) -> str:
        """Raises: InvalidInput."""
        if not isinstance(value, str) or not value.strip() or len(value) > MAX_CHARACTERS:
            raise InvalidInput(
                f"{key} requires text of 1 to {MAX_CHARACTERS} characters{_options(self.options)}."
            )
        if self.options and value not in self.options:
            raise InvalidInput(f"Invalid value {value!r} for {key}{_options(self.options)}.")
        return value


@dataclass(frozen=True)
class BooleanPreference:
    """A preference that is true or false."""

    def accepted(self, key: str, value: object) -> bool:
        """Raises: InvalidInput."""
        if isinstance(value, str) and value.lower() in YES_OR_NO:
            return value.lower() == YES_OR_NO[0]
        if not isinstance(value, bool):
            raise InvalidInput(f"{key} requires true or false.")
        return value


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

PREFERENCES: Mapping[str, TextPreference | BooleanPreference] = {
    "editorMode": TextPreference(("default", "vim", "emacs")),
    "language": TextPreference(),
    "model": TextPreference(),
    "preferredNotifChannel": TextPreference(),
    "teammateMode": TextPreference(("auto", "tmux", "in-process")),
    "theme": TextPreference(),
    **dict.fromkeys(_SWITCHES, BooleanPreference()),
}


def unknown(key: str, decided: Sequence[str]) -> InvalidInput:
    """Return the error for an unknown key."""
    known = ", ".join((*sorted(PREFERENCES), *decided))
    return InvalidInput(f"Unknown setting: {key!r}. There are {known}.")


def accepted(key: str, value: object) -> Preference:
    """Check `value` and return it as it is stored under `key`, a known one. Raises: InvalidInput."""
    return PREFERENCES[key].accepted(key, value)


def _options(options: Sequence[str]) -> str:
    return f". Options: {', '.join(options)}" if options else ""
