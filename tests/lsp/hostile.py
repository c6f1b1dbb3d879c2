"""Language servers that do as a test says: `stranger` writes one as a program."""

import sys
import textwrap
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from mcp_toolserver.runtime.lsp.session import ServerLimits
from tests.lsp.languages import LspTool, Place, lsp_tool

_HEAD = f"""#!{sys.executable} -I
import json, os, sys, time

def read():
    length = 0
    while (line := sys.stdin.buffer.readline()) not in (b"\\r\\n", b""):
        length = int(line.split(b":")[1]) if line.lower().startswith(b"content-length") else length
    return json.loads(sys.stdin.buffer.read(length)) if length else sys.exit()

def raw(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()

def send(**message):
    body = json.dumps({{"jsonrpc": "2.0", **message}}).encode()
    raw(b"Content-Length: %d\\r\\n\\r\\n%b" % (len(body), body))

def place(uri, line=0, character=0):
    at = {{"line": line, "character": character}}
    return {{"uri": uri, "range": {{"start": at, "end": at}}}}

def hears(method, params):
    pass

CAPABILITIES = {{
    name + "Provider": True
    for name in ("definition", "references", "hover", "documentSymbol", "workspaceSymbol", "callHierarchy")
}}
"""

_TAIL = """
knows = False
while True:
    message = read()
    method, number, params = message.get("method"), message.get("id"), message.get("params")
    hears(method, params or {})
    knows |= method == "workspace/didChangeWatchedFiles"
    if method == "initialize":
        root = params["rootUri"]
        send(id=number, result={"capabilities": CAPABILITIES})
    elif method is None or number is not None or method == "initialized":
        behave(method, number, params, message)
"""


def stranger(folder: Path, behaviour: str, name: str = "pyright-langserver") -> str:
    """The folder that holds a server in whose `behave` each request, answer and `initialized` ends up.

    Its `hears`, if it has one, gets every message first. `knows` says there whether it was notified of a
    change.
    """
    program = folder / "bin" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"{_HEAD}\n{behaviour}\n{_TAIL}", encoding="utf-8")
    program.chmod(0o755)
    return str(program.parent)


# --- on a project of their own ---------------------------------------------------------------------------


QUICK = ServerLimits(
    answer=10.0,
    indexing=5.0,
    min_age=0.0,
    poll_interval=0.01,
    progress_timeout=0.5,
    recheck=0.1,
    quiet_period=0.05,
    action_diagnostics=0.1,
)

PRESCRIBED = """
def behave(method, number, params, message):
    if number is not None and method:
        exec(open(sys.argv[0] + ".behaviour", encoding="utf-8").read(), {**globals(), **locals()})
"""
"""A server that answers each request as `prescribe` says last."""


def on(before: str = "", **statements: str) -> str:
    """A server that runs these statements for requests, by the last word of their method. It answers all
    others with nothing."""
    branches = "".join(
        f"    elif method == {_METHODS.get(name, f'textDocument/{name}')!r}:\n"
        + textwrap.indent(textwrap.dedent(statement).strip(), "        ")
        + "\n"
        for name, statement in statements.items()
    )
    others = "    elif number is not None:\n        send(id=number, result=None)\n"
    return f"{before}\n{_BEHAVE}    if method is None:\n        return\n{branches}{others}"


def answers(result: str) -> str:
    return f"{_BEHAVE}    if number is not None and method:\n        send(id=number, result={result})\n"


_BEHAVE = "def behave(method, number, params, message):\n"
_METHODS = {"initialized": "initialized", "symbol": "workspace/symbol"}


@asynccontextmanager
async def talking_to(
    place: Place, behaviour: str, limits: ServerLimits = QUICK, *, files: dict[str, str], **more: Any
) -> AsyncGenerator[LspTool]:
    """The tool, with a server that behaves like this, on a project with these files."""
    changed = {name: more.pop(name) for name in vars(QUICK).keys() & more.keys()}
    within = replace(limits, **changed)
    places = (stranger(place.folder, behaviour),)
    async with lsp_tool(place.folder, place.broker, places=places, limits=within, **more) as made:
        for name, text in files.items():
            made.put(name, text)
        yield made


def prescribe(place: Place, behaviour: str) -> None:
    """Have a `PRESCRIBED` server answer requests like this, in Python, from now on."""
    file = place.folder / "bin/pyright-langserver.behaviour"
    file.write_text(behaviour, encoding="utf-8")
