"""The profiles of commands and of the server on macOS, read as text against each promise the way Seatbelt
does: of the rules that match, the last decides."""

import os
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.runtime.sandbox.broker.policy import Helper, SandboxPlan
from mcp_toolserver.runtime.sandbox.layers import seatbelt_server
from mcp_toolserver.runtime.sandbox.layers.process_locks import LockError
from mcp_toolserver.runtime.sandbox.layers.seatbelt import SANDBOX_EXEC, Profile, arguments, profile
from mcp_toolserver.runtime.sandbox.layers.seatbelt_server import ServerProfile, lock_server
from mcp_toolserver.runtime.sandbox.layers.spec import SandboxSpec
from mcp_toolserver.runtime.sandbox.protected.names import NAMES

Form = str | list["Form"]

_TOKEN = re.compile(r'\s+|(?P<mark>[()])|#"(?P<raw>[^"]*)"|"(?P<text>(?:[^"\\]|\\.)*)"|(?P<word>[^\s()"]+)')


def parsed(text: str) -> list[Form]:
    """The S-expressions in `text`; a raw string is a list of `raw` and its content."""
    stack: list[list[Form]] = [[]]
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        assert found, f"not in the language: {text[at : at + 20]!r}"
        at = found.end()
        mark, raw, string, word = found.group("mark", "raw", "text", "word")
        if mark == "(":
            stack.append([])
        elif mark == ")":
            form = stack.pop()
            stack[-1].append(form)
        elif raw is not None:
            stack[-1].append(["raw", raw])
        elif string is not None:
            unescaped = re.sub(r"\\(.)", r"\1", string)
            stack[-1].append(f'"{unescaped}')
        elif word is not None:
            stack[-1].append(str(word))
    assert len(stack) == 1, "parentheses do not match"
    return stack[0]


def allows(
    forms: Sequence[Form], named: Mapping[str, str], operation: str, path: str = "", kind: str = ""
) -> bool:
    """Whether the profile lets a process do `operation`, as far as the profiles of the server go."""
    for form in reversed(forms):
        assert isinstance(form, list)
        if form[0] not in ("allow", "deny"):
            continue
        operations = [part for part in form[1:] if isinstance(part, str)]
        filters = [part for part in form[1:] if isinstance(part, list)]
        if not any(_covers(each, operation) for each in operations):
            continue
        if not filters or any(_matches(each, path, kind, named) for each in filters):
            return form[0] == "allow"
    return False


def _covers(pattern: str, operation: str) -> bool:
    return pattern in ("default", operation) or (
        pattern.endswith("*") and operation.startswith(pattern.removesuffix("*"))
    )


def _matches(form: Form, path: str, kind: str, named: Mapping[str, str]) -> bool:
    assert isinstance(form, list)
    match form:
        case ["require-all", *parts]:
            return all(_matches(part, path, kind, named) for part in parts)
        case ["require-any", *parts]:
            return any(_matches(part, path, kind, named) for part in parts)
        case ["require-not", part]:
            return not _matches(part, path, kind, named)
        case ["literal", value]:
            return path == _value(value, named)
        case ["subpath", value]:
            top = _value(value, named).rstrip("/")
            return path == top or path.startswith(f"{top}/")
        case ["regex" | "ipc-posix-name-regex", ["raw", str() as pattern]]:
            # Bytes, as the kernel has them.
            return re.search(os.fsencode(pattern), os.fsencode(path)) is not None
        case ["sysctl-name-prefix", value]:
            return kind.startswith(_plain(value))
        case [
            "vnode-type" | "global-name" | "remote" | "local" | "target" | "extension" | "sysctl-name"
            | "socket-domain",
            value,
        ]:  # fmt: skip
            return kind == _plain(value)
        case _:
            raise AssertionError(f"unknown filter {form}")


def _value(form: Form, named: Mapping[str, str]) -> str:
    match form:
        case ["param", str() as name]:
            return named[_plain(name)]
        case str():
            return _plain(form)
        case _:
            raise AssertionError(f"unknown value {form}")


def _plain(form: Form) -> str:
    assert isinstance(form, str)
    return form.removeprefix('"')


