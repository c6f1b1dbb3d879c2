"""Puts `wrap` before servers that a client has, and takes it away: `setup CLIENT --wrap` and `--unwrap`.

Each server is tried before its entry is written; one that does not work when confined keeps its entry. The
former entries are in the state folder, because a client may rewrite its file.
"""

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

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
from mcp_toolserver.commands.setup.files import ConfigFile, Plan
from mcp_toolserver.commands.setup.places import contains
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.gateway.prepared import package_runner
from mcp_toolserver.gateway.server_process import server_name
from mcp_toolserver.stores.pins import NAME
from mcp_toolserver.stores.state_dir import make_state_folder, state_folder
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
        _prepare(plan, request, program, name, command_of(entry))
        if not _works(plan, name, new[name]):
            del new[name]
    _write(plan, request, former, new)
    return int(is_failed or new.keys() != former.keys())


def unwrap(plan: Plan, request: Invocation) -> int:
    """Give servers their former entries back; exit status 1 if one that is named is not wrapped.

    Raises:
        SettingsError: a file is invalid; nothing was changed.
    """
    file, store = plan.servers, _store(request)
    file.check_writable()
    wrapped = [name for name, entry in plan.entries().items() if _inner(entry)]
    wanted = request.unwrap or wrapped
    chosen = [name for name in wrapped if name in wanted]
    is_failed = not {*wanted} <= {*wrapped}
    for name in (name for name in wanted if name not in wrapped):
        _say(f"{name} is not wrapped.")
    for name in chosen:
        entry = plan.entry(name)
        _restore(plan, name, store.at((str(file.path), name)))
        _say(f"{name}\n- {_visible(entry)}\n+ {_visible(plan.entry(name))}")
        store.put((str(file.path), name), None)
    if not chosen:
        print(f"{file.path} has no wrapped server.")
    if request.print or not chosen:
        return int(is_failed)
    if not files.is_confirmed(yes=request.yes):
        return files.NOT_CONFIRMED
    file.write(backed_up=False)
    if store.content is not None:
        store.write(backed_up=False)
    print(f"Wrote {file.path}. Restart {plan.client.title}.")
    files.remove_backup(file)
    return int(is_failed)


def _chosen(plan: Plan, request: Invocation) -> tuple[dict[str, Entry], bool]:
    """The entries to change, and whether one that is named cannot be."""
    entries, chosen, is_failed = plan.entries(), dict[str, Entry](), False
    for name in dict.fromkeys(request.wrap or entries):
        entry = entries.get(name)
        reason = _objection(plan, entry) if isinstance(entry, dict) else "there is no such server"
        if isinstance(entry, dict) and not reason:
            chosen[name] = entry
            continue
        _say(f"{name} is left as it is: {reason}.")
        is_failed |= name in request.wrap and not _inner(entry)
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


def _inner(entry: JsonValue) -> tuple[str, ...]:
    """The command that the entry confines; empty if it is not wrapped."""
    return wrapped_command(command_of(entry)) if isinstance(entry, dict) else ()


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
    hosts: tuple[str, ...] = ()
    if "network" not in request.given:
        hosts = _answer(request, f"{name}: hosts that it may reach", ())
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
    if "root" in request.given:
        return server.roots_of(plan, request)
    usual: list[str] = []
    for root in _usual_roots(plan, request, entry):
        try:
            server.flags_of(plan, request, program, (root,))
            usual.append(root)
        except SettingsError as error:
            _say(f"{name}: left out a root: {error}")
    chosen = _answer(request, f"{name}: roots", usual)
    placeholder = plan.client.root
    return tuple(one if one == placeholder else os.path.abspath(os.path.expanduser(one)) for one in chosen)


def _usual_roots(plan: Plan, request: Invocation, entry: Entry) -> Sequence[str]:
    """The folders among the arguments, else the folder in which the client starts the server, if setup knows
    it."""
    arguments = [part for word in command_of(entry)[1:] for part in (word, word.partition("=")[2])]
    for words in (arguments, [entry.get("cwd")]):
        if found := [word for word in dict.fromkeys(words) if isinstance(word, str) and _is_root(plan, word)]:
            return found
    with suppress(SettingsError):
        return server.roots_of(plan, request)
    return ()


