"""What commands that may write must leave alone: by name, by mounts, and by looking again afterwards."""

import contextlib
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.runtime.sandbox.protected.folder_scan import LONGEST_PATH, FolderScan
from mcp_toolserver.runtime.sandbox.protected.names import (
    NAMES,
    is_protected,
    protected_name,
)
from mcp_toolserver.runtime.sandbox.protected.quarantine import ASIDE, set_aside
from mcp_toolserver.runtime.sandbox.protected.verifier_process import Verification
from tests import ROOT
from tests.sandbox.sandboxed import Ground
from tests.support.cases import collected
from tests.support.confinement import NOBODY, git, put

PLACES = ("{}", "{}/inside", "sub/{}", "a/b/c/d/e/{}/inside", "./{}", "a//{}")

FREE = (
    *("a", "git", ".github/workflows/x.yml", ".gitignore", ".gitattributes", "x.git/config", "bashrc"),
    *(".github/hook", "hooks/x", "x/.github/x/hooks", "crush", "json", "mise.tom", "Config"),
    *("Makefile", "package.json", ".env", ".vscodes/x", "a.vscode", "claude", ".config/x", "git~/x", "..."),
    *("", ".c\u017fud", ".\u017fcode"),
)
"""What people work on, and names that come near a protected one."""

TAKEN_FOR_ONE = {
    "PERS11-case": ".GIT/hooks/x",
    "PERS11-editor": ".Vscode/tasks.json",
    "PERS12-invisible": ".g\u200cit/config",
    "PERS12-dot": ".git./config",
    "PERS12-space": ".git /config",
    "PERS12-stream": ".git::$INDEX_ALLOCATION/config",
    "PERS12-short": "GIT~1/config",
    "short-editor": "VSCODE~1/tasks.json",
    "short-with-extension": "MCP~1.JSO",
    "full-width-dot": "\uff0egit/config",
    "full-width": ".\uff27\uff29\uff34",
    "long-s": ".v\u017fcode",
    "short-with-dots": "AIDERC~1.YML",
    "without-a-dot": "OpenCode.json ",
    "in-a-shared-folder": ".GitHub/Hooks./x",
    "in-a-short-folder": "GITHUB~1/hooks/x",
    "backslash": "a\\.git\\config",
}
"""Spellings that some file system takes for a protected name."""


def test_a_protected_name_is_protected_at_any_depth_and_in_any_spelling() -> None:
    paths = [where.replace("{}", name) for name in NAMES for where in PLACES]
    assert [
        path for path in (*paths, *TAKEN_FOR_ONE.values()) if not is_protected(path, git_writable=False)
    ] == []
    assert [path for path in FREE if is_protected(path, git_writable=False)] == []


def test_the_page_has_every_protected_name_with_its_source() -> None:
    page = (ROOT / "docs/protected-names.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]+`) \| .+ \| <https?://\S+> \|$", page, re.MULTILINE)
    assert sorted(name.lower() for row in rows for name in re.findall("`([^`]+)`", row)) == sorted(NAMES)


@given(st.sampled_from(sorted(NAMES)), st.sampled_from(["", ".", " ", ". ", ":x", "\u200b"]), st.booleans())
def test_a_dressed_up_name_is_the_same_name(name: str, tail: str, upper: bool) -> None:
    dressed = (name.upper() if upper else name) + tail
    folder, _, last = dressed.rpartition("/")
    assert protected_name(last, folder) == name


STEERING = (
    *("hooks", "hooks/pre-commit", "config", "config.worktree", "commondir", "info/attributes"),
    *("modules/a/config", "modules/a/b/hooks/x", "modules/a/info/attributes", "worktrees/w/config.worktree"),
    *("worktrees/w/commondir", "HOOKS/x", "Config", "modules/a/Config."),
)
"""What git runs, or is configured by."""

REST = (
    *("HEAD", "index", "objects/ab/cd", "refs/heads/config", "refs/heads/hooks/x", "logs/HEAD"),
    *("info/exclude", "info/sparse-checkout", "modules/a/HEAD", "worktrees/w/HEAD", "COMMIT_EDITMSG"),
    "config.lock",
)


def test_when_git_is_writable_a_repository_is_free_but_for_what_steers_git() -> None:
    steering = [f"{folder}/{path}" for path in STEERING for folder in (".git", "sub/.GIT")]
    others = ["sub/.git", ".vscode/x"]
    assert [path for path in (*steering, *others) if not is_protected(path, git_writable=True)] == []
    rest = [f".git/{path}" for path in REST]
    assert [path for path in rest if is_protected(path, git_writable=True)] == []
    assert [path for path in rest if not is_protected(path, git_writable=False)] == []