TEMPORARY = "/Users/u/state/tmp/1"
SPEC = SandboxSpec(
    mode="workspace-write",
    roots=("/Users/u/work", "/Users/u/other"),
    home="/Users/u",
    state="/Users/u/state",
    hidden=("/Users/u/work/sub/deep/secret.toml", "/Users/u/.token"),
)
RIPGREP = Helper(argv=("/opt/homebrew/bin/rg", "--json"), places=("/Users/u/state/rg.conf",))
GIT = Helper(argv=("/usr/bin/git",), reach="system", writes=".git")
REPOSITORY = "/Users/u/work/.git"


@dataclass(frozen=True)
class Seatbelt:
    """Judges as Seatbelt does, as far as these profiles go."""

    plan: SandboxPlan
    hidden: tuple[str, ...]
    cwd: str

    @cached_property
    def argv(self) -> tuple[str, ...]:
        return self.plan.helper.argv if self.plan.helper else ("/bin/bash", "-c", "echo -p")

    @cached_property
    def profile(self) -> Profile:
        return profile(self.plan, self.argv, temporary=TEMPORARY, cwd=self.cwd, hidden=self.hidden)

    @cached_property
    def parameters(self) -> dict[str, str]:
        return {name: path for path, name in self.profile.names.items()}

    @cached_property
    def line(self) -> tuple[str, ...]:
        return arguments(self.plan, self.argv, temporary=TEMPORARY, cwd=self.cwd, hidden=self.hidden)

    @cached_property
    def forms(self) -> list[Form]:
        return parsed(self.profile.text)

    def allows(self, operation: str, path: str = "", kind: str = "") -> bool:
        return allows(self.forms, self.parameters, operation, path, kind)

    def writes_at(self, path: str) -> bool:
        """All that writing is, or none of it; nothing in between."""
        answers = {
            self.allows(operation, path)
            for operation in ("file-write-data", "file-write-create", "file-write-mode", "file-write-times")
        }
        assert len(answers) == 1, path
        return answers.pop()

    def reads(self, path: str) -> bool:
        return self.allows("file-read-data", path)


def seatbelt(
    sandbox: SandboxSpec = SPEC, *, hidden: tuple[str, ...] = (), cwd: str = "/Users/u/work", **plan: Any
) -> Seatbelt:
    plan_made = SandboxPlan(layer="seatbelt", sandbox=sandbox, program=SANDBOX_EXEC, **plan)
    return Seatbelt(plan_made, hidden, cwd)


WRITING = seatbelt()
READING = seatbelt(replace(SPEC, mode="read-only"))
ONLINE = seatbelt(replace(SPEC, network=True))
COMMITTING = seatbelt(replace(SPEC, git_writable=True))
HIDING = seatbelt(hidden=("/Users/u/work/a/key.pem",))
NARROWED = seatbelt(roots=("/Users/u/work/part", REPOSITORY), cwd="/Users/u/work/part")
SEARCHING = seatbelt(READING.plan.sandbox, helper=RIPGREP)
GIT_READING = seatbelt(READING.plan.sandbox, helper=GIT)
GIT_WRITING = seatbelt(READING.plan.sandbox, helper=GIT, writes=(REPOSITORY,))
COMMANDS = {
    "workspace-write": WRITING,
    "read-only": READING,
    "network": ONLINE,
    "git writable": COMMITTING,
    "hidden paths": HIDING,
    "parts of roots": NARROWED,
}
HELPERS = {"search": SEARCHING, "git": GIT_READING, "git that commits": GIT_WRITING}
EVERY = {**COMMANDS, **HELPERS}
SYSTEM_READERS = {**COMMANDS, "git": GIT_READING}


def test_the_roots_are_written_in_workspace_write_only() -> None:
    for path in ("/Users/u/work/a", "/Users/u/work", "/Users/u/other/b/c", "/Users/u/work/x.git",
                 "/Users/u/work/.github/workflows/ci.yml", "/Users/u/work/git/hooks",
                 "/Users/u/work/größe/日本"):  # fmt: skip
        assert WRITING.writes_at(path), path
        assert not READING.writes_at(path), path
        assert READING.reads(path), path


