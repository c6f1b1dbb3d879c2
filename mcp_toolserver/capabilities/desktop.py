"""The user's desktop: what they see, hear and have copied."""

from dataclasses import dataclass
from typing import Protocol

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.notes import Notes


@dataclass(frozen=True, kw_only=True)
class Indexed:
    """What an index of this machine's files found."""

    files: tuple[str, ...]
    withheld: int
    """How many more it found that must not be shown: hidden, or outside the roots."""
    more: bool
    """Whether there is more than was asked for."""


@dataclass(frozen=True, kw_only=True)
class WindowPicture:
    """One window that is on the screen."""

    title: str
    data: bytes
    """PNG."""


@dataclass(frozen=True, kw_only=True)
class WindowPictures:
    """Some of them."""

    windows: tuple[WindowPicture, ...]
    others: int
    """How many more there are, whose pictures would be too many, too large, or could not be taken."""


class Desktop(Protocol):
    """What a program can do on it. Each method needs a capability of its own.

    All raise `Unavailable` where the helper program fails, and `TimedOut` where it takes too long.
    """

    async def open(self, target: str) -> None:
        """Show an address with the program that the user has for it. Needs desktop_open."""
        ...

    async def open_path(self, path: CanonicalPath) -> None:
        """The same for a file or folder of the workspace. Needs desktop_open."""
        ...

    async def launch(self, app: str, target: str) -> None:
        """Start a program that has windows, with an address or with nothing. Needs desktop_app."""
        ...

    async def launch_path(self, app: str, path: CanonicalPath) -> None:
        """The same with a file or folder of the workspace. Needs desktop_app."""
        ...

    async def notify(self, title: str, message: str) -> None:
        """Show a notice. Needs desktop_notify."""
        ...

    async def say(self, text: str, voice: str) -> None:
        """Read aloud, to the end; an empty voice is the usual one. Needs desktop_say."""
        ...

    async def copied(self, most: int) -> tuple[str, bool]:
        """The text on the clipboard, at most so many bytes, and whether that is all. Needs clipboard_read."""
        ...

    async def copy(self, text: str) -> None:
        """Put a text on the clipboard, for as long as this server runs. Needs clipboard_write."""
        ...

    async def picture(self, *, window: bool) -> bytes:
        """The screen, or the window in front, as PNG. Needs screen."""
        ...

    async def windows(self, most: int) -> WindowPictures:
        """Every window on the screen by itself, at most so many. Needs windows."""
        ...

    async def find(self, query: str, path: CanonicalPath, most: int) -> Indexed:
        """Files and folders in a folder, by the machine's own index. Needs desktop_find."""
        ...

    @property
    def notes(self) -> Notes:
        """The notes of the user. Each of its methods needs a capability of its own."""
        ...