def _scan(folder: Path) -> FolderScan:
    return FolderScan(os.open(folder, os.O_PATH))


def _found(scan: FolderScan) -> list[str]:
    return sorted(path for path, _ in scan.found())


def test_a_scan_does_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "outside/.git").mkdir(parents=True)
    (tmp_path / "root").mkdir()
    (tmp_path / "root/link").symlink_to(tmp_path / "outside")
    scan = _scan(tmp_path / "root")
    (tmp_path / "root/folder/in").mkdir(parents=True)
    scan.update(make_readable=True)
    (tmp_path / "root/folder").rename(tmp_path / "root/moved")
    (tmp_path / "root/folder").symlink_to(tmp_path / "outside")
    scan.update(make_readable=True)
    assert (_found(scan), len(scan)) == ([], 3)


def test_a_folder_too_deep_to_look_into_is_found_as_a_whole(tmp_path: Path) -> None:
    scan = _scan(tmp_path)
    here = os.open(tmp_path, os.O_PATH)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=here)
        here, above = os.open("d" * 200, os.O_PATH, dir_fd=here), here
        os.close(above)
    os.mkdir(".git", dir_fd=here)
    os.close(here)
    scan.update(make_readable=True)
    ((path, kind),) = scan.found()
    assert kind == "too deep"
    assert LONGEST_PATH < len(path) < LONGEST_PATH + 300


CHANGES: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "file": (lambda root: (root / "a/b/.envrc").touch(), ["a/b/.envrc"]),
    "below": (lambda root: (root / "a/b/c/d/.git").mkdir(parents=True), ["a/b/c/d/.git"]),
    "moved": (lambda root: (root / "had").rename(root / "a/now"), ["a/now/.idea"]),
    "gone": (lambda root: shutil.rmtree(root / "had"), []),
    "replaced": (
        lambda root: ((root / "a").rename(root / "z"), (root / "had").rename(root / "a")),
        ["a/.idea"],
    ),
}


def test_what_changed_since_the_last_scan_is_found(tmp_path: Path) -> None:
    for case, (change, found) in CHANGES.items():
        root = tmp_path / case
        for path in ("a/b", "c", "had/.idea"):
            (root / path).mkdir(parents=True)
        scan = _scan(root)
        change(root)
        for folder in (root, *root.rglob("*")):
            os.utime(folder, ns=(0, 0), follow_symlinks=False)
        scan.update(make_readable=True)
        kept = [] if not (root / "had").exists() else ["had/.idea"]
        assert _found(scan) == sorted({*found, *kept}), case
        assert _found(scan) == _found(_scan(root)), case


def test_pointing_at_a_folder_does_not_take_it_away(here: Ground) -> None:
    here.put("root/src/code")
    seen = here.run("mkdir sub; echo 'gitdir: ../src' > sub/.git; echo changed > src/code")
    assert (here.root / "src/code").read_text(encoding="utf-8") == "changed\n"
    assert sorted(here.quarantined) == ["sub/.git"]
    assert len(seen.notes) == 1


def test_a_link_with_a_protected_name_stops_every_command(here: Ground) -> None:
    here.put("root/real/x")
    for path in (".git", ".vscode", "sub/.claude", "a/b/.envrc"):
        link = here.root / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(here.root / "real")
        assert path in here.run("touch ran").refused
        link.unlink()
    assert not (here.root / "ran").exists()


def test_too_many_protected_paths_stop_every_command(here: Ground) -> None:
    for number in range(401):
        (here.root / f"{number}").mkdir()
        (here.root / f"{number}/.envrc").touch()
    here.own()
    seen = here.run("touch ran")
    assert str(here.root) in seen.refused
    assert not (here.root / "ran").exists()


def test_a_workspace_with_many_repositories_still_runs_commands(here: Ground) -> None:
    for number in range(100):
        (here.root / f"{number}/.git").mkdir(parents=True)
    here.own()
    seen = here.run("touch 0/.git/x 99/.git/x 99/free; echo ended")
    assert seen.output.endswith("ended\n")
    assert not (here.root / "99/.git/x").exists()
    assert (here.root / "99/free").exists()


