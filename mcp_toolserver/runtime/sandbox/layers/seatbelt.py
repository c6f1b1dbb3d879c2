"""Seatbelt, the sandbox of macOS: the profile of one program, and the arguments of `sandbox-exec`.

Everything is denied that no rule allows. Of the rules that match an operation the last decides, so what must
not be lifted comes at the end. Paths are parameters, so no path can end a string and begin a rule. The kernel
names a file by the path that it has, links resolved, so all paths must be the ones that F_GETPATH gives.

`base.sbpl` has the rules that name no path of this machine, each with its reason and source;
docs/internals/seatbelt.md has those of the rules made here. No rule was ever executed on macOS: tests read
the profile as text, and the self-test tries it where it runs.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from pathlib import Path

from mcp_toolserver.runtime.sandbox.broker.policy import UNCONFINED, SandboxPlan
from mcp_toolserver.runtime.sandbox.layers.spec import credentials
from mcp_toolserver.runtime.sandbox.protected import names
from mcp_toolserver.text.file_names import lies_in

SANDBOX_EXEC = "/usr/bin/sandbox-exec"

LONGEST_ARGUMENTS = 700_000
"""Bytes. macOS passes 1 MiB of arguments and environment together (ARG_MAX in <sys/syslimits.h>)."""

SYSTEM = ("/", "/usr", "/bin", "/sbin", "/System", "/Library", "/private", "/private/var", "/private/etc")
"""Without them no command runs."""

TEMPORARY_FOLDERS = ("/private/tmp", "/private/var/tmp", "/private/var/folders")
"""Of the machine; /tmp and /var are links to the first and to /private/var."""

_USES = "file-read* file-write* network-outbound network-bind"

_SEEN = ("shown", "written", "read-only")
"""The views that show something; the others hide."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A profile, and the paths that it names by parameters."""

    rules: list[str] = field(default_factory=list[str])
    """Each is one form."""
    names: dict[str, str] = field(default_factory=dict[str, str])
    """The parameter of each path."""

    @property
    def text(self) -> str:
        return "\n".join(self.rules)

    def subpath(self, path: str) -> str:
        return f"(subpath {self._named(path)})"

    def literal(self, path: str) -> str:
        return f"(literal {self._named(path)})"

    def _named(self, path: str) -> str:
        name = self.names.setdefault(path, f"PATH_{len(self.names)}")
        return f'(param "{name}")'


@cache
def _sections() -> Mapping[str, list[str]]:
    """The rules of `base.sbpl`, each in one line without its comment."""
    sections: dict[str, list[str]] = {}
    rules: list[str] = []
    for line in Path(__file__).with_name("base.sbpl").read_text(encoding="ascii").splitlines():
        if line.startswith(";;; "):
            rules = sections.setdefault(line.removeprefix(";;; "), [])
        elif line.startswith("("):
            rules.append(line)
        elif line.startswith(" "):
            rules[-1] += f" {line.strip()}"
    return sections


def base(*sections: str) -> tuple[str, ...]:
    return tuple(rule for section in sections for rule in _sections()[section])


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
    defined = (f"-D{name}={path}" for path, name in made.names.items())
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
    made = Profile()
    if plan.reads_one_folder:
        made.rules.extend(_searching(plan, made, argv, cwd))
    else:
        made.rules.extend(_running(plan, made, argv, temporary, hidden))
    return made


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


# --- protected names as regular expressions ---------------------------------------------------------------
#
# They are matched as the blindest macOS volume compares names. Volumes may ignore case and Unicode form
# (APFS, HFS+); HFS+ also ignores invisible characters. A pattern holds ASCII only: any run of other bytes may
# stand between two letters, and for a letter that some other character folds to. That protects a few names
# too many and none too few.

_OTHER = "[^ -~]"
"""A byte that is no printable ASCII; never a slash."""

_FOLDED_TO = ("ff", "fi", "fl", "st", "k", "s")
"""Letters that one character outside ASCII folds to: ligatures, the Kelvin sign, the long s."""


@dataclass(frozen=True, kw_only=True)
class _Pattern:
    """Paths that end in a name, or lie below it."""

    regex: str
    """From the slash before the name; matches up to its end."""
    below: bool = True
    """Whether it matches what lies below, too."""
    kind: str = ""
    """A vnode-type that a path must have as well."""
    operations: str = "file-write*"

    def in_place(self, place: str) -> str:
        """The regular expression for paths in `place`, whose own path may match already."""
        end = "(/|$)" if self.below else "$"
        own = len(re.findall(f"{self.regex}(?=/|$)", place))
        return f"{self.regex}(/.*)?" * own + self.regex + end


