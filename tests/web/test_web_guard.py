"""What fetching cannot be led to: every case through the tool, over real connections where there are any.

And what the operator may say about the web: if that is wrong, the server does not start.
"""

import ipaddress
import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.memory import Peak
from mcp_toolserver.app.compose import build_application, web_options
from mcp_toolserver.app.confinement import sandbox
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.capabilities.web import WebSend
from mcp_toolserver.errors import Denied, SettingsError, TimedOut
from mcp_toolserver.invocation import load
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.pipeline.registry import discover
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.runtime.web.addresses import address_class
from mcp_toolserver.runtime.web.client import HttpClient
from mcp_toolserver.runtime.web.guard import Guard, parse_private_host
from mcp_toolserver.settings import Settings
from tests.support.workbench import Person
from tests.web.authority import Authority
from tests.web.web import (
    OTHER,
    PUBLIC,
    Bench,
    Internet,
    Reply,
    Route,
    bench,
    gzip_bomb,
    page,
    reaching,
    site,
    to,
)

SECRET = "the secret of a service that is not public"


async def refused(made: Bench, url: str) -> None:
    """Not fetched, and nothing of the secret returned."""
    result = await made.call("WebFetch", url=url)
    assert result.error in ("denied", "invalid_input"), (url, result.text)
    assert SECRET not in result.text


