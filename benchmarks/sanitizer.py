"""What it costs to look for characters that cannot be seen in everything that is sent."""

from dataclasses import replace
from pathlib import Path

from benchmarks.benchmark import Benchmark, Effort
from benchmarks.figures import Row, at_most, interleaved, milliseconds, ratio, seconds
from mcp_toolserver.text.lines.escape_invisible import visible

PER_MEGABYTE = 5e-3
SIZE = 1_000_000

ORDINARY = {
    "ASCII, a program": "def handle(self, request: Request) -> Answer:\n\treturn self.table[request.name]\n",
    "ASCII, CRLF": "2026-11-21 10:15:00 INFO request 4711 took 12.5 ms\r\n",
    "mixed: accents, quotes, an emoji now and then": (
        "Die Prüfung dauerte länger – „warum“ steht im Protokoll, Zeile 4711 und folgende.\n" * 20
        + "fertig ✅\n"
    ),
    "Chinese and Japanese": "漢字かな交じり文の試験。中文测试文本，包含标点。\n",
    "Cyrillic": "Обычный русский текст, в котором ничего не скрыто.\n",
}
"""With the target."""

SPECIAL = {
    "a terminal's colours on every line": "\x1b[32mok\x1b[0m a test that is named after what it finds out\n",
    "Persian, with joiners that spelling asks for": "می\u200cخواهم این را بنویسم تا دیده شود\n",
    "an emoji on every line, with its selector": "❤\ufe0f a line that begins with an emoji like many do\n",
    "every other character hidden": "a\u200b",
    "nothing but tag characters": "".join(map(chr, range(0xE0000, 0xE0080))),
}
"""To see that the time stays linear."""


def run(effort: Effort, _folder: Path) -> list[Row]:
    ordinary = [
        _row(f"{name}, 1 MB", _megabyte(text), effort, most=PER_MEGABYTE) for name, text in ORDINARY.items()
    ]
    special = [_row(f"{name}, 1 MB", _megabyte(text), effort) for name, text in SPECIAL.items()]
    return ordinary + special


def _megabyte(text: str) -> str:
    return text * (SIZE // len(text.encode()))


def _row(what: str, text: str, effort: Effort, *, most: float | None = None) -> Row:
    subjects = {
        "ours": lambda: seconds(lambda: visible(text)),
        "encode": lambda: seconds(lambda: text.encode()),
    }
    taken = interleaved(effort.rounds, subjects)
    compared = ratio(what, taken["ours"], taken["encode"])
    if most is None:
        return compared
    ours = sorted(taken["ours"])[len(taken["ours"]) // 2]
    target = at_most(what, ours, most, milliseconds)
    return replace(compared, target=target.target, holds=target.holds)


BENCHMARK = Benchmark(name="sanitizer", title="Escaping what cannot be seen", run=run)
