"""Which preferences can be kept, and what each may be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mcp_toolserver.capabilities.kept import Preference
from mcp_toolserver.errors import InvalidInput

MAX_CHARACTERS = 200

YES_OR_NO = ("true", "false")


@dataclass(frozen=True)
class Words:
    """A preference in words: one of `options`, or any where there are none."""

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
class YesOrNo:
    """A preference that is on or off."""

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

PREFERENCES: Mapping[str, Words | YesOrNo] = {
    "editorMode": Words(("default", "vim", "emacs")),
    "language": Words(),
    "model": Words(),
    "preferredNotifChannel": Words(),
    "teammateMode": Words(("auto", "tmux", "in-process")),
    "theme": Words(),
    **dict.fromkeys(_SWITCHES, YesOrNo()),
}


def unknown(key: str, decided: Sequence[str]) -> InvalidInput:
    """What to say of a key that is none."""
    known = ", ".join((*sorted(PREFERENCES), *decided))
    return InvalidInput(f"Unknown setting: {key!r}. There are {known}.")


def accepted(key: str, value: object) -> Preference:
    """`value` as it is kept under `key`, a known one. Raises: InvalidInput."""
    return PREFERENCES[key].accepted(key, value)


def _options(options: Sequence[str]) -> str:
    return f". Options: {', '.join(options)}" if options else ""
