"""Custom tools: define them with functions, keep them in registries and pools, and export them to model APIs.

    build_tool, define_tool     make a tool
    ToolParameter               typed parameters, for a tool without a model
    ToolRegistry                immutable mapping of tools by name, which runs calls
    answer_calls                run the calls in a model's answer
    tool_specs                  the definitions of the server's own tools
    assemble_tool_pool, filter_tools, ToolRestrictionStack
                                select which tools exist, and which may be used now
    to_anthropic, to_openai, to_mcp, to_acp
                                export the definition of a tool
    as_entry                    the tool as an entry of the server's registry
    AgentToolPolicy             DeepAgents' policy, which decides on the tools of a catalogue

A file of tools for the server assigns them to `TOOLS`; the server's setting `tool-files` names the file.
"""

from mcp_toolserver.capabilities.permissions import Permission as Permission
from mcp_toolserver.capabilities.requirements import RequirementSet as RequirementSet
from mcp_toolserver.custom_tools.arguments import ToolParameter as ToolParameter
from mcp_toolserver.custom_tools.build import *
from mcp_toolserver.custom_tools.loop import *
from mcp_toolserver.custom_tools.registry import *
from mcp_toolserver.custom_tools.tool import *
from mcp_toolserver.errors import *
from mcp_toolserver.policy.agent_tool_policy import AgentToolPolicy as AgentToolPolicy
from mcp_toolserver.policy.agent_tool_policy import ToolDecision as ToolDecision
