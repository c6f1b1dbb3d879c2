"""Connects the server with one interpreter: forwards code to it, and its output and pictures back.

Run by path as `python -I driver.py LANGUAGE`. A message is one line of JSON. The server sends

    {"run": CODE, "tag": TAG, "last": BOOLEAN}        {"interrupt": true}

The driver first sends `{"missing": PROGRAM}`, or `{"interpreter": PATH, "note": TEXT}` and then
`{"ready": VERSION}`, at the end `{"ended": STATUS}`, and for each code

    {"output": BASE64}        {"picture": BASE64, "tag": TAG}        {"done": STATUS, "tag": TAG}

After the last code Python and Node do not report `done`: they wait for threads and timers, and end.

The interpreter has its own process group, so that an interrupt also reaches its child processes.
"""

import base64
import contextlib
import fcntl
import json
import os
import select
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

COMMANDS_FD, REPLIES_FD = 3, 4
"""Descriptors on which an interpreter receives code and reports completion, as lines of JSON except for bash.
"""

CHUNK = 1 << 18
MAX_LINE = 16 << 20
"""Bytes of one line of an interpreter; longer lines are dropped."""

MAX_REMAINING_OUTPUT = 4 << 20
"""Bytes of pending output forwarded before a `done`; other processes may print without end."""

MAX_STARTUP_OUTPUT = 2000
"""Bytes of output kept from an interpreter that is not ready yet."""

HERE = Path(__file__).parent

BASH_VARIABLES = {
    "PS1": "",
    "PS2": "",
    "HISTFILE": "",
    "PROMPT_COMMAND": f'printf \'{{"done": %d, "tag": "%s"}}\\n\' "$?" "$REPL_TAG" >&{REPLIES_FD}',
}
"""An interactive bash returns to its prompt even after an interrupt, and then runs PROMPT_COMMAND."""


VIRTUAL_ENVIRONMENTS = (".venv", "venv")
"""Names of a project's own environment, in the folder that a session starts in."""

PYTHON_START = """\
import sys
if sys.version_info < (3, 8):
    sys.exit("Python 3.8 or newer is needed, and this is %d.%d" % sys.version_info[:2])
sys.path[:] = filter(None, sys.path)
exec(compile(open({script!r}, "rb").read(), {script!r}, "exec"))
"""
"""Runs `python_session.py`. Not by its path: pyenv would choose the version for the folder of that file, and
Python would import modules from there."""


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    argv: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    commands: int = COMMANDS_FD
    note: str = ""
    """Why it is not the one that the user may expect."""


def interpreter(language: str) -> Interpreter | str:
    """Return how to start the interpreter of `language`, or the name of the missing program."""
    if language == "python":
        return _python()
    name = {"javascript": "node", "shell": "bash"}[language]
    program = shutil.which(name)
    if program is None:
        return name
    if language == "javascript":
        return Interpreter(argv=(program, str(HERE / "node_session.js")))
    options = ("--noprofile", "--norc", "--noediting", "+H", "+o", "history", "-i")
    return Interpreter(argv=(program, *options), variables=BASH_VARIABLES, commands=0)


def _python() -> Interpreter | str:
    """The interpreter of the project's environment, else the first `python3` on the PATH."""
    note = ""
    for folder in VIRTUAL_ENVIRONMENTS:
        program = os.path.abspath(f"{folder}/bin/python")
        if os.path.isfile(program) and os.access(program, os.X_OK):
            break
        if os.path.lexists(folder) and not note:
            note = f"{folder} is not used: commands find no program {folder}/bin/python"
    else:
        found = shutil.which("python3")
        if found is None:
            return "python3"
        program = found
    start = PYTHON_START.format(script=str(HERE / "python_session.py"))
    return Interpreter(argv=(program, "-c", start), note=note)


def encode_command(language: str, code: str, tag: str, *, last: bool = False) -> bytes:
    """Encode the command that makes an interpreter run `code` and report `tag` when it is done, or end if it
    is the last."""
    if language != "shell":
        return json.dumps({"code": code, "tag": tag, "last": last}).encode() + b"\n"
    quoted = "".join(_QUOTED.get(character, character) for character in code)
    # Programs that inherit the reply channel must not send the prompt's message.
    return f"REPL_TAG={shlex.quote(tag)}; eval $'{quoted}' </dev/null {REPLIES_FD}>&-\n".encode()


_QUOTED = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r"}


class LineDecoder:
    """Decodes a byte stream into lines of JSON objects; drops other lines."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._dropping = False

    def feed(self, data: bytes) -> Iterator[Mapping[str, object]]:
        first, *others = data.split(b"\n")
        self._rest += first
        for rest in others:
            line, self._rest = bytes(self._rest), bytearray(rest)
            if self._dropping:
                self._dropping = False
            elif _is_object(message := _parsed(line)):
                yield message
        if len(self._rest) > MAX_LINE:
            self._rest, self._dropping = bytearray(), True


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _is_object(value: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(value, dict)


def _child_signals() -> int:
    """Return a descriptor that becomes readable with each SIGCHLD: macOS has no descriptor of a process."""
    reading, writing = _pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    # A signal with the default action wakes nobody.
    signal.signal(signal.SIGCHLD, _do_nothing)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    return reading


def _do_nothing(_number: int, _frame: object) -> None:
    """Handle a signal that is only there to wake this process."""


def _pipe() -> tuple[int, int]:
    reading, writing = os.pipe()
    return _high(reading), _high(writing)


def _high(descriptor: int) -> int:
    """Move `descriptor` above the numbers passed to an interpreter."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved


