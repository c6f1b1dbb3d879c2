"""The user's desktop: programs, windows, speech, clipboard and file index."""

from dataclasses import dataclass
from typing import Protocol

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.notes import Notes


@dataclass(frozen=True, kw_only=True)
class Indexed:
    """The result of a search in the machine's file index."""

    files: tuple[str, ...]
    withheld: int
    """Number of results that must not be shown: hidden, or outside the roots."""
    more: bool
    """Whether there are more results."""


@dataclass(frozen=True, kw_only=True)
class WindowPicture:
    """A picture of one window on the screen."""

    title: str
    data: bytes
    """PNG."""


@dataclass(frozen=True, kw_only=True)
class WindowPictures:
    """Pictures of windows."""

    windows: tuple[WindowPicture, ...]
    others: int
    """Number of windows without a picture: too many, too large, or not capturable."""


class Desktop(Protocol):
    """Access to the user's desktop. Each method needs a capability of its own.

    All raise `Unavailable` where the helper program fails, and `TimedOut` where it takes too long.
    """

    async def open(self, target: str) -> None:
        """Open an address in the user's default program. Needs desktop_open."""
        ...

    async def open_path(self, path: CanonicalPath) -> None:
        """Open a file or folder of the workspace in the user's default program. Needs desktop_open."""
        ...

    async def launch(self, app: str, target: str) -> None:
        """Start a desktop program, optionally with an address. Needs desktop_app."""
        ...

    async def launch_path(self, app: str, path: CanonicalPath) -> None:
        """Start a desktop program with a file or folder of the workspace. Needs desktop_app."""
        ...

    async def notify(self, title: str, message: str) -> None:
        """Show a notification. Needs desktop_notify."""
        ...

    async def say(self, text: str, voice: str) -> None:
        """Read a text aloud and wait for its end; an empty voice is the default. Needs desktop_say."""
        ...

    async def copied(self, most: int) -> tuple[str, bool]:
        """Return at most `most` bytes of the clipboard, and whether that is all. Needs clipboard_read."""
        ...

    async def copy(self, text: str) -> None:
        """Put a text on the clipboard, for as long as this server runs. Needs clipboard_write."""
        ...

    async def picture(self, *, window: bool) -> bytes:
        """Capture the screen, or the active window, as PNG. Needs screen."""
        ...

    async def windows(self, most: int) -> WindowPictures:
        """Capture each window on the screen, at most `most`. Needs windows."""
        ...

    async def find(self, query: str, path: CanonicalPath, most: int) -> Indexed:
        """Search a folder with the machine's file index. Needs desktop_find."""
        ...

    @property
    def notes(self) -> Notes:
        """The user's notes. Each of its methods needs a capability of its own."""
        ...
