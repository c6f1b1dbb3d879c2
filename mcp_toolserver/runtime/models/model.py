"""The operator's model: imports its client library on first use, in a thread, because that takes seconds."""

from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from mcp_toolserver.capabilities.model import ModelRequest, ModelTurn
from mcp_toolserver.errors import TimedOut
from mcp_toolserver.runtime.models.options import ModelOptions

if TYPE_CHECKING:
    from mcp_toolserver.runtime.models.client import ModelClient


class ProviderModel:
    """Implements `Model` with the endpoint of a provider."""

    def __init__(self, options: ModelOptions) -> None:
        self._options = options
        self._client: ModelClient | None = None
        self._importing = anyio.Lock()

    async def turn(self, request: ModelRequest) -> ModelTurn:
        """See `Model.turn`."""
        model = self._options.chosen(request.model, request.agent_type)
        client = await self._made()
        with anyio.move_on_after(self._options.seconds):
            return await client.turn(model, request)
        raise TimedOut(
            f"The model did not answer within {self._options.seconds:g} s. Try again later, or with a "
            "smaller task."
        )

    async def aclose(self) -> None:
        """Close every connection."""
        if self._client is not None:
            await self._client.aclose()

    async def _made(self) -> "ModelClient":
        async with self._importing:
            if self._client is None:
                self._client = await to_thread.run_sync(_client, self._options, abandon_on_cancel=True)
            return self._client


def _client(options: ModelOptions) -> "ModelClient":
    from mcp_toolserver.runtime.models.client import ModelClient

    return ModelClient(options)
