"""The profile for macOS, read as text the way Seatbelt reads it: the last rule that matches decides."""

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_toolserver.runtime.sandbox.broker.policy import SandboxPlan
from mcp_toolserver.runtime.sandbox.layers.seatbelt import SANDBOX_EXEC, arguments, parameters, profile
from mcp_toolserver.runtime.sandbox.layers.spec import SandboxSpec

Form = str | list["Form"]

PROTECTED = (".git", ".vscode", ".bashrc", ".mcp.json")
TEMPORARY = "/private/state/tmp/1"
SPEC = SandboxSpec(
    mode="workspace-write",
    roots=("/Users/u/work", "/Users/u/other"),
    home="/Users/u",
    state="/private/state",
    hidden=("/Users/u/work/sub/deep/secret.toml", "/Users/u/.token"),
)

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
            stack[-1].append(f'"{string}')
        elif word is not None:
            stack[-1].append(str(word))
    assert len(stack) == 1, "parentheses do not match"
    return stack[0]


@dataclass(frozen=True)
class Seatbelt:
    """Judges as Seatbelt does, as far as files, names and networks go."""

    sandbox: SandboxSpec
    protected: Sequence[str] = PROTECTED
    temporary: str = TEMPORARY

    @cached_property
    def forms(self) -> list[Form]:
        return parsed(profile(self.sandbox, protected=self.protected))

    def allows(self, operation: str, path: str = "", kind: str = "") -> bool:
        named = parameters(self.sandbox, temporary=self.temporary)
        verdict = False
        for form in self.forms:
            assert isinstance(form, list)
            if form[0] not in ("allow", "deny"):
                continue
            operations = [part for part in form[1:] if isinstance(part, str)]
            filters = [part for part in form[1:] if isinstance(part, list)]
            if not any(_covers(each, operation) for each in operations):
                continue
            if not filters or any(_matches(each, path, kind, named) for each in filters):
                verdict = form[0] == "allow"
        return verdict

    def writes(self, path: str) -> bool:
        """All that writing is, or none of it; nothing in between."""
        answers = {
            self.allows(operation, path)
            for operation in ("file-write-data", "file-write-create", "file-write-mode", "file-write-times")
        }
        assert len(answers) == 1, path
        return answers.pop()

    def reads(self, path: str) -> bool:
        return self.allows("file-read-data", path)


def _covers(pattern: str, operation: str) -> bool:
    return pattern in ("default", operation) or (
        pattern.endswith("*") and operation.startswith(pattern.removesuffix("*"))
    )


def _matches(form: Form, path: str, kind: str, named: dict[str, str] | object) -> bool:
    assert isinstance(form, list)
    assert isinstance(named, dict)
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
            top = _value(value, named)
            return path == top or path.startswith(f"{top}/")
        case ["regex", ["raw", str() as pattern]]:
            return re.search(pattern, path) is not None
        case ["vnode-type", "CHARACTER-DEVICE"]:
            return kind == "device"
        case ["global-name" | "remote" | "local" | "target" | "extension", value]:
            return kind == _plain(value)
        case _:
            raise AssertionError(f"unknown filter {form}")


def _value(form: Form, named: dict[str, str]) -> str:
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


WRITING = Seatbelt(SPEC)
READING = Seatbelt(replace(SPEC, mode="read-only"))


# --- files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["/Users/u/work/a", "/Users/u/work", "/Users/u/other/b/c", "/Users/u/work/.github/workflows/ci.yml",
     "/Users/u/work/x.git", "/Users/u/work/git/hooks"],
)  # fmt: skip
def test_the_roots_are_written_in_workspace_write_only(path: str) -> None:
    assert WRITING.writes(path)
    assert not READING.writes(path)
    assert READING.reads(path)


@pytest.mark.parametrize("path", [TEMPORARY, f"{TEMPORARY}/a/b"])
def test_the_command_s_own_temporary_folder_is_written_in_every_mode(path: str) -> None:
    assert WRITING.writes(path)
    assert READING.writes(path)
    assert READING.reads(path)


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "/Users/u/.ssh/authorized_keys", "/Users/u/work-evil/a", "/Users/u", "/tmp/a", "/",
     "/private/tmp/a", "/Users/u/Library/LaunchAgents/x.plist", "/dev/disk0", f"{TEMPORARY}-evil/x"],
)  # fmt: skip
def test_nothing_else_is_written(path: str) -> None:
    assert not WRITING.writes(path)
    assert not READING.writes(path)


