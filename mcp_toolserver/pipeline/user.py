"""The user behind the client: answers questions of tools and receives their messages.

Texts for the user are escaped like every text that leaves the server.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mcp_toolserver.capabilities.user import Answers, Question
from mcp_toolserver.pipeline.call import Caller


@dataclass(frozen=True)
class User:
    """The user behind the client of one call."""

    caller: Caller
    shown: Callable[[str], str]
    """Escapes a text for clients."""

    async def ask(self, questions: Sequence[Question]) -> Answers:
        """See `Ask`. A choice comes back in the escaped spelling that the user saw."""
        return await self.caller.elicit([self._shown(question) for question in questions])

    async def tell(self, message: str) -> bool:
        """See `Tell`."""
        return await self.caller.tell(self.shown(message))

    def _shown(self, question: Question) -> Question:
        choices = (
            replace(choice, label=self.shown(choice.label), description=self.shown(choice.description))
            for choice in question.choices
        )
        text, header = self.shown(question.text), self.shown(question.header)
        return replace(question, text=text, header=header, choices=tuple(choices))
