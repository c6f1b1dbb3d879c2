"""An MCP server over HTTP that takes logins, with its authorization server, and the browser of its user."""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import httpx
import httpx2
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
    construct_redirect_uri,
)
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from mcp_toolserver.errors import Unavailable
from mcp_toolserver.gateway.upstream_file import OAuth, Upstream
from mcp_toolserver.protocol.http.server import bind
from mcp_toolserver.protocol.upstreams.oauth import Authorization
from mcp_toolserver.runtime.web.guard import parse_private_host


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