SPELLINGS = (
    # SSRF01 to SSRF08, SSRF10 to SSRF15, SSRF24.
    *("127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "localhost"),
    *("[::1]", "[::]", "0.0.0.0", "0", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]"),
    "127\u30020\u30020\u30021",
)


async def test_no_spelling_of_this_machine_is_fetched(tmp_path: Path) -> None:
    """On the real network of this machine, where a service listens; with its port opened by name."""
    with site({"/": page(SECRET)}) as service:
        made = bench(tmp_path, private=[f"10.9.8.7:{service.port}"], hosts=["*", f"*:{service.port}"])
        for host in SPELLINGS:
            await refused(made, f"http://{host}:{service.port}/")
        assert service.asked == []
        opened = bench(tmp_path, private=[f"127.0.0.1:{service.port}"])
        assert SECRET in await opened.text("WebFetch", url=f"http://127.0.0.1:{service.port}/")
        named = bench(tmp_path, private=[f"localhost:{service.port}"])
        assert SECRET in await named.text("WebFetch", url=f"http://localhost:{service.port}/")
        await refused(named, f"http://127.0.0.2:{service.port}/")


NOT_PUBLIC = (
    *("0.0.0.1", "10.1.2.3", "100.64.0.1", "127.255.255.254", "169.254.169.254", "172.31.0.1", "192.0.0.8"),
    *("192.0.2.1", "192.88.99.1", "192.168.1.1", "198.19.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1"),
    *("239.1.1.1", "240.0.0.1", "255.255.255.255", "168.63.129.16", "100.100.100.200"),
    *("::", "::1", "::127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::808:808", "64:ff9b:1::1", "100::1"),
    *("2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1", "fc00::1", "fd00:ec2::254", "fe80::1"),
    *("fec0::1", "ff02::1", "4000::1", "2606:4700::5efe:7f00:1", "2606:4700::200:5efe:7f00:1"),
)


def test_an_address_that_is_not_of_the_public_internet_is_known() -> None:
    classes = {address: address_class(ipaddress.ip_address(address)) for address in NOT_PUBLIC}
    assert [address for address, found in classes.items() if found == "public"] == []
    for address in ("8.8.8.8", PUBLIC, OTHER, "172.32.0.1", "2606:4700::1111", "2a00:1450::8a"):
        assert address_class(ipaddress.ip_address(address)) == "public", address


INSIDE: Mapping[str, tuple[str, ...]] = {
    # SSRF19, SSRF23 and SSRF27.
    "169.254.169.254": (),
    "metadata.google.internal": (PUBLIC,),
    "mixed.example": (PUBLIC, "10.0.0.1"),
    "private.example": ("192.168.0.1",),
    # An address in disguise, and one of a single interface.
    "six.example": ("::ffff:10.0.0.1",),
    "zone.example": ("fe80::1%lo",),
}


async def test_a_name_that_leads_inside_is_refused(tmp_path: Path) -> None:
    with site({"/": page(SECRET)}) as service:
        internet = Internet.of(service, "good.example")
        made = bench(tmp_path, internet=internet)
        for name, answers in INSIDE.items():
            internet.names[name] = lambda answers=answers: answers
            await refused(made, f"http://{name}/")
        assert internet.dialled == []
        assert SECRET in await made.text("WebFetch", url="http://good.example/")


async def test_a_name_is_looked_up_once_and_the_address_that_was_checked_is_dialled(tmp_path: Path) -> None:
    """DNS rebinding: the second answer would lead inside, also between two hops."""
    routes = {"/": page("outside"), "/robots.txt": page(""), "/hop": to("http://hops.example:8080/in")}
    with site(routes) as outside:
        answers: Iterator[list[str]] = itertools.chain([[PUBLIC]], itertools.repeat(["127.0.0.1"]))
        internet = Internet(names={"rebind.example": lambda: next(answers)}, sites={PUBLIC: outside})
        made = bench(tmp_path, internet=internet, robots=False)
        assert "outside" in await made.text("WebFetch", url="http://rebind.example/")
        assert internet.dialled == [(PUBLIC, 80)]
        assert internet.looked_up == ["rebind.example"]
        await refused(made, "http://rebind.example/second")
        assert internet.dialled == [(PUBLIC, 80)]
        hops = itertools.chain([[PUBLIC]], itertools.repeat(["10.0.0.1"]))
        internet.names["hops.example"] = lambda: next(hops)
        await refused(made, "http://hops.example/hop")
        assert internet.dialled == [(PUBLIC, 80)] * 2


async def test_only_so_many_names_are_looked_up_in_a_minute(tmp_path: Path) -> None:
    """SSRF47: each look-up could carry something out."""
    internet = Internet()
    made = bench(tmp_path, internet=internet, robots=False)
    for number in range(70):
        result = await made.call("WebFetch", url=f"http://n{number}.example/")
        assert result.error == "unavailable"
    assert len(internet.looked_up) == 60


LOCATIONS = (
    # SSRF29 and SSRF30, a port of no web server, and a password.
    *("http://127.0.0.1/", "http://private.example/", "//10.0.0.1/"),
    *("file:///etc/passwd", "gopher://good.example/", "data:text/html,x"),
    *("http://good.example:22/", "http://user:word@good.example/"),
)


async def test_a_redirect_is_checked_like_the_first_address(tmp_path: Path) -> None:
    routes = {f"/{n}": to(location) for n, location in enumerate(LOCATIONS)}
    with site({**routes, "/fine": to("/end"), "/end": page("the end")}) as outside:
        internet = Internet.of(outside, "good.example")
        internet.names["private.example"] = lambda: ["10.0.0.1"]
        made = bench(tmp_path, internet=internet, robots=False)
        for path in routes:
            internet.dialled.clear()
            await refused(made, f"http://good.example{path}")
            assert internet.dialled in ([], [(PUBLIC, 80)])
        assert outside.pages == list(routes)
        assert "the end" in await made.text("WebFetch", url="http://good.example/fine")


async def test_a_redirect_without_end_is_left_after_five(tmp_path: Path) -> None:
    """SSRF32."""
    routes = (
        {f"/{n}": to(f"/{n + 1}") for n in range(100)} | {"/loop": to("/loop")} | {"/100": page("the end")}
    )
    with reaching(tmp_path, routes, robots=False) as (made, outside):
        for start, visited in (("/0", 6), ("/loop", 12)):
            result = await made.call("WebFetch", url=f"http://good.example{start}")
            assert result.error == "unavailable"
            assert len(outside.asked) == visited
        assert "the end" in await made.text("WebFetch", url="http://good.example/95")


async def test_a_redirect_from_https_to_http_is_refused(tmp_path: Path, authority: Authority) -> None:
    with (
        site({"/": page("plain")}) as plain,
        site({"/": to("http://good.example/")}, tls=authority.server) as sealed,
    ):
        internet = Internet(
            names={"good.example": lambda: [PUBLIC], "sealed.example": lambda: [OTHER]},
            sites={PUBLIC: plain, OTHER: sealed},
        )
        await refused(bench(tmp_path, internet=internet, trusted=authority.client), "https://sealed.example/")
        assert plain.pages == []


DOUBTFUL = (
    # SSRF33: two hosts to choose from.
    *("http://user:pw@good.example/", "http://good.example@127.0.0.1/"),
    *("http://127.0.0.1\\@good.example/", "http://127.0.0.1#@good.example/"),
    # SSRF34: characters that are not seen or end a line.
    *("http://good.example/\r\nHost: evil", "http://good.example/a b"),
    *("http://good.example/\u202ea", "http://good\u200b.example/"),
    # SSRF35: other schemes.
    *("file:///etc/passwd", "ftp://good.example/", "unix:/run/docker.sock", "data:text/html,x"),
    *("http+unix://%2Frun%2Fdocker.sock/x", "javascript:alert(1)"),
    # SSRF36: ports of other services, and of none.
    *(f"http://good.example:{port}/" for port in (22, 25, 6379, 99999, 0)),
)


async def test_an_address_of_a_doubtful_form_is_refused(tmp_path: Path) -> None:
    with site({"/": page("fine")}) as outside:
        internet = Internet.of(outside, "good.example")
        made = bench(tmp_path, internet=internet)
        for url in DOUBTFUL:
            await refused(made, url)
        assert internet.dialled == []
        assert "fine" in await made.text("WebFetch", url="http://good.example/")


async def test_the_public_address_of_this_machine_is_not_fetched(tmp_path: Path) -> None:
    """SSRF37."""
    with site({"/": page(SECRET)}) as service:
        internet = Internet.of(service, "me.example")
        internet.own = PUBLIC
        await refused(bench(tmp_path, internet=internet, robots=False), "http://me.example/")
        await refused(bench(tmp_path, internet=internet, robots=False), f"http://{PUBLIC}/")
        assert service.asked == []
        named = bench(tmp_path, internet=internet, private=["me.example"], robots=False)
        assert SECRET in await named.text("WebFetch", url="http://me.example/")
        internet.own = "198.18.0.1"
        assert SECRET in await bench(tmp_path, internet=internet).text("WebFetch", url="http://me.example/")


async def test_no_proxy_of_the_environment_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SSRF38."""
    with site({"/": page("direct")}) as service, site({"/": page(SECRET)}) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        made = bench(tmp_path, private=[f"127.0.0.1:{service.port}"])
        assert "direct" in await made.text("WebFetch", url=service.url)
        assert proxy.asked == []


MB = 1_000_000


async def test_a_bomb_and_a_body_without_end_are_read_no_further_than_asked(tmp_path: Path) -> None:
    """SSRF39: 300 MB in 1.4 MB."""
    bomb = gzip_bomb(300 * MB)

    def explode(reply: Reply) -> None:
        reply.say(bomb, kind="text/plain", headers={"content-encoding": "gzip"})

    small = {"content-encoding": "gzip"}
    routes: dict[str, Route] = {"/": explode}
    routes["/small"] = page(gzip_bomb(3), kind="text/plain", headers=small)
    routes["/endless"] = lambda reply: reply.pour(itertools.repeat(b"x" * 65_536))
    with reaching(tmp_path, routes) as (made, _):
        await made.text("WebFetch", url="http://good.example/small")
        peak = Peak.of(os.getpid())
        text = await made.text("WebFetch", url="http://good.example/")
        assert "only the start of it was read" in text
        assert len(text) < 200_000
        assert peak.growth() < 150 * MB
        endless = await made.text("WebFetch", url="http://good.example/endless")
        assert "only the start of it was read" in endless


async def test_an_answer_that_comes_too_slowly_is_left(tmp_path: Path) -> None:
    slow: dict[str, Route] = {
        "/body": lambda reply: reply.pour(_slowly(reply)),
        "/headers": lambda reply: reply.site.closing.wait(30),
        "/packed": lambda reply: reply.pour(_slowly(reply), encoding="gzip"),
    }
    with site({**slow, "/fast": page("x")}) as outside:
        internet = Internet.of(outside, "good.example")
        guard = Guard(resolve=internet.resolve)
        exchanges = HttpClient(guard, internet)
        fast = WebSend(url="http://good.example/fast", method="GET", headers={}, most=1000, seconds=5)
        for path in slow:
            ask = replace(fast, url=f"http://good.example{path}", seconds=0.3)
            with pytest.raises(TimedOut):
                await exchanges.fetch(ask, guard)
        assert (await exchanges.fetch(fast, guard)).body == b"x"


def _slowly(reply: Reply) -> Iterator[bytes]:
    while not reply.site.closing.wait(0.02):
        yield b""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "sealed.example")


async def test_the_certificate_is_checked_for_the_name_though_an_address_is_dialled(
    tmp_path: Path, authority: Authority
) -> None:
    """SSRF44."""
    with site({"/": page("sealed")}, tls=authority.server) as service:
        internet = Internet.of(service, "sealed.example", "other.example")
        made = bench(tmp_path, internet=internet, trusted=authority.client)
        assert "sealed" in await made.text("WebFetch", url="https://sealed.example/")
        assert set(internet.dialled) == {(PUBLIC, 443)}
        assert set(authority.asked) == {"sealed.example"}
        assert service.asked[-1].headers["host"] == "sealed.example"
        asked = len(service.asked)
        result = await made.call("WebFetch", url="https://other.example/")
        assert result.error == "unavailable"
        assert "certificate" in result.text
        # One that nobody vouches for is refused as well.
        strict = bench(tmp_path, internet=internet)
        result = await strict.call("WebFetch", url="https://sealed.example/")
        assert result.error == "unavailable"
        assert "certificate" in result.text
        assert len(service.asked) == asked


async def test_with_a_list_of_hosts_no_other_is_fetched(tmp_path: Path) -> None:
    with site({"/": page("fine")}) as outside:
        internet = Internet.of(outside, "a.example", "b.example", "x.b.example")
        made = bench(tmp_path, internet=internet, hosts=["a.example", "*.b.example"])
        await refused(made, "http://b.example/")
        await refused(made, f"http://{PUBLIC}/")
        for host in ("a.example", "x.b.example"):
            assert "fine" in await made.text("WebFetch", url=f"http://{host}/")


async def test_a_network_that_is_named_is_open_and_its_neighbours_are_not(tmp_path: Path) -> None:
    with site({"/": page("fine")}) as inside:
        internet = Internet(sites={"10.1.2.3": inside, "10.2.0.1": inside})
        internet.names["wiki.example"] = lambda: ["10.1.2.3"]
        made = bench(tmp_path, internet=internet, private=["10.1.0.0/16", "fd00::/8"])
        assert "fine" in await made.text("WebFetch", url="http://10.1.2.3/")
        assert "fine" in await made.text("WebFetch", url="http://wiki.example/")
        await refused(made, "http://10.2.0.1/")


async def test_a_named_host_does_not_open_where_clouds_keep_their_secrets() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["169.254.169.254"]

    guard = Guard(private=(parse_private_host("wiki.corp"),), resolve=resolve)
    with pytest.raises(Denied):
        await guard.addresses("wiki.corp", 80)
    assert await Guard(private=(parse_private_host("169.254.169.254:80"),)).addresses("169.254.169.254", 80)
    with pytest.raises(Denied):
        await Guard(private=(parse_private_host("169.254.169.254:80"),)).addresses("169.254.169.254", 8080)


WEB = {"WebFetch", "WebSearch", "curl", "download", "RemoteTrigger"}


def key_file(folder: Path, content: str = "a-key", mode: int = 0o600) -> Path:
    path = folder / "key"
    path.write_text(content, encoding="utf-8")
    path.chmod(mode)
    return path


WRONG: Mapping[str, dict[str, Any]] = {
    "no host": {"web_hosts": ("a b",)},
    "a host with a path": {"web_hosts": ("a.example/path",)},
    "a network that is none": {"web_private": ("10.0.0.1/8",)},
    "a private address of the web": {"web_private": ("http://a.example",)},
    "an engine that is none": {"web_search": ("altavista",)},
    "an engine without its address": {"web_search": ("searxng",)},
    "an engine without its key": {"web_search": ("brave",)},
    "a key without a file": {"web_search_keys": ("brave",)},
    "a file that is not there": {"web_search_keys": ("brave=/nowhere/key",)},
}


def test_a_setting_that_is_wrong_stops_the_start(tmp_path: Path) -> None:
    strange: dict[str, Any] = {"web_search_keys": (f"altavista={key_file(tmp_path)}",)}
    for setting in (*WRONG.values(), strange):
        with pytest.raises(SettingsError):
            web_options(Settings(**setting))
    for rule in ("WebFetch(a*.example)", "curl(ftp://x)", "*(https://)"):
        with pytest.raises(SettingsError):
            dispatcher(tmp_path, deny=(rule,))


def test_a_file_without_a_usable_key_stops_the_start(tmp_path: Path) -> None:
    open_to_others = ("a-key", 0o644)
    for content, mode in (open_to_others, ("", 0o600), ("two keys", 0o600), ("x" * 5000, 0o600)):
        file = key_file(tmp_path, content, mode)
        with pytest.raises(SettingsError) as caught:
            web_options(Settings(web_search_keys=(f"brave={file}",)))
        assert not content or content not in str(caught.value)


def test_a_quota_or_time_of_searches_that_cannot_hold_stops_the_start(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    for line in ("searches = 0", "searches = 2.5", "search-seconds = 0", "search-seconds = 51"):
        config.write_text(f"web-{line}", encoding="utf-8")
        with pytest.raises(SettingsError, match="it must be"):
            load(["--config", str(config)], {})


@pytest.mark.requirement("GR-37")
def test_the_config_file_names_hosts_engines_and_keys(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(
        f"""
        web-hosts = ["a.example", "*.b.example:8443"]
        web-private = ["localhost:3000", "[::1]:80", "::1", "10.0.0.0/8", "*.corp"]
        web-robots = false
        web-searches = 3
        web-search-seconds = 2.5
        web-search = ["brave", "searxng=http://localhost:8888/base", "duckduckgo"]
        web-search-keys = ["brave={key_file(tmp_path)}"]
        """,
        encoding="utf-8",
    )
    options = web_options(load(["--config", str(config)], {}).settings)
    assert (len(options.hosts), len(options.private)) == (2, 5)
    assert (options.robots, options.searches) == (False, 3)
    assert {provider.seconds for provider in options.providers} == {2.5}
    engines = [(provider.engine, str(provider.base), provider.key) for provider in options.providers]
    assert engines == [
        ("brave", "https://api.search.brave.com/", "a-key"),
        ("searxng", "http://localhost:8888/base", ""),
        ("duckduckgo", "https://html.duckduckgo.com/", ""),
    ]
    assert "a-key" not in repr(options)


def test_key_files_are_hidden_from_commands_and_lie_out_of_reach(tmp_path: Path) -> None:
    file = key_file(tmp_path)
    assert str(file) in sandbox(Settings(web_search_keys=(f"brave={file}",))).hidden
    config = tmp_path / "config.toml"
    (tmp_path / "root").mkdir()
    inside = tmp_path / "root/key"
    config.write_text(f'web-search-keys = ["brave={inside}"]', encoding="utf-8")
    with pytest.raises(SettingsError):
        load(["--config", str(config), "--root", str(tmp_path / "root")], {})


def dispatcher(folder: Path, **given: Any) -> Dispatcher:
    (folder / "root").mkdir(exist_ok=True)
    chosen = Settings(
        root=(str(folder / "root"),), state_dir=str(folder / "state"), toolsets=("all",), **given
    )
    return build_application(chosen, None, HostExecutables(), held_by=None).dispatcher


async def test_without_a_network_there_are_no_web_tools_and_a_call_says_why(tmp_path: Path) -> None:
    assert {entry.spec.name for entry in discover()} >= WEB
    for network in ("fetch", "commands", "none"):
        at = dispatcher(tmp_path, network=network, permission_mode=Permission.WORKSPACE_WRITE)
        offered = {entry.spec.name for entry in at.listed()}
        assert offered & WEB == (set() if network == "none" else {"WebFetch", "WebSearch", "download"})
    result = await at.call("WebFetch", {"url": "http://a.example/"}, Person())
    assert result.error == "unavailable"
    assert "--network none" in result.text
