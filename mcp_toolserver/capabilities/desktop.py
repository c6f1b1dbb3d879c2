"""The user's desktop: programs, windows, speech, clipboard, file index and notes."""

from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, JsonValue

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.permissions import Capability


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


class Desktop(Protocol):
    """Access to the user's desktop, limited to the capabilities that the tool declares.

    All raise `Unavailable` where the helper program fails, and `TimedOut` where it takes too long.
    """

    async def run(self, need: Capability, *values: str, path: str = "") -> tuple[bytes, bool]:
        """Run the program for `need` with these values, and with a file or folder of the workspace.

        Returns its output as far as it is read, and whether that is all.
        """
        ...

    async def copy(self, text: str) -> None:
        """Put a text on the clipboard, for as long as this server runs. Needs clipboard_write."""
        ...

    async def picture(self, mode: Literal["screen", "window"]) -> bytes:
        """Capture the screen, or the active window, as PNG. Needs screen."""
        ...

    async def windows(self, most: int) -> tuple[list[tuple[str, bytes]], int]:
        """Capture at most `most` windows on the screen. Needs windows.

        Returns titles and pictures, and the number of windows without a picture: too many, too large, or not
        capturable.
        """
        ...

    async def find(self, query: str, path: CanonicalPath, most: int) -> Indexed:
        """Search a folder with the machine's file index. Needs desktop_find."""
        ...

    async def note(self, do: Literal["list", "read", "create", "update"], **request: JsonValue) -> NotesReply:
        """Ask Apple Notes. Needs notes_read, notes_write to create, and both to update.

        Raises `NotFound` for what is not there, and `InvalidInput` where several could be meant.
        """
        ...
