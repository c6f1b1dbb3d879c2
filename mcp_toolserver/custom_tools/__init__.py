"""Custom tools: define them with functions, keep them in registries and pools, and export them to model APIs.

    build_tool, define_tool     make a tool
    ToolRegistry                immutable mapping of tools by name
    assemble_tool_pool, filter_tools, ToolRestrictionStack
                                select which tools exist, and which may be used now
    to_anthropic, to_openai, to_mcp, to_acp
                                export the definition of a tool
    as_entry                    the tool as an entry of the server's registry

A file of tools for the server assigns them to `TOOLS`; the server's setting `tool-files` names the file.
"""

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.custom_tools.build import BuiltTool, Declared, as_entry, build_tool, define_tool
from mcp_toolserver.custom_tools.registry import (
    Precedence,
    ToolPool,
    ToolRegistry,
    ToolRestrictionStack,
    assemble_tool_pool,
    filter_tools,
    to_acp,
    to_anthropic,
    to_mcp,
    to_openai,
)
from mcp_toolserver.custom_tools.tool import Tool, ToolContext, ToolResult
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
