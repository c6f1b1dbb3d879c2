"""`upstream prepare`: fetches the package of a server that a package runner starts.

The installer and the install scripts of packages run as a command that writes one new folder, and reaches the
hosts of the package manager, those that the command of the server names, and those of `--allow-domain`.
"""

import json
import os
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import anyio

from mcp_toolserver.app.confinement import broker_policy, require_sandbox
from mcp_toolserver.app.wrap import policy_of
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.command_line import Invocation
from mcp_toolserver.commands.doctor.package_hosts import hosts_of, named_hosts
from mcp_toolserver.errors import SettingsError, Unavailable
from mcp_toolserver.gateway.prepared import RECORD, Launch, PreparedPackage, launch_of
from mcp_toolserver.gateway.server_process import OWNER, ErrorRelay
from mcp_toolserver.gateway.upstream_file import read_upstreams
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.runtime.processes.broker_client import Broker, start_standalone_broker
from mcp_toolserver.runtime.processes.connections import Connections
from mcp_toolserver.runtime.processes.interactive import start_interactive
from mcp_toolserver.settings import Settings
from mcp_toolserver.stores.audit_log import AuditContext, AuditLog
from mcp_toolserver.stores.disk import PREPARED_FOLDER, remove_tree
from mcp_toolserver.stores.file_lock import locked
from mcp_toolserver.stores.pins import NAME, Pins
from mcp_toolserver.stores.state_dir import make_state_folder, private_folder, replace_file, state_folder
from mcp_toolserver.text.lines.escape_invisible import visible

_SECONDS = 900.0
_MOST_PRINTED = 1 << 16

_SCRIPT = r"""
export PATH="$PATH:$PWD/bin" npm_config_cache="$PWD/cache" npm_config_update_notifier=false
export UV_CACHE_DIR="$PWD/cache" UV_TOOL_DIR="$PWD/tools" UV_TOOL_BIN_DIR="$PWD/bin" UV_COMPILE_BYTECODE=1
if [ "$0" = uv ]; then
    uv tool install "$@" >&2 && uv tool list | sed 's/^- //'
else
    npm install --prefix "$PWD" --install-links --no-audit --no-fund --loglevel=error "$@" >&2 && node -e '
const [first] = Object.keys(require("./package.json").dependencies)
const { name, version, bin = {} } = require(`./node_modules/${first}/package.json`)
const own = name.replace(/.*\//, ""), all = typeof bin === "string" ? [own] : Object.keys(bin)
const isOne = all.includes(own) || new Set(Object.values(bin)).size === 1
console.log([`${name} ${version}`, ...(isOne ? [all.includes(own) ? own : all[0]] : all)].join("\n"))' &&
    ln -s node_modules/.bin bin
fi && rm -rf cache
"""
"""Installs packages in the current folder by `$0`, and prints the name and version of one, then its programs,
which are in `bin`: with npm the one that npx runs, or all where it runs none."""


def prepare(invocation: Invocation, found: HostExecutables, environ: Mapping[str, str]) -> int:
    """Run the command; exit status 1 if the package cannot be prepared.

    Raises:
        SettingsError: the name is wrong, or no command of the server is known.
    """
    name, settings = invocation.server, invocation.settings
    if not NAME.fullmatch(name):
        raise SettingsError(f"name the server: {name!r} must have 1 to 64 of A-Z a-z 0-9 _ . -, and no __")
    state = make_state_folder(state_folder(settings.state_dir))
    command = invocation.command or _known_command(invocation, state, environ)
    if not command:
        raise SettingsError(f"the command of {name} is not known; put it after --")
    try:
        if (launch := launch_of(command)) is None:
            print(f"{name}: nothing to prepare, because {command[0]} fetches no package")
            return 0
        hosts = (*(hosts_of(launch.installer, environ) or ()), *named_hosts(" ".join(launch.words)))
        settings = replace(
            settings,
            permission_mode=Permission.WORKSPACE_WRITE,
            network="hosts",
            allow_domain=(*hosts, *settings.allow_domain),
        )
        print(f"{name} is prepared: {_prepared(settings, found, name, launch)}")
    except (SettingsError, Unavailable, OSError) as error:
        why = str(error) or f"that takes longer than {_SECONDS:.0f} s"
        sys.stderr.write(f"mcp-toolserver: {name} is not prepared: {why}\n")
        return 1
    return 0


