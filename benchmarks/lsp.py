"""Where a name is defined: the LSP tool against the language server that it asks, over a pipe of its own.

* `asked again`: the same 50 calls of functions, over and over, in a project of 200 files. A server has those
  answers at hand and gives them in less time than one message of MCP takes, so the table also shows what a
  call costs without its answer.
* `asked once`: one file of 250 functions as people write them. Each makes an object of a class from another
  module and calls methods of it and of what those return; some are inherited, some types inferred. Every
  place is asked about once, in no order, of a server that has read the file.
* `another file`: each question is about a file that was not open before, of ten such functions; the server
  has read the project, but this file it opens, reads and checks now. So does somebody work who goes from file
  to file. Both sides close what they had open long before.

Both sides get the same places in the same order, each from a server of its own that was asked as much before.
"""

import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.benchmark import Benchmark, Effort
from benchmarks.client import Client, Unanswered
from benchmarks.figures import MILLISECOND, Row, difference, interleaved, left_out, ratio, seconds
from benchmarks.lsp_projects import NAMES, Place, c_calls, cpp_shop, places, python_calls, python_shop
from benchmarks.servers import ours

FACTOR = 3.0
ADDED = 5 * MILLISECOND
"""What the tool may add to an answer that takes the server less than a message to a client takes us."""

WARM_UP = 10
"""Rounds."""

OPEN = 8
"""Documents that the server on a pipe has open at once, as many as ours has."""

SERVERS = {"Python": ("pyright-langserver", "--stdio"), "C": ("clangd", "--log=error")}
LANGUAGES = {".py": "python", ".c": "c", ".cc": "cpp"}
CAPABILITIES = {"general": {"positionEncodings": ["utf-32", "utf-8", "utf-16"]}}


@dataclass(frozen=True, kw_only=True)
class Questions:
    """What is asked in one comparison."""

    what: str
    places: Iterator[Place]
    calls: int
    """In each round and by each side."""
    is_message_bound: bool
    """Whether the answers take less time than the messages."""


def run(effort: Effort, folder: Path) -> list[Row]:
    rows: list[Row] = []
    for language in SERVERS:
        name, *arguments = SERVERS[language]
        program = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
        if program is None:
            rows.append(left_out(f"definition in {language}", f"{name} is not installed"))
            continue
        for part, made in (("again", _again), ("once", _once), ("another", _another)):
            root = folder / f"lsp-{language}-{part}"
            root.mkdir()
            rows += _compared(root, made(root, language), [program, *arguments], effort)
    return rows


def _again(root: Path, language: str) -> Questions:
    file = {"Python": python_calls, "C": c_calls}[language](root)
    asked = itertools.cycle(places(file, ["f_"]))
    return Questions(what="asked again", places=asked, calls=10, is_message_bound=True)


def _once(root: Path, language: str) -> Questions:
    file, _ = {"Python": python_shop, "C": cpp_shop}[language](root)
    asked = iter(places(file, NAMES))
    return Questions(what="asked once", places=asked, calls=10, is_message_bound=True)


def _another(root: Path, language: str) -> Questions:
    _, pages = {"Python": python_shop, "C": cpp_shop}[language](root)
    asked = (places(page, NAMES)[0] for page in pages)
    return Questions(what="another file", places=asked, calls=2, is_message_bound=False)


def _compared(root: Path, questions: Questions, command: Sequence[str], effort: Effort) -> list[Row]:
    # The sandbox does not slow a warm server down, and could hide its program.
    with (
        Client(ours(root, mode="danger-full-access", toolset="lsp")) as client,
        Direct(command, root) as server,
    ):
        ours_at, server_at = itertools.tee(questions.places)
        subjects = {
            "ours": lambda: _taken(ours_at, questions.calls, lambda at: _asked(client, at)),
            "server": lambda: _taken(server_at, questions.calls, server.definition),
        }
        interleaved(WARM_UP, subjects)
        taken = interleaved(effort.rounds, subjects)
    what = f"{Path(command[0]).name}, {questions.what}"
    rows = [ratio(what, taken["ours"], taken["server"], factor=FACTOR)]
    if questions.is_message_bound:
        added = difference(f"{what}: what the tool adds", taken["ours"], taken["server"], most=ADDED)
        rows.append(added)
    return rows


def _taken(asked: Iterator[Place], calls: int, ask: Callable[[Place], None]) -> float:
    """Seconds of one question, of several."""
    given = list(itertools.islice(asked, calls))
    if len(given) < calls:
        raise Unanswered("there are not enough places to ask about")
    return seconds(lambda: [ask(at) for at in given]) / calls


def _asked(client: Client, at: Place) -> None:
    arguments = {
        "operation": "goToDefinition",
        "path": at.file.name,
        "line": at.line + 1,
        "character": at.character + 1,
    }
    text = client.call("LSP", arguments).text
    if "[1 definition, says " not in text:
        raise Unanswered(f"LSP answered {text}")


class Direct:
    """A language server on a pipe."""

    def __init__(self, command: Sequence[str], root: Path) -> None:
        self._root = root
        self._number = 0
        self._open: list[str] = []
        self._process = subprocess.Popen(
            command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def __enter__(self) -> Self:
        given = {"processId": None, "rootUri": self._root.as_uri(), "capabilities": CAPABILITIES}
        self._request("initialize", given)
        self._send({"method": "initialized", "params": {}})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Servers end with their input; to kill what started one would leave it behind.
        try:
            self._process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def definition(self, at: Place) -> None:
        """Ask where the name at a place is defined; open its file first if need be."""
        uri = at.file.as_uri()
        if uri not in self._open:
            self._opened(uri, at.file)
        position = {"line": at.line, "character": at.character}
        given = {"textDocument": {"uri": uri}, "position": position}
        if not self._request("textDocument/definition", given):
            raise Unanswered("the language server found no definition")

    def _opened(self, uri: str, file: Path) -> None:
        while len(self._open) >= OPEN:
            closed = {"textDocument": {"uri": self._open.pop(0)}}
            self._send({"method": "textDocument/didClose", "params": closed})
        text = file.read_text(encoding="utf-8")
        document = {"uri": uri, "languageId": LANGUAGES[file.suffix], "version": 1, "text": text}
        self._send({"method": "textDocument/didOpen", "params": {"textDocument": document}})
        self._open.append(uri)

    def _request(self, method: str, params: Mapping[str, Any]) -> Any:
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        while True:
            received = self._receive()
            if "method" in received and "id" in received:
                self._send({"id": received["id"], "result": None})
            elif received.get("id") == self._number:
                return received.get("result")

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        length = 0
        while (line := self._process.stdout.readline()).strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        if not length:
            raise Unanswered("the language server ended")
        received: dict[str, Any] = json.loads(self._process.stdout.read(length))
        return received


BENCHMARK = Benchmark(name="lsp", title="A definition, from a language server that is warm", run=run)