def test_the_temporary_folder_of_the_session_is_used_in_every_mode() -> None:
    for name, judge in SYSTEM_READERS.items():
        for path in (TEMPORARY, f"{TEMPORARY}/a/b"):
            assert judge.writes_at(path), name
            assert judge.reads(path), name
            assert judge.allows("network-bind", path), name
            assert judge.allows("network-outbound", path), name


ELSEWHERE = (
    *("/etc/passwd", "/Users/u/.ssh/authorized_keys", "/Users/u/work-evil/a", "/Users/u", "/tmp/a", "/"),
    *("/private/tmp/a", "/Users/u/Library/LaunchAgents/x.plist", "/dev/disk0", f"{TEMPORARY}-evil/x"),
    "/System/Volumes/Data/Users/u/work/a",
)


def test_nothing_else_is_written_and_no_hard_link_and_no_clone_is_made() -> None:
    written = [(name, path) for name, judge in EVERY.items() for path in ELSEWHERE if judge.writes_at(path)]
    assert written == []
    operations = ("file-link", "file-clone", "file-write-setugid")
    paths = ("/Users/u/work/a", TEMPORARY, REPOSITORY)
    assert [case for case in product(EVERY, operations, paths) if EVERY[case[0]].allows(*case[1:])] == []


HIDDEN = (
    *("/Users/u/state", "/Users/u/state/audit.log", "/Users/u/state/tmp/2/x", "/Users/u/.token"),
    *("/Users/u/work/sub/deep/secret.toml", "/Users/u/.ssh/id_ed25519", "/Users/u/.aws/credentials"),
    *("/Users/u/Library/Keychains/login.keychain-db", "/Users/u/Library/Cookies/Cookies.binarycookies"),
    *("/private/tmp/other", "/private/var/folders/ab/cd/T/other", "/dev/disk0", "/dev/rdisk1", "/dev/tty"),
    "/System/Volumes/Data/Users/u/.token",
)


def test_what_is_hidden_is_neither_read_nor_written_and_all_else_is_read() -> None:
    seen: list[tuple[str, str]] = []
    for name, path in product(SYSTEM_READERS, ("/etc/passwd", "/usr/bin/git", "/Users/u/elsewhere")):
        assert SYSTEM_READERS[name].reads(path), (name, path)
    for name, judge in {**SYSTEM_READERS, "git that commits": GIT_WRITING}.items():
        for path in HIDDEN:
            is_on_the_way = path == "/Users/u/state"
            shown = not is_on_the_way and judge.allows("file-read-metadata", path)
            if shown or judge.reads(path) or judge.writes_at(path) or judge.allows("network-outbound", path):
                seen.append((name, path))
    assert seen == []
    # Folders on the way to the temporary one show their metadata and no names.
    assert READING.allows("file-read-metadata", "/Users/u/state/tmp")
    assert not READING.reads("/Users/u/state/tmp")


def test_what_rules_hide_from_a_command_is_hidden_and_is_not_moved_away() -> None:
    assert WRITING.reads("/Users/u/work/a/key.pem")
    assert not HIDING.reads("/Users/u/work/a/key.pem")
    assert not HIDING.allows("file-read-metadata", "/Users/u/work/a/key.pem")
    assert not HIDING.writes_at("/Users/u/work/a/key.pem")
    assert not HIDING.allows("file-write-unlink", "/Users/u/work/a")
    assert WRITING.allows("file-write-unlink", "/Users/u/work/a")
    for folder in ("/Users/u/work/sub", "/Users/u/work/sub/deep", "/Users/u/work", TEMPORARY):
        assert not WRITING.allows("file-write-unlink", folder), folder
        assert WRITING.allows("file-write-create", f"{folder}/new"), folder
        assert WRITING.allows("file-write-unlink", f"{folder}/new"), folder


def test_a_client_sees_only_its_part_of_the_roots() -> None:
    assert [NARROWED.writes_at(f"/Users/u/work/{one}") for one in ("part/a", ".git/a")] == [True, False]
    for path in ("/Users/u/work/else", "/Users/u/work", "/Users/u/other/b", "/Users/u/work/parts"):
        assert not NARROWED.reads(path)
        assert not NARROWED.writes_at(path)
    assert NARROWED.allows("file-read-metadata", "/Users/u/work")
    assert not NARROWED.allows("file-write-unlink", "/Users/u/work/part")


