"""Language servers that nobody should trust: what they may not do, and what becomes of the question."""

import json
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial

import anyio

from mcp_toolserver.runtime.lsp.session import ServerLimits
from tests.lsp import hostile
from tests.lsp.hostile import PRESCRIBED, QUICK, answers, on, prescribe, stranger
from tests.lsp.languages import LspTool, Place, lsp_tool
from tests.support.processes import Daemons, until

HERE = answers('[place(root + "/a.py")]')

talking_to: Callable[..., AbstractAsyncContextManager[LspTool]] = partial(
    hostile.talking_to, files={"a.py": "def a(): ...\n"}
)


async def asked(at: LspTool) -> str:
    return await at.text("goToDefinition", "a.py", line=1, character=5)


NONSENSE = {
    "no protocol": 'raw(b"x" * 5000)',
    "headers without a length": r'raw(b"A: b\r\n\r\n")',
    "a message that is too long": r'raw(b"Content-Length: 99999999999\r\n\r\n")',
    "no JSON": r'raw(b"Content-Length: 3\r\n\r\n{{{")',
    "JSON that is too deep": r'raw(b"Content-Length: 200000\r\n\r\n" + b"[" * 200000)',
    "no object": r'raw(b"Content-Length: 2\r\n\r\n[]")',
    "an answer of the wrong shape": "send(id=number, result=[{'uri': 5}])",
    "an answer of the wrong kind": "send(id=number, result=[5, 'x'])",
    "its end": "sys.exit(3)",
}


async def test_nonsense_ends_a_server_and_a_search_answers(place: Place) -> None:
    async with talking_to(place, PRESCRIBED, failures=100) as at:
        for name, way in NONSENSE.items():
            prescribe(place, way)
            text = await asked(at)
            assert "a.py:1:5: def a(): ..." in text, name
            assert "[fallback: " in text, name
            assert "ended during the query" in text or "could not be started" in text, name
            assert all(dialogue.exit is not None for dialogue in at.started), name


ENDS = "def behave(method, number, params, message):\n    sys.exit()"


async def test_a_server_that_fails_again_and_again_is_left_alone_for_a_while(place: Place) -> None:
    async with talking_to(place, ENDS) as at:
        for _ in range(4):
            assert "[fallback: " in await asked(at)
        assert len(at.started) == 3
        assert "failed 3 times" in await asked(at)
    async with talking_to(place, ENDS, failure_window=0.0) as at:
        for _ in range(3):
            assert "[fallback: " in await asked(at)
        assert len(at.started) == 6


async def test_a_server_that_says_nothing_is_ended(place: Place) -> None:
    hangs = """
def behave(method, number, params, message):
    while method == "textDocument/definition" and not os.path.exists("go-on"):
        time.sleep(0.01)
    if number is not None and method:
        send(id=number, result=[place(root + "/a.py")])
"""
    limits = ServerLimits(answer=0.5, min_age=0.0, poll_interval=0.01)
    async with talking_to(place, hangs, limits) as at:
        text = await asked(at)
        assert "a.py:1:5: def a(): ..." in text
        assert "pyright-langserver did not answer goToDefinition in time and was ended" in text
        assert at.started[0].exit is not None
        at.put("go-on", "")
        assert "a.py:1:1:" in await asked(at)


async def test_a_server_at_work_is_not_ended_and_an_answer_from_half_a_project_says_so(place: Place) -> None:
    reads = on(
        initialized="""
            value = {"kind": "begin", "title": "indexing"}
            send(method="$/progress", params={"token": 1, "value": value})
        """,
        definition="""
            if os.path.exists("done"):
                send(method="$/progress", params={"token": 1, "value": {"kind": "end"}})
            if os.path.exists("half"):
                send(id=number, result=[place(root + "/a.py")])
        """,
    )
    limits = ServerLimits(answer=0.5, indexing=0.2, min_age=0.0, poll_interval=0.01, progress_timeout=30.0)
    async with talking_to(place, reads, limits) as at:
        text = await asked(at)
        assert "a.py:1:5: def a(): ..." in text
        assert "is still indexing the project" in text
        at.put("half", "")
        assert "is still reading the project" in await asked(at)
        at.put("done", "")
        text = await asked(at)
        assert "a.py:1:1:" in text
        assert "still" not in text
        assert len(at.started) == 1


