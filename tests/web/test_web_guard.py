"""What fetching cannot be led to: every case through the tool, over real connections where there are any."""

import ipaddress
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.memory import Peak
from mcp_toolserver.errors import Denied, TimedOut
from mcp_toolserver.runtime.web.addresses import address_class
from mcp_toolserver.runtime.web.client import FetchOptions, HttpClient, Request
from mcp_toolserver.runtime.web.guard import Guard, parse_private_host
from mcp_toolserver.text.web.urls import parse_url
from tests.web.authority import Authority
from tests.web.web import OTHER, PUBLIC, Bench, Internet, Reply, bench, gzip_bomb, page, site, to

SECRET = "the secret of a service that is not public"


async def refused(made: Bench, url: str) -> None:
    """Not fetched, and nothing of the secret returned."""
    result = await made.call("WebFetch", url=url)
    assert result.error in ("denied", "invalid_input"), result.text
    assert SECRET not in result.text


# --- spellings of addresses ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        pytest.param("127.0.0.1", id="SSRF01"),
        pytest.param("127.1", id="SSRF02"),
        pytest.param("2130706433", id="SSRF03"),
        pytest.param("0x7f000001", id="SSRF04"),
        pytest.param("0x7f.1", id="SSRF05"),
        pytest.param("0177.0.0.1", id="SSRF06"),
        pytest.param("localhost", id="SSRF08"),
        pytest.param("[::1]", id="SSRF10"),
        pytest.param("[::]", id="SSRF11"),
        pytest.param("0.0.0.0", id="SSRF12"),
        pytest.param("0", id="SSRF13"),
        pytest.param("[::ffff:127.0.0.1]", id="SSRF14"),
        pytest.param("[64:ff9b::7f00:1]", id="SSRF15"),
        pytest.param("127\u30020\u30020\u30021", id="SSRF24"),
    ],
)
async def test_no_spelling_of_this_machine_is_fetched(host: str, tmp_path: Path) -> None:
    """On the real network of this machine, where a service listens; with its port opened by name."""
    with site({"/": page(SECRET)}) as service:
        made = bench(tmp_path, private=[f"10.9.8.7:{service.port}"], hosts=["*", f"*:{service.port}"])
        await refused(made, f"http://{host}:{service.port}/")
        assert service.asked == []
        if host == "127.0.0.1":
            opened = bench(tmp_path, private=[f"127.0.0.1:{service.port}"])
            assert SECRET in await opened.text("WebFetch", url=f"http://{host}:{service.port}/")


async def test_a_name_that_the_operator_named_may_lead_to_this_machine(tmp_path: Path) -> None:
    with site({"/": page("at home")}) as service:
        made = bench(tmp_path, private=[f"localhost:{service.port}"])
        assert "at home" in await made.text("WebFetch", url=f"http://localhost:{service.port}/")
        await refused(made, f"http://127.0.0.2:{service.port}/")


@pytest.mark.parametrize(
    "address",
    [
        *(
            "0.0.0.1",
            "10.1.2.3",
            "100.64.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.31.0.1",
            "192.0.0.8",
        ),
        *(
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.19.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
        ),
        *("239.1.1.1", "240.0.0.1", "255.255.255.255", "168.63.129.16", "100.100.100.200"),
        *("::", "::1", "::127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::808:808", "64:ff9b:1::1", "100::1"),
        *("2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1", "fc00::1", "fd00:ec2::254", "fe80::1"),
        *("fec0::1", "ff02::1", "4000::1", "2606:4700::5efe:7f00:1", "2606:4700::200:5efe:7f00:1"),
    ],
)
def test_an_address_that_is_not_of_the_public_internet_is_known(address: str) -> None:
    assert address_class(ipaddress.ip_address(address)) != "public"


@pytest.mark.parametrize(
    "address", ["8.8.8.8", PUBLIC, OTHER, "172.32.0.1", "2606:4700::1111", "2a00:1450::8a"]
)
def test_a_public_address_is_known(address: str) -> None:
    assert address_class(ipaddress.ip_address(address)) == "public"


# --- names -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "answers"),
    [
        pytest.param("169.254.169.254", [], id="SSRF19"),
        pytest.param("metadata.google.internal", [PUBLIC], id="SSRF23"),
        pytest.param("mixed.example", [PUBLIC, "10.0.0.1"], id="SSRF27"),
        pytest.param("private.example", ["192.168.0.1"], id="a name with a private address"),
        pytest.param("six.example", ["::ffff:10.0.0.1"], id="a name with an address in disguise"),
        pytest.param("zone.example", ["fe80::1%lo"], id="a name with an address of one interface"),
    ],
)
async def test_a_name_that_leads_inside_is_refused(name: str, answers: list[str], tmp_path: Path) -> None:
    with site({"/": page(SECRET)}) as service:
        internet = Internet.of(service, "good.example")
        internet.names[name] = lambda: answers
        made = bench(tmp_path, internet=internet)
        await refused(made, f"http://{name}/")
        assert internet.dialled == []
        assert SECRET in await made.text("WebFetch", url="http://good.example/")


