"""Paths of descriptors and files without a name, on Linux and as macOS does it."""

import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcp_toolserver.runtime.anonymous_file import anonymous_file
from mcp_toolserver.runtime.descriptor_path import descriptor_path


@pytest.fixture(params=["linux", "darwin"])
def platform(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each platform; fcntl then has F_GETPATH as macOS does."""
    monkeypatch.setattr(sys, "platform", request.param)
    if request.param == "darwin":
        monkeypatch.setattr(fcntl, "fcntl", fcntl_of_macos)
        monkeypatch.delattr(os, "memfd_create")
    return request.param


def fcntl_of_macos(descriptor: int, command: int, buffer: bytes) -> bytes:
    """F_GETPATH: the path with a zero byte behind it, in a buffer of MAXPATHLEN bytes."""
    assert (command, len(buffer)) == (50, 1024)
    path = os.readlink(f"/proc/self/fd/{descriptor}".encode())
    if not os.fstat(descriptor).st_nlink:
        raise FileNotFoundError(path)
    return path.ljust(1024, b"\0")


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@pytest.mark.usefixtures("platform")
def test_a_folder_has_the_path_that_it_was_moved_to(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    with opened(folder) as descriptor:
        assert descriptor_path(descriptor) == str(folder)
        folder.rename(tmp_path / "new")
        assert descriptor_path(descriptor) == str(tmp_path / "new")


@pytest.mark.usefixtures("platform")
def test_a_removed_folder_has_no_path_although_another_has_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    with opened(folder) as descriptor:
        folder.rmdir()
        with pytest.raises(FileNotFoundError):
            descriptor_path(descriptor)
        (tmp_path / "a (deleted)").mkdir()
        with pytest.raises(FileNotFoundError):
            descriptor_path(descriptor)
    with opened(tmp_path / "a (deleted)") as descriptor:
        assert descriptor_path(descriptor) == str(tmp_path / "a (deleted)")
    with pytest.raises(FileNotFoundError):
        descriptor_path(1 << 20)


@pytest.mark.usefixtures("platform")
def test_an_anonymous_file_holds_what_was_written_and_has_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with os.fdopen(anonymous_file("content"), "w+b") as file:
        assert not os.get_inheritable(file.fileno())
        assert os.fstat(file.fileno()).st_nlink == 0
        file.write(b"one")
        file.seek(0)
        assert file.read() == b"one"
        assert os.listdir(tmp_path) == []