def test_a_root_may_be_the_top_and_devices_and_secrets_stay_hidden() -> None:
    judge = seatbelt(replace(SPEC, roots=("/",)))
    assert judge.writes_at("/opt/x")
    for path in ("/dev/disk0", "/Users/u/.token", "/Users/u/.ssh/id_rsa", "/Users/u/state/x"):
        assert not judge.reads(path)
        assert not judge.writes_at(path)
    # One in a folder of credentials is shown.
    judge = seatbelt(replace(SPEC, roots=("/Users/u/Library/Containers/app",)))
    assert judge.writes_at("/Users/u/Library/Containers/app/x")
    assert not judge.reads("/Users/u/Library/Containers/else")


SPELLINGS = {
    "itself": ".git",
    "below": ".git/hooks/pre-commit",
    "deep": "a/b/.git/config",
    "upper case": ".GIT/config",
    "invisible character": ".g\u200cit/config",
    "byte order mark": "\ufeff.git/config",
    "ligature": ".gitconﬁg",
    "long s": ".huſky/pre-commit",
    "Kelvin sign": ".hus\u212ay/pre-commit",
    "editor": ".vscode/tasks.json",
    "shell": ".bashrc",
    "agent": "sub/.Mcp.Json",
}


def test_protected_names_are_written_nowhere() -> None:
    places = ("/Users/u/work", "/Users/u/work/part", TEMPORARY)
    operations = ("file-write-data", "file-write-create", "file-write-unlink", "file-write-mode")
    written: list[tuple[str, ...]] = []
    for (who, judge), (spelling, name) in product(SYSTEM_READERS.items(), SPELLINGS.items()):
        if judge is COMMITTING and name == ".git":
            continue  # It changes in there; test_with_git_writable_... has what it may not.
        written += [
            (who, spelling, place, operation)
            for place, operation in product(places, operations)
            if judge.allows(operation, f"{place}/{name}")
        ]
    assert written == []
    assert [name for name in SPELLINGS.values() if not WRITING.reads(f"/Users/u/work/{name}")] == []


def test_each_protected_name_is_protected_and_no_longer_one() -> None:
    wrong: list[str] = []
    for name in sorted(NAMES):
        variants = (name, name.upper(), f"x/{name}/y")
        wrong += [spelt for spelt in variants if WRITING.writes_at(f"/Users/u/work/{spelt}")]
        for spelt in (f"{name}x", f"x{name}", f"{name}.d/y", name[1:]):
            if not WRITING.writes_at(f"/Users/u/work/{spelt}") and f".{spelt.split('/')[0]}" not in NAMES:
                wrong.append(spelt)
    assert wrong == []


def test_with_git_writable_a_command_commits_and_changes_no_hooks_or_configuration() -> None:
    for name in ("objects/ab/cd", "index", "refs/heads/hooks", "logs/HEAD", "info/exclude"):
        assert COMMITTING.writes_at(f"{REPOSITORY}/{name}")
    for name in ("hooks/pre-commit", "HOOKS/pre-commit", "config", "config.worktree", "commondir",
                 "info/attributes", "modules/x/hooks/y", "worktrees/w/commondir"):  # fmt: skip
        assert not COMMITTING.writes_at(f"{REPOSITORY}/{name}")
        assert not COMMITTING.allows("file-write-unlink", f"{REPOSITORY}/{name}")
    # No folder of them is replaced.
    for folder in (".git", "sub/.Git", ".git/info", ".git/modules", ".git/modules/x"):
        for operation in ("file-write-unlink", "file-write-create"):
            assert not COMMITTING.allows(operation, f"/Users/u/work/{folder}"), (operation, folder)
    assert not COMMITTING.allows("file-write-data", "/Users/u/work/.git", "REGULAR-FILE")


def test_git_of_the_server_writes_the_repository_but_not_hooks_and_configuration() -> None:
    assert not GIT_READING.writes_at(f"{REPOSITORY}/index")
    for name in ("index", "objects/ab/cd", "refs/heads/config", "worktrees/w/HEAD", "worktrees/w/commondir",
                 "worktrees/w/.git", "modules/x/index"):  # fmt: skip
        assert GIT_WRITING.writes_at(f"{REPOSITORY}/{name}")
    for name in ("hooks/pre-commit", "config", "info/attributes", "Config.Worktree", "commondir",
                 "modules/a/b/hooks/x", "worktrees/w/config.worktree"):  # fmt: skip
        assert not GIT_WRITING.writes_at(f"{REPOSITORY}/{name}")
    for path in ("/Users/u/work/file", "/Users/u/work/sub/.git/index", "/Users/u/other/.git/index"):
        assert not GIT_WRITING.writes_at(path)
    assert not GIT_WRITING.allows("file-write-unlink", REPOSITORY)


