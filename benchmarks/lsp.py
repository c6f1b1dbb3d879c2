"""Where a name is defined: the LSP tool against the language server that it asks, over a pipe of its own."""

import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.benchmark import Benchmark, Effort
from benchmarks.client import Client, Unanswered
from benchmarks.figures import MILLISECOND, Row, difference, interleaved, left_out, ratio, seconds
from benchmarks.servers import ours

FACTOR = 3.0
ADDED = 5 * MILLISECOND
"""What the tool may add to an answer that takes the server less than a message to a client takes us."""

MODULES = 200
FUNCTIONS = 50
"""In each module."""

WARM_UP = 100
CALLS = 10
"""Questions in each round and subject."""

SERVERS = {"Python": ("pyright-langserver", "--stdio"), "C": ("clangd", "--log=error")}
CAPABILITIES = {"general": {"positionEncodings": ["utf-32", "utf-8", "utf-16"]}}


def run(effort: Effort, folder: Path) -> list[Row]:
    rows: list[Row] = []
    for language, made in (("Python", _python), ("C", _c)):
        name, *arguments = SERVERS[language]
        program = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
        if program is None:
            rows.append(left_out(f"definition in {language}", f"{name} is not installed"))
            continue
        root = folder / f"lsp-{language}"
        root.mkdir()
        rows += _compared(root, made(root), [program, *arguments], effort)
    return rows


def _compared(root: Path, file: Path, command: Sequence[str], effort: Effort) -> list[Row]:
    # Walls cost nothing once a server is warm, and it may lie where they hide it.
    with (
        Client(ours(root, mode="danger-full-access", toolset="lsp")) as client,
        Direct(command, root) as server,
    ):
        server.open(file)
        lines = file.read_text(encoding="utf-8").splitlines()
        places = [(number, line.index("f_")) for number, line in enumerate(lines) if "x + f_" in line]
        ours_at, server_at = itertools.cycle(places), itertools.cycle(places)
        subjects = {
            "ours": lambda: _taken(ours_at, lambda at: _asked(client, file, at)),
            "server": lambda: _taken(server_at, server.definition),
        }
        interleaved(WARM_UP // CALLS, subjects)
        taken = interleaved(effort.rounds, subjects)
    name = Path(command[0]).name
    what = f"{name}, {MODULES} files"
    return [
        ratio(what, taken["ours"], taken["server"], factor=FACTOR),
        difference(f"{what}: what the tool adds", taken["ours"], taken["server"], most=ADDED),
    ]


def _taken(places: Iterator[tuple[int, int]], ask: Callable[[tuple[int, int]], None]) -> float:
    """Seconds of one question, of several."""
    return seconds(lambda: [ask(at) for at in itertools.islice(places, CALLS)]) / CALLS


def _asked(client: Client, file: Path, at: tuple[int, int]) -> None:
    line, character = at
    arguments = {
        "operation": "goToDefinition",
        "path": file.name,
        "line": line + 1,
        "character": character + 1,
    }
    text = client.call("LSP", arguments).text
    if "[1 definition, says " not in text:
        raise Unanswered(f"LSP answered {text}")


def _python(root: Path) -> Path:
    (root / "pyproject.toml").write_text("", encoding="utf-8")
    for module in range(MODULES):
        functions = "".join(
            f"def f_{module}_{number}(x: int) -> int:\n    return x + {number}\n\n\n"
            for number in range(FUNCTIONS)
        )
        (root / f"m_{module}.py").write_text(functions, encoding="utf-8")
    imports = "".join(f"from m_{module} import f_{module}_7\n" for module in range(FUNCTIONS))
    uses = "".join(f"x = 1\nx = x + f_{module}_7(x)\n" for module in range(FUNCTIONS))
    (root / "main.py").write_text(f"{imports}\n{uses}", encoding="utf-8")
    return root / "main.py"


def _c(root: Path) -> Path:
    functions = "".join(
        f"int f_{number}(int x) {{ return x + {number}; }}\n" for number in range(MODULES * FUNCTIONS // 10)
    )
    uses = "".join(
        f"int g_{number}(int x) {{\n  return x + f_{number}(x);\n}}\n" for number in range(FUNCTIONS)
    )
    for module in range(MODULES):
        (root / f"m_{module}.h").write_text(f"int h_{module}(int x);\n", encoding="utf-8")
    (root / "all.h").write_text(functions, encoding="utf-8")
    (root / "main.c").write_text(f'#include "all.h"\n{uses}', encoding="utf-8")
    (root / "compile_flags.txt").write_text("-xc\n", encoding="utf-8")
    return root / "main.c"


class Direct:
    """A language server on a pipe."""

    def __init__(self, command: Sequence[str], root: Path) -> None:
        self._root = root
        self._number = 0
        self._uri = ""
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

    def open(self, file: Path) -> None:
        """Open a document, which questions are about from now on."""
        self._uri = file.as_uri()
        language = {".py": "python", ".c": "c"}[file.suffix]
        document = {
            "uri": self._uri,
            "languageId": language,
            "version": 1,
            "text": file.read_text(encoding="utf-8"),
        }
        self._send({"method": "textDocument/didOpen", "params": {"textDocument": document}})

    def definition(self, at: tuple[int, int]) -> None:
        """Ask where the name at a place is defined."""
        position = {"line": at[0], "character": at[1]}
        given = {"textDocument": {"uri": self._uri}, "position": position}
        if not self._request("textDocument/definition", given):
            raise Unanswered("the language server found no definition")

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
