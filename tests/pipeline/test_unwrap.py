"""Wrapped text as clients show it."""

from hypothesis import example, given
from hypothesis import strategies as st

from mcp_toolserver.pipeline.registry import unwrapped

TEXTS = {
    "One\ntwo.\nThree.\n": "One two. Three.",
    "One\ntwo.\n\nThree\nfour.": "One two.\n\nThree four.",
    "Do:\n- one\n  thing\n- another\n1. a\n2) b": "Do:\n- one thing\n- another\n1. a\n2) b",
    "- item\n\nText\nafter.": "- item\n\nText after.",
    "See\nthis:\n```\na\n\nb\n```\nand\nthat.": "See this:\n```\na\n\nb\n```\nand that.",
    "As:\n\n    a = 1\n    b = 2\n\nSo\nit is.": "As:\n\n    a = 1\n    b = 2\n\nSo it is.",
    "First.\n    Second\n    third.\n    ": "First. Second third.",
    "Sum: a\n-b or c\n*d*": "Sum: a -b or c *d*",
    " \n": "",
}


def test_a_line_break_within_a_paragraph_becomes_a_space() -> None:
    assert {text: unwrapped(text) for text in TEXTS} == TEXTS


@example("1\n- \n\n1")
@given(st.text(st.sampled_from("ab .-`1\n "), max_size=60))
def test_no_word_is_lost_and_a_second_time_changes_nothing(text: str) -> None:
    once = unwrapped(text)
    assert once.split() == text.split()
    assert unwrapped(once) == once