async def test_a_new_server_is_asked_until_it_says_the_same_or_wants_no_more_questions(place: Place) -> None:
    learns = on(
        "times = 0",
        definition="""
            global times
            times += 1
            if times < 3:
                send(id=number, error={"code": -32801, "message": "content modified"})
            else:
                send(id=number, result=[place(root + "/a.py")] if times > 4 else None)
        """,
    )
    async with talking_to(place, learns) as at:
        assert "a.py:1:1:" in await asked(at)


async def test_diagnostics_that_are_not_published_again_are_marked(place: Place) -> None:
    once = """
def hears(method, params):
    if method == "textDocument/didOpen":
        there = place("")["range"]
        given = {"uri": root + "/a.py", "diagnostics": [{"range": there, "message": "wrong"}]}
        send(method="textDocument/publishDiagnostics", params=given)
"""
    async with talking_to(place, on(once), replace(QUICK, diagnostics=0.5)) as at:
        assert "published nothing" not in await at.text("diagnostics", "a.py")
        at.put("a.py", "def a(): ... # changed\n")
        text = await at.text("diagnostics", "a.py")
        assert "a.py:1:1: [error] wrong" in text
        assert "published nothing since the file changed" in text
        # A server that tells of no problems is no reason to believe there are none.
        at.put("b.py", "")
        result = await at.ask("diagnostics", "b.py")
        assert result.error == "unavailable"
        assert "has not reported on 'b.py' yet" in result.text


async def test_a_question_is_asked_once_of_a_server_that_knows_all(place: Place) -> None:
    listens = HERE.replace("    if", "    print(method, file=open(sys.argv[0] + '.heard', 'a'))\n    if", 1)
    async with talking_to(place, listens) as at:
        await asked(at)
        heard = place.folder / "bin/pyright-langserver.heard"
        heard.unlink()
        assert "a.py:1:1:" in await asked(at)
        assert heard.read_text(encoding="utf-8") == "textDocument/definition\n"
        at.put("a.py", "def a(): ... # changed\n")
        assert "# changed" in await asked(at)
        assert heard.read_text(encoding="utf-8") == "textDocument/definition\n" * 2


async def test_what_a_server_says_before_it_knows_of_a_change_is_forgotten(place: Place) -> None:
    learns = on(definition='send(id=number, result=[place(root + ("/b.py" if knows else "/a.py"))])')
    fails = on(
        definition="""
            if knows or not os.path.exists("b.py"):
                send(id=number, result=[place(root + "/a.py")])
            else:
                send(id=number, error={"code": -32603, "message": "no such file"})
        """
    )
    for behaviour, then in ((learns, "b.py:1:1:"), (fails, "a.py:1:1:")):
        (place.folder / "root/b.py").unlink(missing_ok=True)
        async with talking_to(place, behaviour) as at:
            assert "a.py:1:1:" in await asked(at)
            at.put("b.py", "def b(): ...\n")
            assert then in await asked(at)


async def test_what_a_server_asks_is_answered_and_nothing_is_changed(place: Place) -> None:
    asks = """
QUESTIONS = [
    ("workspace/configuration", {"items": [{"section": "a"}, {"section": "b"}]}),
    ("workspace/configuration", {"items": 7}),
    ("workspace/applyEdit", {"edit": {"changes": {"file:///x": []}}}),
    ("workspace/workspaceFolders", None),
    ("client/registerCapability", {"registrations": [{"id": "1", "method": "textDocument/hover"}, 5]}),
    ("client/unregisterCapability", {"unregisterations": []}),
    ("window/workDoneProgress/create", {"token": 1}),
    ("window/showMessageRequest", {"type": 1, "message": "x"}),
    ("workspace/diagnostic/refresh", None),
    ("window/showDocument", {"uri": "https://example.org"}),
    ("workspace/executeCommand", {"command": "x"}),
]
heard = []
def behave(method, number, params, message):
    if method == "initialized":
        for index, (asked, given) in enumerate(QUESTIONS):
            send(id=f"q{index}", method=asked, params=given)
    elif method is None:
        heard.append(message.get("result", message.get("error", {}).get("code") if "error" in message else 0))
        if len(heard) == len(QUESTIONS):
            json.dump(heard, open("heard.json", "w", encoding="utf-8"))
    else:
        send(id=number, result=None)
"""
    async with talking_to(place, asks) as at:
        before = set(os.listdir(at.root))
        await asked(at)
        file = at.root / "heard.json"
        await until(lambda: file.exists() and file.stat().st_size > 0)
        folder = {"uri": f"file://{at.root}", "name": "root"}
        text = file.read_text(encoding="utf-8")
        assert set(os.listdir(at.root)) == before | {"heard.json"}
    assert json.loads(text) == [
        [None, None],
        [],
        {"applied": False, "failureReason": "the client checks it first"},
        [folder],
        *(None, None, None, None, None),
        *(-32601, -32601),
    ]


