"""Tables of cases in one test, which runs them all and reports every failure, and waiting, bounded."""

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

Case = Callable[[str], AbstractContextManager[None]]


@contextmanager
def collected() -> Generator[Case]:
    """Gives `case`. What fails in `with case(name):` is reported at the end, when all cases have run."""
    wrong: list[str] = []

    @contextmanager
    def case(name: str) -> Generator[None]:
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  # reported below, with the others
            wrong.append(f"{name}: {str(error) or repr(error)}")

    yield case
    if wrong:
        pytest.fail("\n".join(wrong))


def until(condition: Callable[[], object], seconds: float = 20) -> None:
    """Wait, bounded, until something is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not become so"
        time.sleep(0.02)


def rows(file: Path, words: Mapping[str, str]) -> dict[str, list[str]]:
    """The lines of each `[name]` in a file, by the `# heading` above and the name, with `{WORD}` replaced."""
    found: dict[str, list[str]] = {}
    heading, lines = "", list[str]()
    for line in _lines(file, words):
        if line.startswith("# "):
            heading = line[2:]
        elif line.startswith("[") and line.endswith("]"):
            lines = found.setdefault(f"{heading}: {line[1:-1]}", [])
        else:
            lines.append(line)
    return found


def table(
    file: Path, part: str = "", columns: int = 0, words: Mapping[str, str] | None = None
) -> list[list[str]]:
    """The lines below `[part]` in a file as cells between ` | `; the last of `columns` may hold that too.

    `# ` begins a remark, and `{WORD}` is replaced."""
    found: list[list[str]] = []
    here = not part
    for line in _lines(file, words or {}):
        if line.startswith("[") and line.endswith("]") and " | " not in line:
            here = line == f"[{part}]"
        elif here and not line.startswith("# "):
            *cells, last = line.split(" | ", columns - 1)
            found.append([*map(str.strip, cells), last])
    assert found, f"{file} has no lines below [{part}]"
    return found


def _lines(file: Path, words: Mapping[str, str]) -> Iterator[str]:
    """The lines of a file that are not empty, with `{WORD}` replaced."""
    for line in filter(None, file.read_text(encoding="utf-8").split("\n")):
        for word, text in words.items():
            line = line.replace(f"{{{word}}}", text)
        yield line
