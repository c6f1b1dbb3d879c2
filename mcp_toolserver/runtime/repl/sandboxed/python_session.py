"""A session of Python: a Jupyter kernel (ipykernel) in this process, for `driver.py`.

Where nothing may be written no program may open a socket either, and a kernel could not be talked to as
usual. So its messages are taken where it would send them, wherever it runs. Text goes to standard output in
the order in which it comes about, pictures to the driver.
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

ORDERS, ANSWERS = 3, 4

PICTURES = ("image/png", "image/jpeg")

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def main() -> None:
    """Run what the driver says until it says no more."""
    for descriptor in (ORDERS, ANSWERS):
        os.set_inheritable(descriptor, False)
    for stream in (sys.stdout, sys.stderr):
        # Programs that the code starts print to the same place, in their turn.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    signal.signal(signal.SIGINT, _ignored)
    answers = Answers()
    shell = _shell(answers)
    answers.give({"done": 0})
    with os.fdopen(ORDERS, "rb") as orders:
        for line in orders:
            order = json.loads(line)
            answers.tag = order["tag"]
            status = _run(shell, order["code"])
            if shell.exit_now:
                return
            answers.give({"done": status})


class Answers:
    """What is said to the driver, and shown to whoever sent the code."""

    def __init__(self) -> None:
        self.tag = ""
        """Of the code that runs."""

    def give(self, word: Mapping[str, object]) -> None:
        """Tell the driver."""
        data = memoryview(json.dumps({**word, "tag": self.tag}).encode() + b"\n")
        while data:
            data = data[os.write(ANSWERS, data) :]

    def show(self, kind: str, content: Mapping[str, Any]) -> None:
        """What a message of the kernel says, as text or as a picture."""
        if kind == "error":
            sys.stderr.write(_plain("\n".join(content["traceback"])) + "\n")
        elif kind in ("execute_result", "display_data", "update_display_data"):
            self._show_data(content["data"])
        elif kind == "stream":
            sys.stdout.write(content["text"])

    def _show_data(self, data: Mapping[str, Any]) -> None:
        for picture in (data[form] for form in PICTURES if form in data):
            text = picture if isinstance(picture, str) else base64.b64encode(picture).decode()
            self.give({"picture": text})
        if "text/plain" in data:
            sys.stdout.write(_plain(data["text/plain"]) + "\n")


def _run(shell: Any, code: str) -> int:
    """Run one piece of code; 0 when it met no error."""
    try:
        # An interrupt is for the code alone, and it may come a moment late.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        succeeded = bool(shell.run_cell(code, store_history=True).success)
        signal.signal(signal.SIGINT, _ignored)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, _ignored)
        succeeded = False
    for page in shell.payload_manager.read_payload():
        if page.get("source") == "page":
            sys.stdout.write(_plain(page["data"]["text/plain"]) + "\n")
    shell.payload_manager.clear_payload()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return 0 if succeeded else 1


def _ignored(*_: object) -> None:
    """Does nothing, and unlike SIG_IGN is not inherited."""


def _plain(text: str) -> str:
    return _COLOUR.sub("", text)


def _shell(answers: Answers) -> Any:
    # What the kernel keeps of itself is not for the user's home: no profile, no start-up files, no history.
    folder = tempfile.mkdtemp(prefix="kernel-")
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    if not os.access(os.path.expanduser("~"), os.W_OK):
        os.environ.setdefault("MPLCONFIGDIR", os.path.join(tempfile.gettempdir(), "matplotlib"))
    # Else a text is put there and its mode changed, which walls may refuse.
    (Path(folder) / "startup").mkdir()
    (Path(folder) / "startup" / "README").touch()
    os.environ.update(IPYTHONDIR=folder, PYDEVD_DISABLE_FILE_VALIDATION="1")
    config = import_module("traitlets.config").Config()
    config.HistoryManager.enabled = False
    kernel = import_module("ipykernel.ipkernel").IPythonKernel(
        config=config,
        session=_session(answers),
        profile_dir=import_module("IPython.core.profiledir").ProfileDir(location=folder),
    )
    shutil.rmtree(folder, ignore_errors=True)
    kernel.shell.exit_now = False
    # The folder that the code works in, wherever that is by then; last, so that it cannot shadow anything.
    sys.path.append("")
    return kernel.shell


def _session(answers: Answers) -> Any:
    """What a kernel gives its messages to."""
    sessions: Any = import_module("jupyter_client.session")

    class Taken(sessions.Session):
        def send(self, _: object, message: Any, content: Any = None, *__: object, **___: object) -> None:
            if isinstance(message, str):
                answers.show(message, content)
            else:
                answers.show(message["msg_type"], message["content"])

    return Taken(key=b"")


if __name__ == "__main__":
    main()