def test_what_lies_in_a_folder_closed_to_commands_does_not_stop_them(here: Ground) -> None:
    here.put("root/theirs/.envrc")
    if here.starter.user == 0:
        os.chown(here.root / "theirs", NOBODY, NOBODY)
    (here.root / "theirs").chmod(0o700 if here.starter.user == 0 else 0)
    seen = here.run("echo x > theirs/.envrc; cat theirs/.envrc; echo ended")
    (here.root / "theirs").chmod(0o700)
    assert seen.output.endswith("ended\n")
    assert (here.root / "theirs/.envrc").read_text(encoding="utf-8") == "before\n"


def test_what_takes_the_place_of_a_folder_closed_to_commands_is_set_aside(here: Ground) -> None:
    here.put("root/theirs/.envrc")
    if here.starter.user != 0:
        # Commands of another user could open a folder of that user, so it is protected as a whole.
        (here.root / "theirs").chmod(0)
    else:
        os.chown(here.root / "theirs", NOBODY, NOBODY)
        (here.root / "theirs").chmod(0o700)
    here.run("mv theirs old; mkdir theirs; echo x > theirs/.envrc")
    for name in ("theirs", "old"):
        if (here.root / name).exists():
            (here.root / name).chmod(0o700)
    left = [file.read_text(encoding="utf-8") for file in here.root.rglob(".envrc")]
    assert left == ["before\n"]


def test_what_is_too_large_for_another_file_system_hides_nothing_for_the_next_command(here: Ground) -> None:
    folder = tempfile.mkdtemp(dir="/dev/shm")
    try:
        os.chown(folder, here.starter.user, here.starter.user)
        seen = here.run("mkdir -p .idea/in/.vscode; truncate -s 65M .idea/large", state=folder)
        (aside,) = here.root.glob(f"{ASIDE}*")
        assert aside.name in seen.notes[0]
        assert (aside / "in/.vscode").is_dir()
        seen = here.run(f"mv {aside.name}/in up; mv {aside.name} moved; echo ended", state=folder)
        assert seen.output.endswith("ended\n")
        assert not (here.root / "up/.vscode").exists()
        assert not (here.root / "moved").exists()
    finally:
        shutil.rmtree(folder)


def test_what_the_quarantine_has_no_room_for_stays_in_its_folder_under_another_name(here: Ground) -> None:
    room = 1 << 20
    (here.state / "quarantine/before").mkdir(parents=True)
    here.own()
    script = "mkdir .idea .vscode; truncate -s 600K .idea/large .vscode/large; echo run > .envrc"
    seen = here.run(script, quarantine_bytes=room)
    assert sum(file.stat().st_size for file in (here.state / "quarantine").rglob("large")) == 600 << 10
    (aside,) = here.root.glob(f"{ASIDE}*")
    assert aside.name in "".join(seen.notes)
    here.run("mkdir .zed; truncate -s 600K .zed/large", quarantine_bytes=room)
    assert len(list(here.root.glob(f"{ASIDE}*"))) == 2
    # A link and a pipe need no protection under their new names.
    here.run("ln -s a .zshrc; mkfifo .bashrc", quarantine_bytes=0)
    assert len(list(here.root.glob(f"{ASIDE}*"))) == 4
    assert here.run("echo ended", quarantine_bytes=0).output == "ended\n"


def test_a_repository_cannot_be_moved_however_deep_it_lies(here: Ground) -> None:
    config = here.put("root/a/b/c/d/repo/.git/config")
    here.run("mv a/b/c/d/repo repo; mv a/b/c z")
    # Where mv cannot rename, it copies.
    assert config.read_text(encoding="utf-8") == "before\n"
    assert not (here.root / "repo/.git").exists()
    assert not (here.root / "z/d/repo/.git").exists()


def test_a_state_folder_within_the_root_keeps_its_quarantine(here: Ground) -> None:
    here.put("root/.state/log")
    for _ in range(2):
        assert len(here.run("echo run > .bashrc", state=str(here.root / ".state")).notes) == 1
    files = [file for file in (here.root / ".state/quarantine").rglob("*") if file.is_file()]
    assert [file.name for file in files] == [".bashrc", ".bashrc"]


def test_with_several_roots_nothing_is_lost_when_the_same_name_is_made_in_both(here: Ground) -> None:
    (here.base / "other").mkdir()
    here.own()
    other = here.base / "other"
    seen = here.run(f"echo run > .bashrc; echo run > {other}/.bashrc", roots=(str(here.root), str(other)))
    assert [str(place) in note for place, note in zip((other, here.root), seen.notes, strict=True)] == [
        True,
        True,
    ]
    assert len(list((here.base / "state/quarantine").rglob(".bashrc"))) == 2


