"""Edits of language servers that nobody should trust: what they may not change."""

import json
import os
import re
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

from tests.lsp import hostile
from tests.lsp.hostile import PRESCRIBED, QUICK, answers, on, prescribe
from tests.lsp.languages import LspTool, Place
from tests.support.cases import table

FILES = {"a.py": "a = 1\n", "b.py": "é𝒳 = a\n", "sub/c.py": "c = 3\n", "hidden.py": "a = 2\n"}

HEAD = """
CAPABILITIES.update(renameProvider=True, codeActionProvider={"resolveProvider": True},
                    documentFormattingProvider=True)
def edit(line=0, start=0, end=1, text="x", last=None):
    places = {"line": line, "character": start}, {"line": line if last is None else last, "character": end}
    return {"range": {"start": places[0], "end": places[1]}, "newText": text}
def document(path, *edits, version=None):
    return {"textDocument": {"uri": root + path, "version": version}, "edits": list(edits)}
def steps(*given):
    return {"documentChanges": list(given)}
def create(path, **options):
    return {"kind": "create", "uri": root + path, "options": options}
def move(old, new, **options):
    return {"kind": "rename", "oldUri": root + old, "newUri": root + new, "options": options}
"""


def talking_to(place: Place, behaviour: str, **more: Any) -> AbstractAsyncContextManager[LspTool]:
    return hostile.talking_to(place, HEAD + behaviour, files=FILES, hides=_hides, **more)


def _hides(spellings: tuple[str, ...]) -> bool:
    return "hidden.py" in spellings


def content(at: LspTool) -> dict[str, str]:
    files = (path for path in at.root.rglob("*") if path.is_file())
    return {str(path.relative_to(at.root)): path.read_text(encoding="utf-8") for path in files}


async def rename(at: LspTool, **more: Any) -> tuple[str | None, str]:
    result = await at.edit("rename", "a.py", line=1, character=1, new_name="x", **more)
    return result.error, result.text


TABLES = Path(__file__).with_name("hostile_edits.txt")


async def test_an_edit_inside_the_workspace_is_made(place: Place) -> None:
    async with talking_to(place, PRESCRIBED) as at:
        for name, changed, answer in table(TABLES, "accepted"):
            after: dict[str, str | None] = json.loads(changed)
            restore(at)
            (at.root / "sub/c.py").chmod(0o750)
            prescribe(place, f"send(id=number, result={answer})")
            error, text = await rename(at, preview=True)
            assert error is None, (name, text)
            assert content(at) == FILES, name
            error, text = await rename(at)
            assert error is None, (name, text)
            expected = {**FILES, **after}
            assert content(at) == {one: text for one, text in expected.items() if text is not None}, name
            if "sub/c.py" in after:
                assert "- sub/c.py moved to d.py: 2 edits" in text
                assert (at.root / "d.py").stat().st_mode & 0o777 == 0o750


def restore(at: LspTool) -> None:
    for name in content(at).keys() - FILES.keys():
        (at.root / name).unlink()
    for name, text in FILES.items():
        if content(at).get(name) != text:
            at.put(name, text)


GOOD = {"GOOD": 'document("/b.py", edit(0, 0, 1))'}


async def test_an_edit_that_cannot_be_trusted_changes_nothing(place: Place) -> None:
    (place.folder / "secret.py").write_text("secret\n", encoding="utf-8")
    async with talking_to(place, PRESCRIBED) as at:
        (at.root / "link.py").symlink_to(place.folder / "secret.py")
        (at.root / "raw.py").write_bytes(b"\xff\xfe\xff")
        before = {name: os.lstat(at.root / name).st_mtime_ns for name in os.listdir(at.root)}
        for name, kind, words, answer in table(TABLES, "refused", words=GOOD):
            prescribe(place, f"send(id=number, result={answer})")
            error, text = await rename(at)
            assert error == kind, (name, text)
            assert words in text, name
            assert "secret" not in text
            after = {name: os.lstat(at.root / name).st_mtime_ns for name in os.listdir(at.root)}
            assert after == before, name
    assert (place.folder / "secret.py").read_text(encoding="utf-8") == "secret\n"


async def test_nonsense_ends_the_server(place: Place) -> None:
    async with talking_to(place, PRESCRIBED, failures=100) as at:
        for answer in ("5", '{"documentChanges": [5]}', '{"changes": {root: [{}]}}'):
            prescribe(place, f"send(id=number, result={answer})")
            error, text = await rename(at)
            assert error == "unavailable"
            assert "ended during the query. rename needs one" in text
            assert content(at) == FILES
        for answer in ("7", '{"title": "x"}'):
            prescribe(place, f"send(id=number, result={answer})")
            assert (await at.edit("codeAction", "a.py", line=1)).error == "unavailable"
            assert all(dialogue.exit is not None for dialogue in at.started)


