"""Puts `wrap` before servers that a client has, and takes it away: `setup CLIENT --wrap` and `--unwrap`.

Each server is tried before its entry is written; one that does not work when confined keeps its entry. The
former command is what the new one has after `--`.
"""

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from pydantic import JsonValue

from mcp_toolserver.command_line import Invocation
from mcp_toolserver.commands.setup import files, server
from mcp_toolserver.commands.setup.clients import (
    URLS,
    Entry,
    command_of,
    is_ours,
    with_command,
    wrapped_command,
)
from mcp_toolserver.commands.setup.files import Plan
from mcp_toolserver.commands.setup.places import contains
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.gateway.prepared import package_runner
from mcp_toolserver.gateway.server_process import server_name
from mcp_toolserver.stores.pins import NAME
from mcp_toolserver.text.lines.escape_invisible import visible

_VARIABLES = ("env", "envs", "environment", "env_vars", "env_keys")
"""Keys of an entry with variables: an object with their values, or a list of names that the client knows."""

_ACTS_ON_US = re.compile(
    r"(?!PYTHON(UNBUFFERED|IOENCODING|UTF8|DONTWRITEBYTECODE|HASHSEED)$)"
    r"(MCP_TOOLSERVER_|PYTHON|LD_|DYLD_|GCONV_|OPENSSL_|UV_|PIP_|PIPX_|XDG_STATE_HOME$)"
)
"""Variables that configure this program or name code that it loads. It runs outside the sandbox, and a client
gives it the variables of the entry."""

_REFERENCE = re.compile(r"\$\{(?:env:)?(\w+)(?::-([^}]*))?\}|\{env:(\w+)\}")
"""What clients replace in an entry, such as `${env:HOME}`."""


def wrap(plan: Plan, request: Invocation) -> int:
    """Put servers behind `wrap`; exit status 1 if one of them stays as it was.

    Raises:
        SettingsError: the request or a file is invalid; nothing was changed.
    """
    program = server.server_command(plan.places.environ, sys.argv[0])
    former, is_failed = _chosen(plan, request)
    new = {name: _wrapped(plan, request, program, name, entry) for name, entry in former.items()}
    plan.servers.check_writable()
    for name, entry in new.items():
        _say(f"{name}\n- {_visible(former[name])}\n+ {_visible(entry)}")
    if not new:
        print(f"{plan.servers.path} has no server to wrap.")
    if request.print or not new:
        return int(is_failed)
    if not files.is_confirmed(yes=request.yes):
        return files.NOT_CONFIRMED
    for name, entry in former.items():
        _prepare(request, program, name, command_of(entry))
        if not _works(plan, name, new[name]):
            del new[name]
    _write(plan, former, new)
    return int(is_failed or new.keys() != former.keys())


def unwrap(plan: Plan, request: Invocation) -> int:
    """Give servers their former entries back; exit status 1 if one that is named is not wrapped.

    Raises:
        SettingsError: a file is invalid; nothing was changed.
    """
    file, backup = plan.servers, plan.servers.backup()
    file.check_writable()
    wrapped = {name: entry for name, entry in plan.entries().items() if _inner(entry)}
    wanted = request.unwrap or wrapped
    for name in wanted:
        if name not in wrapped:
            _say(f"{name} is not wrapped.")
            continue
        entry, former = wrapped[name], backup.at((*plan.client.path, name))
        # The backup may be of another time; it has the shape of the entry.
        if not isinstance(former, dict) or command_of(former) != _inner(entry):
            former = with_command(entry, _inner(entry))
        _put_command(plan, name, former)
        _say(f"{name}\n- {_visible(entry)}\n+ {_visible(former)}")
    if backup.content is not None and backup.at(()) == file.at(()):
        file.text = backup.text
    is_failed = not {*wanted} <= {*wrapped}
    if file.text == file.text_before:
        print(f"{file.path} has no wrapped server.")
    if request.print or file.text == file.text_before:
        return int(is_failed)
    if not files.is_confirmed(yes=request.yes):
        return files.NOT_CONFIRMED
    file.write(backed_up=False)
    print(f"Wrote {file.path}. Restart {plan.client.title}.")
    files.remove_backup(file)
    return int(is_failed)


