"""`log`: shows the audit log, or verifies that nobody changed it."""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

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
    ("rule", 0),
)


def log(state_folder: str, *, follow: bool, verify: bool, as_json: bool) -> int:
    """Print the log, or check it; exit status 1 when the check finds something wrong."""
    folder = f"{state_folder}/{FOLDER}"
    try:
        if verify:
            return _verify(folder, as_json=as_json)
        return _print(folder, follow=follow, as_json=as_json)
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


def _print(folder: str, *, follow: bool, as_json: bool) -> int:
    if not follow and not os.path.isdir(folder):
        print(f"Nothing is recorded in {folder} yet.", file=sys.stderr)
        return 0
    if not as_json:
        print("  ".join(f"{name:{width}}" for name, width in _COLUMNS).rstrip(), flush=True)
    for line in _lines(folder, follow=follow):
        # What is in the file was written by us, or by somebody who means harm.
        print(visible(line.decode(errors="replace")) if as_json else _row(line), flush=follow)
    sys.stdout.flush()
    return 0


def _lines(folder: str, *, follow: bool) -> Iterator[bytes]:
    """Every whole line once, from the oldest file on; if `follow`, also those that are added, without end."""
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
                        yield line.removesuffix(b"\n")
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
