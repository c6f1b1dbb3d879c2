"""The user's notes in Apple Notes."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class NoteCard:
    """A note without its text."""

    id: str
    title: str
    folder: str
    """Folder name, with the account in front."""
    changed: str
    """Time of the last change in ISO 8601."""


@dataclass(frozen=True, kw_only=True)
class NoteCards:
    """Notes, the last changed first."""

    notes: tuple[NoteCard, ...]
    total: int
    """Number of matching notes, including those not returned."""


@dataclass(frozen=True, kw_only=True)
class Note:
    """A note with its text."""

    card: NoteCard
    text: str
    """Plain text without the title."""
    whole: bool


@dataclass(frozen=True, kw_only=True)
class NoteQuery:
    """Which note: by `id`, or else by its exact `title`."""

    title: str = ""
    folder: str = ""
    index: int = 0
    """Number of the note among those with this title, from 1; 0 requires that there is only one."""
    id: str = ""


class Notes(Protocol):
    """Access to the user's notes.

    All raise `NotFound` for what is not there, `InvalidInput` where several could be meant, and
    `Unavailable` where the user's program does not answer.
    """

    async def listed(self, query: str, folder: str, most: int) -> NoteCards:
        """Return notes whose title contains `query`, in one folder or in all. Needs notes_read."""
        ...

    async def read(self, which: NoteQuery, most: int) -> Note:
        """Return a note, with at most `most` characters of its text. Needs notes_read."""
        ...

    async def create(self, title: str, body: str, folder: str) -> NoteCard:
        """Create a note in a folder, or in the default folder. Needs notes_write."""
        ...

    async def update(self, which: NoteQuery, body: str, *, append: bool) -> NoteCard:
        """Change the text below the title. Needs notes_write, and notes_read to find the note."""
        ...
