"""Whose things are whose, and who hears of a change."""

import pytest

from mcp_toolserver.capabilities import change_events
from mcp_toolserver.capabilities.change_events import ChangeEvents, ResourceRef

Heard = list[tuple[ResourceRef, frozenset[str], bool]]


@pytest.fixture
def known() -> ChangeEvents:
    return ChangeEvents()


def heard_of(known: ChangeEvents) -> Heard:
    heard: Heard = []
    known.on_change = lambda *event: heard.append(event)
    return heard


def test_a_thing_is_listed_to_the_caller_whose_call_made_it_and_to_nobody_else(known: ChangeEvents) -> None:
    with known.on_behalf_of("one"):
        known.changed("job", "a")
        with known.on_behalf_of("two"):
            known.changed("job", "b")
        known.changed("output", "c")
    known.changed("job", "d")
    assert known.of("one", "job") == ("a",)
    assert known.of("one", "output") == ("c",)
    assert known.of("two", "job") == ("b",)
    assert known.of("three", "job") == ()


def test_the_newest_is_listed_first_until_its_caller_is_forgotten(known: ChangeEvents) -> None:
    with known.on_behalf_of("one"):
        for handle in ("a", "b", "a"):
            known.changed("job", handle)
    assert known.of("one", "job") == ("b", "a")
    known.forget("one")
    known.forget("one")
    assert known.of("one", "job") == ()


def test_a_change_is_announced_with_whose_it_is_and_whether_it_is_new(known: ChangeEvents) -> None:
    heard = heard_of(known)
    with known.on_behalf_of("one"):
        known.changed("job", "a")
        known.changed("job", "a")
        known.changed("preferences")
    known.changed("job", "a")
    known.removed("job", "a")
    known.removed("job", "a")
    one, none = frozenset({"one"}), frozenset[str]()
    assert heard == [
        (("job", "a"), one, True),
        (("job", "a"), one, False),
        (("preferences", ""), none, False),
        (("job", "a"), one, False),
        (("job", "a"), one, True),
        (("job", "a"), none, True),
    ]
    assert known.of("one", "job") == ()


def test_callers_and_their_things_are_bounded(known: ChangeEvents) -> None:
    for caller in range(change_events.MAX_CALLERS + 1):
        with known.on_behalf_of(str(caller)):
            known.changed("job", "a")
    assert known.of("0", "job") == ()
    assert known.of("1", "job") == ("a",)
    with known.on_behalf_of("1"):
        for number in range(change_events.MAX_REFS):
            known.changed("output", str(number))
    assert known.of("1", "job") == ()
    assert len(known.of("1", "output")) == change_events.MAX_REFS