WAIT = "echo ready; for i in {1..2000}; do [ -e go ] && break; sleep 0.01; done; "


def test_a_folder_that_somebody_replaces_meanwhile_is_reported(here: Ground) -> None:
    here.put("root/.vscode/x")
    seen = here.run(f"{WAIT} echo evil > .vscode/y", meanwhile="rm -r .vscode; mkdir .vscode; touch go")
    assert ".vscode" in seen.notes[0]


def test_what_is_not_mounted_is_compared_in_full(here: Ground) -> None:
    here.put("root/.vscode/a/x")
    here.put("root/.envrc")
    git(here.root, "init", "-q")
    here.own()
    seen = here.run(
        "echo evil > .vscode/a/x; touch -d 2001-01-01 .vscode/a/x; echo x >> .git/config; rm .envrc; "
        "echo x > .git/commondir; git status",
        mounted=False,
    )
    notes = "\n".join(seen.notes)
    assert all(
        path in notes
        for path in (".vscode changed", ".git/config changed", ".envrc is gone", ".git/commondir")
    )
    assert here.quarantined == {".git/commondir": "x\n"}


def test_what_makes_git_run_programs_in_a_module_stays_read_only(here: Ground) -> None:
    """`test_git_commands.py` has repositories without modules, and new ones."""
    git(here.root, "init", "-q", "-b", "main")
    git(here.root, "commit", "-q", "--allow-empty", "-m", "m")
    for module in ("m", "n/m"):
        here.put(f"root/.git/modules/{module}/HEAD", "ref: refs/heads/main\n")
        here.put(f"root/.git/modules/{module}/config")
        here.put(f"root/.git/modules/{module}/hooks/y")
    with collected() as case:
        for name, path, script in (
            ("module", ".git/modules/m/config", "echo x > .git/modules/m/config; mv .git/modules .git/m"),
            (
                "deep",
                ".git/modules/n/m/hooks/x",
                "mv .git/modules/n .git/n; echo x > .git/modules/n/m/hooks/x",
            ),
        ):
            with case(name):
                file = here.root / path
                before = file.read_bytes() if file.exists() else None
                seen = here.run(f"{script}; git branch made-{name}", git_writable=True)
                assert (file.read_bytes() if file.exists() else None) == before
                assert seen.notes == ()
                assert (here.root / f".git/refs/heads/made-{name}").exists()


def _set_aside(root: Path, path: str, quarantine: Path) -> str:
    descriptor = os.open(root, os.O_PATH)
    try:
        return set_aside(descriptor, path, str(quarantine), 1 << 30)[0]
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("device", ["same", "other"])
def test_a_tree_is_moved_whole_and_links_are_not_followed(tmp_path: Path, device: str) -> None:
    folder = tmp_path / "root/a/.vscode"
    put(folder / "sub/file", "content").chmod(0o751)
    (folder / "link").symlink_to("/etc/passwd")
    os.mkfifo(folder / "fifo")
    base = tmp_path if device == "same" else Path("/dev/shm") / f"mcp-toolserver-{os.getpid()}"
    try:
        where = Path(_set_aside(tmp_path / "root", "a/.vscode", base / "q"))
        assert where == base / "q/a/.vscode"
        assert (where / "sub/file").read_text(encoding="utf-8") == "content"
        assert (where / "sub/file").stat().st_mode & 0o777 == 0o751
        assert (where / "link").is_symlink()
        assert os.readlink(where / "link") == "/etc/passwd"
        assert not (tmp_path / "root/a/.vscode").exists()
    finally:
        if device == "other":
            shutil.rmtree(base)


def test_a_folder_on_the_way_that_became_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere/.vscode").mkdir(parents=True)
    (tmp_path / "root").mkdir()
    (tmp_path / "root/a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="Not a directory"):
        _set_aside(tmp_path / "root", "a/.vscode", tmp_path / "q")
    assert (tmp_path / "elsewhere/.vscode").exists()


def test_a_supervisor_does_not_wait_for_a_notice_that_a_check_has_taken() -> None:
    broker, verifier = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with broker, verifier, contextlib.closing(Verification(broker)) as verification:
        taking = Thread(target=verification.receive_notice, daemon=True)
        taking.start()
        taking.join(5)
        assert not taking.is_alive()
