"""Landlock rules: which rights each version has, and what the kernel then refuses."""

import errno
import functools
from collections.abc import Mapping

import pytest

from mcp_toolserver.runtime.sandbox.layers import kernel, landlock
from mcp_toolserver.runtime.sandbox.layers.landlock import Right
from tests.sandbox.attempts import OUTSIDE_WRITES
from tests.sandbox.locked import USERS, outcomes, python

WRITES = (*OUTSIDE_WRITES, "write_workspace", "truncate_workspace", "dev_shm")
REACHES = ("signal_outsider", "signal_outsider_by_handle", "abstract", "tcp", "read_outsider")
ALLOWED = ("read_outside", "read_workspace", "write_private", "move_between_folders", "dev_null", "execute")
REFUSED = ("EACCES", "EPERM", "EXDEV")
ATTEMPTS = (*WRITES, *REACHES, *ALLOWED)


@functools.cache
def free(user: str) -> dict[str, str]:
    return outcomes(user, None, list(ATTEMPTS))


@functools.cache
def held(user: str, abi: int | None = None) -> dict[str, str]:
    return outcomes(user, {"name": "landlock", "abi": abi}, list(ATTEMPTS))


@pytest.mark.parametrize("user", USERS)
def test_what_no_rule_grants_is_refused_and_the_rest_works(user: str) -> None:
    assert {name: free(user)[name] for name in ATTEMPTS} == dict.fromkeys(ATTEMPTS, "done")
    came = held(user)
    assert {name: came[name] for name in (*WRITES, *REACHES) if came[name] not in REFUSED} == {}
    assert {name: came[name] for name in ALLOWED} == dict.fromkeys(ALLOWED, "done")


SINCE: Mapping[str, tuple[int, str]] = {
    "truncating": (3, "truncate_outside"),
    "tcp": (4, "tcp"),
    "signals": (6, "signal_outsider"),
    "abstract-sockets": (6, "abstract"),
}


def test_a_lower_version_refuses_only_what_it_knows() -> None:
    for abi in (3, 4, 5, 6, 7):
        found = {case: held(USERS[-1], abi)[attempt] != "done" for case, (_, attempt) in SINCE.items()}
        assert found == {case: abi >= since for case, (since, _) in SINCE.items()}, abi


def test_a_higher_version_than_the_kernel_has_is_not_asked_for() -> None:
    assert held(USERS[-1], 999) == held(USERS[-1])


def test_a_version_that_cannot_keep_files_from_being_emptied_is_refused() -> None:
    for abi in (2, 1, 0, -1):
        with pytest.raises(kernel.Unsupported):
            landlock.restrict(landlock.Rules(executes=("/",)), abi)


def test_each_version_handles_the_rights_that_came_with_it() -> None:
    came = {1: Right.MAKE_SYM, 2: Right.REFER, 3: Right.TRUNCATE, 5: Right.IOCTL_DEV, 9: Right.RESOLVE_UNIX}
    for abi, right in came.items():
        assert landlock.handled_rights(abi) & right
        assert not landlock.handled_rights(abi - 1) & right


def test_rights_that_a_version_lacks_are_named() -> None:
    assert landlock.missing_rights(99) == ()
    assert landlock.missing_rights(9) == ("UDP",)
    assert "truncating files" in landlock.missing_rights(2)
    assert "truncating files" not in landlock.missing_rights(3)
    assert "files" in landlock.missing_rights(0)


def test_the_kernel_says_which_mistakes_it_does_not_make() -> None:
    assert all(number > 0 for number in landlock.mended_errata())


# --- places ----------------------------------------------------------------------------------------------

PLACES = """
import os, sys, tempfile
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from mcp_toolserver.runtime.sandbox.layers import landlock

top = Path(tempfile.mkdtemp())
(top / "folder").mkdir()
(top / "folder" / "file").write_text("x")
(top / "single").write_text("x")
(top / "other").write_text("x")
(top / "link").symlink_to("folder")
handle = os.open(top / "folder", os.O_PATH)
usual = ("/usr", "/lib", "/etc")
rules = {
    "descriptor": landlock.Rules(reads=(handle,)),
    "path": landlock.Rules(reads=(str(top / "folder"),)),
    "link": landlock.Rules(reads=(str(top / "link"),)),
    "listed": landlock.Rules(listed=(str(top / "folder"),)),
    "listed-link": landlock.Rules(listed=(str(top / "link"),)),
    "file": landlock.Rules(writes=(str(top / "single"),)),
    "missing": landlock.Rules(reads=(str(top / "folder"), "/nowhere/at/all")),
}[sys.argv[2]]
missing = landlock.restrict(rules)
def works(what):
    try:
        what()
        return True
    except OSError:
        return False
def write(path):
    with open(path, "r+") as file:
        file.write("y")
print(
    *(name for name, what in {
        "read": lambda: (top / "folder" / "file").read_text(),
        "list": lambda: os.listdir(top / "folder"),
        "write": lambda: write(top / "folder" / "file"),
        "write-single": lambda: write(top / "single"),
        "other": lambda: (top / "other").read_text(),
    }.items() if works(what)),
    *missing,
)
"""


def test_a_rule_for_a_folder_covers_all_below_it() -> None:
    for rules, works in {
        "descriptor": ["read", "list"],
        "path": ["read", "list"],
        "link": ["read", "list"],
        "listed": ["read", "list"],
        "file": ["write-single"],
        "missing": ["read", "list", "/nowhere/at/all"],
    }.items():
        assert python(PLACES, rules).split() == works, rules


def test_where_a_link_has_come_since_nothing_is_granted() -> None:
    (skipped,) = python(PLACES, "listed-link").split()
    assert skipped.endswith("/link")


LAYERS = """
import os, sys
sys.path.insert(0, sys.argv[1])
from mcp_toolserver.runtime.sandbox.layers import landlock
rules = landlock.Rules(executes=("/",))
for layer in range(100):
    try:
        landlock.restrict(rules)
    except OSError as error:
        print(layer, error.errno)
        break
"""


def test_the_kernel_tells_when_it_holds_a_process_as_often_as_it_can() -> None:
    layers, number = map(int, python(LAYERS).split())
    assert number == errno.E2BIG
    assert 0 < layers <= 16
