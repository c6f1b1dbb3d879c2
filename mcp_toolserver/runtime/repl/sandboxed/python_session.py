"""A Python session for `driver.py`: runs code in the project's interpreter and keeps its variables.

It needs Python 3.8 or newer and its standard library, nothing else. The code shares this process, so whatever
this module sends may come from the code.
"""

# Annotations of today in Python 3.8.
from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import linecache
import os
import platform
import signal
import sys
import tempfile
import traceback
import types
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Coroutine, Mapping

COMMANDS_FD, REPLIES_FD = 3, 4

IMAGE_METHODS = ("_repr_png_", "_repr_jpeg_")
"""What returns the bytes of a value's picture, by the convention of Jupyter."""

_COROUTINE = 0x80
"""The flag of code that contains `await` at its top level, as in `inspect`."""


def main() -> int:
    """Run commands of the driver until it closes the pipe; return the exit status."""
    for descriptor in (COMMANDS_FD, REPLIES_FD):
        os.set_inheritable(descriptor, False)
    for stream in (sys.stdout, sys.stderr):
        # Programs started by the code share this stream; line buffering keeps the order.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    signal.signal(signal.SIGINT, _ignore_signal)
    _prepare_matplotlib()
    # The current folder, resolved at each import; last, so that it shadows nothing.
    sys.path.append("")
    session = Session()
    session.send({"done": 0, "version": f"{platform.python_implementation()} {platform.python_version()}"})
    with os.fdopen(COMMANDS_FD, "rb") as commands:
        for line in commands:
            command = json.loads(line)
            session.tag = command["tag"]
            status = session.run(command["code"])
            if command["last"]:
                # The interpreter now waits for threads, which an interrupt has to end as well.
                signal.signal(signal.SIGINT, signal.default_int_handler)
                return status
            session.send({"done": status})
    return 0


class Session:
    """The variables of the code, and the channel to the driver."""

    def __init__(self) -> None:
        self.tag = ""
        """Tag of the running code."""
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        sys.displayhook = self._display
        self._variables = module.__dict__
        self._inputs = 0
        self._name = ""
        """Name of the running code in tracebacks."""
        self._loop: AbstractEventLoop | None = None

    def send(self, message: Mapping[str, object]) -> None:
        data = memoryview(json.dumps({**message, "tag": self.tag}).encode() + b"\n")
        while data:
            data = data[os.write(REPLIES_FD, data) :]

    def run(self, code: str) -> int:
        """Run code, show the value of its last expression, then its figures; return 0 if it raised no error.

        Raises:
            SystemExit: the code ends the interpreter.
        """
        self._inputs += 1
        self._name = f"<input {self._inputs}>"
        # Tracebacks show the lines of the code.
        linecache.cache[self._name] = (len(code), None, code.splitlines(keepends=True), self._name)
        status = self._attempt(lambda: self._execute(code))
        status = self._attempt(self._send_figures) or status
        for stream in (sys.stdout, sys.stderr):
            # The code may have closed or replaced it.
            with contextlib.suppress(Exception):
                stream.flush()
        return status

    def _attempt(self, work: Callable[[], None]) -> int:
        """Do `work`, which an interrupt stops; return 0 if it raised no error."""
        try:
            # Only the code can be interrupted; the signal may arrive late.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            work()
            signal.signal(signal.SIGINT, _ignore_signal)
        except SystemExit:
            raise
        except BaseException as error:  # noqa: BLE001  whatever the code raises is its result
            signal.signal(signal.SIGINT, _ignore_signal)
            traceback.print_exception(type(error), error, self._own_frames(error))
            return 1
        return 0

    def _own_frames(self, error: BaseException) -> types.TracebackType | None:
        """The frames of `error` from the code on; those above belong to this session."""
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename != self._name:
            frames = frames.tb_next
        return frames

    def _execute(self, code: str) -> None:
        tree = ast.parse(code, self._name)
        ends_in_value = bool(tree.body) and isinstance(tree.body[-1], ast.Expr)
        last = ast.Interactive(body=[tree.body.pop()] if ends_in_value else [])
        self._evaluate(tree, "exec")
        # Compiled this way, an expression calls `sys.displayhook`.
        self._evaluate(last, "single")

    def _evaluate(self, tree: ast.Module | ast.Interactive, mode: str) -> None:
        if not tree.body:
            return
        code = compile(tree, self._name, mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        result = eval(code, self._variables)  # noqa: S307  this is what a session is for
        if code.co_flags & _COROUTINE:
            self._wait_for(result)

    def _wait_for(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run `coroutine` in an event loop that stays, so that its tasks go on in later code."""
        # Slow to import, and seldom needed.
        import asyncio

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        task = self._loop.create_task(coroutine)
        try:
            self._loop.run_until_complete(task)
        except KeyboardInterrupt:
            if not task.done():
                task.cancel()
                self._loop.run_until_complete(asyncio.wait({task}))
            raise

    def _display(self, value: object) -> None:
        """Send the picture of a value if it has one, then print it as Python does."""
        for method in IMAGE_METHODS:
            # Asked of the type: an instance may claim to have every attribute.
            draw = getattr(type(value), method, None)
            if draw is not None and isinstance(image := draw(value), bytes):
                self._send_picture(image)
                break
        sys.__displayhook__(value)

    def _send_figures(self) -> None:
        """Send the open figures of matplotlib, and close them."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None:
            return
        try:
            for number in pyplot.get_fignums():
                picture = io.BytesIO()
                pyplot.figure(number).savefig(picture, format="png", bbox_inches="tight")
                self._send_picture(picture.getvalue())
        finally:
            pyplot.close("all")

    def _send_picture(self, picture: bytes) -> None:
        self.send({"picture": base64.b64encode(picture).decode()})


def _ignore_signal(*_: object) -> None:
    """Do nothing; unlike SIG_IGN, child processes do not inherit it."""


def _prepare_matplotlib() -> None:
    """Let it draw without a display, and keep its cache where the sandbox can write."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    if not os.access(os.path.expanduser("~"), os.W_OK):
        os.environ.setdefault("MPLCONFIGDIR", os.path.join(tempfile.gettempdir(), "matplotlib"))
    # `show` warns that it shows nothing, but figures are sent when the code ends.
    warnings.filterwarnings("ignore", message=".*(is non-interactive, and thus|non-GUI backend, so) cannot")


if __name__ == "__main__":
    sys.exit(main())
