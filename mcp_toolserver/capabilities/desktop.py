"""The user's desktop: programs, windows, speech, clipboard, file index and notes."""

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict


@dataclass(frozen=True, kw_only=True)
class Indexed:
    """The result of a search in the machine's file index."""

    files: tuple[str, ...]
    withheld: int
    """Number of results that must not be shown: hidden, or outside the roots."""
    more: bool
    """Whether there are more results."""


class Note(BaseModel):
    """A note without its text."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    id: str
    title: str
    folder: str
    """Folder name, with the account in front."""
    changed: str
    """Time of the last change in ISO 8601."""


class NotesReply(BaseModel):
    """The notes that a request is about, the last changed first."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    problem: str = ""
    notes: tuple[Note, ...] = ()
    total: int = 0
    """Number of matching notes, including those not returned, or of characters in the text."""
    text: str = ""
