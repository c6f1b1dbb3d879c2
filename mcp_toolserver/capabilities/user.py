"""Questions and messages to the user of the client."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A choice that a question offers."""

    label: str
    description: str = ""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question for the user of the client."""

    text: str
    header: str = ""
    """A short heading."""
    choices: tuple[Choice, ...] = ()
    """The choices; without any, the user answers with text."""
    several: bool = False
    """Whether any number of choices can be selected, including none."""
    required: bool = True


Answers = tuple[tuple[str, ...], ...]
"""The answers to each question: one, several selected choices, or none if it was left open."""


@dataclass(frozen=True, kw_only=True)
class ForeignQuestion:
    """What another server asks the user: to fill in a form, or to open an address."""

    text: str
    schema: dict[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    """The form, as JSON Schema."""
    url: str = ""
    """The address; empty for a form."""


FormContent = Mapping[str, str | int | float | bool | list[str] | None]

Ask = Callable[[Sequence[Question]], Awaitable[Answers]]
"""Asks the user all questions at once. Without questions, it only raises `NobodyToAsk`. A tool must not
change anything before it asks, because the client may repeat the call.

Raises:
    NobodyToAsk: the client cannot ask.
    Denied: the user would not answer.
    TimedOut: the user did not answer in time.
"""

Tell = Callable[[str], Awaitable[bool]]
"""Sends the client a message for the user, without any sign that it was read. Returns whether it was sent:
the client says which messages it takes."""
