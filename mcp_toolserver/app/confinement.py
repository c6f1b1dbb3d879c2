"""What the settings ask of the kernel: a sandbox for commands, and a lock on the server's own process.

Imported before the broker is forked, so it is light.
"""

import os
import sys
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from mcp_toolserver.capabilities.permissions import Permission, ServerLock
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.runtime.descriptor_path import descriptor_path
from mcp_toolserver.runtime.executables import HostExecutables, find_host_executables
from mcp_toolserver.runtime.processes.broker_client import Broker, BrokerPolicy, Proof
from mcp_toolserver.runtime.sandbox.broker.limit_settings import CommandBounds
from mcp_toolserver.runtime.sandbox.broker.policy import Helper
from mcp_toolserver.runtime.sandbox.layers.environment import (
    CERTIFICATES,
    command_environment,
    proxy_variables,
)
from mcp_toolserver.runtime.sandbox.layers.spec import PROXY_PORT, SandboxSpec
from mcp_toolserver.runtime.sandbox.proxy.allowed_hosts import AllowedHosts
from mcp_toolserver.runtime.search.executable import command_variables
from mcp_toolserver.runtime.web.options import checked_key, key_files, read_key
from mcp_toolserver.runtime.which import is_inside
from mcp_toolserver.settings import Settings
from mcp_toolserver.stores.state_dir import make_state_folder, state_folder

MIB = 1 << 20


def check(settings: Settings) -> None:
    """Refuse what contradicts itself.

    Raises:
        SettingsError: the settings require a sandbox in a mode without one, or none in a mode
            that needs one.
    """
    full = settings.permission_mode is Permission.DANGER_FULL_ACCESS
    confining = {
        "--sandbox required": settings.sandbox == "required",
        "--network none": settings.network == "none",
        "--network hosts": settings.network == "hosts",
    }
    for option, is_given in confining.items():
        if full and is_given:
            raise SettingsError(
                f"{option} cannot be kept in danger-full-access, where commands run without a sandbox; "
                "use --permission-mode read-only or workspace-write"
            )
    if not full and settings.sandbox == "off":
        raise SettingsError(
            f"--sandbox off takes away what keeps {settings.permission_mode.flag}; use auto or required, "
            "or --permission-mode danger-full-access"
        )
    if (settings.network == "hosts") != bool(settings.allow_domain):
        raise SettingsError(
            "--network hosts and --allow-domain NAME belong together: name the hosts that commands may reach"
        )
    secret = settings.agent_key_variable
    if secret and any(fnmatchcase(secret, shown) for shown in settings.command_environment):
        raise SettingsError(
            f"command-environment would show commands {secret}, which has the key of the model ([agent] "
            "key-variable); name fewer variables"
        )


def host_executables(settings: Settings) -> HostExecutables:
    """See `find_host_executables`."""
    return find_host_executables(os.environ, settings.root)


def broker_policy(settings: Settings, found: HostExecutables) -> BrokerPolicy:
    """What the broker holds constant."""
    full = settings.permission_mode is Permission.DANGER_FULL_ACCESS
    environment = command_environment(
        os.environ,
        settings.command_environment,
        network=full or settings.network in ("commands", "hosts"),
    )
    if settings.network == "hosts":
        # After what the operator passes on, because no other proxy can be reached.
        direct = AllowedHosts.of(settings.allow_domain).unlisted_loopback
        environment |= proxy_variables(f"http://127.0.0.1:{PROXY_PORT}", direct)
    return BrokerPolicy(
        sandbox=sandbox(settings),
        environment={**environment, **command_variables(environment["PATH"], found.ripgrep)},
        helpers=(*found.helpers, *_hook_helpers(settings, environment["PATH"])),
        bounds=command_bounds(settings),
    )


def _hook_helpers(settings: Settings, path: str) -> Iterator[Helper]:
    """The broker rules for hooks, which run nothing that lies in a root."""
    if not settings.hooks.each:
        return
    roots = wanted_roots(settings)
    own = {"PATH": ":".join(entry for entry in path.split(":") if not is_inside(entry, roots))}
    if is_inside(os.path.expanduser("~"), roots):
        # Interpreters load code from there.
        own["HOME"] = "/"
    for hook in settings.hooks.each:
        places = tuple(word for word in hook.command[1:] if os.path.isabs(word) and os.path.isfile(word))
        yield Helper(argv=hook.command, reach="system", places=places, environment=own)


