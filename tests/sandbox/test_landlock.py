"""Landlock rules: which rights each version has, and what the kernel then refuses."""

from collections.abc import Mapping

from mcp_toolserver.runtime.sandbox.layers import landlock
from tests.sandbox.locked import USERS, outcomes

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


PLACES: Mapping[str, tuple[dict[str, list[str]], set[str]]] = {
    "descriptor": ({"reads": ["descriptor"]}, {"read_workspace"}),
    "path": ({"reads": ["workspace"]}, {"read_workspace"}),
    "link": ({"reads": ["link"]}, {"read_workspace"}),
    "listed": ({"listed": ["workspace"]}, {"read_workspace"}),
    "listed link": ({"listed": ["link"]}, set()),
    "file": ({"writes": ["outside/old"]}, {"write_outside"}),
    "missing": ({"reads": ["workspace", "nowhere/at/all"]}, {"read_workspace"}),
}
"""By case the rules, and what works of the attempts."""


def test_a_rule_for_a_folder_covers_all_below_it() -> None:
    """Where a link has come since, nothing is granted; what is not there is skipped."""
    names = ("read_workspace", "write_workspace", "write_outside", "read_hidden")
    for case, (rules, works) in PLACES.items():
        came = outcomes(USERS[-1], {"name": "places", **rules}, names)
        assert {name for name in names if came[name] == "done"} == works, case
