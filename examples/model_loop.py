"""A model's loop on Anthropic's Messages API, with the tools of the server and one more.

ANTHROPIC_API_KEY=... python examples/model_loop.py FOLDER "What is this project?"
"""

import os
import sys
from typing import Any

import anyio
import httpx

from mcp_toolserver.app.toolset import Toolset
from mcp_toolserver.custom_tools import (
    ToolContext,
    ToolRegistry,
    answer_calls,
    assemble_tool_pool,
    define_tool,
)

API = os.environ.get("ANTHROPIC_BASE_URL", "https://api.anthropic.com")
MODEL = os.environ.get("ANTHROPIC_MODEL", "claude-sonnet-4-5")
HEADERS = {"x-api-key": os.environ.get("ANTHROPIC_API_KEY", ""), "anthropic-version": "2023-06-01"}


def remember(note: dict[str, Any], context: ToolContext) -> str:
    """A tool of one's own."""
    return f"Noted in {context.working_directory}: {note['text']}"


NOTE = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
OWN = define_tool("remember", "Note something for the user.", remember, NOTE, is_read_only=True)


async def converse(folder: str, prompt: str) -> str:
    """Let the model call tools until it has answered."""
    context = ToolContext(working_directory=folder, session_id="example")
    messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    async with (
        Toolset(mode="read-only", roots=[folder]) as built_in,
        httpx.AsyncClient(base_url=API, headers=HEADERS, timeout=600) as http,
    ):
        pool = assemble_tool_pool(built_in, custom=[OWN])
        registry = ToolRegistry({tool.name: tool for tool in pool})
        while True:
            tools = registry.to_anthropic_tools()
            body = {"model": MODEL, "max_tokens": 4096, "tools": tools, "messages": messages}
            response = (await http.post("/v1/messages", json=body)).raise_for_status().json()
            results, context = await answer_calls(registry, response["content"], context)
            if not results:
                return "".join(block.get("text", "") for block in response["content"])
            messages += [
                {"role": "assistant", "content": response["content"]},
                {"role": "user", "content": results},
            ]


if __name__ == "__main__":
    _, folder, prompt = sys.argv
    print(anyio.run(converse, folder, prompt))