async def test_a_name_is_looked_up_once_and_the_address_that_was_checked_is_dialled(tmp_path: Path) -> None:
    """DNS rebinding: the second answer would lead inside."""
    with site({"/": page("outside"), "/robots.txt": page("")}) as outside:
        answers: Iterator[list[str]] = itertools.chain([[PUBLIC]], itertools.repeat(["127.0.0.1"]))
        internet = Internet(names={"rebind.example": lambda: next(answers)}, sites={PUBLIC: outside})
        made = bench(tmp_path, internet=internet, robots=False)
        assert "outside" in await made.text("WebFetch", url="http://rebind.example/")
        assert internet.dialled == [(PUBLIC, 80)]
        assert internet.looked_up == ["rebind.example"]
        await refused(made, "http://rebind.example/second")
        assert internet.dialled == [(PUBLIC, 80)]


async def test_a_name_that_turns_inside_between_two_hops_is_refused(tmp_path: Path) -> None:
    with site({"/": to("http://rebind.example:8080/in")}) as outside:
        answers: Iterator[list[str]] = itertools.chain([[PUBLIC]], itertools.repeat(["10.0.0.1"]))
        internet = Internet(names={"rebind.example": lambda: next(answers)}, sites={PUBLIC: outside})
        await refused(bench(tmp_path, internet=internet, robots=False), "http://rebind.example/")
        assert internet.dialled == [(PUBLIC, 80)]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("a" * 64 + ".example", id="SSRF47 label"),
        pytest.param(".".join(["a" * 60] * 5), id="SSRF47 name"),
    ],
)
async def test_a_name_too_long_to_be_one_is_never_looked_up(name: str, tmp_path: Path) -> None:
    internet = Internet()
    await refused(bench(tmp_path, internet=internet), f"http://{name}/")
    assert internet.looked_up == []


async def test_only_so_many_names_are_looked_up_in_a_minute(tmp_path: Path) -> None:
    """SSRF47: each look-up could carry something out."""
    internet = Internet()
    made = bench(tmp_path, internet=internet, robots=False)
    for number in range(70):
        result = await made.call("WebFetch", url=f"http://n{number}.example/")
        assert result.error == "unavailable"
    assert len(internet.looked_up) == 60


# --- redirects -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "location",
    [
        pytest.param("http://127.0.0.1/", id="SSRF29 literal"),
        pytest.param("http://private.example/", id="SSRF29 name"),
        pytest.param("//10.0.0.1/", id="SSRF29 without scheme"),
        pytest.param("file:///etc/passwd", id="SSRF30 file"),
        pytest.param("gopher://good.example/", id="SSRF30 gopher"),
        pytest.param("data:text/html,x", id="SSRF30 data"),
        pytest.param("http://good.example:22/", id="a port of no web server"),
        pytest.param("http://user:word@good.example/", id="a password"),
    ],
)
async def test_a_redirect_is_checked_like_the_first_address(location: str, tmp_path: Path) -> None:
    with site({"/": to(location), "/fine": to("/end"), "/end": page("the end")}) as outside:
        internet = Internet.of(outside, "good.example")
        internet.names["private.example"] = lambda: ["10.0.0.1"]
        made = bench(tmp_path, internet=internet, robots=False)
        await refused(made, "http://good.example/")
        assert internet.dialled == [(PUBLIC, 80)]
        assert "the end" in await made.text("WebFetch", url="http://good.example/fine")


async def test_a_redirect_without_end_is_left_after_five(tmp_path: Path) -> None:
    """SSRF32."""
    routes = (
        {f"/{n}": to(f"/{n + 1}") for n in range(100)} | {"/loop": to("/loop")} | {"/100": page("the end")}
    )
    with site(routes) as outside:
        made = bench(tmp_path, internet=Internet.of(outside, "good.example"), robots=False)
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


