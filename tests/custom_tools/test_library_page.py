"""The examples of docs/library.md work."""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests import ROOT
from tests.web.web import Reply, site

PAGE = ROOT / "docs" / "library.md"
BLOCK = re.compile(r"^```(\w+)(?: title=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(PAGE.read_text(encoding="utf-8"))


def test_every_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    examples = [code for language, title, code in BLOCKS if language == "python" and not title]
    assert len(examples) > 5
    namespace: dict[str, object] = {"__name__": "page"}
    for code in examples:
        exec(compile(code, str(PAGE), "exec"), namespace)


def test_the_servers_example_prints_what_the_page_says(tmp_path: Path) -> None:
    for _, title, content in BLOCKS:
        if title:
            (tmp_path / title).write_text(content, encoding="utf-8")
    (tmp_path / "work").mkdir()
    (console,) = [code for language, _, code in BLOCKS if language == "console"]
    command, expected = console.removeprefix("$ ").split("\n", 1)
    words = command.replace("mcp-toolserver", f"{sys.executable} -m mcp_toolserver", 1)
    done = subprocess.run(
        ["/bin/sh", "-c", f"{words} --state-dir {tmp_path}/state"],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, expected), done.stderr


SAYS = (
    [
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "a.txt"}},
        {"type": "tool_use", "id": "toolu_2", "name": "remember", "input": {"text": "it is short"}},
        {"type": "tool_use", "id": "toolu_3", "name": "bash", "input": {"command": "touch b.txt"}},
    ],
    [{"type": "text", "text": "It has one line."}],
)
"""What the model answers, turn by turn."""


@pytest.mark.requirement("TU-23", "CL-48", "TU-22", "SW-88")
async def test_the_model_loop_runs_until_the_model_has_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def turn(reply: Reply) -> None:
        content = SAYS[len(json.loads(reply.asked.body)["messages"]) // 2]
        reply.say(json.dumps({"role": "assistant", "content": content}), kind="application/json")

    (root := tmp_path / "root").mkdir()
    (root / "a.txt").write_text("only this\n", encoding="utf-8")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with site({"/v1/messages": turn}) as api:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        converse = runpy.run_path(str(ROOT / "examples/model_loop.py"))["converse"]
        with anyio.fail_after(60):
            assert await converse(str(root), "What is in a.txt?") == "It has one line."
        sent = [json.loads(asked.body) for asked in api.asked]
    assert {"read_file", "grep_search", "bash", "remember"} <= {tool["name"] for tool in sent[0]["tools"]}
    texts = [result["content"] for result in sent[1]["messages"][-1]["content"]]
    assert texts[:2] == ["1\tonly this", f"Noted in {root}: it is short"]
    assert "Read-only file system" in texts[2]
