"""`doctor --report FILE`: writes one file that a user can attach to an issue.

The file is JSON in ASCII, so that an editor shows every character of it. It has no names, paths, addresses or
secrets: what comes from this machine as text passes the anonymizer, and settings are shown with their kind.
"""

import json
import os
import platform
import re
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from mcp_toolserver import __version__
from mcp_toolserver.commands.doctor.anonymizer import Anonymizer, Private
from mcp_toolserver.commands.doctor.doctor import LayerReport, Report, report
from mcp_toolserver.commands.doctor.facts import Facts, examine
from mcp_toolserver.commands.doctor.failure import Failure
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.invocation import Invocation
from mcp_toolserver.pipeline.registry import Registry, discover
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.settings import OPTIONS, TABLES, Option, Settings, Value
from mcp_toolserver.stores.state_dir import state_folder

DISTRIBUTION = "mcp-toolserver"

_ABOUT = (
    "Made by mcp-toolserver doctor --report. Placeholders such as <home> and <root 1> replace private names, "
    "paths, addresses and secrets. Read the file before you publish it."
)

_DETAILED = frozenset(
    {
        *("paths stay in the roots", "the server's own process", "commands", "network of commands"),
        *("temporary files of commands", "sockets outside the roots", "sockets of other programs"),
        *("nothing a command starts outlives it", "Landlock", "searches", "ripgrep", "git", "desktop"),
        *("output", "limits of a command", "limits of what is saved", "superuser", "container", "WSL"),
    }
)
"""Findings that are reported with their text. The others may quote rules, names of files or addresses: of
these the report says how they stand."""

_WORDS_OF_TOOLS = frozenset({"toolsets", "tools", "exclude-tools"})
"""Settings whose values are names of tools."""

_PRIVATE_NUMBERS = frozenset({"port"})

_INSTALLERS = ("pip", "uv", "poetry", "pdm", "conda")
"""What may be in the file INSTALLER of a package."""

_LONGEST_FILE = 65_536
"""Bytes of a secret file that are looked at for what must not appear in the report."""

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]


def write_report(
    invocation: Invocation, found: HostExecutables, environ: Mapping[str, str], *, broker: bool | Failure
) -> int:
    """Examine this machine, write the report to a new file, and say where it is.

    Args:
        broker: whether there is one, or why it did not start.

    Returns:
        The exit status of the command: 0, whatever the report says.

    Raises:
        SettingsError: the file exists or cannot be created.
    """
    file = Path(invocation.report).absolute()
    settings = invocation.settings
    anonymous = Anonymizer(private(settings, environ), resolved=os.path.realpath)
    _write(file, text_of(_content(settings, found, anonymous, broker=broker)))
    print(f"Wrote {file}")
    print(
        "Private names, paths, addresses and secrets are replaced. Read the file before you attach it to an "
        "issue: it shows what programs of this machine print."
    )
    return 0


def _write(file: Path, text: str) -> None:
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise SettingsError(f"--report: {file} exists; name a new file") from None
    except OSError as error:
        raise SettingsError(f"--report: cannot create {file}: {error.strerror}") from None
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        stream.write(text)


def text_of(content: Mapping[str, Json]) -> str:
    """The text of the file."""
    return json.dumps(content, indent=2) + "\n"


def _content(
    settings: Settings, found: HostExecutables, anonymous: Anonymizer, *, broker: bool | Failure
) -> Mapping[str, Json]:
    content: dict[str, Json] = {
        "about": _ABOUT,
        "version": __version__,
        "python": _python(),
        "system": _system(anonymous),
        "settings": dict(_settings(settings)),
        "missing programs": {name: anonymous(why) for name, why in found.missing.items()},
    }
    if isinstance(broker, Failure):
        return {**content, "broker": False, "failure": _failure(broker, anonymous)}
    content["broker"] = broker
    own = os.getpid()
    try:
        facts = examine(settings, found, broker=broker)
        said = report(facts)
    except Exception as error:  # noqa: BLE001 – the failure is what the maintainers need to see
        if os.getpid() != own:
            # A fork that was to test something must not write a report of its own.
            os._exit(1)
        return {**content, "failure": _failure(Failure.of(error), anonymous)}
    return {**content, **judged(facts, said, anonymous)}


def _failure(failure: Failure, anonymous: Anonymizer) -> Json:
    return {"error": failure.error, "message": anonymous(failure.message), "at": list(failure.at)}


# --- this machine ------------------------------------------------------------------------------------------


