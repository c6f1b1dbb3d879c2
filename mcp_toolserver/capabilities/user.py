"""Questions and messages to the user of the client."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One of the answers that a question offers."""

    label: str
    description: str = ""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question for the user of the client."""

    text: str
    header: str = ""
    """A few words above it."""
    choices: tuple[Choice, ...] = ()
    """The answers to choose from; none is an answer in words."""
    several: bool = False
    """Any number of the choices may be chosen, none included."""
    required: bool = True


Answers = tuple[tuple[str, ...], ...]
"""For each question its answers: one, any number of choices, or none where it was left open."""


class Ask(Protocol):
    """Asks the user. A tool must not change anything before it asks, because the client may repeat the
    call."""

    async def __call__(self, questions: Sequence[Question]) -> Answers:
        """All questions at once.

        Raises:
            NobodyToAsk: the client cannot ask.
            Denied: the user would not answer.
            TimedOut: the user did not answer in time.
        """
        ...


class Tell(Protocol):
    """Sends the client a message for the user, without any sign that it was read."""

    async def __call__(self, message: str) -> None: ...
