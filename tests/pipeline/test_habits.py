"""Calls as models write them who know other servers: accepted, or refused with the right form."""

from pathlib import Path
from typing import Any

from tests.support.live import Setup, connected, text

CODE = b"one\ntwo\n"
EDITED = "Edited a.js: 1 replacement"
EDIT = {"old_string": "two", "new_string": "2"}

ACCEPTED: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("read_file", {"filePath": "a.js"}, "1\tone"),
    ("read_file", {"file_path": "a.js", "offset": "1", "limit": "1"}, "2\ttwo"),
    ("read_file", {"path": "a.js", "limit": 1.0}, "1\tone"),
    ("Read", {"target_file": "a.js", "offset": "2"}, "2\ttwo"),
    ("read_text_file", {"path": "a.js"}, "1\tone"),
    ("edit_file", {"path": "a.js", "oldText": "one", "newText": "uno"}, EDITED),
    ("edit_file", {"path": "a.js", "old_str": "uno", "new_str": "one"}, EDITED),
    ("edit_file", {"filePath": "a.js", "edits": [{"oldText": "one", "newText": "uno"}]}, EDITED),
    ("edit_file", {"path": "a.js", "edits": '[{"old_string": "uno", "new_string": "one"}]'}, EDITED),
    (
        "Edit",
        {"file_path": "a.js", "old_string": "o", "new_string": "0", "replace_all": "true"},
        "2 replacements",
    ),
    ("write_file", {"file_path": "new", "text": "x"}, "Created new (1 bytes)"),
    ("write_file", {"path": "new", "content": "y\n", "append": True}, "@@ -1 +1 @@\n-x"),
    ("write_file", {"path": "log", "content": "y", "mode": "append"}, "Created log (1 bytes)"),
    ("read_file", {"path": "new", "tail": 1}, "1\txy"),
    ("glob_search", {"pattern": "*.js,*.ts"}, "b.ts"),
    ("glob_search", {"pattern": "*.js, *.ts"}, "b.ts"),
    ("glob_search", {"glob": "*.ts"}, "b.ts"),
    ("glob_search", {"query": "*.ts"}, "b.ts"),
    ("Edit", {"file_path": "a.js", "old_string": "0", "new_string": "o", "replace_all": "TRUE"}, "Edited"),
    ("glob_search", {"pattern": "src/*"}, "these folders do:\nsrc/deep/"),
    ("grep_search", {"pattern": "one", "glob": "*.js,*.ts"}, "[3 files]"),
    ("grep_search", {"query": "one", "include": "*.ts"}, "[1 file]"),
    ("grep_search", {"regex": "ONE", "ignore_case": True}, "[3 files]"),
    ("grep_search", {"pattern": "one", "max_count": 1}, "[1-1 of 3 files"),
    ("grep_search", {"pattern": "one", "max_results": "1"}, "[1-1 of 3 files"),
    ("Grep", {"pattern": "two", "output_mode": "content", "-n": "true", "context": "1"}, "a.js-1-one"),
    ("tree", {"depth": 2}, "deep/"),
    ("list_directory", {"path": "."}, "src/"),
    ("bash", {"command": "echo $((6 * 7))", "timeout_ms": 5_000}, "42"),
    ("bash", {"cmd": "echo $((6 * 7))", "timeout": "5000", "workdir": "src"}, "42"),
    ("bash", {"command": "echo $((6 * 7))", "run_in_background": "false"}, "42"),
    (
        "REPL",
        {"code": "1", "language": "sh", "timeout_ms": 600_001},
        "[a timeout of 600000 ms is the longest",
    ),
    ("bash", {"command": "sleep 5", "timeout": 100}, "timeout (100 ms; for seconds send 100000)"),
    # What is sent empty beside another way to say the same, and nothing but empty where all is optional.
    ("TodoWrite", {"todos": [{"content": "tidy up", "activeForm": ""}], "id": 0}, "tidy up"),
    (
        "edit_file",
        {**dict.fromkeys(("old_string", "new_string"), ""), "path": "b.ts", "edits": [EDIT]},
        "Edited b.ts",
    ),
    ("ls", {"path": "", "offset": 0}, "src/"),
    ("head", {"path": "a.js", "lines": 0}, "one"),
)

REFUSED: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("read_file", {"path": "a.js", "ofset": 1}, "did you mean offset?"),
    (
        "edit_file",
        {"path": "a.js", "edits": [{"old": "x", "new_string": "y"}]},
        "edits takes old_string, new_string",
    ),
    ("edit_file", {"path": "a.js", "edits": [{"old_string": 5}]}, "edits.0.old_string: Input should be"),
    ("bash", {"command": "true", "timeout_seconds": 5}, "did you mean timeout?"),
    ("read_file", {"path": "a.js", "file_path": "b.ts"}, "file_path: unknown argument"),
    ("read_file", {"file_path": "a.js", "filename": "b.ts"}, "filename: unknown argument"),
    ("read_file", {"path": "a.js", "limit": "many"}, "limit: Input should be a valid integer"),
    ("read_file", {"path": "a.js", "limit": "1e400"}, "limit: Input should be a valid integer"),
    ("read_file", {"path": ""}, "path"),
    ("head", {"path": "a.js", "lines": -1}, "lines"),
    ("edit_file", {"path": "a.js", "old_string": "", "new_string": ""}, "old_string"),
    ("read_file", {"path": "elsewhere/c.js"}, "Did you mean 'src/deep/c.js'?"),
    ("read_file", {"path": "src/deep/b.ts"}, "Did you mean 'b.ts'?"),
)


async def test_habits_of_other_tools_work_or_are_put_right_without_a_word_of_what_is_hidden(
    tmp_path: Path,
) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[rules]\ndeny = ["Read(secret/**)"]\n', encoding="utf-8")
    setup = Setup.below(tmp_path, "danger-full-access", "--git", "protected", "--config", str(config))
    for name in ("a.js", "b.ts", "src/deep/c.js", "secret/d.js"):
        (setup.root / name).parent.mkdir(parents=True, exist_ok=True)
        (setup.root / name).write_bytes(CODE)
    (setup.root / "link.js").symlink_to("secret/d.js")
    faults: list[str] = []
    async with connected(setup) as client:
        for calls, fails in ((ACCEPTED, False), (REFUSED, True)):
            for name, arguments, expected in calls:
                result = await client.call_tool(name, arguments)
                if bool(result.is_error) is not fails or expected not in text(result):
                    faults.append(f"{name} {arguments}: {text(result)}")
        for path in ("elsewhere/d.js", "elsewhere/link.js"):
            said = text(await client.call_tool("read_file", {"path": path}))
            if "secret" in said or "Did you mean" in said:
                faults.append(f"{path}: {said}")
    assert faults == []
