"""What is announced of a change, and how much is remembered of callers."""

from mcp_toolserver.capabilities import change_events
from mcp_toolserver.capabilities.change_events import ChangeEvents, ResourceRef


def test_a_change_is_announced_with_whose_it_is_and_whether_it_is_new() -> None:
    known = ChangeEvents()
    heard: list[tuple[ResourceRef, frozenset[str], bool]] = []
    known.on_change = lambda *event: heard.append(event)
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


def test_callers_and_their_things_are_bounded() -> None:
    known = ChangeEvents()
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
