"""What file tools ask of macOS only, with stand-ins for its functions, and where programs are looked for:
never run on a Mac.
"""

import ctypes
import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.policy.client_restrictions import ClientRestrictions
from mcp_toolserver.runtime.files import root, volume
from mcp_toolserver.runtime.files.libc import copy_attributes, rename_new
from mcp_toolserver.runtime.files.transaction import Original, temp_file
from mcp_toolserver.runtime.files.volume import name_comparison, stored_name
from mcp_toolserver.runtime.lsp.pool import find_executables
from mcp_toolserver.runtime.which import HOMEBREW, find_program, is_executable, program_folders
from mcp_toolserver.stores.disk import sync
from mcp_toolserver.text.file_names import NameComparison, folded, path_tests, volume_path
from tests.support.workshop import program


@pytest.fixture
def darwin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")


@pytest.fixture
def folder(tmp_path: Path) -> int:
    return os.open(tmp_path, os.O_RDONLY)


class Library:
    """The C library of macOS, which records its calls and fails with `error`."""

    def __init__(self, error: int = 0) -> None:
        self.error = error
        self.calls: list[tuple[Any, ...]] = []

    def _answer(self, *arguments: Any) -> int:
        self.calls.append(tuple(getattr(argument, "value", argument) for argument in arguments))
        ctypes.set_errno(self.error)
        return -1 if self.error else 0

    renameatx_np = fcopyfile = _answer


@pytest.mark.usefixtures("darwin")
def test_a_rename_refuses_an_existing_name_also_on_a_volume_that_has_to_make_links(
    tmp_path: Path, folder: int
) -> None:
    library = Library()
    rename_new(folder, "a", "b", library)
    assert library.calls == [(folder, b"a", folder, b"b", 4)]
    with pytest.raises(FileExistsError):
        rename_new(folder, "a", "b", Library(errno.EEXIST))
    for error in (errno.ENOTSUP, errno.EINVAL, errno.ENOSYS):
        (tmp_path / "b").unlink(missing_ok=True)
        (tmp_path / "a").write_bytes(b"a")
        rename_new(folder, "a", "b", Library(error))
        assert os.listdir(tmp_path) == ["b"]
        (tmp_path / "a").write_bytes(b"new")
        with pytest.raises(FileExistsError):
            rename_new(folder, "a", "b", Library(error))
        assert (tmp_path / "b").read_bytes() == b"a"


def test_attributes_and_access_control_lists_are_copied() -> None:
    library = Library()
    copy_attributes(3, 4, library)
    assert library.calls == [(3, 4, None, 5)]
    with pytest.raises(PermissionError):
        copy_attributes(3, 4, Library(errno.EPERM))
    with pytest.raises(OSError, match="not implemented"):
        copy_attributes(3, 4, object())


@pytest.mark.usefixtures("darwin")
def test_a_file_is_replaced_where_attributes_cannot_be_copied(tmp_path: Path, folder: int) -> None:
    (tmp_path / "f").write_bytes(b"old")
    with (tmp_path / "f").open("rb") as file:
        old = Original(fd=file.fileno(), status=os.fstat(file.fileno()))
        with temp_file(folder, b"new", old) as temporary:
            assert (tmp_path / temporary).read_bytes() == b"new"


def test_data_is_flushed_through_the_cache_of_the_disk(monkeypatch: pytest.MonkeyPatch, folder: int) -> None:
    calls: list[tuple[object, ...]] = []

    def refused(*arguments: int) -> object:
        calls.append(arguments)
        raise OSError(errno.ENOTSUP, "not on this volume")

    def synced(descriptor: int) -> None:
        calls.append(("fsync", descriptor))

    monkeypatch.setattr(os, "fsync", synced)
    sync(folder, refused)
    monkeypatch.setattr(sys, "platform", "darwin")
    sync(folder, lambda *arguments: calls.append(arguments))
    sync(folder, refused)
    sync(folder)
    fsync = ("fsync", folder)
    assert calls == [fsync, (folder, 51), (folder, 51), fsync, fsync]


