"""The notes that the user keeps."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class NoteCard:
    """A note without its text."""

    id: str
    title: str
    folder: str
    """With the account in front."""
    changed: str
    """ISO 8601."""


@dataclass(frozen=True, kw_only=True)
class NoteCards:
    """Notes, the one changed last first."""

    notes: tuple[NoteCard, ...]
    total: int
    """How many there are, given or not."""


@dataclass(frozen=True, kw_only=True)
class Note:
    """A note with its text."""

    card: NoteCard
    text: str
    """Plain, without the title."""
    whole: bool


@dataclass(frozen=True, kw_only=True)
class NoteQuery:
    """Which note: by `id`, or else by its exact `title`."""

    title: str = ""
    folder: str = ""
    index: int = 0
    """Which of several with one title, from 1; 0: there must be only one."""
    id: str = ""


class Notes(Protocol):
    """What a program can do with them.

    All raise `NotFound` for what is not there, `InvalidInput` where several could be meant, and
    `Unavailable` where the user's program does not answer.
    """

    async def listed(self, query: str, folder: str, most: int) -> NoteCards:
        """Those whose title has `query` in it, in a folder or in all. Needs notes_read."""
        ...

    async def read(self, which: NoteQuery, most: int) -> Note:
        """One, at most so many characters of it. Needs notes_read."""
        ...

    async def create(self, title: str, body: str, folder: str) -> NoteCard:
        """Put a new one in a folder, or in the usual one. Needs notes_write."""
        ...

    async def update(self, which: NoteQuery, body: str, *, append: bool) -> NoteCard:
        """Change the text below the title. It has to be found and read first: needs notes_read too."""
        ...
