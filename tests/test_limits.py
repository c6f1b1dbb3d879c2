"""Cutting at byte limits: exactly at the limit is whole, and what is cut can be had."""

from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.capabilities.calls import Spill
from mcp_toolserver.limits import fit
from mcp_toolserver.spec import Output
from mcp_toolserver.text.clip import head_bytes, tail_bytes


class Shelf:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    async def spill(self, text: str) -> Spill:
        self.kept.append(text)
        return Spill(handle="h", path="/state/h.txt", size=len(text.encode()))


@given(st.text(), st.integers(0, 40))
def test_a_head_is_the_longest_start_within_the_limit(text: str, limit: int) -> None:
    head = head_bytes(text, limit)
    assert text.startswith(head)
    assert len(head.encode()) <= limit
    assert head == text or len(text[: len(head) + 1].encode()) > limit


@given(st.text(), st.integers(0, 40))
def test_a_tail_is_the_longest_end_within_the_limit(text: str, limit: int) -> None:
    tail = tail_bytes(text, limit)
    assert text.endswith(tail)
    assert len(tail.encode()) <= limit
    assert tail == text or len(text[len(text) - len(tail) - 1 :].encode()) > limit


async def test_text_exactly_at_the_limit_is_not_cut() -> None:
    shelf = Shelf()
    fitted = await fit(Output("é" * 50), 100, shelf)
    assert (fitted.text, fitted.truncated, fitted.spill, shelf.kept) == ("é" * 50, False, None, [])


async def test_one_byte_more_is_cut_and_kept_whole() -> None:
    shelf = Shelf()
    fitted = await fit(Output("é" * 50 + "x"), 100, shelf)
    assert fitted.text.startswith("é" * 50 + "\n[1 more bytes were cut")
    assert "/state/h.txt" in fitted.text
    assert fitted.truncated
    assert shelf.kept == ["é" * 50 + "x"]


async def test_what_the_tool_itself_kept_is_not_kept_twice() -> None:
    shelf = Shelf()
    own = Spill(handle="own", path="/state/own.txt", size=300)
    fitted = await fit(Output("x" * 200, spill=own), 100, shelf)
    assert (fitted.spill, shelf.kept) == (own, [])


async def test_a_tool_that_cut_its_own_text_stays_marked() -> None:
    fitted = await fit(Output("short", truncated=True), 100, Shelf())
    assert (fitted.text, fitted.truncated) == ("short", True)
