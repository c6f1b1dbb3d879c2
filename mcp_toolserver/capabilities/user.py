"""Asking and telling the human behind the client."""

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
    """A question for the human behind the client."""

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
    """Asks the human. Nothing may have been changed before: the call may be sent again with the answer."""

    async def __call__(self, questions: Sequence[Question]) -> Answers:
        """All questions at once.

        Raises:
            NobodyToAsk: the client cannot ask.
            Denied: the human would not answer.
            TimedOut: the human did not answer in time.
        """
        ...


class Tell(Protocol):
    """Gives the client a message for the human; nothing comes back, and nothing says that it was read."""

    async def __call__(self, message: str) -> None: ...
