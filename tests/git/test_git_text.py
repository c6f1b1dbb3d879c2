"""What is made of git's words."""

from hypothesis import given
from hypothesis import strategies as st

from mcp_toolserver.capabilities.git import GitChange
from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.text.git.log import blanked, commits
from mcp_toolserver.text.git.names import ends, peeled
from mcp_toolserver.text.git.status import parsed
from tests.support.extent import examples

ADDRESSES = {
    "https://example.org/x.git": "https://example.org/x.git",
    "https://hunter2@example.org/x.git": "https://[redacted]@example.org/x.git",
    "https://me:hunter2@example.org:8443/x.git": "https://[redacted]@example.org:8443/x.git",
    "https://me:hunter@2@example.org/x": "https://[redacted]@example.org/x",
    "https://example.org/x.git?token=hunter2": "https://example.org/x.git?[redacted]",
    "https://example.org/x.git#hunter2": "https://example.org/x.git#[redacted]",
    "https://example.org?hunter2@x": "https://example.org?[redacted]",
    "HTTPS://hunter2@example.org/x": "HTTPS://[redacted]@example.org/x",
    "ssh://git@example.org/x.git": "ssh://git@example.org/x.git",
    "ssh://me:hunter2@example.org/x.git": "ssh://me:[redacted]@example.org/x.git",
    "../library": "../library",
    "": "",
}


def test_an_address_is_shown_without_credentials() -> None:
    assert {address: blanked(address) for address in ADDRESSES} == ADDRESSES


@examples(20)
@given(st.text(max_size=40))
def test_every_end_is_peeled(text: str) -> None:
    try:
        found = peeled(text)
    except InvalidInput:
        return
    assert all(end.endswith("^{commit}") for end in ends(found))


HEADS = b"# branch.oid 1234\0# branch.head main\0"


def test_a_status_that_was_cut_loses_its_last_entry() -> None:
    answer = HEADS + b"? one\0? two\0? thr"
    one = GitChange(path="one", staged="?", unstaged="?", origin="")
    assert parsed(answer, complete=False).changes == (one,)
    renamed = b"2 R. N... 100644 100644 100644 aa bb R100 new\0ol"
    assert parsed(HEADS + b"? one\0" + renamed, complete=False).changes == (one,)
    assert not parsed(answer, complete=False).complete


@examples(20)
@given(st.binary(max_size=300))
def test_a_status_of_anything_is_no_crash_when_it_is_cut(tail: bytes) -> None:
    assert parsed(HEADS + b"? " + tail.replace(b"\0", b"") + b"\0\0", complete=False).branch == "main"


def test_a_commit_that_was_cut_is_left_out() -> None:
    whole = b"id\0name\0mail\0date\0subject\0body\n\0"
    assert [commit.id for commit in commits(whole + whole)] == ["id", "id"]
    assert [commit.body for commit in commits(whole + whole[:-9])] == ["body"]
    assert commits(b"") == ()