def _chosen(plan: Plan, request: Invocation) -> tuple[dict[str, Entry], bool]:
    """The entries to change, and whether one that is named cannot be."""
    entries, chosen, is_failed = plan.entries(), dict[str, Entry](), False
    for name in dict.fromkeys(request.wrap or entries):
        reason = _objection(plan, entries[name]) if name in entries else "there is no such server"
        if not reason:
            chosen[name] = entries[name]
            continue
        _say(f"{name} is left as it is: {reason}.")
        is_failed |= name in request.wrap and not _inner(entries.get(name, {}))
    return chosen, is_failed


def _objection(plan: Plan, entry: Entry) -> str:
    """Why the entry cannot be wrapped; empty if it can."""
    if _inner(entry):
        return f"it is wrapped already, as {_visible(entry)}"
    if is_ours(entry):
        return "it is this server"
    if any(key in entry for key in URLS):
        return "it is a remote server"
    parts = (entry.get("command", entry.get("cmd")), entry.get("args", []))
    words = [word for part in parts for word in (part if isinstance(part, list) else [part])]
    if not words or words != list(command_of(entry)):
        return "its entry has no command of a form that setup knows"
    if "envFile" in entry:
        return "its envFile may set variables that act on mcp-toolserver itself"
    # They say where the program of the sandbox and the pins are, which a project must not choose.
    refused = ("PATH", "HOME") if plan.scope == "project" else ()
    acting = [name for name in _variables(entry) if _ACTS_ON_US.match(name) or name in refused]
    return f"its variable {acting[0]} acts on mcp-toolserver itself" if acting else ""


def _inner(entry: Entry) -> tuple[str, ...]:
    """The command that the entry confines; empty if it is not wrapped."""
    return wrapped_command(command_of(entry))


def _variables(entry: Entry) -> Mapping[str, JsonValue]:
    """The variables that the entry sets, with their values, or None where the client has the value."""
    found: dict[str, JsonValue] = {}
    for key in _VARIABLES:
        value = entry.get(key)
        if isinstance(value, dict):
            found |= value
        elif isinstance(value, list):
            found |= {name: None for name in value if isinstance(name, str)}
    return found


# --- the new entry ---------------------------------------------------------------------------------------


def _wrapped(plan: Plan, request: Invocation, program: Sequence[str], name: str, entry: Entry) -> Entry:
    roots = _roots(plan, request, program[0], name, entry)
    asks_for_hosts = "network" not in request.given
    hosts = _answer(request, f"{name}: hosts that it may reach", ()) if asks_for_hosts else ()
    # `--env` takes patterns, and the file may be that of a project.
    own = [one for one in _variables(entry) if re.fullmatch(r"[A-Za-z_]\w*", one, re.ASCII)]
    variables = (*request.env, *own)
    if not request.env:
        variables = _answer(request, f"{name}: variables that it gets", variables)
    words = [*program, "wrap", "--name", _wrap_name(name)]
    words += server.flags_of(plan, request, program[0], roots)
    words += ["--network", "hosts"] if hosts else []
    words += [word for host in hosts for word in ("--allow-domain", host)]
    words += [word for one in dict.fromkeys(variables) for word in ("--env", one)]
    return with_command(entry, [*words, "--", *command_of(entry)])


def _wrap_name(name: str) -> str:
    return name if NAME.fullmatch(name) else server_name((name,))


def _roots(plan: Plan, request: Invocation, program: str, name: str, entry: Entry) -> tuple[str, ...]:
    """Those of `--root`; else the folders among the arguments, else the folder in which the client starts the
    server, if setup knows it, unless the user names others."""
    if "root" in request.given:
        return server.roots_of(plan, request)
    arguments = [part for word in command_of(entry)[1:] for part in (word, word.partition("=")[2])]
    found: Sequence[str] = _folders(plan, arguments) or _folders(plan, [entry.get("cwd")])
    if not found:
        with suppress(SettingsError):
            found = server.roots_of(plan, request)
    usual: list[str] = []
    for root in found:
        try:
            server.flags_of(plan, request, program, (root,))
            usual.append(root)
        except SettingsError as error:
            _say(f"{name}: left out a root: {error}")
    chosen = _answer(request, f"{name}: roots", usual)
    placeholder = plan.client.root
    return tuple(one if one == placeholder else os.path.abspath(os.path.expanduser(one)) for one in chosen)