def counting(before: str, edits: str) -> str:
    """A server that counts how often it was asked for a rename. It learns the project in four times;
    the fifth request comes after the files were read."""
    return on(
        "times = 0", rename=f"global times\ntimes += 1\n{before}\nsend(id=number, result=steps({edits}))"
    )


def changing(name: str, text: str, time: int) -> str:
    return f"if times == {time}: open({name!r}, 'w', encoding='utf-8').write({text!r})"


MEANWHILE: tuple[tuple[str, str, str | None, str, dict[str, str]], ...] = (
    (
        *(changing("b.py", "new = a\n", 4), 'document("/b.py", edit(0, 0, 3 if times > 4 else 1))'),
        *(None, "", {"b.py": "x = a\n"}),
    ),
    (
        *("", 'document("/a.py", edit(text=str(times if times > 4 else 0)))'),
        *("conflict", "Files changed each time", {}),
    ),
    (
        changing("notes.txt", "b = 1", 5),
        'document("/a.py", edit()), document("/notes.txt", edit())',
        *("conflict", "'notes.txt' was changed by somebody meanwhile. No file was changed"),
        {"notes.txt": "b = 1"},
    ),
)
"""What the server does between two answers, as somebody else could, its edits, and what becomes of them."""


async def test_an_edit_is_about_the_files_as_they_are_and_what_changes_meanwhile_is_kept(
    place: Place,
) -> None:
    for changes, edits, kind, words, after in MEANWHILE:
        async with talking_to(place, counting(changes, edits)) as at:
            at.put("notes.txt", "a = 1")
            error, text = await rename(at)
            assert (error, words in text) == (kind, True), text
            assert content(at) == {**FILES, "notes.txt": "a = 1", **after}


async def test_a_rename_waits_until_the_server_has_read_the_project(place: Place) -> None:
    differs = 'steps(document("/a.py", edit(text=str(number))))'
    async with talking_to(place, answers(differs), limits=replace(QUICK, indexing=0.2)) as at:
        error, text = await rename(at)
        assert error == "unavailable"
        assert "still reading the project and could miss a place" in text
        assert content(at) == FILES


async def test_uses_that_the_server_finds_but_does_not_change_are_named_as_such(place: Place) -> None:
    uses = on(
        rename='send(id=number, result=steps(document("/a.py", edit())))',
        references="send(id=number, result=[place(root + path) for path in ('/a.py', '/sub/c.py')])",
    )
    async with talking_to(place, uses) as at:
        error, text = await rename(at)
    assert error is None
    assert re.search(r"is not changed: sub/c.py:1. \S+ finds these uses but does not change them", text)
    assert "is not changed: b.py:1. For " in text


async def test_an_earlier_version_that_had_the_same_text_is_as_good_even_without_a_search(
    place: Place,
) -> None:
    edits = answers('steps(document("/a.py", edit(), version=1))')
    async with talking_to(place, edits, searched=False) as at:
        assert await rename(at) == (None, ANY)
        # It is version 2 now, which differs from version 1.
        assert await rename(at) == ("conflict", ANY)
        at.put("a.py", FILES["a.py"])
        assert await rename(at) == (None, ANY)
        assert content(at) == {**FILES, "a.py": "x = 1\n"}
    async with talking_to(place, answers('steps(document("/a.py", edit()))')) as at:
        # A byte order mark and line ends are kept.
        (at.root / "a.py").write_bytes(b"\xef\xbb\xbfa = 1\r\n")
        assert await rename(at) == (None, ANY)
        assert (at.root / "a.py").read_bytes() == b"\xef\xbb\xbfx = 1\r\n"


