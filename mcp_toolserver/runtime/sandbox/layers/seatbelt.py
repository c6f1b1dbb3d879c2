"""The sandbox for macOS: a Seatbelt profile, and the arguments of `sandbox-exec`.

Nothing uses this yet: commands are started by the broker, and there is none on macOS. The profile is tested
as text, on any system; no kernel has judged it.

Everything is denied that is not allowed. Of the rules that match, Seatbelt takes the last, so what must not
be lifted comes at the end. Paths are parameters, so no spelling of a path can end a string and begin a rule;
where a pattern has to begin with one, only letters that mean themselves stand in it.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from mcp_toolserver.runtime.sandbox.broker.policy import SandboxPlan
from mcp_toolserver.runtime.sandbox.layers.spec import SandboxSpec
from mcp_toolserver.runtime.sandbox.protected.names import GIT, IN_GIT_FOLDER, NAMES

SANDBOX_EXEC = "/usr/bin/sandbox-exec"
WRITING = "workspace-write"
UNCONFINED = "danger-full-access"

_SERVICES = (
    # Users and groups by name.
    "com.apple.system.opendirectoryd.libinfo",
    "com.apple.system.opendirectoryd.membership",
    # The C library asks it whether the time zone has changed.
    "com.apple.system.notification_center",
)
_NETWORK_SERVICES = (
    "com.apple.SystemConfiguration.configd",
    "com.apple.SystemConfiguration.DNSConfiguration",
)
_RESOLVER = "/private/var/run/mDNSResponder"
_ANYTHING = "[^/]*"
"""Not a dot, which may or may not stand for the end of a line."""

_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/dtracehelper")

_ALWAYS = """\
(version 1)
(deny default)
(deny appleevent-send)
(allow process-exec)
(allow process-fork)
(allow process-info* (target same-sandbox))
(allow signal (target same-sandbox))
(allow file-map-executable)
(allow sysctl-read)
(allow ipc-posix-sem)
(allow pseudo-tty)
(allow file-read* file-write* file-ioctl (literal "/dev/ptmx"))
(allow file-read* file-write* file-ioctl
  (require-all (regex #"^/dev/ttys[0-9]+$") (extension "com.apple.sandbox.pty")))"""

_NETWORK = f"""\
(allow network-outbound (remote ip) (literal "{_RESOLVER}"))
(allow network-inbound (local ip))
(allow network-bind (local ip))
(allow system-socket)"""


def profile(sandbox: SandboxSpec, *, protected: Sequence[str]) -> str:
    """The rules, in the language of Seatbelt; `parameters` are the paths in them.

    `protected` holds names such as `.git` or `.git/hooks`, which nobody writes at any depth of a root, in
    whatever case. A folder that a protected name has its place in is neither made, moved nor removed: else
    one made ready elsewhere could be put in its place.

    Raises:
        ValueError: there is no sandbox in this mode.
    """
    if sandbox.mode == UNCONFINED:
        raise ValueError(f"{UNCONFINED} has no sandbox")
    return "\n".join(
        (
            _ALWAYS,
            _rule("allow", "mach-lookup", (f'(global-name "{name}")' for name in _services(sandbox))),
            *((_NETWORK,) if sandbox.network else ()),
            _devices(),
            "(allow file-read*)",
            *_roots(sandbox, protected),
            *_hidden(sandbox),
            '(allow file-read* file-write* (subpath (param "TEMPORARY")))',
            *_protected(sandbox, protected),
            *_pins(sandbox),
        )
    )


def parameters(sandbox: SandboxSpec, *, temporary: str) -> Mapping[str, str]:
    """The paths that `profile` names, all absolute with links resolved; `temporary` is the command's own."""
    return {
        "TEMPORARY": temporary,
        **{f"ROOT_{index}": root for index, root in enumerate(_written(sandbox))},
        **{f"HIDDEN_{index}": path for index, path in enumerate(_masked(sandbox))},
        **{f"PIN_{index}": path for index, path in enumerate(_ancestors(sandbox))},
    }


def arguments(
    plan: SandboxPlan, argv: Sequence[str], *, temporary: str, cwd: str, hidden: Sequence[str] = ()
) -> tuple[str, ...]:
    """The argument list that runs `argv` in the sandbox of `plan`, whose `program` is sandbox-exec.

    `temporary` is the folder for temporary files of the command or its session, `cwd` the folder that it is
    started in, `hidden` what rules hide from it: all absolute, with links resolved.

    Raises:
        ValueError: as for `profile`.
    """
    del cwd  # A helper reads more than its folder until its profile is written.
    others = tuple(root for root in plan.sandbox.roots if root not in plan.shown_roots)
    sandbox = replace(plan.sandbox, roots=plan.shown_roots, hidden=(*plan.sandbox.hidden, *others, *hidden))
    inside = (f"{GIT}/{name}" for name in IN_GIT_FOLDER)
    protected = (*sorted(NAMES - {GIT}), *inside) if sandbox.git_writable else tuple(sorted(NAMES))
    named = (f"-D{name}={path}" for name, path in parameters(sandbox, temporary=temporary).items())
    return (plan.program, "-p", profile(sandbox, protected=protected), *named, "--", *argv)


def _services(sandbox: SandboxSpec) -> Iterator[str]:
    yield from _SERVICES
    if sandbox.network:
        yield from _NETWORK_SERVICES


def _devices() -> str:
    places = (f'(literal "{device}")' for device in _DEVICES)
    return (
        "(allow file-write-data file-ioctl\n"
        f"  (require-all (vnode-type CHARACTER-DEVICE) (require-any {' '.join(places)})))"
    )


def _written(sandbox: SandboxSpec) -> tuple[str, ...]:
    return sandbox.roots if sandbox.mode == WRITING else ()


def _masked(sandbox: SandboxSpec) -> tuple[str, ...]:
    return (sandbox.state, *sandbox.hidden)


def _roots(sandbox: SandboxSpec, protected: Sequence[str]) -> Iterator[str]:
    for index, root in enumerate(_written(sandbox)):
        # Left out of the permission as well as denied below: that does not hang on which rule is the last.
        kept = "".join(f" (require-not {_regex(_from(root) + _inside(name))})" for name in protected)
        yield f'(allow file-write*\n  (require-all (subpath (param "ROOT_{index}")){kept}))'


def _hidden(sandbox: SandboxSpec) -> Iterator[str]:
    for index, _ in enumerate(_masked(sandbox)):
        yield f'(deny file-read* file-write* (subpath (param "HIDDEN_{index}")))'


def _protected(sandbox: SandboxSpec, names: Sequence[str]) -> Iterator[str]:
    folders = sorted({folder for name in names for folder in _folders(name)})
    for root in _written(sandbox):
        for name in names:
            yield f"(deny file-write* {_regex(_from(root) + _inside(name))})"
        for folder in folders:
            yield f"(deny file-write-create file-write-unlink {_regex(_from(root) + _exactly(folder))})"
    # What is made here could be moved into a root, with all that is in it.
    for name in names:
        yield f'(deny file-write* (require-all (subpath (param "TEMPORARY")) {_regex(_inside(name))}))'


def _pins(sandbox: SandboxSpec) -> Iterator[str]:
    for index, _ in enumerate(_ancestors(sandbox)):
        yield f'(deny file-write-unlink (literal (param "PIN_{index}")))'


def _ancestors(sandbox: SandboxSpec) -> tuple[str, ...]:
    """The roots, and the folders between them and something hidden, which moved would be hidden no more."""
    found: dict[str, None] = dict.fromkeys(_written(sandbox))
    for path in _masked(sandbox):
        for root in _written(sandbox):
            start = f"{root.rstrip('/')}/"
            if path.startswith(start):
                parts = path[len(start) :].split("/")
                found.update((start + "/".join(parts[:count]), None) for count in range(1, len(parts)))
    return tuple(found)


def _rule(verdict: str, operations: str, filters: Iterator[str] | Sequence[str]) -> str:
    return "\n  ".join((f"({verdict} {operations}", *filters)) + ")"


# --- names, as regular expressions ------------------------------------------------------------------------


def _folders(name: str) -> Iterator[str]:
    """The folders that `name` lies in, as far as it names them."""
    parts = _parts(name)
    return ("/".join(parts[:count]) for count in range(1, len(parts)))


def _parts(name: str) -> list[str]:
    return [part for part in name.split("/") if part]


def _from(root: str) -> str:
    """What lies at any depth below `root`; an end of a path follows."""
    return f"^{''.join(f'/{_spelt(part, _letter)}' for part in _parts(root))}(/[^/]+)*"


def _inside(name: str) -> str:
    """What lies at `name` or below it."""
    return f"/{_any_case(name)}(/|$)"


def _exactly(name: str) -> str:
    return f"/{_any_case(name)}$"


def _any_case(name: str) -> str:
    return "/".join(_spelt(part, _letter_in_any_case) for part in _parts(name))


def _spelt(part: str, letter: Callable[[str], str]) -> str:
    # Anything twice is anything once, and matched in less time.
    return re.sub(rf"({re.escape(_ANYTHING)}){{2,}}", _ANYTHING, "".join(map(letter, part)))


def _letter_in_any_case(character: str) -> str:
    if character.isascii() and character.isalpha():
        return f"[{character.lower()}{character.upper()}]"
    return _letter(character)


def _letter(character: str) -> str:
    """Where a character cannot be written, anything may stand: that protects too much."""
    if character.isascii() and (character.isalnum() or character in "._- ~+@,=%#"):
        return f"[{character}]"
    return _ANYTHING


def _regex(pattern: str) -> str:
    return f'(regex #"{pattern}")'
