"""The lock of the server's own process on macOS: its profile as text, and its answer where nothing holds."""

import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from mcp_toolserver.runtime.sandbox.layers import seatbelt_server
from mcp_toolserver.runtime.sandbox.layers.process_locks import LockError
from mcp_toolserver.runtime.sandbox.layers.seatbelt_server import ServerProfile, lock_server
from tests.macos import seatbelt_profile

WANTED = ServerProfile(
    mode="workspace-write",
    reads=("/Users/u/state", "/Users/u/work"),
    writes=("/Users/u/state", "/Users/u/work"),
    network=False,
)


def allows(wanted: ServerProfile, operation: str, path: str = "") -> bool:
    forms = seatbelt_profile.parsed("\n".join(wanted.rules()))
    return seatbelt_profile.allows(forms, {}, operation, path)


def test_the_server_writes_where_its_mode_says_and_starts_nothing() -> None:
    reading = replace(WANTED, mode="read-only", writes=("/Users/u/state",))
    assert allows(WANTED, "file-write-create", "/Users/u/work/a")
    assert not allows(reading, "file-write-create", "/Users/u/work/a")
    for wanted in (WANTED, reading):
        assert allows(wanted, "file-write-create", "/Users/u/state/a")
        assert allows(wanted, "file-read-data", "/Users/u/work/a")
        assert allows(wanted, "file-read-data", f"{sys.prefix}/x")
        for path in ("/Users/u/.ssh/id", "/Users/u/else", "/private/var/tmp/x"):
            assert not allows(wanted, "file-write-create", path)
            assert not allows(wanted, "file-read-data", path)
        assert not allows(wanted, "process-exec", "/bin/sh")
        assert not allows(wanted, "process-fork")
        assert not allows(wanted, "file-write-setugid", "/Users/u/state/a")


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
        assert allows(wanted, "file-write-create", f"{path}/x"), path
        assert not allows(wanted, "file-write-create", "/Users/u/else"), path
        assert not allows(wanted, "process-fork"), path
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
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    try:
        with pytest.raises(LockError, match="threads run"):
            lock_server(wanted_in(tmp_path))
    finally:
        release.set()
        thread.join()
