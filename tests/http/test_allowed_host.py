"""Names under which a real server is reached: those that the operator allows, and no others."""

from collections.abc import Generator

import httpx
import pytest

from tests.support.http_server import ACCEPT, INITIALIZE
from tests.support.live import TOKEN, Setup, serving

NAMES = ("tools.lan", "proxy.example.org", "localhost:9000")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[httpx.URL]:
    """A server on every address, with three names that it does not know by itself."""
    flags = ("--host", "0.0.0.0", *(word for name in NAMES for word in ("--allowed-host", name)))
    with serving(Setup.below(tmp_path_factory.mktemp("allowed"), "read-only", *flags), "http") as url:
        yield httpx.URL(url).copy_with(host="127.0.0.1")


def status(server: httpx.URL, **headers: str) -> int:
    """The status of a handshake with these headers, in which PORT is that of the server."""
    filled = {
        name.replace("_", "-"): value.replace("PORT", str(server.port)) for name, value in headers.items()
    }
    given = {**ACCEPT, "authorization": f"Bearer {TOKEN}", **filled}
    with httpx.Client(timeout=10, trust_env=False) as http:
        return http.post(server, json=INITIALIZE, headers=given).status_code


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Host": "tools.lan"}, id="usual-port"),
        pytest.param({"Host": "tools.lan:PORT"}, id="own-port"),
        pytest.param({"Host": "TOOLS.lan"}, id="capitals"),
        pytest.param({"Host": "localhost:9000"}, id="mapped-port"),
        pytest.param({"Host": "127.0.0.1:PORT"}, id="loopback"),
        pytest.param({"Host": "proxy.example.org", "Origin": "https://proxy.example.org"}, id="behind-tls"),
        pytest.param({"Host": "localhost:9000", "Origin": "http://localhost:9000"}, id="mapped-origin"),
    ],
)
def test_an_allowed_name_is_the_server(headers: dict[str, str], server: httpx.URL) -> None:
    assert status(server, **headers) == 200


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        pytest.param({"Host": "evil.example"}, 421, id="another-name"),
        pytest.param({"Host": "tools.lan.evil.example"}, 421, id="suffix"),
        pytest.param({"Host": "x.tools.lan"}, 421, id="subdomain"),
        pytest.param({"Host": "tools.lan:9"}, 421, id="another-port"),
        pytest.param({"Host": "localhost:9001"}, 421, id="another-mapped-port"),
        pytest.param({"Host": "tools.lan", "Origin": "http://evil.example"}, 403, id="another-origin"),
        pytest.param(
            {"Host": "tools.lan", "Origin": "http://tools.lan:3000"}, 403, id="origin-at-another-port"
        ),
        pytest.param({"Host": "tools.lan", "Origin": "null"}, 403, id="no-origin"),
        pytest.param({"Host": "tools.lan", "Sec_Fetch_Site": "cross-site"}, 403, id="cross-site"),
    ],
)
def test_a_name_that_a_page_could_bring_is_not(
    headers: dict[str, str], refused: int, server: httpx.URL
) -> None:
    assert status(server, **headers) == refused