def test_a_root_that_lies_in_a_folder_of_a_protected_name_is_written() -> None:
    for root in ("/Users/u/.vscode/copies/one", "/Users/u/.VSCODE/one"):
        judge = seatbelt(replace(SPEC, roots=(root,)))
        assert judge.writes_at(f"{root}/file")
        assert not judge.writes_at(f"{root}/.vscode/tasks.json")
        assert not judge.writes_at(f"{root}/.git/config")
        assert not judge.writes_at("/Users/u/.vscode/tasks.json")


def test_a_search_reads_its_folder_and_what_it_needs_to_start_and_runs_and_writes_nothing_else() -> None:
    for path in ("/Users/u/work", "/Users/u/work/a", "/usr/lib/dyld", "/opt/homebrew/bin/rg",
                 "/System/Library/x", "/Users/u/state/rg.conf", "/dev/null"):  # fmt: skip
        assert SEARCHING.reads(path)
    for path in ("/Users/u/other/a", "/Users/u", "/etc/passwd", "/Users/u/state/audit.log", "/Users/u/.token",
                 "/Users/u/work/sub/deep/secret.toml", "/private/tmp/x", "/dev/disk0"):  # fmt: skip
        assert not SEARCHING.reads(path)
    assert SEARCHING.allows("file-read-metadata", "/Users/u")
    assert SEARCHING.allows("process-exec", "/opt/homebrew/bin/rg")
    assert SEARCHING.allows("process-exec", "/bin/sh")
    assert not SEARCHING.allows("process-exec", "/usr/bin/python3")
    assert not SEARCHING.allows("process-exec", "/Users/u/work/tool")
    for path in (TEMPORARY, "/Users/u/work/a", "/Users/u/state/rg.conf"):
        assert not SEARCHING.writes_at(path)
    assert not SEARCHING.allows("system-socket", kind="AF_UNIX")


def test_only_devices_that_programs_expect_are_written_and_terminals_are_their_own() -> None:
    for device in ("/dev/null", "/dev/zero"):
        assert READING.allows("file-write-data", device, "CHARACTER-DEVICE")
        assert not READING.allows("file-write-data", device)
        assert not READING.allows("file-write-unlink", device, "CHARACTER-DEVICE")
    assert READING.allows("file-ioctl", "/dev/ttys003", "com.apple.sandbox.pty")
    assert not READING.allows("file-ioctl", "/dev/ttys003")
    assert not READING.allows("file-ioctl", "/dev/tty")


def test_the_network_is_there_only_when_granted() -> None:
    for operation in ("network-outbound", "network-inbound", "network-bind"):
        for judge in (WRITING, READING, COMMITTING, HIDING, NARROWED, *HELPERS.values()):
            assert not judge.allows(operation, kind="ip")
        assert ONLINE.allows(operation, kind="ip")
    assert not ONLINE.allows("network-outbound", "/Users/u/.docker/run/docker.sock")
    assert not ONLINE.allows("network-outbound", "/private/var/run/docker.sock")
    assert ONLINE.allows("network-outbound", "/private/var/run/mDNSResponder")
    # Sockets with a path are reached in the roots, in workspace-write.
    assert WRITING.allows("network-outbound", "/Users/u/work/s")
    assert not READING.allows("network-outbound", "/Users/u/work/s")


