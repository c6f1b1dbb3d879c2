"""The OAuth tokens of other MCP servers, each in a file that only this user can read.

A file counts only for the address with which it was saved, so that no other address gets the token.
"""

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import anyio
from pydantic import TypeAdapter

from mcp_toolserver.errors import Unavailable
from mcp_toolserver.stores.file_lock import OPEN_LOCK, lock_timeout_error, try_lock
from mcp_toolserver.stores.state_dir import private_folder, replace_file

T = TypeVar("T")

FOLDER = "oauth"

_RETRY_SECONDS = 0.02
_SAVED = TypeAdapter(dict[str, str])


@dataclass(frozen=True, kw_only=True)
class TokenStore:
    """The tokens of the server `name` at the address `url`."""

    state: str
    name: str
    url: str

    def load(self, parse: Callable[[str], T]) -> T | None:
        """Return what was saved, parsed. Raises: Unavailable: the file cannot be read."""
        try:
            saved = _SAVED.validate_json(Path(self._path).read_bytes())
            return parse(saved["grant"]) if saved["url"] == self.url else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError, LookupError):
            raise Unavailable(
                f"the stored token of {self.name} cannot be read; it takes a new login"
            ) from None

    def save(self, grant: str) -> None:
        """Raises: OSError."""
        private_folder(self.state, FOLDER)
        replace_file(self._path, _SAVED.dump_json({"url": self.url, "grant": grant}).decode())

    def remove(self) -> bool:
        """Return whether there was something, for whichever address. Raises: OSError."""
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            return False
        return True

    @asynccontextmanager
    async def locked(self, seconds: float) -> AsyncGenerator[None]:
        """Let no other server renew the tokens meanwhile: it would present a refresh token twice, for which
        authorization servers revoke it. Raises: OSError: another process does so for `seconds`."""
        lock = os.open(
            f"{private_folder(self.state, FOLDER)}/{self.name}.lock", OPEN_LOCK | os.O_CREAT, 0o600
        )
        try:
            with anyio.move_on_after(seconds) as waiting:
                while not try_lock(lock):  # noqa: ASYNC110  no other process sets an event here
                    await anyio.sleep(_RETRY_SECONDS)
            if waiting.cancelled_caught:
                raise lock_timeout_error()
            yield
        finally:
            os.close(lock)

    @property
    def _path(self) -> str:
        return f"{self.state}/{FOLDER}/{self.name}.json"
