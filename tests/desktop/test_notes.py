"""The notes of the user: the script with a stand-in for Apple Notes where something can run it, and the rest
with programs that say what the script says.
"""

import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.capabilities.notes import NoteQuery
from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.errors import RegistrationError, TimedOut
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.runtime.desktop.executables import find_desktop
from mcp_toolserver.runtime.desktop.helper_process import DesktopHelpers
from mcp_toolserver.runtime.desktop.notes import AppleNotes
from mcp_toolserver.text.desktop.notes import below_title, notes_script
from tests.desktop.desktop import RUNNERS, desktop_server, given, osascript, stand_ins, state_of
from tests.support.processes import broker, call
from tests.support.workshop import granted, names

TOOLS = {"list_notes", "read_note", "create_note", "update_note"}
NEEDS_RUNNER = pytest.mark.skipif(not RUNNERS, reason="nothing here runs JavaScript")
HOSTILE = "-x'; touch evil; \" $(touch evil) `touch evil` \\ </div><b>&amp; \U0001f600 \u2028 ${app} "


def note(id_: str, text: str, changed: int, **more: object) -> dict[str, object]:
    body = "".join(f"<div>{line}</div>" for line in text.split("\n"))
    return {"id": id_, "body": body, "changed": f"2026-03-0{changed}T00:00:00.000Z", **more}


def accounts() -> dict[str, Any]:
    """Two, with a folder in a folder, and one name for two folders."""
    old = {"id": "f2", "name": "Old", "notes": [note("n3", "VAT\nold", 3)]}
    shop = [note("n1", "VAT\n19&nbsp;%\nask", 1), note("n2", "Locked\nx", 2, locked=True)]
    other = [note("n4", "VAT\nwork", 4), note("n5", "Picture\nx", 5, attachments=1)]
    return {
        "accounts": [
            {"name": "iCloud", "folders": [{"id": "f1", "name": "Shop", "notes": shop, "folders": [old]}]},
            {"name": "Work", "folders": [{"id": "f3", "name": "Shop", "notes": other}]},
        ]
    }


@asynccontextmanager
async def mac(folder: Path, **state: object) -> AsyncGenerator[Dispatcher]:
    """A server on a Mac whose Notes hold `accounts()`."""
    path = stand_ins(folder, {"osascript": osascript(folder, "apple_notes.js", {**accounts(), **state})})
    async with desktop_server(folder, path=path, environ={}, platform="darwin") as server:
        yield server


def bodies(folder: Path) -> dict[str, str]:
    """What the notes are by now."""
    top = [place for account in state_of(folder)["accounts"] for place in account["folders"]]
    places = [*top, *(inner for place in top for inner in place.get("folders", ()))]
    return {one["id"]: one["body"] for place in places for one in place["notes"]}


def ids(result: Result) -> list[str]:
    return re.findall(r"id (\w+)\)$", result.text, re.MULTILINE)


@NEEDS_RUNNER
async def test_notes_are_listed_newest_first_with_their_folders(tmp_path: Path) -> None:
    async with mac(tmp_path) as server:
        everything = await call(server, "list_notes")
        some = await call(server, "list_notes", query="vAt", folder="Shop")
        one = await call(server, "list_notes", folder="iCloud/Old")
        assert (await call(server, "list_notes", folder="None")).error == "not_found"
        assert "[0 of 0 notes" in (await call(server, "list_notes", query="%")).text
    assert ids(everything) == ["n5", "n4", "n3", "n2", "n1"]
    assert everything.text.startswith(
        "Picture (in Work/Shop, changed 2026-03-05T00:00:00.000Z, id n5)\nVAT ("
    )
    assert ids(some) == ["n4", "n1"]
    assert one.data == {
        "total": 1,
        "notes": [
            {"id": "n3", "title": "VAT", "folder": "iCloud/Old", "changed": "2026-03-03T00:00:00.000Z"}
        ],
    }


@NEEDS_RUNNER
@pytest.mark.parametrize(
    ("which", "expected"),
    [
        pytest.param({"id": "n1"}, "19 %\nask", id="id"),
        pytest.param({"title": "VAT", "folder": "Old"}, "old", id="folder"),
        pytest.param({"title": "VAT", "folder": "Work/Shop"}, "work", id="account and folder"),
        pytest.param({"title": "VAT", "index": 2}, "old", id="index"),
    ],
)
async def test_one_note_is_read_as_plain_text(which: dict[str, Any], expected: str, tmp_path: Path) -> None:
    async with mac(tmp_path) as server:
        result = await call(server, "read_note", **which)
    first, _, text = result.text.partition("\n")
    assert (result.error, text) == (None, expected)
    assert first.startswith("[VAT, in ")