class Driver:
    """Serves one interpreter until it ends or the server disconnects."""

    def __init__(self, language: str, start: Interpreter) -> None:
        """Raises: OSError: the interpreter cannot be started."""
        self._language = language
        self._requests, self._replies = LineDecoder(), LineDecoder()
        self._ready = False
        self._startup_output = b""
        """The latest output from before the interpreter was ready; only shown if it never is."""
        self._replies_open, self._output_open = True, True
        """Whether the interpreter still has both channels open."""
        self._tag: str | None = None
        """Tag of the running code; None when idle."""
        self._child_signals = _child_signals()
        """Readable when the interpreter may have ended; see `_status`."""
        commands, self._commands = _pipe()
        self._output, output = _pipe()
        self._reply_pipe, replies = _pipe()
        nothing = _high(os.open(os.devnull, os.O_RDONLY))
        inherited = {0: nothing, start.commands: commands, 1: output, 2: output, REPLIES_FD: replies}
        self._pid = os.posix_spawn(
            start.argv[0],
            start.argv,
            {**os.environ, **start.variables},
            file_actions=[(os.POSIX_SPAWN_DUP2, mine, theirs) for theirs, mine in inherited.items()],
            setpgroup=0,
            setsigdef=[signal.SIGINT, signal.SIGPIPE],
        )
        for descriptor in (commands, output, replies, nothing):
            os.close(descriptor)
        os.set_blocking(self._output, False)

    def run(self) -> None:
        while True:
            ready, _, _ = select.select(list(self._readable_sources()), (), ())
            if self._output in ready:
                self._forward_output(CHUNK)
            if self._reply_pipe in ready:
                self._read_interpreter()
            if self._child_signals in ready and (status := self._status()) is not None:
                self._forward_output(MAX_REMAINING_OUTPUT)
                send({"output": base64.b64encode(self._startup_output).decode()})
                return send({"ended": status})
            if 0 in ready and not self._read_server():
                return None

    def _status(self) -> int | None:
        """Return the exit status of the interpreter, 0-255 or 128 + signal, once; None while it runs."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._child_signals, CHUNK)
        ended, status = os.waitpid(self._pid, os.WNOHANG)
        if not ended:
            return None
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def _readable_sources(self) -> Iterator[int]:
        yield from (0, self._child_signals)
        if self._replies_open:
            yield self._reply_pipe
        # While no code runs, output stays in the pipe, because the server does not read.
        if self._output_open and (not self._ready or self._tag is not None):
            yield self._output

    def _read_server(self) -> bool:
        """Process messages of the server; false once it has closed the pipe."""
        data = os.read(0, CHUNK)
        for message in self._requests.feed(data):
            code, tag = message.get("run"), message.get("tag")
            if "interrupt" in message and self._tag is not None:
                os.killpg(self._pid, signal.SIGINT)
            elif isinstance(code, str) and isinstance(tag, str):
                self._tag = tag
                last = message.get("last") is True
                _write(self._commands, encode_command(self._language, code, tag, last=last))
        return bool(data)

    def _read_interpreter(self) -> None:
        data = os.read(self._reply_pipe, CHUNK)
        self._replies_open = bool(data)
        for message in self._replies.feed(data):
            if not self._ready:
                self._mark_ready(message.get("version", ""))
            elif self._tag is not None and message.get("tag") == self._tag:
                self._forward(message)

    def _forward(self, message: Mapping[str, object]) -> None:
        """Forward a reply about the running code to the server."""
        if "picture" in message:
            send({"picture": message["picture"], "tag": self._tag})
        elif "done" in message:
            self._forward_output(MAX_REMAINING_OUTPUT)
            send({"done": message["done"], "tag": self._tag})
            self._tag = None

    def _mark_ready(self, version: object) -> None:
        self._forward_output(MAX_REMAINING_OUTPUT)
        self._ready, self._startup_output = True, b""
        send({"ready": version})

    def _forward_output(self, limit: int) -> None:
        """Forward at most `limit` bytes of output."""
        while limit > 0 and (data := self._read_output()):
            limit -= len(data)
            if self._ready:
                send({"output": base64.b64encode(data).decode()})
            else:
                self._startup_output = (self._startup_output + data)[-MAX_STARTUP_OUTPUT:]

    def _read_output(self) -> bytes:
        try:
            data = os.read(self._output, CHUNK)
        except BlockingIOError:
            return b""
        self._output_open = bool(data)
        return data


def send(message: Mapping[str, object]) -> None:
    _write(1, json.dumps(message).encode() + b"\n")


def _write(descriptor: int, data: bytes) -> None:
    """Write all data, unless the reader is gone."""
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except BrokenPipeError:
        return


def main(language: str) -> None:
    start = interpreter(language)
    if isinstance(start, str):
        return send({"missing": start})
    send({"interpreter": start.argv[0], "note": start.note})
    try:
        driver = Driver(language, start)
    except OSError as error:
        sys.exit(error.strerror)
    return driver.run()


if __name__ == "__main__":
    main(sys.argv[1])