OUTSIDE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("appleevent-send", "lsopen", "job-creation", "mach-register", "iokit-open"), ("",)),
    **dict.fromkeys(("ipc-posix-shm-read-data", "ipc-posix-shm-write-create", "ipc-sysv-shm"), ("",)),
    **dict.fromkeys(("ipc-posix-sem", "sysctl-write", "system-privilege", "file-mount"), ("",)),
    **dict.fromkeys(("mach-priv-task-port", "mach-task-name", "signal", "process-info-pidinfo"), ("others",)),
    "user-preference-write": ("",),
    "mach-lookup": (
        *("com.apple.coreservices.launchservicesd", "com.apple.coreservices.appleevents"),
        *("com.apple.securityd.xpc", "com.apple.SecurityServer", "com.apple.pasteboard.1"),
        "com.apple.system.notification_center",
    ),
    "sysctl-read": ("kern.procargs2", "kern.proc.all", "kern.proc.pid.1"),
    "system-socket": ("AF_SYSTEM",),
}
"""Operations, and the kinds of them."""


def test_what_would_act_outside_of_the_sandbox_is_denied_and_what_every_program_needs_is_not() -> None:
    allowed = [
        (name, operation, kind)
        for (name, judge), (operation, kinds) in product(EVERY.items(), OUTSIDE.items())
        for kind in kinds
        if judge.allows(operation, kind=kind)
    ]
    assert allowed == []
    for name, judge in EVERY.items():
        assert judge.allows("process-fork"), name
        assert judge.allows("signal", kind="same-sandbox"), name
        assert judge.allows("sysctl-read", kind="hw.ncpu"), name
        assert judge.allows("mach-lookup", kind="com.apple.system.opendirectoryd.libinfo"), name


def test_what_has_no_profile_is_refused() -> None:
    refused = (
        ("no sandbox", seatbelt(replace(SPEC, mode="danger-full-access"))),
        ("holds the system", seatbelt(replace(SPEC, roots=("/",)), roots=("/Users/u/work",))),
        *(("must be absolute", seatbelt(hidden=(path,))) for path in ("relative", "/with\0null", "")),
    )
    for words, judge in refused:
        with pytest.raises(ValueError, match=words):
            _ = judge.line


HOSTILE = (
    *('/Users/u/a")(allow default)("', "/Users/u/a) (allow file-write*", "/Users/u/a\n(allow default)"),
    *("/Users/u/größe/\N{SNOWMAN}", "/Users/u/back\\slash", "/Users/u/a;comment", '/Users/u/#"raw'),
    *("/Users/u/a=b -D PATH_0=x", "/Users/u/.*", "/Users/u/" + "long/" * 180 + "x" * 100),
)


def hiding(path: str) -> Seatbelt:
    """A profile with a root, in which one path is hidden for good and one for a command."""
    return seatbelt(replace(SPEC, roots=(path,), hidden=(f"{path}/hidden",)), hidden=(f"{path}/b",))


def test_no_path_becomes_a_rule() -> None:
    plain = {str(form[:2]) for form in hiding("/x/y/z").forms}
    for path in HOSTILE:
        judge = hiding(path)
        assert len(judge.forms) == len(judge.profile.rules)
        assert {str(form[:2]) for form in judge.forms} == plain
        assert path not in judge.profile.text
        assert judge.writes_at(f"{path}/file")
        assert not any(judge.writes_at(f"{place}/file") for place in (f"{path}/.git", "/Users/u/else"))
        assert not any(judge.reads(f"{path}/{name}") for name in ("hidden", "b"))
        assert sum(word.endswith(f"={path}") for word in judge.line) == 1


def test_a_thousand_roots_fit_and_too_many_hidden_paths_are_an_error_without_one_left_out() -> None:
    roots = tuple(f"/Users/u/projects/number-{number}" for number in range(1000))
    judge = seatbelt(replace(SPEC, roots=roots))
    assert judge.line
    assert judge.writes_at("/Users/u/projects/number-999/x")
    assert not judge.writes_at("/Users/u/projects/number-1000/x")
    hidden = tuple(
        f"/Users/u/work/folder-{number}/a-secret-with-a-long-name-{number}" for number in range(10_000)
    )
    judge = seatbelt(hidden=hidden)
    assert set(hidden) <= set(judge.parameters.values())
    with pytest.raises(ValueError, match="bytes of arguments"):
        _ = judge.line


WANTED = ServerProfile(
    mode="workspace-write",
    reads=("/Users/u/state", "/Users/u/work"),
    writes=("/Users/u/state", "/Users/u/work"),
    network=False,
)


def server_allows(wanted: ServerProfile, operation: str, path: str = "") -> bool:
    forms = parsed("\n".join(wanted.rules()))
    return allows(forms, {}, operation, path)


