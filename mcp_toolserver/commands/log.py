"""`log`: shows the audit log, or verifies that nobody changed it."""

import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from mcp_toolserver.command_line import Invocation
from mcp_toolserver.stores.audit_chain import FOLDER, VerificationReport, file_name, file_numbers, parse_line
from mcp_toolserver.stores.audit_chain import verify as verified
from mcp_toolserver.text.lines.escape_invisible import visible

POLL_SECONDS = 0.25

_COLUMNS = (
    ("time", 24),
    ("tool", 14),
    ("verdict", 16),
    ("outcome", 13),
    ("ms", 9),
    ("bytes", 8),
    ("user", 12),
    ("session", 20),
    ("about", 0),
    ("rule", 0),
)


def log(state_folder: str, invocation: Invocation) -> int:
    """Print the log, or check it; exit status 1 when the check finds something wrong."""
    folder, as_json = f"{state_folder}/{FOLDER}", invocation.json
    try:
        if invocation.verify:
            return _verify(folder, as_json=as_json)
        return _print(folder, invocation)
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:
        # Whoever read has seen enough. What Python still holds for them must not fail at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"mcp-toolserver log: {folder} cannot be read: {error.strerror}", file=sys.stderr)
        return 1


def _verify(folder: str, *, as_json: bool) -> int:
    found = verified(folder) if os.path.isdir(folder) else VerificationReport()
    if as_json:
        print(json.dumps({"ok": not found.problems, **asdict(found)}, indent=2))
        return 1 if found.problems else 0
    for note in found.notes:
        print(f"note: {note}")
    for problem in found.problems:
        print(f"WRONG: {problem}")
    if not found.files:
        print(f"Nothing is recorded in {folder} yet.")
    count = f"{found.lines} lines in {found.files} files"
    if found.problems:
        print(f"{count}: {len(found.problems)} problems.")
        return 1
    if found.files:
        print(f"{count}: the chain is whole.")
    return 0


def _print(folder: str, asked: Invocation) -> int:
    if not asked.follow and not os.path.isdir(folder):
        print(f"Nothing is recorded in {folder} yet.", file=sys.stderr)
        return 0
    if not asked.json:
        print("  ".join(f"{name:{width}}" for name, width in _COLUMNS).rstrip(), flush=True)
    waiting = deque[bytes](maxlen=asked.last or None)
    for line in _lines(folder, follow=asked.follow):
        if line:
            waiting.extend([line] * _is_asked(line, asked))
            continue
        for each in waiting:
            # What is in the file was written by us, or by somebody who means harm.
            print(visible(each.decode(errors="replace")) if asked.json else _row(each), flush=asked.follow)
        waiting = deque[bytes]()
    sys.stdout.flush()
    return 0


def _is_asked(line: bytes, asked: Invocation) -> bool:
    """Whether the filters let a line through. What is no line of the log is always shown."""
    fields, starts = parse_line(line), {"session": asked.session, "verdict": asked.verdict}
    is_near = all(str(fields.get(name)).startswith(start) for name, start in starts.items())
    return not fields or (is_near and asked.tool in ("", fields.get("tool")))


def _lines(folder: str, *, follow: bool) -> Iterator[bytes]:
    """Every whole line once, from the oldest file on, then an empty one; if `follow`, without end."""
    number = place = 0
    while True:
        for newer in file_numbers(folder) if os.path.isdir(folder) else []:
            if newer > number:
                number, place = newer, 0
            if newer < number:
                continue
            with suppress(FileNotFoundError), Path(folder, file_name(number)).open("rb") as file:
                file.seek(place)
                for line in file:
                    if line.endswith(b"\n"):
                        place += len(line)
                        yield line.removesuffix(b"\n") or b" "
        yield b""
        if not follow:
            return
        time.sleep(POLL_SECONDS)


def _row(line: bytes) -> str:
    fields = parse_line(line)
    if not fields:
        return f"(no line of the log: {visible(line[:60].decode(errors='replace'))!r})"
    return "  ".join(f"{_cell(fields.get(name)):{width}}" for name, width in _COLUMNS).rstrip()


def _cell(value: object) -> str:
    return "" if value is None else visible(str(value)).replace("\n", "\\n").replace("\t", "\\t")
