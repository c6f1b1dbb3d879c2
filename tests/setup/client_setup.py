"""The `setup` command, and docs/clients/<client>.md, made from the table of clients and what it prints."""

import contextlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from mcp_toolserver.commands.setup import setup as command
from mcp_toolserver.commands.setup.clients import CLIENTS, Client
from mcp_toolserver.commands.setup.places import Places
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.invocation import load
from tests import ROOT

PAGES = ROOT / "docs" / "clients"

OBSERVED = ROOT / "tests" / "client_programs" / "observed.json"
"""By client what `test_client_programs.py` saw of it."""

BY_FORM = {
    (Path(one.user).suffix, one.path, bool(one.on_windows)): one for one in reversed([*CLIENTS.values()])
}
"""A client of each form of file, which the gate tries."""

PROJECT = "/home/you/project"
PROGRAM = "/home/you/.local/bin/mcp-toolserver"

_JSON = """\
{
  // mine
  "%s": {
    "zero": {"url": "http://a"},
    "other" : { "type":"stdio", %s "args" : [ "--key", "key-of-mine",
      "/usr" ],
      "env": {"A": "value-of-mine"}, "timeout": 7 }, // of mine
    "last": {},
  }
}
"""
_TEXTS = {
    ".json": _JSON,
    ".jsonc": _JSON,
    ".toml": """\
# mine
[%s.zero]
url = "http://a"

[%s.other]
%s  # the program
args = [ '--key', "key-of-mine",
  "/usr" ]
env = { A = 'value-of-mine' }
timeout = 7

[tui]
theme = 'dark'
""",
    ".yaml": """\
# mine
%s:
  zero: {type: builtin}
  other:   # of mine
    %s
    args:
    - --key
    - 'key-of-mine'
    - /usr
    envs: {A: value-of-mine}
    timeout:   7

zebra: [1,2]
""",
}
"""By format a file with servers; what is filled in is the key of all of them, and the program of one."""
_PROGRAMS = {".toml": 'command = "other"', ".yaml": "cmd: other"}


def with_servers(client: Client, file: Path) -> str:
    """The content of a client's file, with comments and other servers."""
    text, is_list = _TEXTS[file.suffix], isinstance(client.local(["x"], "x").get("command"), list)
    program = _PROGRAMS.get(file.suffix, '"command": ["other", "run"],' if is_list else '"command":"other",')
    return text % (*client.path * (text.count("%s") - 1), program)


def setup(*arguments: str, home: Path, **environ: str) -> CompletedProcess[str]:
    """Run the command for the user of `home`, in the folder `project` next to it.

    It runs in this process, because a process of its own takes longer than all that it does.
    """
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(home), **environ}
    said, complained = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(home.parent / "project"),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(complained),
    ):
        try:
            invocation = load(["setup", *arguments], variables)
            status = command.setup(invocation, variables)
        except SettingsError as error:
            status = 2
            print(f"mcp-toolserver: {error}", file=complained)
    return CompletedProcess(arguments, status, said.getvalue(), complained.getvalue())


def page(client: Client, printed: str, confined: str | None) -> str:
    """The page of a client, from what `--print` shows on an empty home, without and with `--confine`."""
    return "\n".join(_lines(client, printed, confined)) + "\n"


def setup_line(client: Client, project: str) -> list[str]:
    """Those of the setup line: the folder is named where the client does not tell it."""
    return [client.name, *([] if client.root else ["--root", project])]


def on_macos(client: Client) -> str:
    """The client's file for a user of macOS, with `~` for the home folder."""
    home = Path("~")
    application = home / "Library/Application Support"
    places = Places(home=home, config=home / ".config", application=application, project=home, environ={})
    return str(places.file(client, "user", client.macos or ""))


def _lines(client: Client, printed: str, confined: str | None) -> Iterator[str]:
    yield f"# {client.title}\n"
    yield "Generated. [Flags](../setup.md).\n"
    line = " ".join(setup_line(client, "~/project"))
    plain = list(_files(printed))
    known = "" if client.known == "its documentation" else f" ({client.known})"
    yield f"`mcp-toolserver setup {line} --permission-mode workspace-write` writes{known}"
    yield from plain
    yield from (f"* {place}." for place in _places(client, plain))
    if confined is None:
        yield f"* `--confine` is not available: {client.keeps}."
    else:
        yield f"* With `--confine`, {client.keeps}. It writes"
        yield from (file for file in _files(confined) if file not in plain)
    observed: dict[str, Any] = json.loads(OBSERVED.read_text(encoding="utf-8"))
    if client.name in observed:
        yield f"* {_observed(**observed[client.name])}"
    yield from (f"* {one}" for one in (*client.next, *client.notes))


def _places(client: Client, files: list[str]) -> Iterator[str]:
    if client.project is not None:
        yield f"`--scope project`: `{client.project}`"
    if client.on_windows:
        yield "`--windows --root ~/project`: the client of Windows, with the server in WSL"
    if client.home[0]:
        yield f"`{client.home[0]}`, if set, names the folder of the file"
    if not files[0].startswith(f"`{on_macos(client)}`"):
        yield f"macOS (not tried): `{on_macos(client)}`"


def _observed(
    *,
    version: str,
    name: str,
    protocol: str,
    capabilities: list[str],
    requests: list[str],
    at_once: bool,
    instructions: bool,
    images: bool,
    progress: bool,
) -> str:
    listed = ", ".join(f"`{one}`" for one in requests)
    return (
        f"Observed in {version} (`{name}`): protocol {protocol}; declares "
        f"{', '.join(capabilities) or 'no capabilities'}; requests {listed}; "
        f"{'a' if progress else 'no'} progress token in calls. Its model gets the tools "
        f"{'at once' if at_once else 'only after it searches for them'}, "
        f"{'gets' if instructions else 'does not get'} the instructions, and "
        f"{'sees' if images else 'does not see'} images."
    )


def _files(printed: str) -> Iterator[str]:
    for part in re.split(r"^--- .*\n", printed, flags=re.MULTILINE)[1:]:
        path, _, rest = part.removeprefix("+++ ").partition("\n")
        content = [line.removeprefix("+") for line in rest.splitlines() if line.startswith("+")]
        if path.endswith(".json"):
            content = [json.dumps(json.loads("\n".join(content)))]
        yield "\n".join([f"`{path}`:\n", f"```{path.rpartition('.')[2]}", *content, "```\n"])
