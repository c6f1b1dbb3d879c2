"""The output of commands as on a terminal: no colours, and the last state of what was written again."""

from pathlib import Path

from tests.support import processes
from tests.support.processes import served

PRINTED = {
    "colours": ("\\033[1;31mred\\033[0m plain", "red plain"),
    "extended-colours": ("\\033[38;2;1;2;3mx\\033[48:5:9my\\033[m", "xy"),
    "reset-of-tput": ("bold\\033(B\\033[m", "bold"),
    "progress-bar": ("10%%\\r20%%\\r100%%\\nend", "100%\nend"),
    "progress-bar-that-erases": ("10%%\\r\\033[K20%%\\033[2K\\r30%%\\033[K\\r\\n", "30%"),
    "carriage-returns-at-line-ends": ("a\\r\\nb\\r\\n", "a\r\nb\r\n"),
    "cursor": ("a\\033[2Jb\\033[1A\\033[2K", "a\\u{1b}[2Jb\\u{1b}[1A\\u{1b}[2K"),
}


async def test_a_command_is_shown_as_on_a_terminal(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        for name, (printed, shown) in PRINTED.items():
            result = await processes.call(at, "bash", command=f"printf '{printed}'")
            assert result.text.rstrip("\n") == shown.rstrip("\n"), name
            started = await processes.call(at, "bash", command=f"printf '{printed}'", run_in_background=True)
            task = started.text.split("bg_")[1][:6]
            followed = await processes.call(at, "TaskOutput", task_id=f"bg_{task}", until="end")
            assert followed.text.startswith(shown.rstrip("\n")), name
        # Collapsing a progress bar takes time in proportion to its length.
        megabyte = "head -c 1000000 /dev/zero | tr '\\0' '\\r'; echo; head -c 9000 /dev/zero | tr '\\0' x"
        result = await processes.call(at, "bash", command=megabyte)
    assert result.text.endswith("x" * 9_000)