async def test_places_anywhere_else_are_left_out(place: Place) -> None:
    (place.folder / "secret.py").write_text("outside = 1\n", encoding="utf-8")
    leads_out = """
def behave(method, number, params, message):
    if method == "textDocument/definition":
        outside = root.rpartition("/")[0]
        send(id=number, result=[
            place("file:///etc/passwd"),
            place(outside + "/secret.py"),
            place(root + "/../secret.py"),
            place(root + "/link.py"),
            place(root + "/gone.py"),
            place(root + "/a.py", line=99),
            place("https://example.org/a.py"),
            place("file://other/a.py"),
            place("file:///%00"),
            place("file://[/"),
            place(root + "/a.py", character=10**9),
        ])
"""
    async with talking_to(place, leads_out) as at:
        (at.root / "link.py").symlink_to(place.folder / "secret.py")
        text = await asked(at)
        assert text.splitlines()[:2] == [
            "a.py:1:13: def a(): ...",
            "[1 definition, says pyright-langserver]",
        ]
        assert "[left out: 10 outside the workspace" in text
        assert "secret" not in text
        assert "root:" not in text


async def test_a_server_may_count_as_it_likes(place: Place) -> None:
    for encoding, units in (("utf-8", 9), ("utf-16", 7), ("utf-32", 6), ("odd", 7)):
        counts = on(
            f'CAPABILITIES["positionEncoding"] = {encoding!r}',
            definition=f"""
                right = params["position"] == {{"line": 0, "character": {units}}}
                send(id=number, result=place(root + "/a.py", character={units}) if right else None)
            """,
        )
        async with talking_to(place, counts) as at:
            at.put("a.py", "'𝒳' + a\n")
            text = await at.text("goToDefinition", "a.py", line=1, character=7)
            assert "a.py:1:7: '𝒳' + a" in text, encoding


async def test_few_documents_stay_open_and_large_ones_too(place: Place) -> None:
    counts = """
opened = set()
def hears(method, params):
    document = params.get("textDocument", {})
    if method == "textDocument/didOpen":
        opened.add((document["uri"], len(document["text"])))
    if method == "textDocument/didClose":
        opened.difference_update({one for one in opened if one[0] == document["uri"]})
"""
    says = """send(id=number, result={"contents": f"{len(opened)} of {sum(size for _, size in opened)}"})"""
    async with talking_to(place, on(counts, hover=says)) as at:
        for index in range(10):
            at.put(f"f{index}.py", "x" * 100_000)
        said = [await at.text("hover", f"f{index}.py", line=1, character=1) for index in range(10)]
        assert said[-1] == "8 of 800000"
        # What became unreadable is closed.
        (at.root / "f9.py").unlink()
        assert await at.text("hover", "f8.py", line=1, character=1) == "7 of 700000"
        at.put("f0.py", "x" * (5 << 20))
        result = await at.ask("hover", "f0.py", line=1, character=1)
        assert result.error == "invalid_input"
        assert "language servers get files of at most 4,194,304" in result.text


HOVERS = (
    ("{'kind': 'markdown', 'value': ' said '}", "said"),
    ("'said'", "said"),
    ("{'language': 'python', 'value': 'said'}", "said"),
    ("['said', {'language': 'python', 'value': 'more'}]", "said\n\nmore"),
    ("''", "No words on this found, says pyright-langserver."),
    ("{'kind': 'markdown', 'value': 'é' * 500_000}", "é" * 10_000),
)