@pytest.mark.parametrize("path", ["/etc/passwd", "/usr/bin/git", "/Users/u/elsewhere"])
def test_what_is_not_hidden_is_read(path: str) -> None:
    assert READING.reads(path)


@pytest.mark.parametrize(
    "path",
    ["/private/state", "/private/state/audit.log", "/private/state/tmp/2/x", "/Users/u/.token",
     "/Users/u/work/sub/deep/secret.toml"],
)  # fmt: skip
def test_what_is_hidden_is_neither_read_nor_written(path: str) -> None:
    for judge in (WRITING, READING):
        assert not judge.reads(path)
        assert not judge.allows("file-read-metadata", path)
        assert not judge.writes(path)


@pytest.mark.parametrize("folder", ["/Users/u/work/sub", "/Users/u/work/sub/deep", "/Users/u/work"])
def test_what_holds_something_hidden_is_not_moved_away(folder: str) -> None:
    assert not WRITING.allows("file-write-unlink", folder)
    assert WRITING.allows("file-write-create", f"{folder}/new")
    assert WRITING.allows("file-write-unlink", f"{folder}/new")


@pytest.mark.parametrize(
    "path",
    ["/Users/u/work/.git", "/Users/u/work/.git/hooks/pre-commit", "/Users/u/work/a/b/.git/config",
     "/Users/u/work/.GIT/config", "/Users/u/work/.vscode/tasks.json", "/Users/u/other/.bashrc",
     "/Users/u/work/sub/.Mcp.Json", f"{TEMPORARY}/.git/hooks/x"],
)  # fmt: skip
def test_protected_names_are_written_nowhere(path: str) -> None:
    for operation in ("file-write-data", "file-write-create", "file-write-unlink", "file-write-mode"):
        assert not WRITING.allows(operation, path)
    assert WRITING.reads(path)
    assert Seatbelt(SPEC, protected=()).writes(path)


def test_what_lies_around_a_protected_part_of_a_folder_is_written() -> None:
    judge = Seatbelt(SPEC, protected=(".git/hooks", ".git/config"))
    assert judge.writes("/Users/u/work/.git/objects/ab/cd")
    assert judge.writes("/Users/u/work/.git/index")
    assert not judge.writes("/Users/u/work/.git/hooks/pre-commit")
    assert not judge.writes("/Users/u/work/.git/config")


def test_a_folder_that_protected_names_lie_in_is_not_replaced() -> None:
    judge = Seatbelt(SPEC, protected=(".git/hooks",))
    for operation in ("file-write-unlink", "file-write-create"):
        assert not judge.allows(operation, "/Users/u/work/.git")
        assert not judge.allows(operation, "/Users/u/work/sub/.Git")
        assert judge.allows(operation, "/Users/u/work/sub/other")


@pytest.mark.parametrize("root", ["/Users/u/work", "/Users/u/other"])
def test_a_root_itself_is_not_moved_away(root: str) -> None:
    assert not WRITING.allows("file-write-unlink", root)


@pytest.mark.parametrize("device", ["/dev/null", "/dev/tty", "/dev/urandom"])
def test_devices_that_programs_expect_are_written_and_no_file_of_that_name(device: str) -> None:
    assert READING.allows("file-write-data", device, "device")
    assert not READING.allows("file-write-data", device)
    assert not READING.allows("file-write-unlink", device, "device")


# --- everything but files ----------------------------------------------------------------------------------


def test_the_network_is_there_only_when_granted() -> None:
    granted = Seatbelt(replace(SPEC, network=True))
    for operation, kind in (("network-outbound", "ip"), ("network-inbound", "ip"), ("network-bind", "ip")):
        assert not WRITING.allows(operation, kind=kind)
        assert granted.allows(operation, kind=kind)
    assert not granted.allows("network-outbound", "/Users/u/.docker/run/docker.sock", "unix-socket")
    assert not WRITING.allows("system-socket")


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        ("appleevent-send", ""),
        ("lsopen", ""),
        ("job-creation", ""),
        ("mach-register", ""),
        ("mach-lookup", "com.apple.coreservices.launchservicesd"),
        ("mach-lookup", "com.apple.securityd.xpc"),
        ("mach-lookup", "com.apple.pasteboard.1"),
        ("iokit-open", ""),
        ("sysctl-write", ""),
        ("signal", "others"),
        ("process-info-pidinfo", "others"),
        ("system-privilege", ""),
        ("user-preference-write", ""),
    ],
)  # fmt: skip
def test_what_would_act_outside_of_the_sandbox_is_denied(operation: str, kind: str) -> None:
    for judge in (WRITING, READING, Seatbelt(replace(SPEC, network=True))):
        assert not judge.allows(operation, kind=kind)


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        ("process-exec", ""),
        ("process-fork", ""),
        ("signal", "same-sandbox"),
        ("sysctl-read", ""),
        ("mach-lookup", "com.apple.system.opendirectoryd.libinfo"),
    ],
)  # fmt: skip
def test_what_every_program_needs_is_allowed(operation: str, kind: str) -> None:
    assert READING.allows(operation, kind=kind)


