"""Reads the task id of a request."""

import re
from collections.abc import Mapping
from typing import Any

import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_METHOD_HEADER, MCP_NAME_HEADER, decode_header_value

from mcp_toolserver.protocol.tasks.task import PREFIX

_FORM = re.compile(rf"{PREFIX}[0-9a-f]{{32}}")

_Context = ServerRequestContext[Any, Any]


def named(context: _Context) -> str:
    """Return the task id of a request.

    Raises:
        MCPError: the request names no task.
    """
    name = (context.params or {}).get("taskId")
    if not isinstance(name, str):
        raise MCPError(mcp.INVALID_PARAMS, "taskId must be a string.")
    headers: Mapping[str, str] = getattr(context.request, "headers", {})
    # Only streamable HTTP has these headers.
    if MCP_METHOD_HEADER in headers and decode_header_value(headers.get(MCP_NAME_HEADER)) != name:
        what = f"{MCP_NAME_HEADER} header does not match the request body's 'taskId' parameter"
        raise MCPError(mcp.HEADER_MISMATCH, what)
    if not _FORM.fullmatch(name):
        raise unknown()
    return name


def unknown() -> MCPError:
    """The error for an unknown task, or one of another client."""
    return MCPError(
        mcp.INVALID_PARAMS,
        "No task of yours has this taskId: it was never given, or what came of it is no longer kept.",
    )