def _is_root(plan: Plan, path: str) -> bool:
    # A relative path such as `.` is relative to a folder that the client chooses.
    if not os.path.isabs(path) or not os.path.isdir(path):
        return path == plan.client.root != "."
    # The file of a project may be another's: it does not choose other folders to write in.
    return plan.scope == "user" or contains(str(plan.places.project), os.path.realpath(path))


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


def _prepare(
    plan: Plan, request: Invocation, program: Sequence[str], name: str, command: Sequence[str]
) -> None:
    """Fetch the package that the command would download at its start, for which it has no network then."""
    if package_runner(command) is None:
        return
    state = ("--state-dir", request.settings.state_dir or "") if "state-dir" in request.given else ()
    words = [*program, "upstream", "prepare", _wrap_name(name), *state, "--", *command]
    if failure := server.failure_of(words, "/", plan.places.environ):
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

        variables = {key: known[key] for key in ("HOME", "PATH") if key in known}
        for key, value in _variables(entry).items():
            value = known.get(key) if value is None else value
            variables |= {key: filled(value)} if isinstance(value, str) else {}
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


def _store(request: Invocation) -> ConfigFile:
    """By path of a client's file and name of a server: the entry before `wrap`, its text, and that after."""
    return files.read(Path(state_folder(request.settings.state_dir), "wrapped.json"))


def _write(plan: Plan, request: Invocation, former: Mapping[str, Entry], new: dict[str, Entry]) -> None:
    """Write the `new` entries; those of which the client changed the former one meanwhile are taken out."""
    plan = replace(plan, files={})
    for name in [name for name in new if plan.entry(name) != former[name]]:
        _say(f"{name} is left as it is: its entry was changed meanwhile. Run setup again.")
        del new[name]
    if not new:
        return
    file, store = plan.servers, _store(request)
    # A backup must not have this server's entry.
    is_first = not any(isinstance(entry, dict) and is_ours(entry) for entry in plan.entries().values())
    for name, entry in new.items():
        path = (*plan.client.path, name)
        record: Entry = {"former": former[name], "source": file.source(path), "wrapped": entry}
        store.put((str(file.path), name), record)
        _put_command(file, path, entry)
    make_state_folder(str(store.path.parent))
    # Without its former entry, none is changed.
    store.write(backed_up=False)
    file.write(backed_up=is_first)
    print(f"Wrote {file.path}" + (f"; backup: {file.backup_path}" if is_first else ""))
    scope = " --scope project" if plan.scope == "project" else ""
    print(f"Restart {plan.client.title}. To undo this: setup {plan.client.name}{scope} --unwrap")


def _restore(plan: Plan, name: str, record: JsonValue) -> None:
    """Give the server its former entry; where the entry was changed since, only its former command."""
    file, path, entry = plan.servers, (*plan.client.path, name), plan.entry(name)
    if not isinstance(entry, dict):
        return
    former = record.get("former") if isinstance(record, dict) else None
    if not isinstance(record, dict) or not isinstance(former, dict) or command_of(former) != _inner(entry):
        _say(f"{name}: its former entry is not stored; its command is what `wrap` has after --.")
        _put_command(file, path, with_command(entry, _inner(entry)))
    elif record.get("wrapped") == entry:
        file.restore(path, former, str(record.get("source", "")))
    else:
        _put_command(file, path, former)


def _put_command(file: ConfigFile, path: Sequence[str], entry: Entry) -> None:
    for key in ("command", "cmd", "args"):
        file.put((*path, key), entry.get(key))


def _visible(entry: JsonValue) -> str:
    """The command of an entry, without the arguments of the server: they may hold keys."""
    command = command_of(entry) if isinstance(entry, dict) else ()
    inner = _inner(entry) or command
    return shlex.join(command[: len(command) - len(inner) + 1]) + (" …" if len(inner) > 1 else "")


def _say(text: str) -> None:
    """Print what may hold texts of a file that is not the user's."""
    print(visible(text))
