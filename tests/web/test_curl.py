"""Requests of any method: `curl` shows all of the answer, `RemoteTrigger` how it went."""

from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.capabilities.permissions import Permission
from tests.web.web import OTHER, PUBLIC, Internet, Reply, bench, inside, page, reaching, site, to

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")
both_tools = pytest.mark.parametrize("tool", ["curl", "RemoteTrigger"])


def echo(reply: Reply) -> None:
    asked = reply.site.asked[-1]
    reply.say(f"{asked.method} <b>{asked.body.decode()}</b>", kind="text/html", headers={"x-mine": "yes"})


@both_tools
@pytest.mark.parametrize("method", METHODS)
async def test_a_request_is_sent_as_it_was_made(tool: str, method: str, tmp_path: Path) -> None:
    with reaching(tmp_path, {"/hook": echo}) as (made, outside):
        given: dict[str, Any] = {} if method in ("GET", "HEAD") else {"body": "wörds"}
        text = await made.text(
            tool, url="http://good.example/hook?x=1", method=method, headers={"X-Key": "k"}, **given
        )
    assert [asked.path for asked in outside.asked] == ["/hook?x=1"]
    asked = outside.asked[0]
    assert (asked.method, asked.headers["x-key"]) == (method, "k")
    assert asked.body.decode() == given.get("body", "")
    assert text.startswith(f"{method} http://good.example/hook?x=1: 200 OK (success)\n")
    assert (f"{method} <b>" in text) is (method != "HEAD")


async def test_curl_shows_headers_and_the_raw_body(tmp_path: Path) -> None:
    with reaching(tmp_path, {"/": echo}) as (made, _):
        content = inside(await made.text("curl", url="http://good.example/"))
        hook = await made.text("RemoteTrigger", url="http://good.example/", method="HEAD")
    head, _, body = content.partition("\n\n")
    assert "x-mine: yes" in head.splitlines()
    assert body == "GET <b></b>"
    assert hook.endswith("\n(no body)")


@both_tools
async def test_an_error_status_is_an_answer(tool: str, tmp_path: Path) -> None:
    with reaching(tmp_path, {"/": page("not today", status=503, kind="text/plain")}) as (
        made,
        _,
    ):
        text = await made.text(tool, url="http://good.example/")
    assert "503 Service Unavailable (no success)" in text
    assert "not today" in inside(text)


@pytest.mark.parametrize(("tool", "most"), [("curl", 57_000), ("RemoteTrigger", 8_192)])
async def test_a_long_body_is_cut_between_characters(tool: str, most: int, tmp_path: Path) -> None:
    body = "a" + "ä" * most
    with reaching(tmp_path, {"/": page(body, kind="text/plain; charset=utf-8")}) as (
        made,
        _,
    ):
        result = await made.call(tool, url="http://good.example/")
    assert result.truncated
    assert f"only the first {most} bytes" in result.text
    assert "ää" in result.text
    assert "\ufffd" not in result.text
    assert len(result.text.encode()) <= 60_000


async def test_a_body_that_is_not_text_is_only_measured(tmp_path: Path) -> None:
    with reaching(tmp_path, {"/": page(bytes(range(256)), kind="image/png")}) as (made, _):
        assert "(256 bytes that are not text)" in await made.text("RemoteTrigger", url="http://good.example/")


@both_tools
async def test_sending_takes_full_access_and_is_guarded_like_fetching(tool: str, tmp_path: Path) -> None:
    with site({"/": page("inside")}) as service:
        made = bench(tmp_path)
        assert (await made.call(tool, url=service.url)).error == "denied"
        assert (await made.call(tool, url="http://169.254.169.254/")).error == "denied"
        for ceiling in (Permission.READ_ONLY, Permission.WORKSPACE_WRITE):
            confined = bench(tmp_path, ceiling=ceiling, private=[f"127.0.0.1:{service.port}"])
            result = await confined.call(tool, url=service.url)
            assert result.error == "denied"
            assert "danger-full-access" in result.text
    assert service.asked == []


@both_tools
@pytest.mark.parametrize("header", [{"Host": "x"}, {"a": "b\r\nc: d"}, {"": "x"}, {"A": "1", "a": "2"}])
async def test_a_header_that_would_be_more_than_one_is_refused(
    tool: str, header: dict[str, str], tmp_path: Path
) -> None:
    with reaching(tmp_path, {"/": page("fine")}) as (made, outside):
        assert (await made.call(tool, url="http://good.example/", headers=header)).error == "invalid_input"
    assert outside.asked == []


# --- redirects -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "method", "body"),
    [
        pytest.param(301, "GET", b"", id="301 turns POST into GET"),
        pytest.param(303, "GET", b"", id="303 turns POST into GET"),
        pytest.param(307, "POST", b"words", id="307 sends it again"),
        pytest.param(308, "POST", b"words", id="308 sends it again"),
    ],
)
async def test_a_redirect_on_the_same_site_goes_on(
    status: int, method: str, body: bytes, tmp_path: Path
) -> None:
    with reaching(tmp_path, {"/": to("/end", status), "/end": echo}) as (made, outside):
        await made.text(
            "curl", url="http://good.example/", method="POST", body="words", headers={"x-key": "k"}
        )
    end = outside.asked[1]
    assert (end.method, end.body, end.headers["x-key"]) == (method, body, "k")


@pytest.mark.parametrize("status", [307, 308])
async def test_what_is_sent_to_one_site_is_not_handed_to_another(status: int, tmp_path: Path) -> None:
    with site({"/": to("http://other.example/end", status)}) as first, site({"/end": echo}) as second:
        internet = Internet(
            names={"good.example": lambda: [PUBLIC], "other.example": lambda: [OTHER]},
            sites={PUBLIC: first, OTHER: second},
        )
        made = bench(tmp_path, internet=internet)
        text = await made.text("curl", url="http://good.example/", method="POST", body="secret")
    assert second.asked == []
    assert f"{status} " in text
    assert "location: http://other.example/end" in text


async def test_a_request_without_a_body_follows_to_another_site_without_its_headers(tmp_path: Path) -> None:
    with site({"/": to("http://other.example/end")}) as first, site({"/end": echo}) as second:
        internet = Internet(
            names={"good.example": lambda: [PUBLIC], "other.example": lambda: [OTHER]},
            sites={PUBLIC: first, OTHER: second},
        )
        made = bench(tmp_path, internet=internet)
        text = await made.text("curl", url="http://good.example/", headers={"authorization": "secret"})
    assert "http://other.example/end: 200" in text
    assert "authorization" not in second.asked[0].headers
