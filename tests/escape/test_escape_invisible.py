"""Nothing hides in what leaves the server: escape cases by their ids, and honest text as it was."""

import json
import re
import sys
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ResourceLink, TextResourceContents

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.errors import NotFound
from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.mcp_server import ToolServer
from mcp_toolserver.protocol.resources.feature import ResourceFeature
from mcp_toolserver.protocol.resources.source import LARGEST
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.text.edit.edit import Edit, apply
from mcp_toolserver.text.lines.escape_invisible import escape, escapes, is_hidden, unescape, visible
from mcp_toolserver.tool_spec import Record
from tests.search.searching import ask, searcher
from tests.support import live
from tests.support.processes import call, served
from tests.support.workbench import Args, Output, Person, Runtime, dispatcher, machine, tool

HONEST = {
    "accents": "Füße, ça va, Übermaß, naïve, Dvořák – “quoted” … €",
    "decomposed": "e\u0301te\u0301",
    "cyrillic": "Привет, мир",
    "cjk": "漢字かな交じり文。한국어 中文，标点「」\u3000全角",
    "emoji": "ok ✅ 🎉 ❤\ufe0f ☀\ufe0e 1\ufe0f\u20e3 🇩🇪 👍🏽",
    "emoji-sequences": "👨\u200d👩\u200d👧 🏳\ufe0f\u200d🌈 👩🏽\u200d🚀 ❤\ufe0f\u200d🔥 🧔\u200d♂\ufe0f",
    "arabic": "مرحبا بالعالم، ١٢٣ ﷽ \u06dd",
    "persian": "می\u200cخواهم کتاب\u200cها را",
    "hebrew": "שלום עולם",
    "hindi": "नमस्ते क्\u200dष र्\u200cय",
    "sinhala": "ශ්\u200dරී ලංකා",
    "khmer": "ភាសា\u200bខ្មែរ",
    "mongolian": "ᠮᠣᠩᠭᠣᠯ\u180e\u1820 \u1820\u180b",
    "boxes": "┌──┐\n│  │\n└──┘ ▓▒░ ▁▂▃",
    "layout": "a\tb\n\n  c\r\nd\u00a0e",
    "escapes-in-code": 'print("\\u{200b} \\x1b[0m \\u200b")',
    "private-use": "\ue0b0 \uf09b",
}

HOSTILE = {
    "OUT02": ("\x1b[8mhidden\x1b[0m", "\\u{1b}[8mhidden\\u{1b}[0m"),
    "OUT03": ("a\x1b[1A\x1b[2Kb", "a\\u{1b}[1A\\u{1b}[2Kb"),
    "OUT07": ("\x1bPq\x1b\\ \x1b_x\x1b\\", "\\u{1b}Pq\\u{1b}\\ \\u{1b}_x\\u{1b}\\"),
    "OUT08": ("\x9b8mhidden", "\\u{9b}8mhidden"),
    "OUT10": ("rm -rf /\b\b\b\bls", "rm -rf /\\u{8}\\u{8}\\u{8}\\u{8}ls"),
    "OUT11": ("abc\u202egnp.exe", "abc\\u{202e}gnp.exe"),
    "OUT12": ("\u2066a\u2067b\u2068c\u2069", "\\u{2066}a\\u{2067}b\\u{2068}c\\u{2069}"),
    "OUT13": ("a\u200bb\u200cc\u200dd\u2060e", "a\\u{200b}b\\u{200c}c\\u{200d}d\\u{2060}e"),
    "OUT16": ("a\u2028b\u2029c", "a\\u{2028}b\\u{2029}c"),
    "OUT17": ("a\ud800b\udfffc", "a\\u{d800}b\\u{dfff}c"),
    "OUT18": ("a\0b", "a\\u{0}b"),
    "lone-return": ("visible\rfake", "visible\\u{d}fake"),
    "return-before-crlf": ("a\r\r\nb", "a\\u{d}\r\nb"),
    "tags": ("ok\U000e0049\U000e0047\U000e007f", "ok\\u{e0049}\\u{e0047}\\u{e007f}"),
    "flag-with-tags": ("🏴\U000e0067\U000e007f", "🏴\\u{e0067}\\u{e007f}"),
    "smuggled-bytes": ("😀\U000e0158\U000e0102", "😀\\u{e0158}\\u{e0102}"),
    "selector-run": ("😀\ufe0f\ufe0f\ufe0e", "😀\ufe0f\\u{fe0f}\\u{fe0e}"),
    "selector-on-a-letter": ("a\ufe0fb\ufe00", "a\\u{fe0f}b\\u{fe00}"),
    "joiner-run": ("کتاب\u200c\u200d\u200cها", "کتاب\u200c\\u{200d}\\u{200c}ها"),
    "joiner-after-emoji": ("😀\u200dadmin", "😀\\u{200d}admin"),
    "fillers": ("\u115f\u1160\u3164\uffa0", "\\u{115f}\\u{1160}\\u{3164}\\u{ffa0}"),
    "grapheme-joiner": ("a\u034fb", "a\\u{34f}b"),
    "khmer-vowels": ("\u17b4\u17b5", "\\u{17b4}\\u{17b5}"),
    "noncharacters": ("\ufdd0\uffff", "\\u{fdd0}\\u{ffff}"),
}  # fmt: skip


