"""The user's desktop: what they see, hear and have copied."""

from typing import Protocol

from mcp_toolserver.capabilities.files import CanonicalPath


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
