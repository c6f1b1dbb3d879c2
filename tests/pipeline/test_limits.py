"""Cutting at byte limits: exactly at the limit is whole, and what is cut can be had."""

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_toolserver.capabilities.call_scope import Room, SavedOutput
from mcp_toolserver.pipeline.call import fit
from mcp_toolserver.pipeline.registry import discover
from mcp_toolserver.runtime.executables import find_host_executables
from mcp_toolserver.text.lines.encoding import head_bytes, tail_bytes
from mcp_toolserver.tool_spec import Output
from tests.support.cases import collected
from tests.support.extent import rounds
from tests.support.workbench import Person
from tests.support.workshop import workshop


@given(st.text(), st.integers(0, 40))
def test_a_head_is_the_longest_start_within_the_limit(text: str, limit: int) -> None:
    head = head_bytes(text, limit)
    assert text.startswith(head)
    assert len(head.encode()) <= limit
    assert head == text or len(text[: len(head) + 1].encode()) > limit


@given(st.text(), st.integers(0, 40))
def test_a_tail_is_the_longest_end_within_the_limit(text: str, limit: int) -> None:
    tail = tail_bytes(text, limit)
    assert text.endswith(tail)
    assert len(tail.encode()) <= limit
    assert tail == text or len(text[len(text) - len(tail) - 1 :].encode()) > limit


@dataclass
class StoredTexts:
    """Keeps what it is given, or cannot."""

    kept: list[str] = field(default_factory=list[str])
    is_full: bool = False

    async def save(self, text: str) -> SavedOutput:
        if self.is_full:
            raise OSError(28, "the disk is full")
        self.kept.append(text)
        return SavedOutput(handle="h", path="/state/h.txt", size=len(text.encode()))


async def test_one_byte_over_the_limit_is_cut_and_kept_whole() -> None:
    saver = StoredTexts()
    whole = await fit(Output("é" * 50), Room(bytes=100), saver.save)
    assert (whole.text, whole.truncated, whole.saved_output, saver.kept) == ("é" * 50, False, None, [])
    cut = await fit(Output("é" * 50 + "x"), Room(bytes=100), saver.save)
    assert cut.text.endswith(', path "/state/h.txt"]\n' + "é" * 12 + "x")
    assert cut.truncated
    assert saver.kept == ["é" * 50 + "x"]


@pytest.mark.rounds
@settings(max_examples=rounds(30, 200))
@given(st.text(min_size=200), st.integers(140, 700))
async def test_what_is_cut_keeps_the_limit_with_its_note(text: str, limit: int) -> None:
    assert len((await fit(Output(text), Room(bytes=limit), StoredTexts().save)).text.encode()) <= limit


async def test_what_has_too_many_lines_for_the_client_is_cut_too() -> None:
    text = "\n".join(map(str, range(100)))
    cut = await fit(Output(text), Room(lines=20), StoredTexts().save)
    assert cut.text.startswith("0\n1\n")
    assert cut.text.endswith("98\n99")
    assert "/state/h.txt" in cut.text
    assert cut.text.count("\n") < 20
    assert await fit(Output(text), Room(lines=100), StoredTexts().save) == Output(text)


async def test_what_the_tool_itself_kept_or_cut_is_not_kept_twice_and_stays_marked() -> None:
    saver = StoredTexts()
    own = SavedOutput(handle="own", path="/state/own.txt", size=300)
    fitted = await fit(Output("x" * 200, saved_output=own), Room(bytes=100), saver.save)
    assert (fitted.saved_output, saver.kept) == (own, [])
    fitted = await fit(Output("short", truncated=True), Room(bytes=100), saver.save)
    assert (fitted.text, fitted.truncated) == ("short", True)


async def test_what_cannot_be_saved_is_cut_all_the_same_and_the_reason_is_given() -> None:
    fitted = await fit(Output("x" * 220), Room(bytes=200), StoredTexts(is_full=True).save)
    assert fitted.text.endswith("x\n[78 bytes could not be saved, because the disk is full]\n" + "x" * 50)
    assert (fitted.truncated, fitted.saved_output) == (True, None)


async def test_what_a_tool_cut_itself_is_saved_whole() -> None:
    saver = StoredTexts()
    fitted = await fit(Output("a part", whole="all of it"), Room(), saver.save)
    assert (saver.kept, fitted.truncated) == (["all of it"], True)
    assert fitted.text.startswith("a part\n[Parts are left out; read all of it with read_file, path ")
    fitted = await fit(Output("a part", whole="all of it"), Room(), StoredTexts(is_full=True).save)
    assert fitted.text == "a part\n[Parts could not be saved, because the disk is full]"