def test_danger_full_access_has_no_profile() -> None:
    with pytest.raises(ValueError, match="no sandbox"):
        profile(replace(SPEC, mode="danger-full-access"), protected=PROTECTED)


# --- the command line --------------------------------------------------------------------------------------


def plan(sandbox: SandboxSpec) -> SandboxPlan:
    return SandboxPlan(layer="seatbelt", sandbox=sandbox, program=SANDBOX_EXEC)


def test_the_command_line_names_the_profile_the_paths_and_the_command() -> None:
    argv = ("/bin/bash", "-c", "echo -p")
    line = arguments(
        plan(SPEC), argv, temporary=TEMPORARY, cwd="/Users/u/work", hidden=("/Users/u/work/key",)
    )
    assert line[:2] == ("/usr/bin/sandbox-exec", "-p")
    assert line[-4:] == ("--", *argv)
    assert {f"-DTEMPORARY={TEMPORARY}", "-DROOT_0=/Users/u/work", "-DHIDDEN_0=/private/state"} < set(line)
    assert any(word.endswith("=/Users/u/work/key") for word in line)


HOSTILE = [
    pytest.param('/Users/u/a")(allow default)("', id="quote"),
    pytest.param("/Users/u/a) (allow file-write*", id="parenthesis"),
    pytest.param("/Users/u/a\n(allow default)", id="newline"),
    pytest.param("/Users/u/größe/\N{SNOWMAN}", id="not ASCII"),
    pytest.param("/Users/u/back\\slash", id="backslash"),
    pytest.param("/Users/u/a;comment", id="comment"),
    pytest.param('/Users/u/#"raw', id="raw string"),
    pytest.param("/Users/u/a=b -D ROOT_0=x", id="equals"),
    pytest.param("/Users/u/.*", id="regular expression"),
]


@pytest.mark.parametrize("path", HOSTILE)
def test_no_path_becomes_a_rule(path: str) -> None:
    sandbox = replace(SPEC, roots=(path,), hidden=(f"{path}/hidden",))
    judge, plain = Seatbelt(sandbox), Seatbelt(replace(SPEC, roots=("/x",), hidden=("/x/hidden",)))
    assert [form[:2] for form in judge.forms] == [form[:2] for form in plain.forms]
    assert judge.writes(f"{path}/file")
    assert not judge.writes(f"{path}/.git/config")
    assert not judge.writes("/Users/u/else/file")
    assert not judge.reads(f"{path}/hidden")
    line = arguments(plan(sandbox), ("/bin/true",), temporary=TEMPORARY, cwd=path)
    assert f"-DROOT_0={path}" in line


def test_a_root_that_lies_in_a_folder_of_a_protected_name_is_written() -> None:
    judge = Seatbelt(replace(SPEC, roots=("/Users/u/.vscode/copies/one",)))
    assert judge.writes("/Users/u/.vscode/copies/one/file")
    assert not judge.writes("/Users/u/.vscode/copies/one/.vscode/tasks.json")
    assert not judge.writes("/Users/u/.vscode/tasks.json")


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(min_size=1, max_size=12), max_size=4), st.text(max_size=8))
def test_no_protected_name_breaks_out_of_its_rule(names: list[str], inside: str) -> None:
    judge = Seatbelt(replace(SPEC, hidden=()), protected=[name for name in names if name.strip("/")])
    assert all(form[0] in ("version", "allow", "deny") for form in judge.forms)
    for name in judge.protected:
        where = posixpath.join("/Users/u/work", "/".join(part for part in name.split("/") if part))
        assert not judge.writes(where)
        assert not judge.allows("file-write-data", f"{where}/{inside}")
    assert not judge.writes("/etc/passwd")