def test_honest_text_is_unchanged() -> None:
    for case, text in HONEST.items():
        assert visible(text) == text, case
        # Among much ASCII another way is taken.
        assert visible(f"{'plain ' * 500}{text}") == f"{'plain ' * 500}{text}", case


def test_what_cannot_be_seen_is_escaped_and_never_left_out() -> None:
    for case, (text, shown) in HOSTILE.items():
        for before in ("", "plain " * 500, "漢"):
            assert visible(f"{before}{text}") == f"{before}{shown}", case
        assert unescape(shown).encode(errors="surrogatepass") == text.encode(errors="surrogatepass"), case


def test_what_hides_far_behind_text_of_any_script_is_found() -> None:
    for script in "aéж文か😀":
        text = script * 10_000
        for hidden in "\x1b\x85\u034f\u200b\ufeff\ud800\U000e0041":
            assert visible(text + hidden + text) == text + escape(hidden) + text, (script, hex(ord(hidden)))


def test_a_text_of_very_many_hidden_characters_is_escaped_as_well() -> None:
    tags = "".join(map(chr, range(0xE0000, 0xE0200)))
    family = "👨\u200d👩\u200d👧"
    assert visible(f"{tags}{family}\u200dx") == f"{''.join(map(escape, tags))}{family}\\u{{200d}}x"


SPELLING = set("\u200b\u200c\u200d\ufe0e\ufe0f\u180b\u180c\u180d\u180e\u180f\r")


@given(st.text(st.characters() | st.sampled_from("\r\n\u200b\u200c\u200d\ufe0f\u180b😀♂ک९ឮ1\u20e3\x1b")))
def test_nothing_hidden_is_left_but_what_spelling_asks_for(text: str) -> None:
    shown = visible(text)
    assert not [one for one in shown if is_hidden(one) and one not in SPELLING]
    assert visible(shown) == shown


def test_every_invisible_or_moving_character_of_unicode_is_known() -> None:
    """The classes of the standard library, less those with a shape, are all covered."""
    shaped = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
    shaped |= {*range(0x13430, 0x13440)}
    moving = {"Cc", "Cf", "Zl", "Zp", "Cs"}
    missed = [
        hex(code)
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)) in moving
        and code not in shaped
        and chr(code) not in "\t\n"
        and not is_hidden(chr(code))
    ]
    assert missed == []


