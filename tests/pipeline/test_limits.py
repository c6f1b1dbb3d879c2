"""Cutting at byte limits: exactly at the limit is whole, and what is cut can be had."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.capabilities.call_scope import Room, SavedOutput
from mcp_toolserver.pipeline.call import fit
from mcp_toolserver.text.lines.encoding import head_bytes, tail_bytes
from mcp_toolserver.tool_spec import Output


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


@dataclass
class StoredTexts:
    """Keeps what it is given, or cannot."""

    kept: list[str] = field(default_factory=list[str])
    is_full: bool = False

    async def save(self, text: str) -> SavedOutput:
        if self.is_full:
            raise OSError(28, "the disk is full")
        self.kept.append(text)
        return SavedOutput(handle="h", path="/state/h.txt", size=len(text.encode()))


async def test_one_byte_over_the_limit_is_cut_and_kept_whole() -> None:
    saver = StoredTexts()
    whole = await fit(Output("é" * 50), Room(bytes=100), saver.save)
    assert (whole.text, whole.truncated, whole.saved_output, saver.kept) == ("é" * 50, False, None, [])
    cut = await fit(Output("é" * 50 + "x"), Room(bytes=100), saver.save)
    assert cut.text.endswith(', path "/state/h.txt"]\n' + "é" * 12 + "x")
    assert cut.truncated
    assert saver.kept == ["é" * 50 + "x"]


@given(st.text(min_size=200), st.integers(140, 700))
async def test_what_is_cut_keeps_the_limit_with_its_note(text: str, limit: int) -> None:
    assert len((await fit(Output(text), Room(bytes=limit), StoredTexts().save)).text.encode()) <= limit


async def test_what_has_too_many_lines_for_the_client_is_cut_too() -> None:
    text = "\n".join(map(str, range(100)))
    cut = await fit(Output(text), Room(lines=20), StoredTexts().save)
    assert cut.text.startswith("0\n1\n")
    assert cut.text.endswith("98\n99")
    assert "/state/h.txt" in cut.text
    assert cut.text.count("\n") < 20
    assert await fit(Output(text), Room(lines=100), StoredTexts().save) == Output(text)


async def test_what_the_tool_itself_kept_or_cut_is_not_kept_twice_and_stays_marked() -> None:
    saver = StoredTexts()
    own = SavedOutput(handle="own", path="/state/own.txt", size=300)
    fitted = await fit(Output("x" * 200, saved_output=own), Room(bytes=100), saver.save)
    assert (fitted.saved_output, saver.kept) == (own, [])
    fitted = await fit(Output("short", truncated=True), Room(bytes=100), saver.save)
    assert (fitted.text, fitted.truncated) == ("short", True)


async def test_what_cannot_be_saved_is_cut_all_the_same_and_the_reason_is_given() -> None:
    fitted = await fit(Output("x" * 220), Room(bytes=200), StoredTexts(is_full=True).save)
    assert fitted.text.endswith("x\n[78 bytes could not be saved, because the disk is full]\n" + "x" * 50)
    assert (fitted.truncated, fitted.saved_output) == (True, None)
