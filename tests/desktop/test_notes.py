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

from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.errors import RegistrationError
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.pipeline.validation import about
from mcp_toolserver.text.desktop import scripts
from mcp_toolserver.text.desktop.programs import script
from mcp_toolserver.tools.desktop.read_note import TOOL as READ_NOTE
from tests.desktop.desktop import given, on_linux, on_mac, osascript, refusal, state_of
from tests.support.processes import call
from tests.support.workshop import granted, names

TOOLS = {"list_notes", "read_note", "create_note", "update_note"}
CREATES: dict[str, Any] = {"title": "a", "body": "b"}
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
    script = osascript(folder, "apple_notes.js", {**accounts(), **state})
    async with on_mac(folder, {"osascript": script}) as server:
        yield server


Calls = tuple[tuple[str, dict[str, Any]], ...]


def bodies(folder: Path) -> dict[str, str]:
    top = [place for account in state_of(folder)["accounts"] for place in account["folders"]]
    places = [*top, *(inner for place in top for inner in place.get("folders", ()))]
    return {one["id"]: one["body"] for place in places for one in place["notes"]}


def ids(result: Result) -> list[str]:
    return re.findall(r"id (\w+)\)$", result.text, re.MULTILINE)


READ: tuple[tuple[dict[str, Any], str], ...] = (
    ({"id": "n1"}, "19 %\nask"),
    ({"title": "VAT", "folder": "Old"}, "old"),
    ({"title": "VAT", "folder": "Work/Shop"}, "work"),
    ({"title": "VAT", "index": 2}, "old"),
)


async def test_notes_are_listed_newest_first_with_their_folders_and_read_as_plain_text(
    tmp_path: Path,
) -> None:
    async with mac(tmp_path) as server:
        for which, expected in READ:
            result = await call(server, "read_note", **which)
            first, _, text = result.text.partition("\n")
            assert (result.error, text) == (None, expected)
            assert first.startswith("[VAT, in ")
        everything = await call(server, "list_notes")
        some = await call(server, "list_notes", query="vAt", folder="Shop")
        one = await call(server, "list_notes", folder="iCloud/Old")
        await refusal(server, "not_found", "no folder 'None'", "list_notes", folder="None")
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


async def test_which_note_is_meant_is_never_guessed(tmp_path: Path) -> None:
    async with mac(tmp_path) as server:
        attempts: Calls = (("read_note", {}), ("update_note", {"body": "x"}))
        for tool, more in attempts:
            several = await call(server, tool, title="VAT", **more)
            assert several.error == "invalid_input"
            assert all(f"id {one}" in several.text for one in ("n1", "n3", "n4"))
            unknown: tuple[tuple[dict[str, Any], str], ...] = (
                ({"title": "vat"}, "title 'vat'"),
                ({"title": "VAT", "index": 4}, "There are 3 notes"),
                ({"id": "none"}, "id 'none'"),
                ({"id": "n1", "folder": "Old"}, "id 'n1'"),
                ({"id": "n1", "folder": "None"}, "no folder 'None'"),
            )
            # Both tools find a note alike.
            for which, words in unknown if tool == "read_note" else unknown[:2]:
                await refusal(server, "not_found", words, tool, **which, **more)
            assert (await call(server, tool, **more)).error == "invalid_input"
            await refusal(server, "unavailable", "locked with a password", tool, title="Locked", **more)
        by_id = await call(server, "read_note", title="Locked", id="n3", index=2)
        assert by_id.text.startswith("[VAT, in iCloud/Old")
        both = READ_NOTE.args.model_validate({"title": "a", "id": "b"})
        assert about(READ_NOTE, both) == ("a", "b"), "rules see both"
        assert "attachments" in (await call(server, "update_note", id="n5", body="x")).text
        await refusal(server, "invalid_input", "ACCOUNT/FOLDER", "create_note", **CREATES, folder="Shop")
        assert (await call(server, "create_note", **CREATES, folder="No")).error == "not_found"
    before = {one["id"]: one["body"] for one in accounts()["accounts"][1]["folders"][0]["notes"]}
    assert before.items() <= bodies(tmp_path).items()


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


CARD = {"id": "n1", "title": "VAT", "folder": "iCloud/Shop", "changed": "2026-03-01T00:00:00.000Z"}


def answer(folder: Path, said: Mapping[str, object] | str) -> None:
    """From now on the script of a server of `saying` gives this answer."""
    text = said if isinstance(said, str) else json.dumps(said)
    (folder / "answer").write_text(text, encoding="utf-8")


@asynccontextmanager
async def saying(folder: Path, said: Mapping[str, object] | str = "") -> AsyncGenerator[Dispatcher]:
    answer(folder, said)
    async with on_mac(folder, {"osascript": "cat > {folder}/stdin; cat {folder}/answer"}) as server:
        yield server


ASKED: tuple[tuple[str, dict[str, Any], int], ...] = (
    ("list_notes", {"query": HOSTILE}, 100),
    ("read_note", {"title": "VAT"}, 100_000),
    ("create_note", {"title": "t", "body": HOSTILE, "folder": "-f"}, 20),
    ("update_note", {"title": "VAT", "body": HOSTILE}, 20),
)


