"""Seatbelt, the sandbox of macOS: the profile of one program, and the arguments of `sandbox-exec`.

Everything is denied that no rule allows. Of the rules that match an operation the last decides, so what must
not be lifted comes at the end. Paths are parameters, so no path can end a string and begin a rule. The kernel
names a file by the path that it has, links resolved, so all paths must be the ones that F_GETPATH gives.

Each rule names its reason, which docs/internals/seatbelt.md explains with its source. No rule was ever executed on
macOS: tests read the profile as text, and the self-test tries it where it runs.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from mcp_toolserver.runtime.sandbox.broker.policy import READ_ONLY, UNCONFINED, SandboxPlan
from mcp_toolserver.runtime.sandbox.layers.seatbelt_names import (
    Pattern,
    git_of_commands,
    git_of_helpers,
    whole_git,
    whole_names,
)
from mcp_toolserver.runtime.sandbox.mounts.secret_paths import credentials
from mcp_toolserver.text.path_syntax import lies_in

SANDBOX_EXEC = "/usr/bin/sandbox-exec"

LONGEST_ARGUMENTS = 700_000
"""Bytes. macOS passes 1 MiB of arguments and environment together (ARG_MAX in <sys/syslimits.h>)."""

SYSTEM = ("/", "/usr", "/bin", "/sbin", "/System", "/Library", "/private", "/private/var", "/private/etc")
"""Without them no command runs."""

TEMPORARY_FOLDERS = ("/private/tmp", "/private/var/tmp", "/private/var/folders")
"""Of the machine; /tmp and /var are links to the first and to /private/var."""

LIBRARIES = (
    *("/usr/lib", "/usr/share", "/System/Library", "/System/Cryptexes", "/Library/Apple"),
    *("/System/Volumes/Preboot/Cryptexes", "/private/var/db/dyld", "/private/var/db/timezone"),
    *("/opt/homebrew", "/usr/local", "/opt/local", "/nix/store"),
)
"""What starts a program: the loader's and the system's files, and where package managers install."""

PASSAGES = ("/", "/dev", "/etc", "/private", "/private/var", "/usr", "/var")
"""Folders, and links to folders, on the way to what every program reads."""

_ACCOUNTS = ("com.apple.system.opendirectoryd.libinfo", "com.apple.system.opendirectoryd.membership")
_LOOKUP = (
    *("com.apple.SystemConfiguration.configd", "com.apple.SystemConfiguration.DNSConfiguration"),
    *("com.apple.dnssd.service", "com.apple.trustd.agent"),
)
_RESOLVER = "/private/var/run/mDNSResponder"

_FACTS = (
    *("kern.argmax", "kern.boottime", "kern.clockrate", "kern.hostname", "kern.iossupportversion"),
    *("kern.maxfiles", "kern.maxfilesperproc", "kern.maxproc", "kern.maxprocperuid", "kern.ngroups"),
    *("kern.osproductversion", "kern.osrelease", "kern.ostype", "kern.osvariant_status"),
    *("kern.osversion", "kern.secure_kernel", "kern.usrstack64", "kern.version"),
    *("sysctl.proc_cputype", "sysctl.proc_native", "sysctl.proc_translated", "vm.loadavg"),
)
_FACTS_BELOW = ("hw.", "machdep.cpu.")

_DENIED = (
    *("lsopen", "job-creation", "signal", "sysctl-read"),
    *("mach-task-name", "mach-priv-task-port", "mach-register", "nvram*", "iokit-get-properties"),
    *("ipc-posix-shm*", "file-link", "file-clone"),
)

_SHELLS = ("/bin/sh", "/bin/bash", "/bin/dash", "/bin/zsh", "/private/var/select/sh")
"""/bin/sh starts one of the others, to which the last is a link."""

_READ_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")

_USES = "file-read* file-write* network-outbound network-bind"

_SEEN = ("shown", "written")
"""The reasons of rules that show something; those of the others hide."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One form of a profile."""

    why: str
    """Its reason, by the name in the table of docs/internals/seatbelt.md."""
    text: str


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A profile, and the paths that it names by parameters."""

    rules: tuple[Rule, ...]
    parameters: Mapping[str, str]

    @property
    def text(self) -> str:
        """The rules in the language of Seatbelt."""
        return "\n".join(rule.text for rule in self.rules)


@dataclass(frozen=True)
class Paths:
    """Gives each path a parameter."""

    names: dict[str, str] = field(default_factory=dict[str, str])
    """By path."""

    @property
    def parameters(self) -> Mapping[str, str]:
        """The paths by name."""
        return {name: path for path, name in self.names.items()}

    def subpath(self, path: str) -> str:
        """The filter for `path` and all below it."""
        return f"(subpath {self._named(path)})"

    def literal(self, path: str) -> str:
        """The filter for `path` alone."""
        return f"(literal {self._named(path)})"

    def _named(self, path: str) -> str:
        name = self.names.setdefault(path, f"PATH_{len(self.names)}")
        return f'(param "{name}")'


def arguments(
    plan: SandboxPlan, argv: Sequence[str], *, temporary: str, cwd: str, hidden: Sequence[str] = ()
) -> tuple[str, ...]:
    """The argument list that runs `argv` in the sandbox of `plan`, whose `program` is sandbox-exec.

    `temporary` is the folder for temporary files of the command or its session, `cwd` the folder that it is
    started in, `hidden` what rules hide from it: all absolute, with links resolved.

    Raises:
        ValueError: there is no sandbox in this mode; a path is not absolute or holds a null character; the
            client works in a part of a root without which no command runs; or the paths are too many or too
            long to pass. The text says which.
    """
    made = profile(plan, argv, temporary=temporary, cwd=cwd, hidden=hidden)
    defined = (f"-D{name}={path}" for name, path in made.parameters.items())
    words = (plan.program, "-p", made.text, *defined, "--", *argv)
    length = sum(len(os.fsencode(word)) + 1 for word in words)
    if length > LONGEST_ARGUMENTS:
        raise ValueError(
            f"the sandbox takes {length:,} bytes of arguments, of which macOS passes {LONGEST_ARGUMENTS:,}: "
            "hide whole folders (`folder/**`), or give the server fewer roots"
        )
    return words


def profile(
    plan: SandboxPlan, argv: Sequence[str], *, temporary: str, cwd: str, hidden: Sequence[str] = ()
) -> Profile:
    """The profile of `plan` for the program `argv`.

    Raises:
        ValueError: as for `arguments`, but for the length.
    """
    _check(plan, (temporary, cwd, *hidden))
    paths = Paths()
    if plan.helper is not None and plan.helper.reach == "folder":
        rules = tuple(_searching(plan, paths, argv, cwd))
    else:
        rules = tuple(_running(plan, paths, argv, temporary, hidden))
    return Profile(rules=rules, parameters=paths.parameters)


def _check(plan: SandboxPlan, given: Iterable[str]) -> None:
    sandbox = plan.sandbox
    if sandbox.mode == UNCONFINED:
        raise ValueError(f"{UNCONFINED} has no sandbox")
    own = (*sandbox.roots, sandbox.state, *sandbox.hidden, *plan.shown_roots, *plan.writes)
    for path in (*own, *given):
        if not path.startswith("/") or "\0" in path:
            raise ValueError(
                f"{path!r} cannot be in a sandbox: a path must be absolute, without null characters"
            )
    for root in sandbox.roots:
        if root not in plan.shown_roots and root in SYSTEM:
            raise ValueError(
                f"The root {root} holds the system, so a command cannot be kept to the part of it that the "
                "client works in. Start the server with that folder as --root."
            )


# --- commands, and helpers that read what commands read --------------------------------------------------


def _running(
    plan: SandboxPlan, paths: Paths, argv: Sequence[str], temporary: str, hidden: Sequence[str]
) -> Iterator[Rule]:
    views = _views(plan, temporary, hidden)
    yield from basics()
    yield Rule(why="programs", text="(allow process-exec)")
    yield Rule(
        why="semaphores",
        text='(allow ipc-posix-sem (ipc-posix-name-regex #"^/mp-"))',
    )
    yield Rule(why="local sockets", text="(allow system-socket (socket-domain AF_UNIX))")
    if plan.sandbox.network:
        yield Rule(why="network", text="(allow network-outbound (remote ip))")
        yield Rule(why="network", text="(allow network-inbound (local ip))")
        yield Rule(why="network", text="(allow network-bind (local ip))")
        yield from name_lookup()
    yield Rule(why="reading", text="(allow file-read*)")
    yield from _views_as_rules(paths, views)
    yield from _devices()
    yield from _own_places(plan, paths, argv)
    yield from _passages(paths, views)
    yield from _protected(plan, paths, [path for path, why in views.items() if why == "written"])
    yield from _pins(paths, views)
    # A rule without a filter is the default of its operation wherever it stands.
    yield Rule(why="setuid", text='(deny file-write-setugid (subpath "/"))')


def basics() -> Iterator[Rule]:
    """What every profile begins with."""
    yield Rule(why="language", text="(version 1)")
    yield Rule(why="default", text="(deny default)")
    yield Rule(why="apple events", text="(deny appleevent-send)")
    yield Rule(why="explicit", text=f"(deny {' '.join(_DENIED)})")
    yield Rule(why="processes", text="(allow process-fork)")
    yield Rule(why="own processes", text="(deny process-info*)")
    yield Rule(why="own processes", text="(allow process-info* (target same-sandbox))")
    yield Rule(why="own processes", text="(allow signal (target same-sandbox))")
    yield Rule(why="code", text="(allow file-map-executable)")
    yield Rule(
        why="system facts",
        text=_rule(
            "allow sysctl-read",
            (
                *(f'(sysctl-name "{name}")' for name in _FACTS),
                *(f'(sysctl-name-prefix "{prefix}")' for prefix in _FACTS_BELOW),
            ),
        ),
    )
    yield Rule(why="accounts", text=_services(_ACCOUNTS))


def name_lookup() -> Iterator[Rule]:
    """What looking up a name takes."""
    yield Rule(why="name lookup", text=_services(_LOOKUP))
    yield Rule(why="name lookup", text=f'(allow network-outbound (literal "{_RESOLVER}"))')


def _devices() -> Iterator[Rule]:
    yield from plain_devices()
    yield Rule(why="terminals", text="(allow pseudo-tty)")
    yield Rule(why="terminals", text='(allow file-read* file-write-data file-ioctl (literal "/dev/ptmx"))')
    yield Rule(
        why="terminals",
        text="(allow file-read* file-write-data file-ioctl (require-all "
        '(regex #"^/dev/ttys[0-9]+$") (extension "com.apple.sandbox.pty")))',
    )


def plain_devices() -> Iterator[Rule]:
    """The devices that hold nothing."""
    places = " ".join(f'(literal "{device}")' for device in _READ_DEVICES)
    yield Rule(why="plain devices", text=f'(allow file-read* (literal "/dev") {places})')
    yield Rule(
        why="plain devices",
        text='(allow file-read* file-write-data (subpath "/dev/fd") (literal "/dev/stdin") '
        '(literal "/dev/stdout") (literal "/dev/stderr"))',
    )
    yield Rule(
        why="plain devices",
        text="(allow file-write-data (require-all (vnode-type CHARACTER-DEVICE) "
        '(require-any (literal "/dev/null") (literal "/dev/zero"))))',
    )


def _views(plan: SandboxPlan, temporary: str, hidden: Sequence[str]) -> Mapping[str, str]:
    """Why each path is hidden, shown or written, with all below it up to a deeper one of the mapping."""
    sandbox = plan.sandbox
    views = {"/dev": "devices", "/System/Volumes/Data": "second names"}
    views |= dict.fromkeys(TEMPORARY_FOLDERS, "temporary files of others")
    views |= dict.fromkeys((*credentials(sandbox.home), *sandbox.roots), "hidden")
    views |= dict.fromkeys(plan.shown_roots, "shown" if sandbox.mode == READ_ONLY else "written")
    views |= dict.fromkeys((sandbox.state, *sandbox.hidden, *hidden), "hidden")
    return views | dict.fromkeys((*plan.writes, temporary), "written")


def _views_as_rules(paths: Paths, views: Mapping[str, str]) -> Iterator[Rule]:
    """The deeper a path, the later its rule."""
    ordered = sorted(views.items(), key=lambda item: (item[0].rstrip("/").count("/"), item[1], item[0]))
    for why, group in groupby(ordered, key=lambda item: item[1]):
        filters = [paths.subpath(path) for path, _ in group]
        if why not in _SEEN:
            yield Rule(why=why, text=_rule(f"deny {_USES}", filters))
        else:
            yield Rule(
                why=why, text=_rule("allow file-read*" if why == "shown" else f"allow {_USES}", filters)
            )


def _own_places(plan: SandboxPlan, paths: Paths, argv: Sequence[str]) -> Iterator[Rule]:
    if plan.helper is not None:
        places = _program_places(plan, argv)
        yield Rule(why="own places", text=_rule("allow file-read*", map(paths.subpath, places)))


def _program_places(plan: SandboxPlan, argv: Sequence[str]) -> tuple[str, ...]:
    """A program of the server and its files, under the names given and those without links."""
    own = (plan.helper.argv[0], *plan.helper.places) if plan.helper else ()
    named = (argv[0], *own)
    return tuple(dict.fromkeys((*named, *map(os.path.realpath, named))))


def _passages(paths: Paths, views: Mapping[str, str]) -> Iterator[Rule]:
    """Folders in something hidden that lead to something seen: their metadata, and nothing else."""
    seen = [path for path, why in views.items() if why in _SEEN]
    above = {folder for path in seen for folder in _ancestors(path)}
    passages = sorted(folder for folder in above if _why(views, folder) not in (None, *_SEEN))
    folders = (*TEMPORARY_FOLDERS, *passages)
    yield Rule(why="paths", text=_rule("allow file-read-metadata", map(paths.literal, folders)))


def _ancestors(path: str) -> Iterator[str]:
    """The folders above `path`, without the top."""
    parts = path.split("/")
    return ("/".join(parts[:count]) for count in range(2, len(parts)))


def _why(views: Mapping[str, str], path: str) -> str | None:
    """What `views` say of `path`; None where they say nothing."""
    return next(
        (views[each] for each in (path, *reversed(list(_ancestors(path))), "/") if each in views), None
    )


def _protected(plan: SandboxPlan, paths: Paths, written: Sequence[str]) -> Iterator[Rule]:
    for pattern in whole_names(plan.sandbox.writable_names):
        yield from _denied(pattern, paths, written)
    commands_write_git = plan.sandbox.git_writable and plan.helper is None
    for pattern in git_of_commands() if commands_write_git else whole_git():
        yield from _denied(pattern, paths, written, except_in=plan.writes)
    for pattern in git_of_helpers() if plan.writes else ():
        yield from _denied(pattern, paths, written)


def _denied(
    pattern: Pattern, paths: Paths, written: Sequence[str], *, except_in: Sequence[str] = ()
) -> Iterator[Rule]:
    """Deny `pattern` everywhere but `except_in`. A place may itself lie in a folder of that name: there the
    name counts below the place."""
    usual = pattern.in_place("")
    others = [place for place in written if place not in except_in and pattern.in_place(place) != usual]
    left_out = " ".join(f"(require-not {paths.subpath(place)})" for place in (*others, *except_in))
    yield _denial(pattern, left_out, usual)
    for place in others:
        yield _denial(pattern, paths.subpath(place), pattern.in_place(place))


def _denial(pattern: Pattern, where: str, regex: str) -> Rule:
    kind = f"(vnode-type {pattern.kind})" if pattern.kind else ""
    filters = [part for part in (where, kind, f'(regex #"{regex}")') if part]
    matched = filters[0] if len(filters) == 1 else f"(require-all {' '.join(filters)})"
    return Rule(why=pattern.why, text=f"(deny {pattern.operations} {matched})")


def _pins(paths: Paths, views: Mapping[str, str]) -> Iterator[Rule]:
    """What is written, and the folders in it that lead to something hidden: moved, they would be neither."""
    written = [path for path, why in views.items() if why == "written"]
    ways = (folder for path in views for folder in _ancestors(path) if _why(views, folder) == "written")
    pinned = dict.fromkeys((*written, *ways))
    yield Rule(why="pins", text=_rule("deny file-write-unlink", map(paths.literal, pinned)))


# --- searches: helpers that read one folder --------------------------------------------------------------


def _searching(plan: SandboxPlan, paths: Paths, argv: Sequence[str], cwd: str) -> Iterator[Rule]:
    sandbox, places = plan.sandbox, _program_places(plan, argv)
    yield from basics()
    yield Rule(why="own programs", text=_rule("allow process-exec", map(paths.subpath, places)))
    shells = [f'(literal "{shell}")' for shell in _SHELLS]
    yield Rule(why="shell", text=_rule("allow process-exec file-read*", shells))
    yield from needed_to_start()
    yield Rule(why="searched folder", text=_rule("allow file-read*", (paths.subpath(cwd),)))
    hidden = (sandbox.state, *sandbox.hidden, *credentials(sandbox.home))
    inside = [path for path in hidden if lies_in(cwd, path) and path != cwd]
    if inside:
        yield Rule(why="hidden", text=_rule(f"deny {_USES}", map(paths.subpath, inside)))
    yield Rule(why="own places", text=_rule("allow file-read*", map(paths.subpath, places)))
    above = dict.fromkeys(folder for path in (cwd, *places) for folder in _ancestors(path))
    if above:
        yield Rule(why="paths", text=_rule("allow file-read-metadata", map(paths.literal, above)))


def needed_to_start() -> Iterator[Rule]:
    """What a program reads before its first line runs, if it may read little else."""
    yield Rule(why="start", text='(allow file-read-data (literal "/"))')
    places = (f'(subpath "{place}")' for place in LIBRARIES)
    yield Rule(why="start", text=_rule("allow file-read*", places))
    folders = (f'(literal "{folder}")' for folder in PASSAGES)
    yield Rule(why="paths", text=_rule("allow file-read-metadata", folders))
    yield from plain_devices()


# --- text ------------------------------------------------------------------------------------------------


def _services(names: Iterable[str]) -> str:
    return _rule("allow mach-lookup", (f'(global-name "{name}")' for name in names))


def _rule(head: str, filters: Iterable[str]) -> str:
    return f"({head} {' '.join(filters)})"