def _known_command(invocation: Invocation, state: str, environ: Mapping[str, str]) -> Sequence[str]:
    """That of the file of servers, else the one that started the server last; empty without one."""
    if file := invocation.settings.upstreams:
        for one in read_upstreams(file, environ, os.path.expanduser("~")):
            if one.name == invocation.server and one.command:
                return (one.command, *one.args)
    record = Pins(state, invocation.server).load()
    return record.command if record else ()


def _prepared(settings: Settings, found: HostExecutables, name: str, launch: Launch) -> str:
    """Install into a new folder, which is used from when all is done; returns what. The former one stays
    until the next time, for a server that runs."""
    state = state_folder(settings.state_dir)
    folder = private_folder(private_folder(state, PREPARED_FOLDER), name)
    lock = os.open(f"{folder}/lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(lock, "rb"), locked(lock):
        used = "".join(PreparedPackage(state, name).load()[:1]).partition("/")[0]
        for entry in [*os.scandir(folder)]:
            if entry.is_dir(follow_symlinks=False) and entry.name != used:
                remove_tree(entry.path)
        new = f"{folder}/{secrets.token_hex(8)}"
        os.mkdir(new, 0o700)
        try:
            fetching = replace(settings, root=(new,))
            with closing(start_standalone_broker(broker_policy(fetching, found))) as broker:
                require_sandbox(fetching, broker.proof)
                policy_of(fetching, broker, found)
                installed, *programs = anyio.run(_install, broker, state, new, name, launch)
            program = f"{os.path.basename(new)}/bin/{_program(launch, programs)}"
            if not os.path.lexists(f"{folder}/{program}"):
                raise Unavailable(f"{installed} has no program {os.path.basename(program)}")
            replace_file(f"{folder}/{RECORD}", json.dumps([program, *launch.words]))
        except BaseException:
            remove_tree(new)
            raise
    return installed


def _program(launch: Launch, programs: list[str]) -> str:
    """The name of the program to run. Raises: Unavailable: which one is not clear."""
    package = re.split(r"[@=<>~!\[]", launch.words[-1])[0]
    names = [launch.program] if launch.program else [package] if package in programs else programs
    if len(names) != 1 or "/" in names[0]:
        raise Unavailable(f"the package has no program of its own name, but {', '.join(names) or 'none'}")
    return names[0]


async def _install(broker: Broker, state: str, folder: str, name: str, launch: Launch) -> list[str]:
    """Run the installer in `folder`; returns the lines that it printed. Raises: Unavailable: it failed."""
    owner, printed = f"{OWNER} {name}", b""
    cwd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    context = AuditContext(mode=Permission.WORKSPACE_WRITE.flag, layers={})
    with closing(AuditLog(state, context)) as log, anyio.fail_after(_SECONDS):
        connections = Connections(broker.report_connections(), log.add)
        connections.watch(owner)
        argv = ("sh", "-c", _SCRIPT, launch.installer, *launch.arguments)
        process = await start_interactive(broker, argv, cwd=cwd, owner=owner)
        try:
            process.stdin.close()
            process.on_stderr(ErrorRelay(name).take)
            while data := await process.read():
                printed = (printed + data)[:_MOST_PRINTED]
            ended = await process.wait()
        finally:
            await process.end()
        if ended.status != 0:
            why = (f"{launch.installer} ended with {ended.status}.", *connections.refusals(owner, 0))
            raise Unavailable(" ".join(why))
    return visible(printed.decode(errors="replace")).splitlines()
