"""Between the server and one interpreter: passes code in, and what it printed and displayed out.

Run by path as `python -I driver.py LANGUAGE`. One line of JSON is one word. The server says

    {"run": CODE, "tag": TAG}        {"interrupt": true}

and hears `{"ready": true}` or `{"missing": PROGRAM}` first, `{"ended": STATUS}` last, and of each code

    {"output": BASE64}        {"picture": BASE64, "tag": TAG}        {"done": STATUS, "tag": TAG}

The interpreter has a process group of its own, so that an interrupt reaches what it waits for too.
"""

import base64
import fcntl
import json
import os
import select
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

ORDERS, ANSWERS = 3, 4
"""Where an interpreter hears what to run, and says that it has: lines of JSON, but for bash."""

CHUNK = 1 << 18
LONGEST = 16 << 20
"""Bytes of one line of an interpreter; what is longer is dropped."""

REST = 4 << 20
"""Bytes printed by then that a `done` waits for at most: others may go on printing."""

EARLY = 2000
"""Bytes that an interpreter which does not get ready may say of that."""

HERE = Path(__file__).parent

BASH_VARIABLES = {
    "PS1": "",
    "PS2": "",
    "HISTFILE": "",
    "PROMPT_COMMAND": f'printf \'{{"done": %d, "tag": "%s"}}\\n\' "$?" "$REPL_TAG" >&{ANSWERS}',
}
"""An interactive bash comes back to its prompt even from an interrupt, and then does the last of these."""


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """How one is started."""

    argv: tuple[str, ...]
    variables: Mapping[str, str]
    orders: int = ORDERS


def interpreter(language: str) -> Interpreter | str:
    """How to start that of `language`; or the program that is missing."""
    if language == "python":
        return Interpreter(argv=(sys.executable, "-P", str(HERE / "python_session.py")), variables={})
    name = {"javascript": "node", "shell": "bash"}[language]
    program = shutil.which(name)
    if program is None:
        return name
    if language == "javascript":
        return Interpreter(argv=(program, str(HERE / "node_session.js")), variables={})
    options = ("--noprofile", "--norc", "--noediting", "+H", "+o", "history", "-i")
    return Interpreter(argv=(program, *options), variables=BASH_VARIABLES, orders=0)


def order(language: str, code: str, tag: str) -> bytes:
    """What makes an interpreter run `code` and say `tag` when that is done."""
    if language != "shell":
        return json.dumps({"code": code, "tag": tag}).encode() + b"\n"
    quoted = "".join(_QUOTED.get(character, character) for character in code)
    # The prompt must not come as the answer of a program that inherits it.
    return f"REPL_TAG={shlex.quote(tag)}; eval $'{quoted}' </dev/null {ANSWERS}>&-\n".encode()


_QUOTED = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r"}


class Lines:
    """Lines of JSON objects out of a stream; what is none is dropped."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._dropping = False

    def taken(self, data: bytes) -> Iterator[Mapping[str, object]]:
        """The objects that end in `data`."""
        first, *others = data.split(b"\n")
        self._rest += first
        for rest in others:
            line, self._rest = bytes(self._rest), bytearray(rest)
            if self._dropping:
                self._dropping = False
            elif (word := _object(line)) is not None:
                yield word
        if len(self._rest) > LONGEST:
            self._rest, self._dropping = bytearray(), True


def _object(line: bytes) -> Mapping[str, object] | None:
    try:
        word: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return word if _is_object(word) else None


def _is_object(value: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(value, dict)


class Running:
    """An interpreter that runs."""

    def __init__(self, start: Interpreter) -> None:
        orders, self.orders = _pipe()
        self.output, output = _pipe()
        self.answers, answers = _pipe()
        nothing = _high(os.open(os.devnull, os.O_RDONLY))
        inherited = {0: nothing, start.orders: orders, 1: output, 2: output, ANSWERS: answers}
        self.pid = os.posix_spawn(
            start.argv[0],
            start.argv,
            {**os.environ, **start.variables},
            file_actions=[(os.POSIX_SPAWN_DUP2, mine, theirs) for theirs, mine in inherited.items()],
            setpgroup=0,
            setsigdef=[signal.SIGINT, signal.SIGPIPE],
        )
        for descriptor in (orders, output, answers, nothing):
            os.close(descriptor)
        self.end = os.pidfd_open(self.pid)
        os.set_blocking(self.output, False)

    def status(self) -> int:
        """How it ended: 0-255, or 128 + signal. It must have."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return code if code >= 0 else 128 - code


