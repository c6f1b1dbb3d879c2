"""A Python session for `driver.py`: a Jupyter kernel (ipykernel) in this process.

A kernel normally listens on ports, which other commands could reach. This session intercepts the kernel's
messages in every mode. Text goes to standard output in order, pictures to the driver.
"""

import base64
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any

COMMANDS_FD, REPLIES_FD = 3, 4

IMAGE_TYPES = ("image/png", "image/jpeg")

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def main() -> None:
    """Run commands of the driver until it closes the pipe."""
    for descriptor in (COMMANDS_FD, REPLIES_FD):
        os.set_inheritable(descriptor, False)
    for stream in (sys.stdout, sys.stderr):
        # Programs started by the code share this stream; line buffering keeps the order.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    signal.signal(signal.SIGINT, _ignore_signal)
    driver = DriverChannel()
    shell = _create_shell(driver)
    driver.send({"done": 0})
    with os.fdopen(COMMANDS_FD, "rb") as commands:
        for line in commands:
            command = json.loads(line)
            driver.tag = command["tag"]
            status = _run(shell, command["code"])
            if shell.exit_now:
                return
            driver.send({"done": status})


class DriverChannel:
    """Sends messages to the driver and displays results."""

    def __init__(self) -> None:
        self.tag = ""
        """Tag of the running code."""

    def send(self, message: Mapping[str, object]) -> None:
        """Send a message to the driver."""
        data = memoryview(json.dumps({**message, "tag": self.tag}).encode() + b"\n")
        while data:
            data = data[os.write(REPLIES_FD, data) :]

    def display(self, kind: str, content: Mapping[str, Any]) -> None:
        """Show a kernel message as text or as a picture."""
        if kind == "error":
            sys.stderr.write(_strip_colour("\n".join(content["traceback"])) + "\n")
        elif kind in ("execute_result", "display_data", "update_display_data"):
            self._display_data(content["data"])
        elif kind == "stream":
            sys.stdout.write(content["text"])

    def _display_data(self, data: Mapping[str, Any]) -> None:
        for picture in (data[form] for form in IMAGE_TYPES if form in data):
            text = picture if isinstance(picture, str) else base64.b64encode(picture).decode()
            self.send({"picture": text})
        if "text/plain" in data:
            sys.stdout.write(_strip_colour(data["text/plain"]) + "\n")


def _run(shell: Any, code: str) -> int:
    """Run code; return 0 if it raised no error."""
    try:
        # Only the code can be interrupted; the signal may arrive late.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        succeeded = bool(shell.run_cell(code, store_history=True).success)
        signal.signal(signal.SIGINT, _ignore_signal)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, _ignore_signal)
        succeeded = False
    for page in shell.payload_manager.read_payload():
        if page.get("source") == "page":
            sys.stdout.write(_strip_colour(page["data"]["text/plain"]) + "\n")
    shell.payload_manager.clear_payload()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return 0 if succeeded else 1


def _ignore_signal(*_: object) -> None:
    """Do nothing; unlike SIG_IGN, child processes do not inherit it."""


def _strip_colour(text: str) -> str:
    return _COLOUR.sub("", text)


def _create_shell(driver: DriverChannel) -> Any:
    # The kernel must not write to the user's home: no profile, start-up files or history.
    folder = tempfile.mkdtemp(prefix="kernel-")
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    if not os.access(os.path.expanduser("~"), os.W_OK):
        os.environ.setdefault("MPLCONFIGDIR", os.path.join(tempfile.gettempdir(), "matplotlib"))
    # Otherwise IPython writes this file and changes its mode, which the sandbox may refuse.
    (Path(folder) / "startup").mkdir()
    (Path(folder) / "startup" / "README").touch()
    os.environ.update(IPYTHONDIR=folder, PYDEVD_DISABLE_FILE_VALIDATION="1")
    config = import_module("traitlets.config").Config()
    config.HistoryManager.enabled = False
    kernel = import_module("ipykernel.ipkernel").IPythonKernel(
        config=config,
        session=_create_session(driver),
        profile_dir=import_module("IPython.core.profiledir").ProfileDir(location=folder),
    )
    shutil.rmtree(folder, ignore_errors=True)
    kernel.shell.exit_now = False
    # The current folder, resolved at each import; last, so that it shadows nothing.
    sys.path.append("")
    return kernel.shell


def _create_session(driver: DriverChannel) -> Any:
    """Create the session object to which the kernel sends its messages."""
    sessions: Any = import_module("jupyter_client.session")

    class ForwardingSession(sessions.Session):
        def send(self, _: object, message: Any, content: Any = None, *__: object, **___: object) -> None:
            if isinstance(message, str):
                driver.display(message, content)
            else:
                driver.display(message["msg_type"], message["content"])

    return ForwardingSession(key=b"")


if __name__ == "__main__":
    main()