def _git_of_commands() -> Iterator[_Pattern]:
    """With --git writable: what a command does not write in a repository, and the repository as a whole.

    Folders of submodules and worktrees are left out entirely: one prepared elsewhere could be moved in.
    """
    for folder in (names.GIT, f"{names.GIT}/info"):
        yield _Pattern(regex=_path(folder), below=False, operations="file-write-create file-write-unlink")
    yield _Pattern(regex=_path(names.GIT), below=False, kind="REGULAR-FILE")
    for name in (*names.IN_GIT_FOLDER, *names.NESTED_GIT_FOLDERS):
        yield _Pattern(regex=_path(f"{names.GIT}/{name}"))


def _git_of_helpers() -> Iterator[_Pattern]:
    """What git, run by the server, does not write in a repository.

    A new worktree has a `commondir`, so that one is left out below `worktrees`.
    """
    nested = "|".join(map(_spelt, names.NESTED_GIT_FOLDERS))
    for name in names.IN_GIT_FOLDER:
        yield _Pattern(regex=_path(f"{names.GIT}/{name}"))
        if name != "commondir":
            yield _Pattern(regex=f"{_path(names.GIT)}/({nested})/(.*/)?{_path(name)[1:]}")


def _path(name: str) -> str:
    return "".join(f"/{_spelt(part)}" for part in name.split("/"))


def _spelt(part: str) -> str:
    return f"{_OTHER}*" + "".join(
        _letters(found) + f"{_OTHER}*" for found in re.findall("|".join((*_FOLDED_TO, ".")), part)
    )


def _letters(text: str) -> str:
    one = "".join(f"[{letter}{letter.upper()}]" if letter.isalpha() else f"[{letter}]" for letter in text)
    return f"({one}|{_OTHER}+)" if text in _FOLDED_TO else one


# --- commands, and helpers that read what commands read --------------------------------------------------


def _running(
    plan: SandboxPlan, paths: Profile, argv: Sequence[str], temporary: str, hidden: Sequence[str]
) -> Iterator[str]:
    views = _views(plan, temporary, hidden)
    yield from base("basics", "processes", "commands", "local sockets")
    if plan.sandbox.network:
        yield from base("outbound", "inbound", "bind", "name lookup")
    yield from base("reading")
    yield from _views_as_rules(paths, views)
    yield from base("plain devices", "terminals")
    if plan.helper is not None:
        yield rule_of("allow file-read*", map(paths.subpath, _program_places(plan, argv)))
    yield from _passages(paths, views)
    yield from _protected(plan, paths, [path for path, why in views.items() if why == "written"])
    yield from _pins(paths, views)
    yield from base("setuid")


def _views(plan: SandboxPlan, temporary: str, hidden: Sequence[str]) -> Mapping[str, str]:
    """Why each path is hidden, shown or written, with all below it up to a deeper one of the mapping."""
    sandbox = plan.sandbox
    views = {"/dev": "devices", "/System/Volumes/Data": "second names"}
    views |= dict.fromkeys(TEMPORARY_FOLDERS, "temporary files of others")
    views |= dict.fromkeys((*credentials(sandbox.home), *sandbox.roots), "hidden")
    views |= dict.fromkeys(plan.shown_roots, "shown")
    views |= dict.fromkeys(plan.written_roots, "written")
    parts = (path for path in sandbox.read_only if any(lies_in(root, path) for root in plan.written_roots))
    views |= dict.fromkeys(parts, "read-only")
    views |= dict.fromkeys((sandbox.state, *sandbox.hidden, *hidden), "hidden")
    return views | dict.fromkeys((*plan.writes, temporary), "written")


def _views_as_rules(paths: Profile, views: Mapping[str, str]) -> Iterator[str]:
    """The deeper a path, the later its rule."""
    ordered = sorted(views.items(), key=lambda item: (item[0].rstrip("/").count("/"), item[1], item[0]))
    for why, group in groupby(ordered, key=lambda item: item[1]):
        filters = [paths.subpath(path) for path, _ in group]
        if why not in _SEEN:
            yield rule_of(f"deny {_USES}", filters)
        else:
            yield rule_of(f"allow {_USES}" if why == "written" else "allow file-read*", filters)
        if why == "read-only":
            yield rule_of("deny file-write* network-outbound network-bind", filters)


