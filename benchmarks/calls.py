"""`python -m benchmarks.calls`: how much of our own code one call of a tool crosses, as calls and as files.

A call counts when a function of ours is entered, also when a coroutine goes on. The server counts its own
calls in all its threads, and writes the counts to stderr when it gets SIGUSR1; the smallest of several calls
is printed, because the server also works in the background.
"""

import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import Any

import mcp_toolserver
from benchmarks.client import Client
from benchmarks.servers import ours

PACKAGE = os.path.dirname(mcp_toolserver.__file__)
ROUNDS = 7
WARM_UP = 2
LIMITS = {"edit_file": (450, 55), "bash": (320, 55), "Agent": (3_000, None)}
"""Calls and files that one call of the tool may cross."""


class Model(BaseHTTPRequestHandler):
    """The model of the agent: it calls `ls`, and then it is done."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        last = body["messages"][-1]["role"] == "tool"
        call = {"index": 0, "id": "1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
        delta = {"role": "assistant", "content": "done" if last else None}
        self._say(delta if last else {**delta, "tool_calls": [call]}, "stop" if last else "tool_calls")

    def _say(self, delta: dict[str, Any], reason: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        head = {"id": "chat", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
        for part, ended in ((delta, None), ({}, reason)):
            choice = {"index": 0, "delta": part, "finish_reason": ended}
            self.wfile.write(f"data: {json.dumps({**head, 'choices': [choice]})}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the library
        """Print nothing."""


def main() -> None:
    """Print a line for each tool."""
    with tempfile.TemporaryDirectory() as folder, ThreadingHTTPServer(("127.0.0.1", 0), Model) as model:
        threading.Thread(target=model.serve_forever, daemon=True).start()
        root = Path(folder) / "root"
        root.mkdir()
        url = f"http://127.0.0.1:{model.server_address[1]}/v1"
        config = Path(folder) / "config.toml"
        text = f'[agent]\nprovider = "openai"\nbase-url = "{url}"\nmodel = "scripted"\n'
        config.write_text(text, encoding="utf-8")
        more = ("--config", str(config))
        launch = ours(root, mode="danger-full-access", toolset="all", more=more)
        counted = [*launch.command[:2], "benchmarks.calls", *launch.command[3:]]
        with Client(replace(launch, command=counted)) as client:
            for tool, arguments in _calls(root).items():
                print(_shown(tool, *_crossed(client, tool, arguments)))
        model.shutdown()


def _calls(root: Path) -> dict[str, Callable[[], Mapping[str, object]]]:
    """The arguments of each call; those of an edit need a text that differs each time."""
    file = root / "small.txt"

    def edit() -> Mapping[str, object]:
        file.write_text("one line\nand another\n", encoding="utf-8")
        return {"path": "small.txt", "old_string": "another", "new_string": "a third"}

    return {
        "edit_file": edit,
        "read_file": lambda: {"path": "small.txt"},
        "bash": lambda: {"command": "true"},
        "Agent": lambda: {"description": "List", "prompt": "List the files.", "subagent_type": "Explore"},
    }


def _crossed(client: Client, tool: str, arguments: Callable[[], Mapping[str, object]]) -> tuple[int, int]:
    """The calls and files of the cheapest of several calls of a tool, once it is warm."""
    found: list[tuple[int, int]] = []
    for number in range(WARM_UP + ROUNDS):
        given = arguments()
        _counts(client)
        client.call(tool, given)
        found += [_counts(client)] if number >= WARM_UP else []
    return min(found)


def _counts(client: Client) -> tuple[int, int]:
    """What the server counted since it was asked last."""
    before = client.log().count("\n")
    os.kill(client.pid, signal.SIGUSR1)
    while (log := client.log()).count("\n") == before:
        time.sleep(0.01)
    calls, files = json.loads(log.splitlines()[-1])
    return calls, files


def _shown(tool: str, calls: int, files: int) -> str:
    limits = LIMITS.get(tool, (None, None))
    crossed = [
        f"{count:,} {of}" + (f" (at most {limit:,})" if limit else "")
        for count, limit, of in zip((calls, files), limits, ("own calls", "own files"), strict=True)
    ]
    return f"{tool}: {', '.join(crossed)}"


def _serve_counting() -> None:
    """Run the server in this process, with the arguments that follow, and count."""
    entered: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and (file := frame.f_code.co_filename).startswith(PACKAGE):
            entered[file] += 1

    def tell(_number: int, _frame: FrameType | None) -> None:
        os.write(2, f"[{entered.total()}, {len(entered)}]\n".encode())
        entered.clear()

    signal.signal(signal.SIGUSR1, tell)
    threading.setprofile(count)
    sys.setprofile(count)
    from mcp_toolserver.__main__ import main

    main()


if __name__ == "__main__":
    if sys.argv[1:]:
        _serve_counting()
    main()