@NEEDS_RUNNER
async def test_which_note_is_meant_is_never_guessed(tmp_path: Path) -> None:
    async with mac(tmp_path) as server:
        attempts: tuple[tuple[str, dict[str, Any]], ...] = (
            ("read_note", {}),
            ("update_note", {"body": "x"}),
        )
        for tool, more in attempts:
            several = await call(server, tool, title="VAT", **more)
            assert several.error == "invalid_input"
            assert all(f"id {one}" in several.text for one in ("n1", "n3", "n4"))
            assert "There are 3 notes" in (await call(server, tool, title="VAT", index=4, **more)).text
            unknown: tuple[dict[str, Any], ...] = (
                {"title": "vat"},
                {"id": "none"},
                {"id": "n1", "folder": "Old"},
            )
            for which in unknown:
                assert (await call(server, tool, **which, **more)).error == "not_found"
            unclear: tuple[dict[str, Any], ...] = ({}, {"title": "VAT", "id": "n1"})
            for which in unclear:
                assert (await call(server, tool, **which, **more)).error == "invalid_input"
            assert "locked" in (await call(server, tool, title="Locked", **more)).text
        assert "attachments" in (await call(server, "update_note", id="n5", body="x")).text
        twice = await call(server, "create_note", title="a", body="b", folder="Shop")
        assert (twice.error, "ACCOUNT/FOLDER" in twice.text) == ("invalid_input", True)
        assert (await call(server, "create_note", title="a", body="b", folder="No")).error == "not_found"
    before = {one["id"]: one["body"] for one in accounts()["accounts"][1]["folders"][0]["notes"]}
    assert before.items() <= bodies(tmp_path).items()


@NEEDS_RUNNER
async def test_what_is_written_is_text_and_never_script_or_markup(tmp_path: Path) -> None:
    text = f"{HOSTILE}\n\n  two  spaces\r\nend"
    async with mac(tmp_path) as server:
        made = await call(server, "create_note", title=HOSTILE.strip(), body=text)
        assert (made.error, "iCloud/Shop, id new." in made.text) == (None, True)
        read = await call(server, "read_note", id="new")
        assert read.text.partition("]\n")[2] == text.replace("\r", "").replace("\u2028", "\\u{2028}")
        assert "<b>" not in bodies(tmp_path)["new"]
        there = await call(server, "create_note", title="There", body="", folder="Work/Shop")
        assert "in Work/Shop" in there.text
        assert (await call(server, "update_note", id="n1", body="a < b")).text.startswith("Added to")
        assert bodies(tmp_path)["n1"].endswith("<div>ask</div><div>a &lt; b</div>")
        assert (await call(server, "update_note", id="n4", body="\tif x:\r\ty", mode="replace")).error is None
        read = await call(server, "read_note", id="n4")
        assert read.text.partition("]\n")[2] == "    if x:\n    y"
        done = await call(server, "update_note", title="VAT", folder="Old", body="new", mode="replace")
        assert done.text == "Replaced the text of the note 'VAT' in iCloud/Old, id n3."
        assert bodies(tmp_path)["n3"] == "<div>VAT</div><div>new</div>"
    assert not list(tmp_path.rglob("evil"))


# --- what the script says, said by a stand-in ------------------------------------------------------------

CARD = {"id": "n1", "title": "VAT", "folder": "iCloud/Shop", "changed": "2026-03-01T00:00:00.000Z"}
USUAL = {"most": 20, "folder": "", "index": 0, "id": "", "title": "VAT"}


@asynccontextmanager
async def saying(folder: Path, answer: Mapping[str, object] | str) -> AsyncGenerator[Dispatcher]:
    """A server on a Mac whose script gives this answer."""
    reply = answer if isinstance(answer, str) else json.dumps(answer)
    (folder / "answer").write_text(reply, encoding="utf-8")
    path = stand_ins(folder, {"osascript": f"cat > {folder}/stdin; cat {folder}/answer"})
    async with desktop_server(folder, path=path, environ={}, platform="darwin") as server:
        yield server


