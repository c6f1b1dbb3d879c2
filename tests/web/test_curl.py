"""Requests of any method: `curl` shows the whole answer, `RemoteTrigger` how it went; `download` saves it."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.capabilities.permissions import Permission
from tests.support.processes import call
from tests.support.workshop import workshop
from tests.web.web import Internet, Reply, bench, gzip_bomb, inside, page, reaching, site, to, two_sites

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")
both_tools = pytest.mark.parametrize("tool", ["curl", "RemoteTrigger"])


def echo(reply: Reply) -> None:
    asked = reply.site.asked[-1]
    reply.say(f"{asked.method} <b>{asked.body.decode()}</b>", kind="text/html", headers={"x-mine": "yes"})


@both_tools
async def test_a_request_is_sent_as_it_was_made(tool: str, tmp_path: Path) -> None:
    with reaching(tmp_path, {"/hook": echo}) as (made, outside):
        for method in METHODS:
            outside.asked.clear()
            given: dict[str, Any] = {} if method in ("GET", "HEAD") else {"body": "wörds"}
            text = await made.text(
                tool, url="http://good.example/hook?x=1", method=method, headers={"X-Key": "k"}, **given
            )
            (asked,) = outside.asked
            assert (asked.method, asked.path, asked.headers["x-key"]) == (method, "/hook?x=1", "k")
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
    routes = {"/": page("not today", status=503, kind="text/plain")}
    routes["/binary"] = page(bytes(range(256)), kind="image/png")
    with reaching(tmp_path, routes) as (made, _):
        text = await made.text(tool, url="http://good.example/")
        # Of what is not text, only the size is said.
        assert "(256 bytes that are not text)" in await made.text(tool, url="http://good.example/binary")
    assert "503 Service Unavailable (no success)" in text
    assert "not today" in inside(text)


@pytest.mark.parametrize(("tool", "most"), [("curl", 45_000), ("RemoteTrigger", 8_192)])
async def test_a_long_body_is_cut_between_characters(tool: str, most: int, tmp_path: Path) -> None:
    body = "a" + "ä" * most
    with reaching(tmp_path, {"/": page(body, kind="text/plain; charset=utf-8")}) as (made, _):
        result = await made.call(tool, url="http://good.example/")
    assert result.truncated
    assert f"only the first {most} bytes" in result.text
    assert "ää" in result.text
    assert "\ufffd" not in result.text
    assert len(result.text.encode()) <= 48_000


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
async def test_a_header_that_would_be_more_than_one_or_cannot_be_sent_is_refused(
    tool: str, tmp_path: Path
) -> None:
    several: list[dict[str, str]] = [{"Host": "x"}, {"a": "b\r\nc: d"}, {"": "x"}, {"A": "1", "a": "2"}]
    odd = [{"a": "b" * 9_000}, {"a" * 200: "b"}, {"a": " b"}, {"a": "ü"}, {f"a{n}": "b" for n in range(33)}]
    with reaching(tmp_path, {"/": page("fine")}) as (made, outside):
        for header in (*several, *odd):
            result = await made.call(tool, url="http://good.example/", headers=header)
            assert result.error == "invalid_input", header
    assert outside.asked == []


async def test_a_redirect_on_the_same_site_goes_on(tmp_path: Path) -> None:
    statuses = (301, 303, 307, 308)
    with reaching(tmp_path, {**{f"/{n}": to("/end", n) for n in statuses}, "/end": echo}) as (made, outside):
        for status in statuses:
            url = f"http://good.example/{status}"
            await made.text("curl", url=url, method="POST", body="words", headers={"x-key": "k"})
    ends = [(one.method, one.body, one.headers["x-key"]) for one in outside.asked if one.path == "/end"]
    # The first two turn POST into GET, the others send it again.
    assert ends == [("GET", b"", "k")] * 2 + [("POST", b"words", "k")] * 2


async def test_what_is_sent_to_one_site_is_not_handed_to_another(tmp_path: Path) -> None:
    away = {f"/{status}": to("http://other.example/end", status) for status in (307, 308)}
    with two_sites(tmp_path, away, {"/end": echo}) as (made, _, second):
        for path in away:
            url = f"http://good.example{path}"
            text = await made.text("curl", url=url, method="POST", body="secret")
            assert f"{path[1:]} " in text
            assert "location: http://other.example/end" in text
        assert second.asked == []
        # Without a body, it follows without its headers.
        text = await made.text("curl", url="http://good.example/307", headers={"authorization": "secret"})
    assert "http://other.example/end: 200" in text
    assert "authorization" not in second.asked[0].headers


CONTENT = bytes(range(256)) * 400


async def test_a_download_is_the_file_byte_for_byte(tmp_path: Path) -> None:
    with reaching(
        tmp_path,
        {"/a.bin": to("/b.bin"), "/b.bin": page(CONTENT, kind="image/png")},
        ceiling=Permission.WORKSPACE_WRITE,
    ) as (made, _):
        result = await made.call("download", url="http://good.example/a.bin", path="new/folder/a.bin")
        again = await made.text("download", url="http://good.example/a.bin", path="new/folder/a.bin")
    assert (tmp_path / "root/new/folder/a.bin").read_bytes() == CONTENT
    assert result.text.startswith(
        f"Created new/folder/a.bin: {len(CONTENT)} bytes from http://good.example/b.bin"
    )
    assert result.metadata()["sha256"] == {"new/folder/a.bin": hashlib.sha256(CONTENT).hexdigest()}
    assert again.startswith("Replaced ")
    assert made.person.heard[0] == "downloading http://good.example/a.bin"


async def test_a_path_that_cannot_be_written_costs_no_request_to_the_site(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    os.mkfifo(root / "pipe")
    (root / "link").symlink_to(tmp_path)
    with site({"/": page("fine")}) as outside:
        web: dict[str, Any] = {"web_private": (f"127.0.0.1:{outside.port}",), "deny": ("Read(secrets/**)",)}
        async with workshop(tmp_path, Permission.WORKSPACE_WRITE, **web) as server:
            for path, why in (
                (".git/hooks/pre-commit", "is protected"),
                ("secrets/key", "hidden by a rule"),
                ("folder", "folder"),
                (".", "folder"),
                ("pipe", "FIFO"),
                *((path, "outside") for path in ("../outside", "/etc/outside", "link/outside")),
            ):
                refused = await call(server, "download", url=outside.url + "/", path=path)
                assert refused.error, path
                assert why in refused.text, path
            assert outside.asked == []
            written = await call(server, "download", url=outside.url + "/", path="new/file")
            assert written.error is None, written.text
    assert outside.pages == ["/"]
    assert not (tmp_path / "outside").exists()


async def test_a_download_that_fails_or_is_too_large_writes_nothing(tmp_path: Path) -> None:
    packed = {"content-encoding": "gzip"}
    bomb = gzip_bomb(52 * 1024 * 1024 + 1)
    with reaching(tmp_path, {"/": page(bomb, headers=packed)}) as (made, _):
        large = await made.call("download", url="http://good.example/", path="a")
        missing = await made.call("download", url="http://good.example/missing", path="a")
    assert (large.error, missing.error) == ("invalid_input", "unavailable")
    assert os.listdir(tmp_path / "root") == []


async def test_rules_see_the_address_and_the_path(tmp_path: Path) -> None:
    rules = {
        "download(https://good.example)": None,
        "download(domain:good.example)": "denied",
        "download(http://good.example/*)": "denied",
        "download(docs/**)": "denied",
        "download(other/**)": None,
        "download": "denied",
    }
    with site({"/": page("fine")}) as outside:
        for rule, error in rules.items():
            made = bench(tmp_path, internet=Internet.of(outside, "good.example"), deny=[rule])
            result = await made.call("download", url="http://good.example/", path="docs/./a.html")
            assert result.error == error, rule


async def test_a_file_that_a_site_does_not_want_to_be_read_is_not_downloaded(tmp_path: Path) -> None:
    routes = {"/": page("fine"), "/robots.txt": page("User-agent: *\nDisallow: /")}
    with reaching(tmp_path, routes) as (made, outside):
        assert (await made.call("download", url="http://good.example/", path="a")).error == "denied"
    assert outside.pages == []
