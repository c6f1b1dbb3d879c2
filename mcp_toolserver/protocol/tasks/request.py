"""Reads requests of the extension: whether the client declares it, and the task that they are for."""

import re
from collections.abc import Mapping

import mcp_types as mcp
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_METHOD_HEADER, MCP_NAME_HEADER, decode_header_value

from mcp_toolserver.protocol.translate import Context, is_stateless

EXTENSION = "io.modelcontextprotocol/tasks"
"""The key of the feature in the lifespan state."""

GROUP = f"{EXTENSION} group"
"""The key of the task group in the lifespan state."""

LISTENED = "taskIds"
"""The key of task ids in the filter of `subscriptions/listen`."""

PREFIX = "task_"

_FORM = re.compile(rf"{PREFIX}[0-9a-f]{{32}}")


def named(context: Context) -> str:
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


def declares(context: Context) -> bool:
    """Whether the client declares the extension in this request; before 2026-07-28 none can."""
    declared = context.session.client_capabilities
    if declared is None or EXTENSION not in (declared.extensions or {}):
        return False
    return is_stateless(context)


def require(context: Context) -> None:
    """Require the extension.

    Raises:
        MCPError: the client does not declare it.
    """
    if not is_stateless(context):
        raise MCPError(mcp.METHOD_NOT_FOUND, "Method not found", context.method)
    if not declares(context):
        lacking = f"The client must declare the extension {EXTENSION}."
        required = {"requiredCapabilities": {"extensions": {EXTENSION: dict[str, str]()}}}
        raise MCPError(mcp.MISSING_REQUIRED_CLIENT_CAPABILITY, lacking, required)