def sandbox(settings: Settings) -> SandboxSpec:
    roots = wanted_roots(settings)
    keys = (*key_files(settings.web_search_keys).values(), settings.agent_key_file, settings.policy)
    secrets = (settings.config, settings.token_file, settings.tokens, settings.upstreams, *keys)
    return SandboxSpec(
        mode=settings.permission_mode.flag,
        roots=roots,
        read_only=tuple(map(_as_stored, settings.read_only_roots)),
        home=_as_stored(os.path.realpath(os.path.expanduser("~"))),
        state=_as_stored(state_folder(settings.state_dir)),
        hidden=tuple(_as_stored(os.path.realpath(file)) for file in secrets if file),
        network=settings.network == "commands",
        certificates=tuple(
            path for one in CERTIFICATES if os.path.isfile(path := os.path.realpath(os.environ.get(one, "/")))
        ),
        hosts=settings.allow_domain if settings.network == "hosts" else (),
        git_writable=settings.git == "writable",
        writable_names=settings.writable_name,
        allow_degraded=settings.allow_degraded,
        quarantine_bytes=settings.quarantine_size * MIB,
        programs=_programs(settings.permission_mode, roots),
    )


def agent_key(settings: Settings) -> str:
    """The key of the model of agents; empty without one.

    Raises:
        SettingsError: it is named twice, or is missing or malformed; the message never quotes it.
    """
    file, variable = settings.agent_key_file, settings.agent_key_variable
    if file and variable:
        raise SettingsError("[agent]: give key-file or key-variable, not both")
    if file:
        return read_key(file, "[agent] key-file")
    if not variable:
        return ""
    return checked_key(os.environ.get(variable, ""), f"[agent] key-variable: {variable}")


def _model_port(settings: Settings) -> int | None:
    """The port of a model on loopback, the one place to which a server without a network connects."""
    from mcp_toolserver.runtime.models.model import endpoint

    provider = settings.agent_provider
    return endpoint(provider, settings.agent_base_url, has_key=False).port if provider else None


def _as_stored(path: str) -> str:
    """`path`, which has no links, as the file system spells it: by that name macOS judges a file.

    What does not exist keeps its spelling below the last folder that does. On other systems a file has one
    spelling.
    """
    if sys.platform != "darwin" or path == "/":
        return path
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return os.path.join(_as_stored(os.path.dirname(path)), os.path.basename(path))
    try:
        return descriptor_path(descriptor)
    except (OSError, ImportError):
        # Without F_GETPATH the spelling is unknown. The self-test tries another case of names.
        return path
    finally:
        os.close(descriptor)


def _programs(mode: Permission, roots: tuple[str, ...]) -> tuple[str, ...]:
    """The programs that may put a command in a sandbox, the best first."""
    if sys.platform == "darwin":
        from mcp_toolserver.runtime.sandbox.layers import seatbelt

        return (seatbelt.SANDBOX_EXEC,) if os.access(seatbelt.SANDBOX_EXEC, os.X_OK) else ()
    if sys.platform != "linux":
        return ()
    # It builds on what only Linux has.
    from mcp_toolserver.runtime.sandbox.layers import bubblewrap

    # Where nothing can be written, a root may hold the environment that this very process was started from.
    installed = os.path.realpath(sys.prefix) if mode is Permission.READ_ONLY else ""
    return bubblewrap.candidates(os.environ.get("PATH", ""), roots, installed=installed)


def wanted_roots(settings: Settings) -> tuple[str, ...]:
    """The roots, absolute, links resolved; not looked at yet."""
    return tuple(dict.fromkeys(map(os.path.realpath, settings.root)))


def command_bounds(settings: Settings) -> CommandBounds:
    usual = CommandBounds()
    return CommandBounds(
        processes=settings.command_processes,
        memory=settings.command_memory * MIB or usual.memory,
        cpu_seconds=settings.command_cpu_seconds or usual.cpu_seconds,
        file_size=settings.command_file_size * MIB,
    )


def ssh_agent() -> Mapping[str, str]:
    """The variables by which ssh finds the user's agent, which commands do not get."""
    return {name: os.environ[name] for name in ("SSH_AUTH_SOCK",) if os.environ.get(name)}