CUT: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("glob_search", {"pattern": "many/*"}, "go on with offset=200"),
    ("grep_search", {"pattern": "x", "path": "many"}, "go on with offset=200"),
    ("ls", {"path": "many"}, "offset=200"),
    ("tree", {}, "ls lists one folder whole"),
    ("read_file", {"path": "long.txt"}, "offset="),
    ("git_status", {"short": True}, "name a folder as `path`"),
    ("git_log", {"count": 1}, "go on with offset=1"),
    ("git_blame", {"path": "long.txt"}, "go on with start_line="),
    ("git_branch", {}, "saved"),
    ("git_show", {"commit": "HEAD~1"}, "saved"),
    ("git_diff", {"commit": "HEAD~2..HEAD"}, "saved"),
    ("git_commit", {"message": "m", "paths": ["many"]}, "saved"),
    ("LSP", {"operation": "documentSymbol", "path": "long.sh"}, "saved"),
    ("bash", {"command": "seq 30000"}, "saved"),
    ("REPL", {"language": "python", "code": "for i in range(30000): print(i)"}, "saved"),
)

PATCH = "*** Begin Patch\n*** Update File: crlf.txt\n@@\n-row 398 \n+8\n*** End Patch\n"

WIDE: tuple[tuple[str, dict[str, Any]], ...] = (
    *(
        (tool, {"path": path})
        for path in ("crlf.txt", "line.txt")
        for tool in ("read_file", "head", "tail", "git_diff", "git_blame")
    ),
    ("git_show", {}),
    *(
        ("grep_search", {"pattern": "line|x|row", "path": path, "output_mode": "content"})
        for path in (".", "crlf.txt")
    ),
    ("grep_search", {"pattern": "x", "path": "line.txt", "output_mode": "content"}),
    ("grep_search", {"pattern": "line|x|row", "head_limit": 0}),
    ("diff", {"path": "crlf.txt", "other_path": "line.txt"}),
    ("edit_file", {"path": "crlf.txt", "old_string": "line", "new_string": "row", "replace_all": True}),
    ("edit_file", {"path": "crlf.txt", "old_string": "row 399", "new_string": "last"}),
    ("apply_patch", {"patch": PATCH}),
    ("write_file", {"path": "crlf.txt", "content": "one\r\ntwo\r\n", "overwrite": True}),
    ("write_file", {"path": "crlf.txt", "content": "one\r\n2\r\n"}),
    ("bash", {"command": "cat long.txt crlf.txt"}),
    ("REPL", {"code": "cat long.txt crlf.txt", "language": "shell"}),
    ("ls", {"path": "named", "limit": 9_000, "details": True}),
    ("glob_search", {"pattern": "**/*", "limit": 9_000}),
    ("ToolSearch", {}),
)
"""Calls whose answers would be too long, or show the CR of a line end."""


@pytest.mark.requirement("GR-45", "GR-46", "GR-48")
async def test_what_is_cut_can_be_had_whole_and_no_line_shows_its_cr(
    tmp_path: Path,
) -> None:
    setup = """git init -q; git config user.name n; git config user.email n@example.org
        seq 100000 >long.txt; for i in $(seq 400); do echo "f$i() {"; done >long.sh
        seq -f 'line %g' 0 399 | sed 's/$/\\r/' >crlf.txt; echo x >line.txt
        for at in 1 2 3; do seq 20000 >>long.txt; git add .; git commit -qm $at; done
        for at in $(seq 31); do git branch b$at; done; mkdir many named; cd many
        for at in $(seq 1001); do echo x >f$at; done; git add .; cd ../named
        for at in $(seq 1500); do >$at$(printf n%.0s $(seq 60)); done; cd ..
        sed -i 's/399/399 /' crlf.txt; head -c 300000 long.txt | tr '\\n' x >line.txt"""
    (tmp_path / "root").mkdir()
    subprocess.run(["bash", "-c", setup], cwd=tmp_path / "root", check=True)
    found = find_host_executables(os.environ, [str(tmp_path / "root")])
    async with workshop(tmp_path, found=found) as server:
        with collected() as case:
            for name, arguments, how in CUT:
                with case(name):
                    result = await server.call(name, arguments, Person())
                    assert (result.error, result.truncated) == (None, True), result.text[-300:]
                    if how != "saved":
                        assert how in result.text
                        continue
                    assert result.saved_output is not None
                    assert f'read_file, path "{result.saved_output.path}"' in result.text
                    saved = {"path": result.saved_output.path, "limit": 5}
                    assert (await server.call("read_file", saved, Person())).error is None
                    assert result.saved_output.size > 600
            for name, arguments in (*WIDE, ("glob_search", {"pattern": "{" + "a," * 40_000 + "}"})):
                with case(f"{name} {str(arguments)[:60]}"):
                    result = await server.call(name, arguments, Person())
                    assert (result.error is not None) == (len(str(arguments)) > 1_000), result.text[-300:]
                    assert len(result.text) <= 48_000
                    assert "\\u{d}" not in result.text
    assert {entry.spec.name for entry in discover() if entry.spec.limits.output_bytes > 48_000} == set()
