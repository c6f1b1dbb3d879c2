"""Landlock rules: which rights each version has, and what the kernel then refuses."""

from collections.abc import Mapping

from mcp_toolserver.runtime.sandbox.layers import landlock
from tests.sandbox.locked import USERS, outcomes, python

SINCE: Mapping[str, int] = {"truncate_outside": 3, "tcp": 4, "signal_outsider": 6, "abstract": 6}
"""The version that an attempt is refused since."""


def test_a_version_refuses_what_it_knows() -> None:
    """`test_process_locks.py` has the attempts that every version in use refuses, and its control."""
    free = outcomes(USERS[-1], None, list(SINCE))
    assert free == dict.fromkeys(SINCE, "done")
    for abi in (3, 4, 5, 6, 7):
        came = outcomes(USERS[-1], {"name": "landlock", "abi": abi}, list(SINCE))
        assert {name: came[name] != "done" for name in SINCE} == {
            name: abi >= since for name, since in SINCE.items()
        }, abi


def test_each_version_handles_the_rights_that_came_with_it() -> None:
    for abi, bit in {1: 12, 2: 13, 3: 14, 5: 15, 9: 16}.items():
        assert landlock.handled_rights(abi) >> bit & 1
        assert not landlock.handled_rights(abi - 1) >> bit & 1


def test_rights_that_a_version_lacks_are_named() -> None:
    assert landlock.missing_rights(99) == ()
    assert landlock.missing_rights(9) == ("UDP",)
    assert "truncating files" in landlock.missing_rights(2)
    assert "truncating files" not in landlock.missing_rights(3)
    assert "files" in landlock.missing_rights(0)


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
landlock.restrict(rules)
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
)
"""


def test_a_rule_for_a_folder_covers_all_below_it() -> None:
    """Where a link has come since, nothing is granted; what is not there is skipped."""
    for rules, works in {
        "descriptor": ["read", "list"],
        "path": ["read", "list"],
        "link": ["read", "list"],
        "listed": ["read", "list"],
        "listed-link": [],
        "file": ["write-single"],
        "missing": ["read", "list"],
    }.items():
        assert python(PLACES, rules).split() == works, rules
