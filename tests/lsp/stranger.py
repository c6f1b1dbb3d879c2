"""A language server that does as a test says: `stranger` writes it as a program."""

import sys
from pathlib import Path

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
