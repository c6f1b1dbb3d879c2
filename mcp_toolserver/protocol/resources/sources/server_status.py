"""The server's enforcement and settings."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mcp_types as mcp

from mcp_toolserver.pipeline.call import OutputOverride
from mcp_toolserver.protocol.resources.source import LARGEST, Refused, Visitor, text
from mcp_toolserver.tool_spec import Output, Runtime

SECURITY_URI = "toolserver://security"
CONFIG_URI = "toolserver://config"

TOOL = "Config"
"""The tool whose permission and rules apply to preferences, in whichever toolset it is."""

_FIXED_MS = 300_000
"""Cache time of what does not change while the server runs."""


@dataclass(frozen=True, kw_only=True)
class ServerStatus:
    """Implements `Source`."""

    security: str
    """A text on what this server enforces."""
    settings: Mapping[str, object]
    """The settings that clients may read."""
    is_shared: bool = True
    """Whether all clients read the same about security."""

    def listed(self, _: str) -> Sequence[mcp.Resource]:
        """See `Source.listed`."""
        return [
            mcp.Resource(
                name="security",
                uri=SECURITY_URI,
                description="What this server enforces, and by which layer.",
                mime_type="text/plain",
            ),
            mcp.Resource(
                name="config",
                uri=CONFIG_URI,
                description="How this server is set up, and the preferences kept for this workspace.",
                mime_type="application/json",
            ),
        ]

    def templates(self) -> Sequence[mcp.ResourceTemplate]:
        """None."""
        return ()

    async def read(self, uri: str, visitor: Visitor) -> mcp.ReadResourceResult | None:
        """See `Source.read`."""
        if uri == SECURITY_URI:
            return text(uri, self.security, ttl_ms=_FIXED_MS, public=self.is_shared)
        if uri != CONFIG_URI:
            return None
        kept = await self._preferences(visitor)
        return text(uri, json.dumps({**self.settings, **kept}, indent=1), mime_type="application/json")

    def watched(self, uri: str, _: str) -> bool:
        """Preferences can change; settings cannot."""
        return uri == CONFIG_URI

    async def complete(self, _: str, __: str, ___: str, ____: Visitor) -> Sequence[str]:
        """See `Source.complete`."""
        raise AssertionError("there is nothing to fill in")

    async def _preferences(self, visitor: Visitor) -> Mapping[str, object]:
        """Empty if clients may not read them."""
        try:
            found = await visitor.call(TOOL, {}, OutputOverride(run=_preferences, output_bytes=LARGEST))
        except Refused:
            return {}
        return {"preferences": json.loads(found.text)}


async def _preferences(_: object, rt: Runtime) -> Output:
    return Output(json.dumps(await rt.preferences.kept()))
