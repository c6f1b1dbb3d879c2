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

from mcp_toolserver.capabilities.permissions import Permission as Permission
from mcp_toolserver.custom_tools.build import BuiltTool as BuiltTool
from mcp_toolserver.custom_tools.build import Declared as Declared
from mcp_toolserver.custom_tools.build import as_entry as as_entry
from mcp_toolserver.custom_tools.build import build_tool as build_tool
from mcp_toolserver.custom_tools.build import define_tool as define_tool
from mcp_toolserver.custom_tools.registry import Precedence as Precedence
from mcp_toolserver.custom_tools.registry import ToolPool as ToolPool
from mcp_toolserver.custom_tools.registry import ToolRegistry as ToolRegistry
from mcp_toolserver.custom_tools.registry import ToolRestrictionStack as ToolRestrictionStack
from mcp_toolserver.custom_tools.registry import assemble_tool_pool as assemble_tool_pool
from mcp_toolserver.custom_tools.registry import filter_tools as filter_tools
from mcp_toolserver.custom_tools.registry import to_acp as to_acp
from mcp_toolserver.custom_tools.registry import to_anthropic as to_anthropic
from mcp_toolserver.custom_tools.registry import to_mcp as to_mcp
from mcp_toolserver.custom_tools.registry import to_openai as to_openai
from mcp_toolserver.custom_tools.tool import Tool as Tool
from mcp_toolserver.custom_tools.tool import ToolContext as ToolContext
from mcp_toolserver.custom_tools.tool import ToolResult as ToolResult
from mcp_toolserver.errors import Conflict as Conflict
from mcp_toolserver.errors import Denied as Denied
from mcp_toolserver.errors import InvalidInput as InvalidInput
from mcp_toolserver.errors import NotFound as NotFound
from mcp_toolserver.errors import RegistrationError as RegistrationError
from mcp_toolserver.errors import TimedOut as TimedOut
from mcp_toolserver.errors import ToolError as ToolError
from mcp_toolserver.errors import Unavailable as Unavailable