def back_up_histories(broker: Broker, settings: Settings, git: str | None, roots: Sequence[str]) -> None:
    """Have `broker` copy the git histories in `roots`, for its user, before commands that may write them."""
    may_write = settings.permission_mode is Permission.DANGER_FULL_ACCESS or (
        settings.permission_mode is Permission.WORKSPACE_WRITE and settings.git == "writable"
    )
    if not (git and may_write and settings.history_size):
        return

    def back_up(owner: str) -> Awaitable[list[str]]:
        # The first command that may write needs them.
        from mcp_toolserver.runtime.git.backup import GitBackups
        from mcp_toolserver.runtime.git.runner import Git
        from mcp_toolserver.runtime.processes.helper_launcher import Programs
        from mcp_toolserver.stores.git_backups import BackupLimits

        limits = BackupLimits(
            total=settings.history_size * MIB,
            seconds=settings.undo_days * 86400.0,
            reserve=settings.disk_reserve * MIB,
        )
        runner = Git(Programs(broker), git, os.path.expanduser("~"))
        backups = GitBackups(runner, state_folder(settings.state_dir), broker.user, roots, limits)
        broker.back_up = backups.before_command
        return backups.before_command(owner)

    broker.back_up = back_up


def require_sandbox(settings: Settings, proof: Proof | None) -> None:
    """Hold the operator's `--sandbox required`.

    Raises:
        SettingsError: the sandbox of commands was not proven, or something in a root defeats it.
    """
    if proof is not None and proof.stop:
        raise SettingsError(proof.stop)
    if settings.network == "hosts" and (proof is None or not proof.shares_session):
        why = "; ".join(proof.reasons) if proof else f"there is no sandbox on {sys.platform}"
        raise SettingsError(
            "--network hosts needs bubblewrap and network namespaces that the commands of a session share, "
            f"and they do not work here: {why}. Use --network fetch or --network commands"
        )
    if settings.sandbox == "required" and (proof is None or proof.commands == "none"):
        why = "; ".join(proof.reasons) if proof else f"there are none on {sys.platform}"
        raise SettingsError(f"--sandbox required: commands cannot be confined here: {why}")


def lock_server(settings: Settings) -> ServerLock:
    """Confine this process, which must have one thread, to what its mode needs; it cannot be undone.

    Returns what holds it.

    Raises:
        SettingsError: the kernel cannot, and the operator did not allow to serve without.
    """
    # Only a confined mode needs these.
    from mcp_toolserver.runtime.sandbox.layers import kernel, process_locks

    mode = settings.permission_mode
    if sys.platform == "linux":
        # What this process knows, such as the token, is not for others of the same user to read.
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    if mode is Permission.DANGER_FULL_ACCESS or sys.platform not in ("linux", "darwin"):
        return 0
    roots = wanted_roots(settings)
    state = make_state_folder(state_folder(settings.state_dir))
    written = (root for root in roots if root not in settings.read_only_roots)
    writes = (state, *written) if mode is Permission.WORKSPACE_WRITE else (state,)
    network = settings.network != "none"
    files = map(os.path.realpath, (*settings.tool_files, *settings.skills))
    # A changed file of tokens is a new file in this folder.
    tokens = (os.path.dirname(os.path.realpath(settings.tokens)),) if settings.tokens else ()
    places = [settings.agent_key_file]
    if network:
        # What the web tools and the client of the model read outside the system's folders.
        trusted = (os.environ.get(name, "") for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"))
        places += (
            *key_files(settings.web_search_keys).values(),
            *(os.path.realpath(p) for p in trusted if p),
        )
    reads = (state, *roots, *files, *tokens, *filter(None, places))
    try:
        if sys.platform == "darwin":
            import tempfile

            from mcp_toolserver.runtime.sandbox.layers import seatbelt_server

            # Behind its lock this process writes in no other folder; see `anonymous_file`.
            tempfile.tempdir = state
            seatbelt_server.lock_server(
                seatbelt_server.ServerProfile(
                    mode=mode.flag,
                    reads=reads,
                    writes=writes,
                    network=network,
                    port=_model_port(settings),
                    listens=settings.transport != "stdio",
                )
            )
            return "seatbelt"
        return process_locks.lock_server(
            mode=mode.flag, reads=reads, writes=writes, network=network, port=_model_port(settings)
        )
    except process_locks.LockError as error:
        if not settings.allow_unconfined_server:
            raise SettingsError(
                f"the server's own process cannot be confined here: {error}; "
                "--allow-unconfined-server serves all the same (see mcp-toolserver doctor)"
            ) from None
        sys.stderr.write(f"mcp-toolserver: the server's own process is not confined: {error}\n")
        return 0
