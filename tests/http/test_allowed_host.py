"""Names under which a server is reached: those that the operator allows, and no others."""

from collections.abc import AsyncGenerator, Mapping

import httpx
import pytest

from tests.support.http_server import ACCEPT, INITIALIZE, TOKEN, serving

NAMES = ("Tools.lan", "proxy.example.org", "localhost:9000", "[2001:db8::7]:80")


@pytest.fixture
async def http() -> AsyncGenerator[httpx.AsyncClient]:
    """A client of a server on every address, with names that it does not know by itself."""
    async with serving(host="0.0.0.0", names=NAMES) as server:
        base, given = f"http://127.0.0.1:{server.port}", {**ACCEPT, "authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(base_url=base, headers=given, timeout=10, trust_env=False) as made:
            yield made


async def answer(http: httpx.AsyncClient, path: str = "/mcp", **headers: str) -> httpx.Response:
    """The answer to a handshake with these headers, in which PORT is that of the server."""
    port = str(http.base_url.port)
    filled = {name.replace("_", "-"): value.replace("PORT", port) for name, value in headers.items()}
    return await http.post(path, json=INITIALIZE, headers=filled)


ALLOWED: Mapping[str, dict[str, str]] = {
    "usual port": {"Host": "tools.lan"},
    "own port": {"Host": "tools.lan:PORT"},
    "capitals": {"Host": "TOOLS.lan"},
    "any port": {"Host": "tools.lan:8444"},
    "mapped port": {"Host": "localhost:9000"},
    "version 6": {"Host": "[2001:db8::7]:80"},
    "loopback": {"Host": "localhost:PORT"},
    "the address that was reached": {"Host": "127.0.0.1:PORT"},
    "behind TLS": {"Host": "proxy.example.org", "Origin": "https://proxy.example.org"},
    "behind TLS at any port": {"Host": "tools.lan:8444", "Origin": "https://tools.lan:8444"},
    "mapped origin": {"Host": "localhost:9000", "Origin": "http://localhost:9000"},
}


async def test_an_allowed_name_is_the_server(http: httpx.AsyncClient) -> None:
    statuses = {name: (await answer(http, **headers)).status_code for name, headers in ALLOWED.items()}
    assert statuses == dict.fromkeys(ALLOWED, 200)
    assert (await answer(http, "/mcp/", Host="tools.lan")).status_code == 200


REFUSED: Mapping[str, tuple[dict[str, str], int]] = {
    "another name": ({"Host": "evil.example"}, 421),
    "another address than the one that was reached": ({"Host": "127.0.0.2:PORT"}, 421),
    "suffix": ({"Host": "tools.lan.evil.example"}, 421),
    "subdomain": ({"Host": "x.tools.lan"}, 421),
    "another name at another port": ({"Host": "evil.example:8444"}, 421),
    "another mapped port": ({"Host": "localhost:9001"}, 421),
    "another origin": ({"Host": "tools.lan", "Origin": "http://evil.example"}, 403),
    "origin at another port": ({"Host": "tools.lan", "Origin": "http://tools.lan:3000"}, 403),
    "no origin": ({"Host": "tools.lan", "Origin": "null"}, 403),
    "cross-site": ({"Host": "tools.lan", "Sec_Fetch_Site": "cross-site"}, 403),
}


async def test_a_name_that_a_page_could_bring_is_not(http: httpx.AsyncClient) -> None:
    statuses = {name: (await answer(http, **headers)).status_code for name, (headers, _) in REFUSED.items()}
    assert statuses == {name: refused for name, (_, refused) in REFUSED.items()}


async def test_the_refusal_names_the_host_and_its_port(http: httpx.AsyncClient) -> None:
    for host, shown in (("Localhost:9001", "localhost:9001"), ("<b>x", "NAME")):
        assert f"--allowed-host {shown}." in (await answer(http, Host=host)).text