def _python() -> Json:
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "installed by": installer(Path(sys.prefix)),
    }


def installer(prefix: Path) -> str:
    """What installed this package, as far as a file says so; "unknown" otherwise.

    `uv tool` and `pipx` leave a receipt in the environment, Homebrew one in the keg of the formula. The file
    INSTALLER of the package is defined by the specification "Recording installed projects".

    Args:
        prefix: the Python environment, `sys.prefix`.
    """
    if (prefix / "uv-receipt.toml").is_file():
        return "uv tool"
    if (prefix / "pipx_metadata.json").is_file():
        return "pipx"
    if prefix.name == "libexec" and (prefix.parent / "INSTALL_RECEIPT.json").is_file():
        return "Homebrew"
    try:
        package = distribution(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"
    name = (package.read_text("INSTALLER") or "").strip()
    if name not in _INSTALLERS:
        return "unknown"
    source = json.loads(package.read_text("direct_url.json") or "{}")
    return f"{name}, editable" if source.get("dir_info", {}).get("editable") else name


def _system(anonymous: Anonymizer) -> Json:
    return {
        "name": platform.system(),
        "release": anonymous(platform.release()),
        "macOS": platform.mac_ver()[0],
        "architecture": platform.machine(),
        "C library": " ".join(platform.libc_ver()).strip(),
    }


def judged(facts: Facts, said: Report, anonymous: Anonymizer) -> dict[str, Json]:
    """What doctor found, without what is private."""
    return {
        "status": said.status,
        "summary": anonymous(said.summary),
        "mode": said.mode,
        "kernel": {
            "openat2": facts.openat2,
            "landlock": facts.abi,
            "landlock does not restrict": list(facts.missing),
            "landlock errata mended": list(facts.errata),
            "seccomp": anonymous(facts.filters) or "available",
            "switches that forbid user namespaces": list(facts.host.namespaces_forbidden),
            "programs of the sandbox": [anonymous(program) for program in facts.programs],
        },
        "machine": {
            "distributions": [anonymous(name) for name in facts.host.distributions],
            "container": facts.host.container,
            "limits of the container": list(facts.host.container_limits),
            "WSL": facts.host.wsl,
            "superuser": facts.host.root,
        },
        "roots": [
            {
                "name": f"<root {number}>",
                "file system": anonymous(root.file_system),
                "ignores case": root.ignores_case,
            }
            for number, root in enumerate(facts.roots, 1)
        ],
        "modes": [
            {
                "mode": one.mode,
                "layers": {what: anonymous(by) for what, by in one.layers.items()},
                "tests": {what: _tested(trial, anonymous) for what, trial in one.trials.items()},
            }
            for one in said.modes
        ],
        "findings": [
            {
                "what": anonymous(one.what),
                "standing": one.standing,
                **({"detail": anonymous(one.detail)} if one.what in _DETAILED else {}),
            }
            for one in said.findings
        ],
        "desktop": {
            "available": list(facts.desktop),
            "unavailable": {name: anonymous(why) for name, why in facts.no_desktop.items()},
        },
    }


def _tested(trial: LayerReport, anonymous: Anonymizer) -> Json:
    return {
        "layer": trial.layer,
        "held": trial.held,
        "checks": [
            {"name": anonymous(check.name), "held": check.held, "output": anonymous(check.seen)}
            for check in trial.checks
        ],
        "reasons": [anonymous(reason) for reason in trial.reasons],
    }


# --- settings ----------------------------------------------------------------------------------------------


def _settings(settings: Settings) -> Iterator[tuple[str, Json]]:
    tools = Registry(discover())
    known = frozenset({*tools.entries, *tools.toolsets, "lean", "default", "all"})
    for option in (*OPTIONS, *TABLES["rules"], *TABLES["agent"]):
        yield option.name, _shown(option, getattr(settings, option.attribute), known)


def _shown(option: Option, value: Value, known: frozenset[str]) -> Json:
    """A value that is one of a fixed set, a switch, a limit or a name of ours; of others, whether there is
    one."""
    if value is None or value in ((), ""):
        return "not set"
    if option.name in _WORDS_OF_TOOLS and isinstance(value, tuple):
        return [word if word in known else "<name>" for word in value]
    if option.choices:
        return next(text for text in option.choices if option.read(text) == value)
    if isinstance(value, (bool, int, float)) and option.name not in _PRIVATE_NUMBERS:
        return value
    if isinstance(value, tuple):
        return f"{len(value)} given"
    return "default" if value == option.default else "set"


# --- what is private ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _User:
    """Who runs this process, by the user database."""

    name: str = ""
    full_name: str = ""
    home: str = ""


def _user() -> _User:
    try:
        # Windows has no such module.
        import pwd

        entry = pwd.getpwuid(os.getuid())
    except (ImportError, KeyError):
        return _User()
    return _User(name=entry.pw_name, full_name=entry.pw_gecos.partition(",")[0], home=entry.pw_dir)


def private(settings: Settings, environ: Mapping[str, str]) -> Private:
    """Collect what must not appear in the report: of the user, the machine, the settings, the environment,
    the files of secrets and the git identity."""
    user = _user()
    home = environ.get("HOME", "")
    options = (*OPTIONS, *TABLES["rules"], *TABLES["agent"])
    places = [
        *((os.path.abspath(root), f"<root {number}>") for number, root in enumerate(settings.root, 1)),
        (state_folder(settings.state_dir), "<state>"),
        *((path, f"<{name}>") for name, path in _paths(settings)),
        (home, "<home>"),
        (user.home, "<home>"),
        (os.getcwd(), "<current folder>"),
        (sys.prefix, "<python>"),
        (str(Path(__file__).parents[2]), "<package>"),
        *((path, "<path>") for value in environ.values() for path in value.split(os.pathsep)),
    ]
    names = {environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER")}
    names |= {user.name, user.full_name, *re.findall(r"\w{3,}", user.full_name), os.path.basename(home)}
    hosts = {socket.gethostname(), platform.node(), *(environ.get(name, "") for name in ("HOST", "HOSTNAME"))}
    hosts |= {host.partition(".")[0] for host in hosts}
    given = [text for option in options for text in _texts(getattr(settings, option.attribute))]
    inner = [text for value in given for text in re.split(r"[()=]", value)]
    return Private(
        paths=[place for place in places if os.path.isabs(place[0])],
        names=[
            *((name, "<user>") for name in names),
            *((host, "<host>") for host in hosts),
            *((name, "<user>") for name in _git_identity(home, environ)),
        ],
        values=[
            *((word, "<secret>") for path in _secret_files(settings) for word in _words(path)),
            *((text, "<setting>") for text in (*given, *inner) if not os.path.isabs(text)),
            *((value, "<environment>") for value in environ.values() if not os.path.isabs(value)),
        ],
        public=_vocabulary(options),
    )


def _paths(settings: Settings) -> Iterator[tuple[str, str]]:
    """The paths in settings, each with the name of its setting; a relative path is made absolute."""
    if settings.config:
        yield "config", os.path.abspath(settings.config)
    for option in (*OPTIONS, *TABLES["agent"]):
        if option.expand is None or option.name == "root":
            continue
        for text in _texts(getattr(settings, option.attribute)):
            path = text if os.path.isabs(text) else text.rpartition("=")[2]
            yield option.name, os.path.abspath(path)


def _texts(value: Value) -> Sequence[str]:
    if isinstance(value, tuple):
        return value
    return (value,) if isinstance(value, str) and value else ()


def _vocabulary(options: Sequence[Option]) -> frozenset[str]:
    """The words of the product: a value that has only these tells nothing."""
    tools = Registry(discover())
    words = {*tools.entries, *tools.toolsets, "lean", "default", "all", "true", "false", "linux", "darwin"}
    for option in options:
        words |= {option.name, *option.choices, option.shown_default}
    return frozenset(word.lower() for word in words)


def _secret_files(settings: Settings) -> Iterator[str]:
    keys = (entry.partition("=")[2] for entry in settings.web_search_keys)
    yield from filter(None, (settings.token_file, settings.tokens, settings.agent_key_file, *keys))


def _words(path: str) -> Iterator[str]:
    """The words in a file of secrets; none if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(_LONGEST_FILE).decode(errors="replace")
    except OSError:
        return
    yield from re.findall(r"[^\s\"'=\[\],#]{4,}", text)


def _git_identity(home: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Names and addresses in the user's configuration of git."""
    config = environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    for path in (os.path.join(home, ".gitconfig"), os.path.join(config, "git/config")):
        try:
            text = Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        for value in re.findall(
            r"^\s*(?:name|email|user|signingkey)\s*=\s*\"?(.+?)\"?\s*$", text, re.IGNORECASE | re.MULTILINE
        ):
            yield from (value, *re.findall(r"[\w.+-]{3,}", value))