def _pipe() -> tuple[int, int]:
    reading, writing = os.pipe()
    return _high(reading), _high(writing)


def _high(descriptor: int) -> int:
    """`descriptor` under a number that is none of those an interpreter gets."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved


class Driver:
    """Speaks for one interpreter until it has ended, or the server is gone."""

    def __init__(self, language: str, running: Running) -> None:
        self._language = language
        self._running = running
        self._requests, self._answers = Lines(), Lines()
        self._ready = False
        self._early = b""
        """The end of what was printed before it was ready, which is of interest only if it never is."""
        self._heard, self._printing = True, True
        """Whether answers and output may still come: an interpreter can close its ends of both."""
        self._tag: str | None = None
        """Of the code that runs; None when none does."""

    def run(self) -> None:
        """Until the end."""
        running = self._running
        while True:
            ready, _, _ = select.select(list(self._watched()), (), ())
            if running.output in ready:
                self._print(CHUNK)
            if running.answers in ready:
                self._answer()
            if running.end in ready:
                self._print(REST)
                say({"output": base64.b64encode(self._early).decode()})
                return say({"ended": running.status()})
            if 0 in ready and not self._obey():
                return None

    def _watched(self) -> Iterator[int]:
        yield from (0, self._running.end)
        if self._heard:
            yield self._running.answers
        # Between two codes what is printed waits, because the server does not read then.
        if self._printing and (not self._ready or self._tag is not None):
            yield self._running.output

    def _obey(self) -> bool:
        """Take what the server says; false when it says no more."""
        data = os.read(0, CHUNK)
        for word in self._requests.taken(data):
            code, tag = word.get("run"), word.get("tag")
            if "interrupt" in word and self._tag is not None:
                os.killpg(self._running.pid, signal.SIGINT)
            elif isinstance(code, str) and isinstance(tag, str):
                self._tag = tag
                _write(self._running.orders, order(self._language, code, tag))
        return bool(data)

    def _answer(self) -> None:
        """Take what the interpreter says."""
        data = os.read(self._running.answers, CHUNK)
        self._heard = bool(data)
        for word in self._answers.taken(data):
            if not self._ready:
                self._start()
            elif self._tag is not None and word.get("tag") == self._tag:
                self._pass_on(word)

    def _pass_on(self, word: Mapping[str, object]) -> None:
        """Tell the server what an interpreter says of the code that runs."""
        if "picture" in word:
            say({"picture": word["picture"], "tag": self._tag})
        elif "done" in word:
            self._print(REST)
            say({"done": word["done"], "tag": self._tag})
            self._tag = None

    def _start(self) -> None:
        """Have what it says of itself before it is asked anything forgotten."""
        self._print(REST)
        self._ready, self._early = True, b""
        say({"ready": True})

    def _print(self, most: int) -> None:
        """Pass on what was printed, at most so much."""
        while most > 0 and (data := self._printed()):
            most -= len(data)
            if self._ready:
                say({"output": base64.b64encode(data).decode()})
            else:
                self._early = (self._early + data)[-EARLY:]

    def _printed(self) -> bytes:
        try:
            data = os.read(self._running.output, CHUNK)
        except BlockingIOError:
            return b""
        self._printing = bool(data)
        return data


def say(word: Mapping[str, object]) -> None:
    """Tell the server."""
    _write(1, json.dumps(word).encode() + b"\n")


def _write(descriptor: int, data: bytes) -> None:
    """All of it, unless nobody reads any more."""
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except BrokenPipeError:
        return


def main(language: str) -> None:
    """Serve one session."""
    start = interpreter(language)
    if isinstance(start, str):
        return say({"missing": start})
    return Driver(language, Running(start)).run()


if __name__ == "__main__":
    main(sys.argv[1])
