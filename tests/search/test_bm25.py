"""Words and what suits them."""

from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.text.tool_search import scores, weights, words


def test_names_and_sentences_fall_into_words() -> None:
    assert words("NotebookEdit") == ["notebook", "edit"]
    assert words("git_log") == ["git", "log"]
    assert words("HTTPServer v2") == ["http", "server", "v", "2"]
    assert words("notes, classes: pass") == ["note", "classe", "pass"]
    assert words("LSP") == ["lsp"]
    assert words("…") == []


def test_a_rare_word_counts_more_than_a_common_one() -> None:
    texts = [weights([("file read", 1)]), weights([("file write", 1)]), weights([("file", 1)])]
    first, second, third = scores(words("file read"), texts)
    assert first > third > 0
    assert first > second > 0


def test_a_word_that_begins_alike_counts_less_than_the_word_itself() -> None:
    exact, begun, other = scores(["note"], [weights([(text, 1)]) for text in ("note", "notebook", "book")])
    assert exact > begun > other == 0


def test_a_short_text_beats_a_long_one_with_the_same_word() -> None:
    short, long = scores(["log"], [weights([("log", 1)]), weights([("log of all that was ever done", 1)])])
    assert short > long


def test_a_part_that_is_worth_more_wins() -> None:
    name, body = scores(["log"], [weights([("log", 3), ("x", 1)]), weights([("x", 3), ("log", 1)])])
    assert name > body


@given(st.text(max_size=50), st.lists(st.text(max_size=50), max_size=5))
def test_any_text_gets_a_score_that_is_not_negative(query: str, texts: list[str]) -> None:
    found = scores(words(query), [weights([(text, 1.0)]) for text in texts])
    assert len(found) == len(texts)
    assert all(score >= 0 for score in found)
