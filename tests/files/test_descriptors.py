"""Paths of descriptors and files without a name."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcp_toolserver.runtime.anonymous_file import anonymous_file
from mcp_toolserver.runtime.descriptor_path import descriptor_path


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def test_a_folder_has_the_path_that_it_was_moved_to(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    with opened(folder) as descriptor:
        assert descriptor_path(descriptor) == str(folder)
        folder.rename(tmp_path / "new")
        assert descriptor_path(descriptor) == str(tmp_path / "new")


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