async def test_every_form_of_a_hover_is_shown_and_an_error_without_its_words(place: Place) -> None:
    async with talking_to(place, PRESCRIBED) as at:
        for contents, text in HOVERS:
            said = f"{{'contents': {contents}}} if method == 'textDocument/hover' else None"
            prescribe(place, f"send(id=number, result={said})")
            assert await at.text("hover", "a.py", line=1, character=5) == text, contents
        prescribe(place, 'send(id=number, error={"code": -32603, "message": "secret words"})')
        result = await at.ask("goToDefinition", "a.py", line=1, character=5)
        assert (result.error, "(error -32603)" in result.text) == ("unavailable", True)
        assert "secret" not in result.text


async def test_other_forms_of_places_and_symbols_are_understood_and_many_are_cut(place: Place) -> None:
    old = on(
        references="""
            many = [place(root + "/a.py", character=index % 12) for index in range(2_500)]
            send(id=number, result=many)
        """,
        definition="""
            there = place(root, line=0, character=4)["range"]
            link = {"targetUri": root + "/a.py", "targetRange": there, "targetSelectionRange": there}
            send(id=number, result=[link, link])
        """,
        documentSymbol="""
            there = place(root + "/a.py", character=4)
            odd = {"name": "odd", "kind": 99}
            send(id=number, result=[{"name": "a", "kind": 12, "location": there}, odd])
        """,
        symbol="""
            there = {"uri": root + "/a.py"}
            send(id=number, result=[{"name": "a", "kind": 26, "location": there, "containerName": "m"}])
        """,
    )
    async with talking_to(place, old) as at:
        assert (await asked(at)).startswith("a.py:1:5: def a(): ...\n[1 definition")
        assert await at.places("documentSymbol", "a.py") == ["a.py:1:5: [function a]"]
        found = await at.places("workspaceSymbol", "a.py", query="a")
        assert found == ["a.py:1:1: [type parameter a in m] def a(): ..."]
        found = await at.ask("findReferences", "a.py", line=1, character=1)
        assert "[12 of 512 references; 500 more, says pyright-langserver]\n[grep_search" in found.text
        assert found.truncated


async def test_problems_without_a_version_count_when_they_are_new(place: Place) -> None:
    tells = """
def tell(message):
    there = place(root)["range"]
    problem = {"range": there, "message": message, "severity": 2, "code": "c", "source": "s"}
    send(method="textDocument/publishDiagnostics", params={"uri": root + "/a.py", "diagnostics": [problem]})
def hears(method, params):
    if method == "initialized":
        send(method="textDocument/publishDiagnostics", params={"uri": 5, "diagnostics": 7})
        send(method="textDocument/publishDiagnostics", params=5)
    elif method in ("textDocument/didOpen", "textDocument/didChange"):
        tell(method)
        tell(method + ", again")
"""
    async with talking_to(place, on(tells)) as at:
        assert await at.places("diagnostics", "a.py") == [
            "a.py:1:1: [warning] textDocument/didOpen, again [s c]"
        ]
        at.put("a.py", "def b(): ...\n")
        assert await at.places("diagnostics", "a.py") == [
            "a.py:1:1: [warning] textDocument/didChange, again [s c]"
        ]


async def test_a_server_that_wants_to_be_asked_for_problems_is_asked(place: Place) -> None:
    registers = on(
        documentSymbol="""
            send(id=number, result=[])
            wish = {"id": "1", "method": "textDocument/diagnostic"}
            time.sleep(0.1)
            send(id=1, method="client/registerCapability", params={"registrations": [wish]})
        """,
        diagnostic="""
            problem = {"range": place(root)["range"], "message": "found"}
            send(id=number, result={"kind": "full", "items": [problem]})
        """,
    )
    async with talking_to(place, registers) as at:
        await at.text("documentSymbol", "a.py")
        assert await at.places("diagnostics", "a.py") == ["a.py:1:1: [error] found"]


