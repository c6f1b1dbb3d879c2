"""A session with a skill, a plan that a human approves, tasks of which one waits for another, and a schedule.

    python examples/work_session.py

It makes a small project in a temporary folder, starts a server on it over stdio, and prints every call with
its answer. No model takes part: this program sends the calls that a model would.
"""

import asyncio
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.session import ClientRequestContext
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult, TextContent

SKILL = """---
name: release-check
description: Check a version before it is released.
allowed-tools: Read, Grep, Bash
---
1. Read `version.txt`.
2. Run `sh check.sh`.
"""

FILES = {
    "version.txt": "1.4\n",
    "check.sh": "grep -q '^[0-9.]*$' version.txt && echo 'the version is well-formed'\n",
    ".agents/skills/release-check/SKILL.md": SKILL,
}


async def approve(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    """Answer as a user who approves the plan."""
    print("  the user is asked:", *params.message.splitlines(), sep="\n    | ")
    print("  the user answers: Approve")
    return ElicitResult(action="accept", content={"answer_1": "Approve"})


async def call(client: Client, tool: str, **arguments: Any) -> Mapping[str, Any]:
    """Call a tool, print what comes back, and return its structured part."""
    print(f"\n> {tool} {arguments or ''}".rstrip())
    result: CallToolResult = await client.call_tool(tool, arguments)
    for block in result.content:
        if isinstance(block, TextContent):
            print(*("  " + line for line in block.text.splitlines()), sep="\n")
    return result.structured_content or {}


async def session(client: Client) -> None:
    """The calls of the session."""
    await call(client, "Skill", skill="release-check")
    await call(client, "write_file", path="version.txt", content="1.5\n")
    await call(client, "Skill", end=True)

    await call(client, "EnterPlanMode")
    await call(client, "write_file", path="version.txt", content="1.5\n")
    await call(client, "ExitPlanMode", plan="1. Raise the version to 1.5.\n2. Check it.")

    raised = await call(
        client,
        "TaskCreate",
        subject="Raise the version",
        command="sleep 1; echo 1.5 > version.txt; cat version.txt",
    )
    checked = await call(
        client,
        "TaskCreate",
        subject="Check it",
        command="sh check.sh",
        blocked_by=[raised["task"]["task_id"]],
    )
    await call(client, "TaskOutput", task_id=checked["task"]["task_id"])
    await call(client, "TaskList")

    await call(client, "CronCreate", schedule="@daily", time_zone="UTC", command="sh check.sh")
    await call(client, "CronList")


async def main() -> None:
    """Make the project, start the server and run the session."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".example-") as folder:
        project = Path(folder) / "project"
        for name, content in FILES.items():
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            (project / name).write_text(content, encoding="utf-8")
        server = StdioServerParameters(
            command=sys.executable,
            args=[
                *("-m", "mcp_toolserver", "--permission-mode", "workspace-write", "--toolsets", "all"),
                *("--root", str(project), "--state-dir", f"{folder}/state"),
                # This program reads ids out of the data; a model reads them in the text.
                "--structured",
            ],
        )
        async with Client(server, elicitation_callback=approve) as client:
            await session(client)


if __name__ == "__main__":
    asyncio.run(main())
