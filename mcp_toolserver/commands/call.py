"""`call`: runs one tool through the dispatcher that clients use."""

import json
import sys

import anyio
from pydantic import JsonValue

from mcp_toolserver.app.compose import Application
from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.command_line import Invocation
from mcp_toolserver.errors import UnknownTool
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.pipeline.nested_calls import ServerCaller

_EXAMPLE = """quote them for the shell, as in '{"path": "README.md"}'"""


async def _report(message: str) -> None:
    print(message, file=sys.stderr)


def call(app: Application, invocation: Invocation) -> int:
    """Print the result; exit status 1 on a tool error, 2 on arguments that are no JSON or an unknown tool."""
    return anyio.run(_call, app, invocation)


async def _call(app: Application, invocation: Invocation) -> int:
    try:
        arguments = _parsed(invocation.arguments)
        # The caller is a command line: nobody is asked, and progress goes to standard error.
        caller = ServerCaller(name="mcp-toolserver call", owner=LOCAL, progress=_report)
        result = await app.dispatcher.call(invocation.tool, arguments, caller)
    except ValueError as error:
        return _wrong(str(error))
    except UnknownTool:
        choices = ", ".join(entry.spec.name for entry in app.dispatcher.available)
        return _wrong(f"unknown tool {invocation.tool!r}; choose from {choices}")
    else:
        _show(result, as_json=invocation.json)
        return 0 if result.error is None else 1
    finally:
        await app.aclose()


def _wrong(what: str) -> int:
    print(f"mcp-toolserver call: {what}", file=sys.stderr)
    return 2


def _parsed(text: str) -> dict[str, JsonValue]:
    try:
        arguments: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"the arguments are not JSON: {text[:200]}; {_EXAMPLE}") from None
    if not isinstance(arguments, dict):
        raise ValueError(f"the arguments must be a JSON object; {_EXAMPLE}")
    return arguments


def _show(result: Result, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result.envelope(), ensure_ascii=False, indent=2))
        return
    print(result.text, file=sys.stdout if result.error is None else sys.stderr)
    for image in result.images:
        print(f"[{image.mime_type}, {len(image.data)} bytes]")