@pytest.mark.usefixtures("darwin")
def test_a_volume_is_asked_how_it_compares_names(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").touch()
    answers: list[tuple[int | OSError, NameComparison]] = [
        (0, NameComparison.CASELESS),
        (1, NameComparison.NORMALIZED),
        # What is seen in the folder counts.
        (-1, NameComparison.NORMALIZED),
        (OSError(errno.EINVAL, ""), NameComparison.CASELESS),
    ]
    for answer, expected in answers:

        def fpathconf(descriptor: int, name: int, answer: int | OSError = answer) -> int:
            assert (descriptor, name) == (folder, 11)
            if isinstance(answer, OSError):
                raise answer
            return answer

        monkeypatch.setattr(os, "fpathconf", fpathconf)
        monkeypatch.setattr(volume, "_known", {})
        assert name_comparison(folder) is expected, answer


@pytest.mark.usefixtures("darwin")
def test_the_stored_name_is_asked_for_and_believed_only_if_it_is_another_form(
    tmp_path: Path, folder: int
) -> None:
    (tmp_path / "Stored").touch()
    file = os.open(tmp_path / "Stored", os.O_RDONLY)
    assert stored_name(folder, "STORED", file, lambda _: "/x/Stored") == "Stored"
    assert stored_name(folder, "STORED", file, lambda _: "/x/other") == "Stored"
    assert stored_name(folder, "stored", file) == "Stored"
    os.link(tmp_path / "Stored", tmp_path / "other")
    assert stored_name(folder, "other", file, lambda _: "/x/Other") == "other"


@pytest.mark.usefixtures("darwin")
def test_a_name_that_macos_gives_a_root_counts_only_where_it_leads_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = {
        "/private/tmp/x": {"/private/tmp/x", "/tmp/x"},
        "/var/x": {"/var/x", "/private/var/x"},
        "/System/Volumes/Data/Users/a": {"/Users/a"},
        "/Users/a": {"/System/Volumes/Data/Users/a"},
    }
    missing = {path: names - set(root.darwin_names(path)) for path, names in expected.items()}
    assert not any(missing.values()), missing
    for place in ("real", "other"):
        (tmp_path / place).mkdir()
    (tmp_path / "link").symlink_to("real")
    names = tuple(str(tmp_path / name) for name in ("link", "other", "missing"))
    monkeypatch.setattr(root, "darwin_names", lambda _: names)
    prefixes = root.open_root(str(tmp_path / "real")).prefixes
    assert prefixes == (str(tmp_path / "real"), names[0])


SAME_SOMEWHERE = (
    ("Stra\u00dfe", "STRASSE"),
    ("\u212a", "k"),
    ("\u0130x", "ix"),
    ("\u0131x", "IX"),
    ("a\ufe0fb", "AB"),
    ("\u1e9b\u0323", "\u1e69"),
)


def test_names_that_some_volume_takes_for_the_same_have_one_folded_form() -> None:
    for one, other in SAME_SOMEWHERE:
        assert folded(one) == folded(other), one
        assert folded(one, NameComparison.EXACT) == one


def on_volume(path: str, comparison: NameComparison = NameComparison.CASELESS) -> str:
    return volume_path(path, comparison)


def test_a_client_keeps_its_folders_by_every_name() -> None:
    area = {"/Users/a/Project": True, "/Users/a/Project/Kept": False, "/Users/a/PROJECT/both": True,
            "/Users/a/project/BOTH": False}  # fmt: skip
    restrictions = ClientRestrictions(named="test", areas=(area,))
    assert restrictions.writes(on_volume("/users/a/project/f"))
    for kept in ("/users/a/project/kept/f", "/Users/a/Project/KEPT", "/Users/a/Project/both/f"):
        assert not restrictions.writes(on_volume(kept))
    assert not restrictions.writes(on_volume("/users/b/f"))
    assert not restrictions.writes("/users/a/project/f")
    assert restrictions.writes("/Users/a/Project/KEPT/f"), "another folder where case counts"
    assert "/Users/a/Project/Kept" in restrictions.protected_paths("/users/A/project")


COMPARED = (
    ("CAF\u00c9", NameComparison.CASELESS, True, True),
    ("cafe\u0301", NameComparison.CASELESS, True, True),
    ("cafe\u0301", NameComparison.NORMALIZED, True, True),
    ("CAF\u00c9", NameComparison.NORMALIZED, False, False),
    ("cafe\u0301", NameComparison.EXACT, False, False),
    # Only some volumes take it for the same.
    ("caf\u00e9\u200d", NameComparison.CASELESS, True, False),
)


def test_a_rule_compares_as_the_volume_does_and_only_a_deny_rule_as_some_volumes_do() -> None:
    denies, allows = path_tests("src/caf\u00e9")
    for name, comparison, denied, allowed in COMPARED:
        path = on_volume(f"src/{name}", comparison)
        assert (denies(path), allows(path)) == (denied, allowed), (name, comparison)
    denies, allows = path_tests("stra\u00dfe.txt")
    for name, allowed in (("STRA\u00dfE.TXT", True), ("STRASSE.txt", False)):
        assert (denies(on_volume(name)), allows(on_volume(name))) == (True, allowed)


OF_LAUNCHD = "/usr/bin:/bin:/usr/sbin:/sbin"


@pytest.mark.usefixtures("darwin")
def test_homebrew_comes_last_and_once(tmp_path: Path) -> None:
    found = program_folders(OF_LAUNCHD, [str(tmp_path / "missing")])
    assert found == (*OF_LAUNCHD.split(":"), *HOMEBREW)
    first = f"{HOMEBREW[0]}:/usr/bin"
    assert program_folders(first, []) == (HOMEBREW[0], "/usr/bin", HOMEBREW[1])


@pytest.mark.usefixtures("darwin")
def test_the_developer_tools_come_before_their_shims(tmp_path: Path) -> None:
    tools = tmp_path / "Xcode/usr/bin"
    tools.mkdir(parents=True)
    link = tmp_path / "xcode_select_link"
    link.symlink_to(tmp_path / "Xcode")
    for path in (OF_LAUNCHD, "/opt/homebrew/bin:/usr/local/bin"):
        found = program_folders(path, [str(tmp_path / "missing"), str(link), str(tmp_path / "other")])
        assert set(found) == {*path.split(":"), str(tools), *HOMEBREW}
        assert "/usr/bin" not in found or found.index(str(tools)) < found.index("/usr/bin")


@pytest.mark.usefixtures("darwin")
def test_a_shim_is_no_program(tmp_path: Path) -> None:
    assert is_executable("/usr/bin/git")
    assert find_program(["git"], ["/usr/bin"]) is None
    assert find_executables("git", ["/usr/bin"], ()) == []
    real = program(tmp_path, "git", "")
    assert find_program(["git"], ["/usr/bin", str(tmp_path)]) == real
    assert find_program(["env"], ["/usr/bin"]) == "/usr/bin/env"