@pytest.mark.parametrize(
    ("tool", "arguments", "asked"),
    [
        pytest.param(
            "list_notes",
            {"query": HOSTILE},
            {"do": "list", "query": HOSTILE, "folder": "", "most": 100},
            id="list",
        ),
        pytest.param("read_note", {"title": "VAT"}, {**USUAL, "do": "read", "most": 100_000}, id="read"),
        pytest.param(
            "create_note",
            {"title": "t", "body": HOSTILE, "folder": "-f"},
            {"do": "create", "title": "t", "body": HOSTILE, "folder": "-f", "most": 20},
            id="create",
        ),
        pytest.param(
            "update_note",
            {"title": "VAT", "body": HOSTILE},
            {**USUAL, "do": "update", "body": HOSTILE, "append": True},
            id="append",
        ),
        pytest.param(
            "update_note",
            {"id": "n1", "index": 2, "folder": "f", "body": "b", "mode": "replace"},
            {"do": "update", "title": "", "id": "n1", "index": 2, "folder": "f", "most": 20}
            | {"body": "b", "append": False},
            id="replace",
        ),
    ],
)
async def test_the_script_is_always_the_same_and_gets_its_values_on_standard_input(
    tool: str, arguments: dict[str, Any], asked: dict[str, Any], tmp_path: Path
) -> None:
    async with saying(tmp_path, {"notes": [CARD], "total": 1, "text": "VAT\nx"}) as server:
        result = await call(server, tool, **arguments)
    assert result.error is None, result.text
    assert given(tmp_path) == list(notes_script("osascript")[3:])
    assert json.loads((tmp_path / "stdin").read_text(encoding="utf-8")) == asked
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        pytest.param({"problem": "no note"}, "not_found", "title 'VAT'", id="none"),
        pytest.param({"problem": "no note", "total": 2}, "not_found", "There are 2 notes", id="index"),
        pytest.param({"problem": "no folder"}, "not_found", "no folder", id="folder"),
        pytest.param({"problem": "locked"}, "unavailable", "password", id="locked"),
        pytest.param(
            {"problem": "several", "total": 2, "notes": [CARD]}, "invalid_input", "id n1", id="several"
        ),
        pytest.param({"notes": [CARD, CARD]}, "not_found", "title 'VAT'", id="two without a reason"),
        pytest.param({"problem": "no account"}, "unavailable", "open Notes once", id="no account"),
        pytest.param("no JSON", "unavailable", "no meaning", id="strange"),
        pytest.param('{"notes": [{}]}', "unavailable", "no meaning", id="half"),
    ],
)
async def test_a_refusal_says_what_to_do(
    answer: dict[str, Any] | str, kind: str, words: str, tmp_path: Path
) -> None:
    async with saying(tmp_path, answer) as server:
        result = await call(server, "read_note", title="VAT")
    assert (result.error, words in result.text) == (kind, True), result.text


async def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    async with saying(tmp_path, {"problem": "no folder"}) as server:
        result = await call(server, "list_notes", folder="Shop")
        assert (result.error, "'Shop'" in result.text) == ("not_found", True)
        result = await call(server, "read_note", id="n9", folder="Shop")
        assert (result.error, "'Shop'" in result.text) == ("not_found", True)


# What osascript prints: https://github.com/ankurk91/google-chat-electron/issues/13 (-1743) and
# https://github.com/RafalWilinski/mcp-apple-notes/issues/8 (-600).
@pytest.mark.parametrize(
    ("printed", "words"),
    [
        pytest.param(
            "execution error: Error: Error: Not authorized to send Apple events to Notes. (-1743)",
            "System Settings > Privacy & Security > Automation",
            id="denied",
        ),
        pytest.param("38:45: execution error: secret (-1744)", "Automation", id="not yet allowed"),
        pytest.param("execution error: secret (-10004)", "Automation", id="privilege"),
        pytest.param("execution error: Error: Error: AppleEvent timed out. (-1712)", "dialog", id="waits"),
        pytest.param(
            "execution error: Error: Error: Application isn't running. (-600)",
            "from Terminal",
            id="not running",
        ),
        pytest.param("execution error: secret (-609)", "open Notes", id="connection"),
        pytest.param("execution error: secret (-10810)", "open Notes", id="not started"),
        pytest.param("execution error: Error: Error: Can't get object. (-1728)", "no account", id="gone"),
        pytest.param(
            "execution error: Error: Error: Application can't be found. (-2700)",
            "not installed",
            id="missing",
        ),
        pytest.param("execution error: Error: secret (-2700)", "error -2700", id="script"),
        pytest.param("secret", "osascript failed", id="strange"),
    ],
)
async def test_what_macos_forbids_names_the_setting_and_shows_nothing_private(
    printed: str, words: str, tmp_path: Path
) -> None:
    path = stand_ins(tmp_path, {"osascript": f'echo "{printed}" >&2; exit 1'})
    async with desktop_server(tmp_path, path=path, environ={}, platform="darwin") as server:
        result = await call(server, "list_notes")
    assert (result.error, words in result.text, "secret" in result.text) == ("unavailable", True, False)


