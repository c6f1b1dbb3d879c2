"""Tools of your own: made from functions, kept in registries and pools, shown to any model's API.

    build_tool, define_tool     make a tool
    ToolRegistry                keeps tools by name; a new one for each that is added
    assemble_tool_pool, filter_tools, ToolRestrictionStack
                                choose which tools there are, and which of them now
    to_anthropic, to_openai, to_mcp, to_acp
                                what a model or client is told of a tool
    as_entry                    a tool as the server's dispatcher runs it

A file of tools that the server is to offer assigns them to `TOOLS`; its `tool-files` setting names the file.
"""

from mcp_toolserver.capabilities.prices import Permission
from mcp_toolserver.errors import (
    Conflict,
    Denied,
    InvalidInput,
    NotFound,
    RegistrationError,
    TimedOut,
    ToolError,
    Unavailable,
)
from mcp_toolserver.library.built import BuiltTool, Declared
from mcp_toolserver.library.entry import as_entry
from mcp_toolserver.library.forms import to_acp, to_anthropic, to_mcp, to_openai
from mcp_toolserver.library.making import build_tool, define_tool
from mcp_toolserver.library.pool import Precedence, ToolPool, assemble_tool_pool, filter_tools
from mcp_toolserver.library.registry import ToolRegistry
from mcp_toolserver.library.restriction import ToolRestrictionStack
from mcp_toolserver.library.values import Tool, ToolContext, ToolResult

__all__ = [
    "BuiltTool",
    "Conflict",
    "Declared",
    "Denied",
    "InvalidInput",
    "NotFound",
    "Permission",
    "Precedence",
    "RegistrationError",
    "TimedOut",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolPool",
    "ToolRegistry",
    "ToolRestrictionStack",
    "ToolResult",
    "Unavailable",
    "as_entry",
    "assemble_tool_pool",
    "build_tool",
    "define_tool",
    "filter_tools",
    "to_acp",
    "to_anthropic",
    "to_mcp",
    "to_openai",
]
