"""Saving what the web holds as a file in the workspace."""

import hashlib
import os
from pathlib import Path
from typing import Any

from mcp_toolserver.capabilities.permissions import Permission
from tests.support.processes import call
from tests.support.workshop import workshop
from tests.web.web import Internet, bench, gzip_bomb, page, reaching, site, to

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