async def test_a_dialog_that_waits_for_the_user_ends_the_call_with_advice(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    with broker() as started:
        path = stand_ins(tmp_path, {"osascript": "exec sleep 1000"})
        helpers = DesktopHelpers(started, find_desktop(path, [], {}, "darwin"))
        notes = AppleNotes(helpers=helpers, program=helpers.program, seconds=0.1)
        with pytest.raises(TimedOut, match="answer the dialog on the screen"):
            await notes.listed("", "", 1)


@NEEDS_RUNNER
async def test_an_error_of_an_apple_event_ends_the_script(tmp_path: Path) -> None:
    error = {"message": "Not authorized to send Apple events to Notes.", "number": -1743}
    async with mac(tmp_path, error=error) as server:
        result = await call(server, "read_note", title="VAT")
    assert (result.error, "Automation" in result.text) == ("unavailable", True)


@NEEDS_RUNNER
async def test_notes_without_an_account_say_so(tmp_path: Path) -> None:
    async with mac(tmp_path, accounts=[]) as server:
        attempts: tuple[tuple[str, dict[str, Any]], ...] = (
            ("list_notes", {}),
            ("create_note", {"title": "a", "body": "b"}),
        )
        for tool, arguments in attempts:
            result = await call(server, tool, **arguments)
            assert (result.error, "no account" in result.text) == ("unavailable", True)


@NEEDS_RUNNER
async def test_thousands_of_notes_need_few_apple_events(tmp_path: Path) -> None:
    many = [note(f"m{at}", f"Note {at}", 1 + at % 9) for at in range(5_000)]
    many[7]["changed"] = None
    folder = {"id": "f1", "name": "Many", "notes": many}
    async with mac(tmp_path, accounts=[{"name": "Mac", "folders": [folder]}]) as server:
        result = await call(server, "list_notes")
        assert (result.error, "[100 of 5000 notes" in result.text) == (None, True)
        assert state_of(tmp_path)["events"] < 20
        assert (await call(server, "read_note", title="Note 7")).error is None


@NEEDS_RUNNER
async def test_the_longest_text_of_a_note_arrives_whole(tmp_path: Path) -> None:
    text = "\U0001f600" * 99_990
    longest = {"id": "f1", "name": "Long", "notes": [note("l1", f"Long\n{text}", 1)]}
    async with mac(tmp_path, accounts=[{"name": "Mac", "folders": [longest]}]) as server:
        read = await granted(server, Capability.NOTES_READ).desktop.notes.read(NoteQuery(id="l1"), 100_000)
    assert (read.text == text, read.whole) == (True, True)


@NEEDS_RUNNER
@pytest.mark.parametrize(
    ("times", "error"), [pytest.param(1, None, id="once"), pytest.param(9, "unavailable", id="always")]
)
async def test_notes_that_change_while_they_are_listed_are_read_again(
    times: int, error: str | None, tmp_path: Path
) -> None:
    async with mac(tmp_path, unsteady=times) as server:
        assert (await call(server, "list_notes", folder="Old")).error == error


async def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    async with saying(tmp_path, {"notes": [CARD], "total": 300_000, "text": "VAT\nx"}) as server:
        read = await call(server, "read_note", title="VAT")
        listed = await call(server, "list_notes")
    assert (read.truncated, "100,000 characters" in read.text) == (True, True)
    assert (listed.truncated, "[1 of 300000 notes" in listed.text) == (True, True)


async def test_notes_that_are_private_are_neither_read_nor_changed(tmp_path: Path) -> None:
    path = stand_ins(tmp_path, {"osascript": ""})
    async with desktop_server(tmp_path, path=path, environ={}, platform="darwin", private=False) as server:
        assert names(server) & TOOLS == {"create_note"}
        attempts: tuple[tuple[str, dict[str, Any]], ...] = (
            ("list_notes", {}),
            ("update_note", {"title": "a", "body": "b"}),
        )
        for tool, arguments in attempts:
            result = await call(server, tool, **arguments)
            assert (result.error, "--desktop-private" in result.text) == ("unavailable", True)
    assert not (tmp_path / "argv").exists()


async def test_elsewhere_there_are_no_notes_and_that_is_said(tmp_path: Path) -> None:
    path = stand_ins(tmp_path, {"osascript": ""})
    async with desktop_server(tmp_path, path=path, environ={"DISPLAY": ":0"}) as server:
        assert not names(server) & TOOLS
        attempts: tuple[tuple[str, dict[str, Any]], ...] = (
            ("list_notes", {}),
            ("create_note", {"title": "a", "body": "b"}),
        )
        for tool, arguments in attempts:
            result = await call(server, tool, **arguments)
            assert (result.error, "macOS only" in result.text) == ("unavailable", True)


async def test_changing_a_note_needs_the_right_to_read_it(tmp_path: Path) -> None:
    async with saying(tmp_path, {"notes": [CARD]}) as server:
        made = granted(server, Capability.NOTES_WRITE).desktop.notes
        with pytest.raises(RegistrationError, match="notes_read"):
            await made.update(NoteQuery(id="n1"), "x", append=True)
    assert not (tmp_path / "argv").exists()


def test_the_title_is_reported_once() -> None:
    assert below_title("VAT", " VAT \nx\ny") == "x\ny"
    assert below_title("VAT", "other\nx") == "other\nx"