async def test_a_flood_keeps_nobody_waiting_and_ends(place: Place) -> None:
    floods = """
def behave(method, number, params, message):
    note = b'{"jsonrpc":"2.0","id":1,"method":"workspace/workspaceFolders"}'
    note = b"Content-Length: %d\\r\\n\\r\\n%b" % (len(note), note)
    open("flooding", "w", encoding="utf-8").close()
    while True:
        raw(note * 10_000)
"""
    async with talking_to(place, floods) as at:
        turns = 0
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:

                async def others() -> None:
                    nonlocal turns
                    while True:
                        # It is ended after more than 1,000 messages, each of which lets others go on.
                        turns += (at.root / "flooding").exists()
                        await anyio.sleep(0)

                tasks.start_soon(others)
                assert "[fallback: " in await asked(at)
                tasks.cancel_scope.cancel()
        assert turns > 500


async def test_a_server_that_nobody_asks_is_ended_and_none_is_started_when_all_is_closed(
    place: Place,
) -> None:
    # The best does not start, so the next best is taken.
    stranger(place.folder, "sys.exit(1)", "basedpyright-langserver")
    async with talking_to(place, HERE, idle=0.05) as at:
        assert "says pyright-langserver" in await asked(at)
        await until(lambda: all(dialogue.exit is not None for dialogue in at.started))
        assert "a.py:1:1:" in await asked(at)
        await at.pool.aclose()
        started = len(at.started)
        assert "This server is shutting down" in await asked(at)
        assert len(at.started) == started


def projects(at: LspTool, *names: str) -> None:
    for name in names:
        at.put(f"{name}/pyproject.toml", "")
        at.put(f"{name}/a.py", "a = 1\n")


async def test_only_a_few_servers_run_at_once(place: Place) -> None:
    async with talking_to(place, HERE, running=2) as at:
        projects(at, "one", "two", "three")
        for name in ("one", "two", "three", "two"):
            await at.text("goToDefinition", f"{name}/a.py", line=1, character=1)
        assert [dialogue.exit is None for dialogue in at.started] == [False, True, True]


async def test_no_more_servers_are_started_than_may_run(place: Place) -> None:
    hangs = "def behave(method, number, params, message):\n    pass"
    async with talking_to(place, hangs, running=1) as at:
        projects(at, "one", "two")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: at.ask("goToDefinition", "one/a.py", line=1, character=1))
            await until(lambda: len(at.started) == 1)
            text = await at.text("goToDefinition", "two/a.py", line=1, character=1)
            assert "1 language servers are busy already" in text
            tasks.cancel_scope.cancel()
        assert len(at.started) == 1


async def test_a_program_in_a_root_is_not_run(place: Place) -> None:
    (place.folder / "root").mkdir()
    places = stranger(place.folder / "root", HERE)
    (place.folder / "bin").mkdir()
    (place.folder / "bin/jedi-language-server").symlink_to(f"{places}/pyright-langserver")
    async with lsp_tool(place.folder, place.broker, places=(places, str(place.folder / "bin"))) as at:
        at.put("a.py", "def a(): ...\n")
        text = await asked(at)
        assert "No language server for Python is installed (basedpyright-langserver" in text
        assert at.started == []


async def test_what_a_server_started_ends_with_it(place: Place) -> None:
    daemons = Daemons()
    starts = f"import subprocess\nsubprocess.run(['sh', '-c', {daemons.script!r}], stdout=2)\n{HERE}"
    async with talking_to(place, starts) as at:
        await asked(at)
        await until(lambda: len(daemons.alive()) == 4)
    assert daemons.alive() == []


async def test_a_caller_who_gives_up_notifies_the_server(place: Place) -> None:
    notes = """
def hears(method, params):
    if method in ("$/cancelRequest", "textDocument/definition"):
        open(method.rpartition("/")[2], "w", encoding="utf-8").close()
"""
    async with talking_to(place, on(notes, definition="pass")) as at:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: at.ask("goToDefinition", "a.py", line=1, character=5))
            await until(lambda: (at.root / "definition").exists())
            tasks.cancel_scope.cancel()
        await until(lambda: (at.root / "cancelRequest").exists())
        assert at.started[0].exit is None
        assert "No symbols" in await at.text("documentSymbol", "a.py")
