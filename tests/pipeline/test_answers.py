"""What every client can take: no answer is too long for it, and none shows the CR of a line end."""

from pathlib import Path
from typing import Any

from mcp_toolserver.pipeline.registry import discover
from tests.support.confinement import git
from tests.support.live import Setup, connected, text

PATCH = "*** Begin Patch\n*** Update File: crlf.txt\n@@\n-row 398 \n+8\n*** End Patch\n"

CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    *(
        (tool, {"path": path})
        for path in ("crlf.txt", "long.txt")
        for tool in ("read_file", "head", "tail", "git_diff", "git_blame")
    ),
    ("git_show", {}),
    *(
        ("grep_search", {"pattern": "line|x|row", "path": path, "output_mode": "content"})
        for path in (".", "crlf.txt")
    ),
    ("grep_search", {"pattern": "x", "path": "long.txt", "output_mode": "content"}),
    ("grep_search", {"pattern": "line|x|row", "head_limit": 0}),
    ("diff", {"path": "crlf.txt", "other_path": "long.txt"}),
    ("edit_file", {"path": "crlf.txt", "old_string": "line", "new_string": "row", "replace_all": True}),
    ("edit_file", {"path": "crlf.txt", "old_string": "row 399", "new_string": "last"}),
    ("apply_patch", {"patch": PATCH}),
    ("write_file", {"path": "crlf.txt", "content": "one\r\ntwo\r\n", "overwrite": True}),
    ("write_file", {"path": "crlf.txt", "content": "one\r\n2\r\n"}),
    ("bash", {"command": "cat long.txt crlf.txt"}),
    ("REPL", {"code": "cat long.txt crlf.txt", "language": "shell"}),
    ("ls", {"path": "many", "limit": 9_000, "details": True}),
    ("glob_search", {"pattern": "**/*", "limit": 9_000}),
    ("ToolSearch", {}),
)


async def test_no_answer_is_too_long_and_none_shows_the_cr_of_a_line_end(tmp_path: Path) -> None:
    setup = Setup.below(tmp_path, "danger-full-access", "--toolsets", "all")
    crlf, long = (setup.root / name for name in ("crlf.txt", "long.txt"))
    crlf.write_bytes(b"".join(b"line %d\r\n" % n for n in range(400)))
    long.write_bytes(b"x\n")
    git(setup.root, "init", "-q")
    git(setup.root, "add", ".")
    git(setup.root, "commit", "-qm", "one")
    (setup.root / "many").mkdir()
    for number in range(1_500):
        (setup.root / f"many/{number}{'n' * 60}").touch()
    long.write_bytes(b"x" * 300_000)
    git(setup.root, "commit", "-qam", "two")
    crlf.write_bytes(crlf.read_bytes().removesuffix(b"399\r\n") + b"399 \r\n")
    faults: list[str] = []
    async with connected(setup) as client:
        for tool, arguments in CALLS:
            result = await client.call_tool(tool, arguments)
            said = text(result)
            if result.is_error or len(said) > 48_000 or "\\u{d}" in said:
                faults.append(f"{tool} {str(arguments)[:60]}: {len(said)}, {said[-200:]}")
        error = await client.call_tool("glob_search", {"pattern": "{" + "a," * 40_000 + "}"})
        assert error.is_error
        assert len(text(error)) <= 48_000
    assert faults == []
    assert {entry.spec.name for entry in discover() if entry.spec.limits.output_bytes > 48_000} == set()
