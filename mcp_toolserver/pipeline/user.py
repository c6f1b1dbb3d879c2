"""What tools say to the human and ask of them: shown as everything that leaves the server is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from mcp_toolserver.capabilities.human import Answers, Question


class Speaker(Protocol):
    """The client, as far as it can speak to its human."""

    async def elicit(self, questions: Sequence[Question]) -> Answers:
        """See `Ask`; beside what that raises, the answer may come with a later call."""
        ...

    async def tell(self, message: str) -> None:
        """See `Tell`."""
        ...


@dataclass(frozen=True)
class Human:
    """The human behind the client of one call."""

    speaker: Speaker
    shown: Callable[[str], str]
    """Gives a text as it may leave the server."""

    async def ask(self, questions: Sequence[Question]) -> Answers:
        """See `Ask`. A choice comes back as it was shown, which is how the caller would be told of it."""
        return await self.speaker.elicit([self._shown(question) for question in questions])

    async def tell(self, message: str) -> None:
        """See `Tell`."""
        await self.speaker.tell(self.shown(message))

    def _shown(self, question: Question) -> Question:
        choices = (
            replace(choice, label=self.shown(choice.label), description=self.shown(choice.description))
            for choice in question.choices
        )
        text, header = self.shown(question.text), self.shown(question.header)
        return replace(question, text=text, header=header, choices=tuple(choices))