def test_a_hostile_text_takes_linear_time() -> None:
    """REDOS08: it would take hours if it did not; the benchmarks have the time for ordinary text."""
    repeated = ("\x1b\x1b", "a\u200b", "\u200d\u200d", "😀\u200d", "\r\r")
    tags = "".join(chr(0xE0000 + number % 4096) for number in range(150_000))
    for text in (tags, *(part * 150_000 for part in repeated)):
        shown = visible(text)
        assert len(shown) > len(text)
        assert not [one for one in set(shown) if is_hidden(one) and one not in SPELLING]


def test_only_our_own_escapes_are_taken_back() -> None:
    assert (
        unescape("\\u{200b} \\u{41} \\u{1F600} \\u{ffffff} \\u{d}")
        == "\u200b \\u{41} \\u{1F600} \\u{ffffff} \r"
    )
    assert escapes("\\u{200b} \\u{41} \\u{200b}") == {"\\u{200b}": "\u200b"}


def write(root: Path, name: str, content: str) -> Path:
    path = root / name
    path.write_bytes(content.encode(errors="surrogatepass"))
    return path


async def test_read_file_shows_what_is_hidden_in_a_file_and_honest_text_as_it_is(tmp_path: Path) -> None:
    at = dispatcher(machine(tmp_path))
    for case in ("OUT02", "OUT08", "OUT11", "OUT13", "OUT16", "tags"):
        text, shown = HOSTILE[case]
        write(tmp_path / "root", "a", f"start {text} end\n")
        assert f"start {shown} end" in (await call(at, "read_file", path="a")).text, case
    for text in HONEST.values():
        write(tmp_path / "root", "a", text)
        lines = [f"{number}\t{line}" for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1)]
        assert (await call(at, "read_file", path="a")).text.startswith("\n".join(lines))


async def test_grep_search_shows_what_is_hidden_in_a_line_and_in_a_name(
    tmp_path: Path, search_broker: Broker
) -> None:
    """OUT19: `test_search.py` has line ends in names."""
    at = searcher(tmp_path, search_broker)
    write(tmp_path / "root", "a\u202e\x1b[2J.txt", "needle \x1b[8m\u202e\U000e0041 👩🏽\u200d🚀 ça\n")
    found = await ask(at, "grep_search", pattern="needle", output_mode="content")
    assert "a\\u{202e}\\x1b[2J.txt:1:needle \\u{1b}[8m\\u{202e}\\u{e0041} 👩🏽\u200d🚀 ça" in found.text


async def test_a_long_output_is_cut_by_what_is_sent_and_its_rest_reads_the_same(tmp_path: Path) -> None:
    host = machine(tmp_path)

    async def loud(_: Args, __: Runtime) -> Output:
        return Output("\x1b[1mword\u202e\n" * 30_000)

    at = dispatcher(host, tool(loud, name="loud"), *dispatcher(host).registry.entries.values())
    result = await call(at, "loud")
    assert result.truncated
    assert result.saved_output is not None
    assert len(result.text.encode()) < 200_400
    assert result.metadata()["output_path"] == result.saved_output.path
    kept = Path(result.saved_output.path).read_text(encoding="utf-8")
    assert kept == "\\u{1b}[1mword\\u{202e}\n" * 30_000
    assert result.saved_output.size == len(kept)
    page = await call(at, "read_file", path=result.saved_output.path, limit=2)
    assert page.text.startswith("1\t\\u{1b}[1mword\\u{202e}\n2\t\\u{1b}[1mword\\u{202e}\n[")