# --- forms of addresses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("http://user:pw@good.example/", id="SSRF33 password"),
        pytest.param("http://good.example@127.0.0.1/", id="SSRF33 host after the name"),
        pytest.param("http://127.0.0.1\\@good.example/", id="SSRF33 backslash"),
        pytest.param("http://127.0.0.1#@good.example/", id="SSRF33 fragment"),
        pytest.param("http://good.example/\r\nHost: evil", id="SSRF34 line end"),
        pytest.param("http://good.example/a b", id="SSRF34 space"),
        pytest.param("http://good.example/\u202ea", id="SSRF34 bidi"),
        pytest.param("http://good\u200b.example/", id="SSRF34 zero width"),
        pytest.param("file:///etc/passwd", id="SSRF35 file"),
        pytest.param("ftp://good.example/", id="SSRF35 ftp"),
        pytest.param("unix:/run/docker.sock", id="SSRF35 unix"),
        pytest.param("http+unix://%2Frun%2Fdocker.sock/x", id="SSRF35 http+unix"),
        pytest.param("data:text/html,x", id="SSRF35 data"),
        pytest.param("javascript:alert(1)", id="SSRF35 javascript"),
        pytest.param("http://good.example:22/", id="SSRF36 ssh"),
        pytest.param("http://good.example:25/", id="SSRF36 smtp"),
        pytest.param("http://good.example:6379/", id="SSRF36 redis"),
        pytest.param("http://good.example:99999/", id="SSRF36 no port"),
        pytest.param("http://good.example:0/", id="SSRF36 zero"),
    ],
)
async def test_an_address_of_a_doubtful_form_is_refused(url: str, tmp_path: Path) -> None:
    with site({"/": page("fine")}) as outside:
        internet = Internet.of(outside, "good.example")
        made = bench(tmp_path, internet=internet)
        await refused(made, url)
        assert internet.dialled == []
        assert "fine" in await made.text("WebFetch", url="http://good.example/")


# --- this machine ----------------------------------------------------------------------------------------


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


# --- size and time ---------------------------------------------------------------------------------------

MB = 1_000_000


async def test_a_bomb_is_unpacked_no_further_than_asked(tmp_path: Path) -> None:
    """SSRF39: 300 MB in 300 kB."""
    bomb = gzip_bomb(300 * MB)

    def explode(reply: Reply) -> None:
        reply.say(bomb, kind="text/plain", headers={"content-encoding": "gzip"})

    small = {"content-encoding": "gzip"}
    routes = {"/": explode, "/small": lambda reply: reply.say(gzip_bomb(3), kind="text/plain", headers=small)}
    with site(routes) as outside:
        made = bench(tmp_path, internet=Internet.of(outside, "good.example"))
        await made.text("WebFetch", url="http://good.example/small")
        peak = Peak.of(os.getpid())
        text = await made.text("WebFetch", url="http://good.example/")
        assert "only the start of it was read" in text
        assert len(text) < 200_000
        assert peak.growth() < 150 * MB


async def test_a_body_without_end_is_cut(tmp_path: Path) -> None:
    with site({"/": lambda reply: reply.pour(itertools.repeat(b"x" * 65_536))}) as outside:
        made = bench(tmp_path, internet=Internet.of(outside, "good.example"))
        assert "only the start of it was read" in await made.text("WebFetch", url="http://good.example/")


@pytest.mark.parametrize(
    "drip",
    [
        pytest.param(lambda reply: reply.pour(_slowly(reply)), id="body"),
        pytest.param(lambda reply: reply.site.closing.wait(30), id="headers"),
        pytest.param(lambda reply: reply.pour(_slowly(reply), encoding="gzip"), id="packed body"),
    ],
)
async def test_an_answer_that_comes_too_slowly_is_left(drip: Callable[[Reply], None], tmp_path: Path) -> None:
    with site({"/": drip, "/fast": page("x")}) as outside:
        internet = Internet.of(outside, "good.example")
        guard = Guard(resolve=internet.resolve)
        exchanges = HttpClient(guard, internet)
        ask = Request(url=parse_url("http://good.example/"), most=1000)
        with pytest.raises(TimedOut):
            await exchanges.fetch(ask, FetchOptions(guard=guard, seconds=0.3))
        fast = Request(url=parse_url("http://good.example/fast"), most=1000)
        assert (await exchanges.fetch(fast, FetchOptions(guard=guard, seconds=5))).body == b"x"


def _slowly(reply: Reply) -> Iterator[bytes]:
    while not reply.site.closing.wait(0.02):
        yield b""


# --- encrypted connections -------------------------------------------------------------------------------


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
        assert len(service.asked) == asked


async def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path, authority: Authority) -> None:
    with site({"/": page("sealed")}, tls=authority.server) as service:
        made = bench(tmp_path, internet=Internet.of(service, "sealed.example"))
        result = await made.call("WebFetch", url="https://sealed.example/")
        assert result.error == "unavailable"
        assert "certificate" in result.text


# --- what the operator names -----------------------------------------------------------------------------


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