def _program_places(plan: SandboxPlan, argv: Sequence[str]) -> tuple[str, ...]:
    """A program of the server and its files, under the names given and those without links."""
    own = (plan.helper.argv[0], *plan.helper.places) if plan.helper else ()
    named = (argv[0], *own)
    return tuple(dict.fromkeys((*named, *map(os.path.realpath, named))))


def _passages(paths: Profile, views: Mapping[str, str]) -> Iterator[str]:
    """Folders in something hidden that lead to something seen: their metadata, and nothing else."""
    seen = [path for path, why in views.items() if why in _SEEN]
    above = {folder for path in seen for folder in _ancestors(path)}
    passages = sorted(folder for folder in above if _why(views, folder) not in (None, *_SEEN))
    folders = (*TEMPORARY_FOLDERS, *passages)
    yield rule_of("allow file-read-metadata", map(paths.literal, folders))


def _ancestors(path: str) -> Iterator[str]:
    """The folders above `path`, without the top."""
    parts = path.split("/")
    return ("/".join(parts[:count]) for count in range(2, len(parts)))


def _why(views: Mapping[str, str], path: str) -> str | None:
    """What `views` say of `path`; None where they say nothing."""
    return next(
        (views[each] for each in (path, *reversed(list(_ancestors(path))), "/") if each in views), None
    )


def _protected(plan: SandboxPlan, paths: Profile, written: Sequence[str]) -> Iterator[str]:
    for name in sorted(names.NAMES.difference((names.GIT, *plan.sandbox.writable_names))):
        yield from _denied(_Pattern(regex=_path(name)), paths, written)
    commands_write_git = plan.sandbox.git_writable and plan.helper is None
    for pattern in _git_of_commands() if commands_write_git else (_Pattern(regex=_path(names.GIT)),):
        yield from _denied(pattern, paths, written, except_in=plan.writes)
    for pattern in _git_of_helpers() if plan.writes else ():
        yield from _denied(pattern, paths, written)


def _denied(
    pattern: _Pattern, paths: Profile, written: Sequence[str], *, except_in: Sequence[str] = ()
) -> Iterator[str]:
    """Deny `pattern` everywhere but `except_in`. A place may itself lie in a folder of that name: there the
    name counts below the place."""
    usual = pattern.in_place("")
    others = [place for place in written if place not in except_in and pattern.in_place(place) != usual]
    left_out = " ".join(f"(require-not {paths.subpath(place)})" for place in (*others, *except_in))
    kind = f"(vnode-type {pattern.kind})" if pattern.kind else ""
    for where, regex in ((left_out, usual), *((paths.subpath(one), pattern.in_place(one)) for one in others)):
        filters = [part for part in (where, kind, f'(regex #"{regex}")') if part]
        matched = filters[0] if len(filters) == 1 else f"(require-all {' '.join(filters)})"
        yield f"(deny {pattern.operations} {matched})"


def _pins(paths: Profile, views: Mapping[str, str]) -> Iterator[str]:
    """What is written, and the folders in it that lead to something hidden: moved, they would be neither."""
    written = [path for path, why in views.items() if why == "written"]
    ways = (folder for path in views for folder in _ancestors(path) if _why(views, folder) == "written")
    pinned = dict.fromkeys((*written, *ways))
    yield rule_of("deny file-write-unlink", map(paths.literal, pinned))


# --- searches: helpers that read one folder --------------------------------------------------------------


def _searching(plan: SandboxPlan, paths: Profile, argv: Sequence[str], cwd: str) -> Iterator[str]:
    sandbox, places = plan.sandbox, _program_places(plan, argv)
    yield from base("basics", "processes")
    yield rule_of("allow process-exec", map(paths.subpath, places))
    yield from base("shell", "start", "plain devices")
    yield rule_of("allow file-read*", (paths.subpath(cwd),))
    hidden = (sandbox.state, *sandbox.hidden, *credentials(sandbox.home))
    inside = [path for path in hidden if lies_in(cwd, path) and path != cwd]
    if inside:
        yield rule_of(f"deny {_USES}", map(paths.subpath, inside))
    yield rule_of("allow file-read*", map(paths.subpath, places))
    above = dict.fromkeys(folder for path in (cwd, *places) for folder in _ancestors(path))
    if above:
        yield rule_of("allow file-read-metadata", map(paths.literal, above))


def rule_of(head: str, filters: Iterable[str]) -> str:
    """The rule that `head` begins, for what one of `filters` matches."""
    return f"({head} {' '.join(filters)})"