async def test_errors_progress_questions_and_records_are_made_visible(tmp_path: Path) -> None:
    class Found(Record):
        names: list[str]
        more: dict[str, int | str]

    async def work(_: Args, rt: Runtime) -> Output:
        await rt.report("half \x1b[2J")
        return Output("ok", data=Found(names=["a\u202eb", "ça"], more={"k\x1b": 1, "v": "\0"}))

    async def fail(_: Args, __: Runtime) -> Output:
        raise NotFound("'a\x1b[2Jb' is not there")

    at = dispatcher(machine(tmp_path), tool(work, name="work"), tool(fail, name="fail"), ask=["work"])
    person = Person(says=True)
    result = await call(at, "work", person)
    assert result.data == {"names": ["a\\u{202e}b", "ça"], "more": {"k\\u{1b}": 1, "v": "\\u{0}"}}
    assert person.heard == ["half \\u{1b}[2J"]
    assert (await call(at, "fail")).text == "'a\\u{1b}[2Jb' is not there"
    subject = tool(work, name="probe", subjects=lambda _: ("a\u202e\x1b",))
    await call(dispatcher(machine(tmp_path), subject, ask=["probe"]), "probe", person)
    assert person.asked[-1].isascii()
    assert "\x1b" not in person.asked[-1]


async def test_the_operator_can_have_it_raw(tmp_path: Path) -> None:
    class Found(Record):
        name: str

    async def work(_: Args, rt: Runtime) -> Output:
        await rt.report("\x1b")
        return Output("\x1b\u202e", data=Found(name="\x1b"))

    at = replace(dispatcher(machine(tmp_path), tool(work)), raw=True)
    person = Person()
    result = await call(at, "probe", person)
    assert (result.text, result.data, person.heard) == ("\x1b\u202e", {"name": "\x1b"}, ["\x1b"])


async def test_a_sidecar_is_served_with_escapes(tmp_path: Path) -> None:
    async with served(tmp_path) as at:
        handlers = Handlers(dispatcher=at, ask_seconds=5)
        feature = ResourceFeature(handlers=handlers, outputs=vars(at.host)["outputs"], security="")
        async with Client(
            ToolServer(handlers, "", [feature.join]), mode="legacy", read_timeout_seconds=30
        ) as client:
            command = "printf '\\033[8m%.0s' $(seq 60000)"
            answer = await client.call_tool("bash", {"command": command})
            link = next(part for part in answer.content if isinstance(part, ResourceLink))
            whole = (await client.read_resource(link.uri)).contents[0]
            assert isinstance(whole, TextResourceContents)
            assert whole.text == "\\u{1b}[8m" * 60_000
            (path,) = re.findall(r'read_file, path "(.+)"\]', live.text(answer))
            raw = Path(path)
            raw.write_bytes(b"\x1b" * (LARGEST - 1))
            with pytest.raises(MCPError):
                await client.read_resource(link.uri)
            with pytest.raises(MCPError, match=r"Unknown tool: \\u\{1b\}\[2J"):
                await client.call_tool("\x1b[2J", {})


async def test_an_edit_with_a_shown_escape_gets_an_error_that_says_what_to_send(tmp_path: Path) -> None:
    at = dispatcher(machine(tmp_path), ceiling=Permission.WORKSPACE_WRITE)
    path = write(tmp_path / "root", "a", "one\ntwo\u200bthree \U000e0041\n")
    shown = (await call(at, "read_file", path="a")).text.splitlines()[1].removeprefix("2\t")
    refused = await call(at, "edit_file", path="a", old_string=shown, new_string="x")
    assert refused.error == "conflict"
    assert "on line 2" in refused.text
    hints = dict(re.findall(r"(\\u\{[0-9a-f]+\}) as ((?:\\u[0-9a-f]{4})+)", refused.text))
    assert hints == {"\\u{200b}": "\\u200b", "\\u{e0041}": "\\udb40\\udc41"}
    for escaped, sent in hints.items():
        shown = shown.replace(escaped, json.loads(f'"{sent}"'))
    assert (await call(at, "edit_file", path="a", old_string=shown, new_string="x")).error is None
    assert path.read_text(encoding="utf-8") == "one\nx\n"


def test_an_escape_that_is_the_files_own_text_matches_as_it_is() -> None:
    assert apply("a \\u{200b} b", [Edit(old_string="\\u{200b}", new_string="x")]).content == "a x b"