def _folders(plan: Plan, words: Iterable[JsonValue]) -> list[str]:
    """The words that are folders to work in."""

    def is_root(path: str) -> bool:
        # A relative path such as `.` is relative to a folder that the client chooses.
        if not os.path.isabs(path) or not os.path.isdir(path):
            return path == plan.client.root != "."
        # The file of a project may be another's: it does not choose other folders to write in.
        return plan.scope == "user" or contains(str(plan.places.project), os.path.realpath(path))

    return [*dict.fromkeys(word for word in words if isinstance(word, str) and is_root(word))]


def _answer(request: Invocation, question: str, default: Sequence[str]) -> tuple[str, ...]:
    """Ask for words on a terminal; elsewhere, and for an empty answer, they are the default."""
    if request.yes or request.print or not files.is_interactive():
        return tuple(default)
    said = input(visible(f"{question} [{shlex.join(default) or 'none'}]: ")).strip()
    try:
        return tuple(default) if not said else () if said == "none" else tuple(shlex.split(said))
    except ValueError as error:
        raise SettingsError(f"{said}: {error}; nothing was changed") from None


# --- the trial -------------------------------------------------------------------------------------------


def _prepare(request: Invocation, program: Sequence[str], name: str, command: Sequence[str]) -> None:
    """Fetch the package that the command would download at its start, for which it has no network then."""
    if package_runner(command) is None:
        return
    state = ("--state-dir", request.settings.state_dir or "") if "state-dir" in request.given else ()
    words = [*program, "upstream", "prepare", _wrap_name(name), *state, "--", *command]
    if failure := server.failure_of(words, "/"):
        _say(f"{name}: its package was not prepared: {server.last_line(failure)}")


def _works(plan: Plan, name: str, entry: Entry) -> bool:
    """Whether the server lists its tools when it is started as the client will."""
    client, places = plan.client, plan.places
    with tempfile.TemporaryDirectory(prefix="mcp-toolserver-") as empty:
        opened = str(places.project) if plan.scope == "project" else empty
        known = {**places.environ, (client.root or "").strip("${}"): opened}

        def filled(text: str) -> str:
            # What only the client knows, such as `${input:key}`, stays: most servers list tools without it.
            return _REFERENCE.sub(lambda of: known.get(of[1] or of[3], of[2] or of[0]), text)

        values = {key: known.get(key) if value is None else value for key, value in _variables(entry).items()}
        variables = {key: filled(value) for key, value in values.items() if isinstance(value, str)}
        usual = opened if client.root or plan.scope == "project" else "/"
        cwd = entry.get("cwd")
        try:
            command = [filled(word) for word in command_of(entry)]
            count = server.count_tools(command, filled(cwd) if isinstance(cwd, str) else usual, variables)
        except SettingsError as error:
            _say(f"{name} is left as it is, because it does not list its tools when confined: {error}")
            return False
    _say(f"{name} lists {count} tools when confined.")
    return True


# --- writing ---------------------------------------------------------------------------------------------


def _write(plan: Plan, former: Mapping[str, Entry], new: dict[str, Entry]) -> None:
    """Write the `new` entries; those of which the client changed the former one meanwhile are taken out."""
    plan = replace(plan, files={})
    # A backup must not have this server's entry.
    is_first = not any(map(is_ours, plan.entries().values()))
    for name, entry in [*new.items()]:
        if plan.entry(name) == former[name]:
            _put_command(plan, name, entry)
        else:
            _say(f"{name} is left as it is: its entry was changed meanwhile. Run setup again.")
            del new[name]
    if not new:
        return
    file = plan.servers
    file.write(backed_up=is_first)
    print(f"Wrote {file.path}" + (f"; backup: {file.backup_path}" if is_first else ""))
    scope = " --scope project" if plan.scope == "project" else ""
    print(f"Restart {plan.client.title}. To undo this: setup {plan.client.name}{scope} --unwrap")


def _put_command(plan: Plan, name: str, entry: Entry) -> None:
    for key in ("command", "cmd", "args"):
        plan.servers.put((*plan.client.path, name, key), entry.get(key))


def _visible(entry: Entry) -> str:
    """The command of an entry, without the arguments of the server: they may hold keys."""
    command = command_of(entry)
    inner = _inner(entry) or command
    return shlex.join(command[: len(command) - len(inner) + 1]) + (" …" if len(inner) > 1 else "")


def _say(text: str) -> None:
    """Print what may hold texts of a file that is not the user's."""
    print(visible(text))