def test_the_server_writes_where_its_mode_says_and_starts_nothing() -> None:
    reading = replace(WANTED, mode="read-only", writes=("/Users/u/state",))
    assert server_allows(WANTED, "file-write-create", "/Users/u/work/a")
    assert not server_allows(reading, "file-write-create", "/Users/u/work/a")
    for wanted in (WANTED, reading):
        assert server_allows(wanted, "file-write-create", "/Users/u/state/a")
        assert server_allows(wanted, "file-read-data", "/Users/u/work/a")
        assert server_allows(wanted, "file-read-data", f"{sys.prefix}/x")
        for path in ("/Users/u/.ssh/id", "/Users/u/else", "/private/var/tmp/x"):
            assert not server_allows(wanted, "file-write-create", path)
            assert not server_allows(wanted, "file-read-data", path)
        assert not server_allows(wanted, "process-exec", "/bin/sh")
        assert not server_allows(wanted, "process-fork")
        assert not server_allows(wanted, "file-write-setugid", "/Users/u/state/a")


def test_the_server_connects_as_its_settings_say() -> None:
    rules = {
        name: [rule for rule in replace(WANTED, **more).rules() if "network" in rule]
        for name, more in {
            "none": {},
            "fetch": {"network": True},
            "model": {"port": 11434},
            "http": {"listens": True},
        }.items()
    }
    assert rules["none"] == []
    assert rules["fetch"][0] == "(allow network-outbound (remote ip))"
    assert rules["model"] == ['(allow network-outbound (remote ip "localhost:11434"))']
    assert rules["http"] == ["(allow network-inbound (local ip))"]


def test_no_path_of_the_server_becomes_a_rule() -> None:
    for path in ('/Users/u/a")(allow default)("', "/Users/u/back\\", "/Users/u/größe", "/Users/u/a;b",
                 "/Users/u/(x"):  # fmt: skip
        wanted = replace(WANTED, reads=(path,), writes=("/Users/u/state", path))
        assert server_allows(wanted, "file-write-create", f"{path}/x"), path
        assert not server_allows(wanted, "file-write-create", "/Users/u/else"), path
        assert not server_allows(wanted, "process-fork"), path
    with pytest.raises(LockError, match="control character"):
        list(replace(WANTED, reads=("/Users/u/a\n(allow default)",)).rules())


def wanted_in(folder: Path) -> ServerProfile:
    for name in ("state", "root"):
        (folder / name).mkdir(exist_ok=True)
    state, root = str(folder / "state"), str(folder / "root")
    return ServerProfile(mode="read-only", reads=(state, root), writes=(state,), network=False)


def test_a_lock_that_holds_nothing_is_noticed_and_each_thing_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    with pytest.raises(LockError, match="no sandbox_init"):
        lock_server(wanted_in(tmp_path))
    monkeypatch.setattr(seatbelt_server, "_apply", lambda _: None)
    with pytest.raises(LockError) as raised:
        lock_server(wanted_in(tmp_path))
    names = (
        *("writes nothing in what it only reads", "writes nothing elsewhere", "reads nothing elsewhere"),
        *("changes nothing elsewhere", "renames nothing elsewhere", "reaches no local socket"),
        *("starts no program", "makes no process", "opens no socket for others", "connects to nobody"),
    )
    for name in names:
        assert name in str(raised.value)
    assert list((tmp_path / "root").iterdir()) == []


def test_a_process_with_threads_is_not_confined(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as threads:
        threads.submit(int).result()
        with pytest.raises(LockError, match="threads run"):
            lock_server(wanted_in(tmp_path))


def test_a_read_only_root_or_part_of_one_is_read_and_neither_written_nor_moved() -> None:
    kept = ("/Users/u/work/sub/kept", "/Users/u/other")
    found = seatbelt(replace(SPEC, read_only=kept))
    for path in (*kept, f"{kept[0]}/f", f"{kept[1]}/f"):
        assert found.reads(path)
        assert not found.writes_at(path)
        assert WRITING.writes_at(path)
    assert found.writes_at("/Users/u/work/sub/f")
    assert not found.allows("file-write-unlink", "/Users/u/work/sub")