ACTIONS = """
ACTIONS = [
    {"title": "edit  it", "kind": "quickfix", "edit": None},
    {"title": "resolve it", "data": 7},
    {"title": "edit and run", "edit": None, "command": {"title": "x", "command": "run"}},
    {"title": "run", "command": {"title": "run", "command": "run"}},
    {"title": "bare command", "command": "run"},
    {"title": "argument", "command": {"title": "", "command": "any", "arguments": [{"documentChanges": 0}]}},
    {"title": "more arguments", "command": "any", "arguments": [{"documentChanges": 0}, 1]},
    {"title": "asks", "command": {"title": "", "command": "clangd.applyTweak", "arguments": ["once"]}},
    {"title": "bare and asks", "command": "clangd.applyTweak", "arguments": ["once"]},
    {"title": "asks, then fails", "command": "gopls.apply_fix", "arguments": ["fails"]},
    {"title": "fails", "command": "gopls.apply_fix", "arguments": ["at once"]},
    {"title": "asks twice", "command": "gopls.apply_fix", "arguments": ["once", "once"]},
    {"title": "asks for nothing", "command": "gopls.apply_fix", "arguments": []},
    {"title": "switched off", "disabled": {"reason": "x"}, "edit": None},
    {"title": "twice", "edit": None}, {"title": "twice", "edit": None},
    {"title": 5}, 7,
]
def spot(line):
    return {"start": {"line": line, "character": 0}, "end": {"line": line, "character": 1}}
def hears(method, params):
    if method == "textDocument/didOpen":
        some = [{"range": spot(0), "message": "near"}, {"range": spot(7)}, 5, {"range": {"start": 5}}]
        send(method="textDocument/publishDiagnostics", params={"uri": root + "/a.py", "diagnostics": some})
def behave(method, number, params, message):
    edits = steps(document("/a.py", edit()))
    if method == "textDocument/codeAction":
        json.dump(params["context"], open("context", "w", encoding="utf-8"))
        text = json.dumps(ACTIONS).replace('"edit": null', '"edit": ' + json.dumps(edits))
        send(id=number, result=json.loads(text.replace('{"documentChanges": 0}', json.dumps(edits))))
    elif method == "codeAction/resolve":
        send(id=number, result={**params, "edit": edits} if params.get("data") == 7 else params)
    elif method == "workspace/executeCommand":
        if params["command"] in ("run", "any"):
            open("run", "w", encoding="utf-8").close()
        for how in params["arguments"]:
            if how != "at once":
                send(id=f"e{number}", method="workspace/applyEdit", params={"edit": edits})
                assert not json.loads(json.dumps(read()))["result"]["applied"]
        if params["arguments"] in (["fails"], ["at once"]):
            send(id=number, error={"code": -32603, "message": "not applied"})
        else:
            send(id=number, result=None)
"""

APPLIED = [
    ("edit it", None, "Done: edit it"),
    ("resolve it", None, "Done: resolve it"),
    ("edit and run", None, "such commands are not run"),
    ("run", "unavailable", "as a command that may change more than it tells"),
    ("bare command", "unavailable", "as a command"),
    ("argument", None, "Done: argument"),
    ("more arguments", "unavailable", "as a command"),
    ("asks", None, "Done: asks"),
    ("bare and asks", None, "Done: bare and asks"),
    ("asks, then fails", None, "Done: asks, then fails"),
    ("fails", "unavailable", "error -32603"),
    ("asks twice", "unavailable", "as a command"),
    ("asks for nothing", "unavailable", "as a command"),
    ("twice", "invalid_input", "2 actions have the title"),
    ("switched off", "invalid_input", "There is no action 'switched off' here. There are: edit it; "),
]


async def test_an_action_that_is_not_switched_off_is_listed_and_is_an_edit_that_is_checked(
    place: Place,
) -> None:
    async with talking_to(place, ACTIONS, limits=replace(QUICK, action_diagnostics=10.0)) as at:
        text = (await at.edit("codeAction", "a.py", line=1)).text
        context = json.loads((at.root / "context").read_text(encoding="utf-8"))
        assert [one["message"] for one in context["diagnostics"]] == ["near"]
        assert text.splitlines()[:4] == ["- edit it [quickfix]", "- resolve it", "- edit and run", "- run"]
        assert text.endswith(
            "[15 code actions, says pyright-langserver; apply one with its title as `action`]"
        )
        assert "switched off" not in text
        for action, kind, words in APPLIED:
            restore(at)
            result = await at.edit("codeAction", "a.py", line=1, action=action)
            assert result.error == kind, (action, result.text)
            assert words in result.text
            assert (at.root / "a.py").read_text(encoding="utf-8") == ("a = 1\n" if kind else "x = 1\n")
            assert not (at.root / "run").exists(), action


async def test_actions_are_asked_for_a_range(place: Place) -> None:
    tells = """
def behave(method, number, params, message):
    if number is not None and method:
        place = params.get("range", {})
        send(id=number, result=[{"title": str([(p["line"], p["character"]) for p in place.values()])}])
"""
    ranges: list[tuple[dict[str, Any], tuple[int, int], tuple[int, int]]] = [
        ({}, (0, 0), (2, 0)),
        ({"line": 1}, (0, 2), (1, 0)),
        ({"line": 1, "query": "b"}, (0, 6), (0, 7)),
        ({"line": 1, "character": 3}, (0, 2), (0, 2)),
        ({"line": 3}, (2, 0), (2, 0)),
    ]
    async with talking_to(place, tells) as at:
        at.put("a.py", "  a = b\n\n")
        for more, start, end in ranges:
            text = (await at.edit("codeAction", "a.py", **more)).text
            assert text.splitlines()[0] == f"- {[start, end]}", more
    async with talking_to(place, answers("None")) as at:
        text = (await at.edit("codeAction", "a.py", line=1)).text
        assert text == "No code actions here, says pyright-langserver."