async def test_the_script_is_always_the_same_and_gets_its_values_on_standard_input(tmp_path: Path) -> None:
    async with saying(tmp_path, {"notes": [CARD], "total": 1, "text": "VAT\nx"}) as server:
        for tool, arguments, most in ASKED:
            result = await call(server, tool, **arguments)
            assert result.error is None, result.text
            assert given(tmp_path) == list(script(scripts.NOTES)(["osascript"], ())[3:])
            asked = json.loads((tmp_path / "stdin").read_text(encoding="utf-8"))
            assert {**arguments, "most": most}.items() <= asked.items()
    assert not list(tmp_path.rglob("evil"))


REFUSALS: tuple[tuple[dict[str, Any] | str, str, str], ...] = (
    # Two without a reason.
    ({"notes": [CARD, CARD]}, "not_found", "title 'VAT'"),
    ("no JSON", "unavailable", "no meaning"),
    ('{"notes": [{}]}', "unavailable", "no meaning"),
)


async def test_what_is_cut_or_has_no_meaning_is_said_to_be_so(tmp_path: Path) -> None:
    async with saying(tmp_path, {"notes": [CARD], "total": 300_000, "text": "VAT\nx"}) as server:
        # What is left out is said.
        cut: tuple[tuple[str, dict[str, Any], str], ...] = (
            ("read_note", {"title": "VAT"}, "100,000 characters"),
            ("list_notes", {}, "[1 of 300000 notes"),
        )
        for tool, arguments, words in cut:
            result = await call(server, tool, **arguments)
            assert (result.truncated, words in result.text) == (True, True)
        # Only a title is no part of the text.
        answer(tmp_path, {"notes": [CARD], "text": "other\nx"})
        assert "]\nother\nx" in (await call(server, "read_note", title="VAT")).text
        for said, kind, words in REFUSALS:
            answer(tmp_path, said)
            await refusal(server, kind, words, "read_note", title="VAT")


# What osascript prints: https://github.com/ankurk91/google-chat-electron/issues/13 (-1743) and
# https://github.com/RafalWilinski/mcp-apple-notes/issues/8 (-600).
FORBIDDEN = (
    (
        "execution error: Error: Error: Not authorized to send Apple events to Notes. (-1743)",
        "System Settings > Privacy & Security > Automation",
    ),
    ("execution error: secret (-609)", "open Notes"),
    ("secret", "osascript failed"),
)


async def test_what_macos_forbids_names_the_setting_and_shows_nothing_private(tmp_path: Path) -> None:
    async with on_mac(tmp_path, {"osascript": "cat {folder}/answer >&2; exit 1"}) as server:
        for printed, words in FORBIDDEN:
            answer(tmp_path, printed)
            assert "secret" not in await refusal(server, "unavailable", words, "list_notes")


async def test_an_error_of_an_apple_event_ends_the_script_and_no_account_is_one(tmp_path: Path) -> None:
    error = {"message": "Not authorized to send Apple events to Notes.", "number": -1743}
    async with mac(tmp_path, error=error) as server:
        await refusal(server, "unavailable", "Automation", "read_note", title="VAT")
    async with mac(tmp_path, accounts=[]) as server:
        await refusal(server, "unavailable", "open Notes once", "list_notes")
        await refusal(server, "unavailable", "open Notes once", "create_note", **CREATES)


async def test_thousands_of_notes_need_few_apple_events_and_the_longest_text_arrives_whole(
    tmp_path: Path,
) -> None:
    text = "\U0001f600" * 99_990
    many = [note(f"m{at}", f"Note {at}", 1 + at % 9) for at in range(4_999)]
    many[7]["changed"] = None
    folder = {"id": "f1", "name": "Many", "notes": [*many, note("long", f"Long\n{text}", 1)]}
    async with mac(tmp_path, accounts=[{"name": "Mac", "folders": [folder]}]) as server:
        result = await call(server, "list_notes")
        assert (result.error, "[100 of 5000 notes" in result.text) == (None, True)
        assert state_of(tmp_path)["events"] < 20
        assert (await call(server, "read_note", title="Note 7")).error is None
        desktop = granted(server, Capability.NOTES_READ).desktop
        read = await desktop.note("read", id="long", title="", folder="", most=100_000)
        assert read.text == f"Long\n{text}"


async def test_notes_that_change_while_they_are_listed_are_read_again(tmp_path: Path) -> None:
    for times, error in ((1, None), (9, "unavailable")):
        async with mac(tmp_path, unsteady=times) as server:
            assert (await call(server, "list_notes", folder="Old")).error == error


async def test_notes_that_are_private_are_neither_read_nor_changed(tmp_path: Path) -> None:
    async with on_mac(tmp_path, {"osascript": ""}, private=False) as server:
        assert names(server) & TOOLS == {"create_note"}
        await refusal(server, "unavailable", "--desktop-private", "list_notes")
        await refusal(server, "unavailable", "--desktop-private", "update_note", **CREATES)
    async with on_linux(tmp_path, {"osascript": ""}) as server:
        assert not names(server) & TOOLS
        await refusal(server, "unavailable", "macOS only", "list_notes")
        await refusal(server, "unavailable", "macOS only", "create_note", **CREATES)
    async with saying(tmp_path, {"notes": [CARD]}) as server:
        # Changing a note needs the right to read it.
        desktop = granted(server, Capability.NOTES_WRITE).desktop
        with pytest.raises(RegistrationError, match="notes_read"):
            await desktop.note("update", id="n1", body="x", mode="append")
    assert not (tmp_path / "argv").exists()
