"""The OAuth tokens of other MCP servers, each in a file that only this user can read."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from mcp_toolserver.stores.file_lock import OPEN_LOCK, lock_timeout_error, try_lock
from mcp_toolserver.stores.state_dir import private_folder, replace_file

FOLDER = "oauth"

_RETRY_SECONDS = 0.02


@dataclass(frozen=True, kw_only=True)
class TokenStore:
    """The tokens of the server `name`."""

    state: str
    name: str

    @property
    def path(self) -> Path:
        """The file; there may be none."""
        return Path(self.state, FOLDER, f"{self.name}.json")

    def save(self, text: str) -> None:
        """Raises: OSError."""
        private_folder(self.state, FOLDER)
        replace_file(str(self.path), text)

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
