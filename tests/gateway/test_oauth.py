"""Logins to other MCP servers: real servers over real HTTP on loopback, with the browser of their user."""

import asyncio
import json
import logging
import secrets
import stat
import time
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx
import httpx2
import pytest
import pytest_asyncio
import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    ProviderTokenVerifier,
    RefreshToken,
    RegistrationError,
    construct_redirect_uri,
)
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.commands.upstream import log_in as log_in_to
from mcp_toolserver.commands.upstream import log_out
from mcp_toolserver.errors import Denied, SettingsError, ToolError, Unavailable
from mcp_toolserver.gateway.upstream_file import OAuth, Upstream
from mcp_toolserver.invocation import load
from mcp_toolserver.protocol.http.server import bind
from mcp_toolserver.protocol.upstreams.oauth import Authorization
from mcp_toolserver.runtime.background import Background
from mcp_toolserver.runtime.web.guard import parse_private_host
from mcp_toolserver.stores.oauth_tokens import TokenStore
from tests.gateway.strangers import Place, upstreams
from tests.support.live import Setup, connected, text
from tests.support.process_layer import server_command
from tests.support.workbench import Person


@dataclass
class Authority(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """The authorization server: its user agrees to everything at once."""

    lifetime: int | None = 3600
    """Seconds that access tokens are valid; None to say nothing of it."""
    audience: str | None = None
    """For all tokens, instead of the one that the client names."""
    refuses: bool = False
    """Whether its user refuses instead."""
    clients: dict[str, OAuthClientInformationFull] = field(default_factory=dict)
    codes: dict[str, AuthorizationCode] = field(default_factory=dict)
    access: dict[str, AccessToken] = field(default_factory=dict)
    refresh: dict[str, RefreshToken] = field(default_factory=dict)
    issued: set[str] = field(default_factory=set)
    """Every secret it has given."""
    asked: list[AuthorizationParams] = field(default_factory=list)
    renewals: int = 0

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info
        self.issued.add(client_info.client_secret or "")

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        self.asked.append(params)
        answer = {"state": params.state}
        if self.refuses:
            return construct_redirect_uri(str(params.redirect_uri), error="access_denied", **answer)
        code = secrets.token_hex(16)
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            **params.model_dump(
                include={"code_challenge", "redirect_uri", "redirect_uri_provided_explicitly"}
            ),
            resource=params.resource,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, **answer)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        code = authorization_code
        del self.codes[code.code]
        return self._give(code.client_id, code.scopes, code.resource)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.refresh[refresh_token.token]
        self.renewals += 1
        return self._give(client.client_id, scopes, refresh_token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    def _give(self, client: str, scopes: list[str], resource: str | None) -> OAuthToken:
        token, again = secrets.token_hex(16), secrets.token_hex(16)
        about = {"client_id": client, "scopes": scopes, "resource": self.audience or resource}
        self.access[token] = AccessToken(token=token, **about)
        self.refresh[again] = RefreshToken(token=again, **about)
        self.issued |= {token, again}
        return OAuthToken(access_token=token, refresh_token=again, expires_in=self.lifetime)


@dataclass
class Protected:
    """The MCP server that is up, and its authorization server."""

    url: str
    issuer: str = ""
    """The address of the authorization server."""
    authority: Authority = field(default_factory=Authority)
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Method and path, and the header with the token."""

    def authorization(self, state: Path, **oauth: object) -> Authorization:
        entry = {"name": "files", "type": "http", "url": self.url, "oauth": OAuth.model_validate(oauth)}
        private = (parse_private_host(urlsplit(self.issuer).netloc),) if self.issuer else ()
        return Authorization(Upstream.model_validate(entry), str(state), private, seconds=10)


@asynccontextmanager
async def serving(app: Callable[[str], ASGIApp], requests: list[tuple[str, str]]) -> AsyncGenerator[str]:
    """Serve what `app` makes of its origin on loopback."""
    (socket,) = bind("127.0.0.1", 0)
    origin = f"http://127.0.0.1:{socket.getsockname()[1]}"
    inner = app(origin)

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            requests.append((f"{scope['method']} {scope['path']}", headers.get("authorization", "")))
        await inner(scope, receive, send)

    server = uvicorn.Server(uvicorn.Config(noting, log_config=None, timeout_graceful_shutdown=1))
    # Signals stay those of the tests.
    task = asyncio.create_task(server._serve([socket]))
    try:
        with anyio.fail_after(10):
            while not server.started:
                await anyio.lowlevel.checkpoint()
        yield origin
    finally:
        server.should_exit = True
        with anyio.fail_after(10):
            await task


@asynccontextmanager
async def protected() -> AsyncGenerator[Protected]:
    """A server whose one tool says which client calls, and its authorization server at another address."""
    up = Protected("")

    def authority(origin: str) -> ASGIApp:
        up.issuer = f"{origin}/"
        registration = ClientRegistrationOptions(enabled=True, valid_scopes=["read", "write"])
        routes = create_auth_routes(
            up.authority, AnyHttpUrl(up.issuer), client_registration_options=registration
        )
        return Starlette(routes=routes)

    def app(origin: str) -> ASGIApp:
        up.url = f"{origin}/mcp"
        settings = AuthSettings(
            issuer_url=AnyHttpUrl(up.issuer),
            resource_server_url=AnyHttpUrl(up.url),
            validate_token_resource=True,
            required_scopes=["read"],
        )
        verifier = ProviderTokenVerifier(up.authority)
        server = MCPServer("protected", token_verifier=verifier, auth=settings)

        @server.tool()
        def whoami() -> str:
            token = get_access_token()
            return token.client_id if token else ""

        return server.streamable_http_app()

    async with serving(authority, []), serving(app, up.requests):
        yield up


async def whoami(up: Protected, auth: Authorization) -> str:
    """Call the tool through the SDK's client; raises what `auth` says if that fails."""
    with anyio.fail_after(20):
        async with httpx2.AsyncClient(auth=auth) as http:
            try:
                async with Client(streamable_http_client(up.url, http_client=http)) as client:
                    result = await client.call_tool("whoami", {})
            except Exception:
                if auth.refusal:
                    raise Unavailable(auth.refusal) from None
                raise
    return result.content[0].text  # type: ignore[union-attr]


async def get(url: str, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(timeout=10, trust_env=False) as http:
        return await http.get(url, headers=headers)


async def browse(page: str) -> None:
    """What the user's browser does with a page that grants access."""
    assert (await get((await get(page)).headers["location"])).status_code == 200


async def log_in(auth: Authorization, visit: Callable[[str], Awaitable[None]] = browse) -> str:
    visits: list[asyncio.Future[None]] = []
    with anyio.fail_after(20):
        try:
            return await auth.log_in(lambda page: visits.append(asyncio.ensure_future(visit(page))))
        finally:
            await asyncio.gather(*visits)


@pytest_asyncio.fixture
async def up() -> AsyncGenerator[Protected]:
    async with protected() as server:
        yield server


def exposed(state: Path, secrets: set[str], *texts: str) -> list[str]:
    """Where a secret lies other than in a file that only this user can read."""
    known = dict(enumerate(texts)) | {
        path: path.read_text(encoding="utf-8")
        for path in state.rglob("*")
        if path.is_file() and path != state / "oauth/files.json"
    }
    modes = [stat.S_IMODE((state / name).stat().st_mode) for name in ("oauth", "oauth/files.json")]
    wrong = [] if modes == [0o700, 0o600] else ["modes"]
    return wrong + [str(place) for place, text in known.items() if any(one in text for one in secrets)]


def damage(state: Path, **fields: object) -> None:
    """Change what is stored."""
    stored = state / "oauth/files.json"
    grant = json.loads(stored.read_text(encoding="utf-8")) | fields
    stored.write_text(json.dumps(grant), encoding="utf-8")


async def test_a_login_is_used_and_renewed_and_its_token_is_in_one_private_file(
    up: Protected, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    auth = up.authorization(tmp_path)
    with pytest.raises(Unavailable, match=r"files takes a login.*McpAuth.*upstream login files") as refused:
        await whoami(up, auth)
    assert not up.authority.clients, "a call registers no client"
    up.authority.lifetime = 0
    end = await log_in(auth)
    (asked,) = up.authority.asked
    assert (asked.resource, asked.scopes) == (up.url, ["read"])
    assert "accepts the token" in end
    up.authority.lifetime = 3600
    assert await whoami(up, up.authorization(tmp_path)) in up.authority.clients
    assert await whoami(up, auth) in up.authority.clients
    assert up.authority.renewals == 1
    # The server no longer accepts it, but the authorization server renews it.
    up.authority.access.clear()
    up.authority.lifetime = None
    assert await whoami(up, auth) in up.authority.clients
    # A token without a lifetime does not have that of the one before.
    damage(tmp_path, expires=1.0)
    assert await whoami(up, auth) in up.authority.clients
    assert await whoami(up, auth) in up.authority.clients
    assert up.authority.renewals == 3
    # The server of the test, and the client library under its browser, log on their own account.
    logged = [
        one.getMessage() for one in caplog.records if not one.name.startswith(("mcp.server", "httpcore"))
    ]
    assert exposed(tmp_path, up.authority.issued, str(refused.value), end, *logged) == []
    assert any(
        secret in (tmp_path / "oauth/files.json").read_text(encoding="utf-8")
        for secret in up.authority.issued
    )


async def test_a_revoked_token_and_a_damaged_file_take_another_login(up: Protected, tmp_path: Path) -> None:
    auth = up.authorization(tmp_path)
    await log_in(auth)
    up.authority.access.clear()
    up.authority.refresh.clear()
    with pytest.raises(Unavailable, match=r"expired or was rejected.*upstream login files"):
        await whoami(up, auth)
    await log_in(auth)
    assert await whoami(up, auth)
    damage(tmp_path, tokens="{}]")
    with pytest.raises(Unavailable, match=r"cannot be read.*upstream login files"):
        await whoami(up, auth)
    await log_in(auth)
    assert await whoami(up, auth)


async def test_a_token_for_another_audience_is_rejected_once_and_not_stored(
    up: Protected, tmp_path: Path
) -> None:
    up.authority.audience = "https://other.example/mcp"
    with pytest.raises(Unavailable, match=r"rejects the token.*audience"):
        await log_in(up.authorization(tmp_path))
    assert len(up.authority.asked) == 1
    assert not (tmp_path / "oauth").exists()


async def test_only_the_redirect_with_the_state_ends_a_login_and_it_does_once(
    up: Protected, tmp_path: Path
) -> None:
    outcomes: dict[str, object] = {}
    places: list[str] = []

    async def visit(page: str) -> None:
        location = (await get(page)).headers["location"]
        places.append(location)
        start, (state,) = location.partition("?")[0], parse_qs(urlsplit(location).query)["state"]
        port = urlsplit(location).port
        for title, target, headers in (
            ("no state", f"{start}?code=x", {}),
            ("a forged state", f"{start}?code=x&state={state[:-1]}%21", {}),
            ("an empty state", f"{start}?code=x&state=", {}),
            ("two states", f"{start}?code=x&state={state}&state={state}", {}),
            ("another path", location.replace("/callback", "/other"), {}),
            ("another host", location, {"Host": f"rebound.example:{port}"}),
            ("another port", location, {"Host": "127.0.0.1:1"}),
            ("too long", f"{location}&x={'x' * 20_000}", {}),
            ("the redirect", location, {}),
            ("the same again", location, {}),
        ):
            try:
                outcomes[title] = (await get(target, **headers)).status_code
            except httpx.TransportError:
                outcomes[title] = 400
            if title == "too long":
                async with httpx.AsyncClient() as http:
                    outcomes["a form"] = (await http.post(location)).status_code

    auth = up.authorization(tmp_path)
    assert "accepts" in await log_in(auth, visit)
    assert {title for title, status in outcomes.items() if status != 400} == {"the redirect"}
    assert (outcomes["the redirect"], len(up.authority.access)) == (200, 1)
    with pytest.raises(httpx.ConnectError):
        await get(places[0])


async def test_two_servers_do_not_renew_the_same_token(up: Protected, tmp_path: Path) -> None:
    auth, other = up.authorization(tmp_path), up.authorization(tmp_path)
    up.authority.lifetime = 0
    await log_in(other)
    up.authority.lifetime = 3600
    store = TokenStore(state=str(tmp_path), name="files")
    async with store.locked(1):
        waiting = asyncio.create_task(whoami(up, auth))
        await log_in(other)
    with anyio.fail_after(10):
        assert await waiting in up.authority.clients
    assert up.authority.renewals == 0


async def test_a_changed_address_gets_no_token(up: Protected, tmp_path: Path) -> None:
    await log_in(up.authorization(tmp_path))
    async with protected() as other:
        with pytest.raises(Unavailable, match="no token is stored"):
            await whoami(other, other.authorization(tmp_path))
        assert {header for _, header in other.requests} == {""}
    assert await whoami(up, up.authorization(tmp_path))


async def test_the_operators_client_and_scope_are_used(up: Protected, tmp_path: Path) -> None:
    await log_in(up.authorization(tmp_path))
    ((name, client),) = up.authority.clients.items()
    assert client.redirect_uris
    port = client.redirect_uris[0].port
    given = {"client_id": name, "client_secret": client.client_secret, "callback_port": port}
    client.scope = "read write"
    auth = up.authorization(tmp_path, scope="read write", **given)
    await log_in(auth)
    assert await whoami(up, auth) == name
    assert (list(up.authority.clients), up.authority.asked[-1].scopes) == ([name], ["read", "write"])


async def program(setup: Setup, *words: str) -> tuple[int | None, str]:
    """Run a command, with a browser for the page that it prints; its exit status and output."""
    command = [*server_command(), *words, "--state-dir", str(setup.home / "state"), *setup.flags]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=PIPE, stderr=STDOUT, env=setup.environment
    )
    assert process.stdout is not None
    printed = ""
    with anyio.fail_after(60):
        async for line in process.stdout:
            printed += line.decode()
            if line.startswith(b"http"):
                await browse(line.decode().strip())
        return await process.wait(), printed


async def test_a_confined_server_uses_and_renews_what_the_operator_logged_in_to(
    up: Protected, tmp_path: Path
) -> None:
    entry = {"url": up.url, "tools": {"whoami": "read-only"}}
    servers, config = tmp_path / "servers.json", tmp_path / "config.toml"
    servers.write_text(json.dumps({"mcpServers": {"files": entry}}), encoding="utf-8")
    config.write_text(f'web-private = ["{urlsplit(up.issuer).netloc}"]', encoding="utf-8")
    setup = Setup.below(tmp_path, "read-only", "--upstreams", str(servers), "--config", str(config))
    up.authority.lifetime = 0
    status, printed = await program(setup, "upstream", "login", "files")
    assert (status, "accepts the token" in printed) == (0, True), printed
    up.authority.lifetime = 3600
    async with connected(setup) as client:
        said = text(await client.call_tool("mcp__files__whoami", {}))
        assert next(iter(up.authority.clients)) in said
        assert up.authority.renewals == 1
        assert log_out(str(setup.home / "state"), "files") == 0
        said = text(await client.call_tool("mcp__files__whoami", {}))
        assert "no token is stored" in said
        listed = {tool.name for tool in (await client.list_tools()).tools}
        assert "McpAuth" not in listed
    other = load(["upstream", "login", "other", *setup.flags], {})
    with pytest.raises(SettingsError, match="there are: files"):
        log_in_to(str(setup.home / "state"), other, {})


async def test_a_model_asks_its_user_to_log_in(up: Protected, tmp_path: Path) -> None:
    at = Place(tmp_path, Permission.DANGER_FULL_ACCESS, web_private=(urlsplit(up.issuer).netloc,))
    answers: list[str] = []
    async with upstreams(at, {"files": {"url": up.url, "tools": {"whoami": "read-only"}}}) as app:

        async def say(name: str, **arguments: object) -> str:
            with anyio.fail_after(60):
                given = {"server": "files", **arguments}
                answers.append((await app.dispatcher.call(name, given, Person())).text)
            return answers[-1]

        assert "Call McpAuth" in await say("ListMcpResources")
        page = (await say("McpAuth")).splitlines()[-1]
        await browse(page)
        assert "accepts the token" in await say("McpAuth")
        assert next(iter(up.authority.clients)) in await say("MCP", tool="whoami")
        assert "takes no login now" in await say("McpAuth")
        assert len(up.authority.asked) == 1
    at.broker.close()
    assert (at.state / "audit").exists()
    assert exposed(at.state, up.authority.issued, *answers) == []


async def test_a_login_of_several_calls_is_one_and_so_is_its_failure(up: Protected, tmp_path: Path) -> None:
    background = Background()
    for refuses in (True, False):
        auth, up.authority.refuses = up.authorization(tmp_path), refuses
        with anyio.fail_after(20):
            page = (await auth.authorize(background)).splitlines()[-1]
            ends = [asyncio.create_task(auth.authorize(background)) for _ in range(2)]
            await browse(page)
            found = await asyncio.gather(*ends, return_exceptions=True)
        assert [type(one) for one in found] == [Denied if refuses else str] * 2
        assert (tmp_path / "oauth").exists() is not refuses
    assert "takes no login now" in await auth.authorize(background)
    assert len(up.authority.asked) == 2
    page = await up.authorization(tmp_path / "other").authorize(background)
    await background.aclose()
    with anyio.fail_after(5), suppress(httpx.TransportError):
        while True:
            await get(parse_qs(urlsplit(page).query)["redirect_uri"][0])


async def test_a_login_that_cannot_begin_says_why(up: Protected, tmp_path: Path) -> None:
    taken = urlsplit(up.url).port
    with pytest.raises(Unavailable, match=f"port {taken} .* is in use"):
        await log_in(up.authorization(tmp_path, callback_port=taken))
    with pytest.raises(SettingsError, match="url of files"):
        Protected("ftp://example.org").authorization(tmp_path)
    with pytest.raises(Denied, match="not an https address"):
        await log_in(Protected("http://example.org/mcp").authorization(tmp_path))
    up.authority.register_client = _refuse
    with pytest.raises(Unavailable, match=r"registers no client.*oauth\.client_id"):
        await log_in(up.authorization(tmp_path))
    async with serving(lambda _: Starlette(), []) as origin:
        assert "takes no login" in await log_in(Protected(origin).authorization(tmp_path))


async def _refuse(client_info: OAuthClientInformationFull) -> None:
    raise RegistrationError(error="invalid_client_metadata")


async def test_no_address_that_a_server_names_leads_to_a_private_host(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    internal: list[tuple[str, str]] = []
    named: dict[str, str] = {}
    tokens: dict[str, object] = {"refresh_token": "a-secret"}

    def hostile(origin: str) -> ASGIApp:
        def at(name: str) -> str:
            return named.get(name, f"{origin}/{name}")

        def say(request: Request) -> JSONResponse:
            issuer, path = named.get("issuer", origin), request.url.path
            metadata = {
                "issuer": issuer,
                "token_endpoint": at("token"),
                "authorization_endpoint": at("authorize"),
                "registration_endpoint": at("register"),
            }
            answers = {
                "/token": tokens,
                "/register": {"client_id": "x"},
                "/resource": {"resource": at("mcp"), "authorization_servers": [issuer]},
                "/.well-known/oauth-authorization-server": metadata,
            }
            if path in answers:
                return JSONResponse(answers[path], 201 if path == "/register" else 200)
            where = f'Bearer resource_metadata="{at("resource")}"'
            return JSONResponse({}, 401, {"www-authenticate": where})

        return Starlette(routes=[Route("/{path:path}", say, methods=["GET", "POST"])])

    async def agree(page: str) -> None:
        (state,), (place,) = (parse_qs(urlsplit(page).query)[name] for name in ("state", "redirect_uri"))
        await get(f"{place}?code=x&state={state}")

    wrong: list[str] = []
    up = Protected("")
    async with serving(lambda _: Starlette(), internal) as inside, serving(hostile, up.requests) as outside:
        up.url = f"{outside}/mcp"
        for part in ("resource", "issuer", "register", "token"):
            for target in (inside, "http://93.184.216.34", "https://169.254.169.254", "https://10.0.0.1"):
                named.clear()
                named[part] = f"{target}/{part}"
                try:
                    wrong.append(f"{part} at {target}: {await log_in(up.authorization(tmp_path), agree)}")
                except Denied:
                    pass
                except ToolError as error:
                    wrong.append(f"{part} at {target}: {error}")
        named.clear()
        for why in ("gives no token", "a response that is not valid", "does not describe itself"):
            with pytest.raises(Unavailable, match=why) as invalid:
                await log_in(up.authorization(tmp_path), agree)
            assert "a-secret" not in f"{invalid.value}{caplog.text}"
            if "access_token" in tokens:
                named["mcp"] = "https://other.example/mcp"
            # No number of seconds fits into a float.
            tokens |= {"access_token": "a-secret", "expires_in": 10**400}
        named.clear()
        named["authorize"] = "http://93.184.216.34/authorize"
        with pytest.raises(Denied, match="not an https address"):
            await log_in(up.authorization(tmp_path))
    assert (wrong, internal) == ([], [])
