"""How clients of both eras begin on stdio, for tests that write the lines themselves."""

from collections.abc import Mapping
from typing import Any

import mcp_types as mcp

from tests.support.http_server import INITIALIZE, MODERN

READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}
ENVELOPE = {"_meta": {mcp.PROTOCOL_VERSION_META_KEY: MODERN, mcp.CLIENT_CAPABILITIES_META_KEY: {}}}
"""The parameters that every request has without a handshake."""


def opening(era: str) -> list[Mapping[str, Any]]:
    """What a client of this era sends first."""
    discover = {"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": ENVELOPE}
    return [INITIALIZE, READY] if era == "legacy" else [discover]
