"""What SendUserMessage gives to the client, and what it keeps from it."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import mcp_types as mcp
import pytest
from mcp import Client

from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.mcp_server import ToolServer
from tests.plan.planning import host, planner, refused_each
from tests.support.live import text
from tests.support.workbench import Person, call, dispatcher


async def test_a_message_reaches_the_client_and_stays_in_the_result(tmp_path: Path) -> None:
    person = Person()
    before = datetime.now(UTC)
    result = await call(planner(tmp_path), "SendUserMessage", person, message="It is done.\nAll of it.")
    assert person.messages == ["It is done.\nAll of it."]
    sent = re.findall(
        r"^Sent to the client \(normal\) at (\S+)\. It may .*:\nIt is done.\nAll of it.$", result.text
    )[0]
    assert before - timedelta(seconds=1) <= datetime.fromisoformat(sent) <= datetime.now(UTC)
    result = await call(planner(tmp_path), "Brief", person, message="\x1b[2Kok\u202e", status="proactive")
    assert "(proactive)" in result.text
    # What cannot be seen is shown to the user too.
    assert person.messages[1:] == ["\\u{1b}[2Kok\\u{202e}"]


async def test_attached_files_are_named_with_their_size_and_lie_in_the_roots(tmp_path: Path) -> None:
    server, person = planner(tmp_path), Person()
    (tmp_path / "root/a.txt").write_text("12345", encoding="utf-8")
    (tmp_path / "root/plot.PNG").write_bytes(b"\x89PNG")
    await call(server, "SendUserMessage", person, message="see", attachments=["a.txt", "./plot.PNG"])
    shown = ["see\nAttached: a.txt (5 bytes)\nAttached: plot.PNG (picture, 4 bytes)"]
    assert person.messages == shown
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    (tmp_path / "root/link").symlink_to("../secret")
    for path, kind in (
        ("../secret", "denied"),
        ("/etc/passwd", "denied"),
        ("link", "denied"),
        ("gone", "not_found"),
        (".", "invalid_input"),
        ("", "invalid_input"),
    ):
        result = await call(server, "SendUserMessage", person, message="see", attachments=["a.txt", path])
        assert result.error == kind, path
    assert person.messages == shown


async def test_a_rule_sees_every_attachment_however_it_is_spelt(tmp_path: Path) -> None:
    server = dispatcher(host(tmp_path), deny=["SendUserMessage(private/**)"])
    (tmp_path / "root/private").mkdir()
    for name in ("private/k", "a"):
        (tmp_path / "root" / name).write_text("k", encoding="utf-8")
    for spelling in ("private/k", "./private//k", f"{tmp_path}/root/private/k"):
        result = await call(server, "SendUserMessage", message="see", attachments=["a", spelling])
        assert result.error == "denied", spelling
    assert (await call(server, "SendUserMessage", message="see", attachments=["a"])).error is None


async def test_an_empty_message_is_none(tmp_path: Path) -> None:
    empty: tuple[dict[str, Any], ...] = ({}, {"message": ""}, {"message": " \n"})
    wrong = [(one, "message") for one in empty]
    await refused_each(
        planner(tmp_path), "SendUserMessage", [*wrong, ({"message": "a", "status": "b"}, "status")]
    )


@pytest.mark.requirement("CL-50")
async def test_a_client_hears_what_it_wants_to(tmp_path: Path) -> None:
    notes: list[mcp.LoggingMessageNotificationParams] = []

    async def listen(params: mcp.LoggingMessageNotificationParams) -> None:
        notes.append(params)

    served = Handlers(dispatcher=planner(tmp_path), ask_seconds=5)
    wanted: tuple[tuple[Any, mcp.LoggingLevel | None, int], ...] = (
        ("legacy", None, 1),
        ("legacy", "debug", 1),
        ("legacy", "notice", 1),
        ("legacy", "error", 0),
        # A client without a session hears nothing but of the one request that asks for it.
        ("auto", None, 0),
    )
    for era, level, heard in wanted:
        notes.clear()
        with anyio.fail_after(20):
            async with Client(ToolServer(served, "hello"), mode=era, logging_callback=listen) as client:
                if level is not None:
                    for chosen in ("emergency", level):
                        await client.session.set_logging_level(chosen)
                result = await client.call_tool("SendUserMessage", {"message": "hello"})
                assert text(result).endswith(":\nhello")
                assert text(result).startswith("Sent" if heard else "Not sent")
                for asked in ("info", "error") if era == "auto" else ():
                    meta: Any = {"io.modelcontextprotocol/logLevel": asked}
                    await client.call_tool("SendUserMessage", {"message": "hello"}, meta=meta)
        expected = 1 if era == "auto" else heard
        assert [(note.level, note.data) for note in notes] == [("notice", "hello")] * expected, (era, level)
