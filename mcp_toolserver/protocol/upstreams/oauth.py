"""OAuth for other MCP servers over HTTP, by the SDK's client: logins of the user, and tokens with requests.

Such a server, and the authorization server that it names, may be hostile and name any address. What this
module requests goes through the guard of the web tools: to public addresses, to those that the operator
permits (`web-private`), and to the address of the server itself; without TLS to this machine only.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from urllib.parse import parse_qsl, urlencode

import anyio
import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel

from mcp_toolserver.capabilities.web import WebSend
from mcp_toolserver.errors import Denied, SettingsError, TimedOut, ToolError, Unavailable
from mcp_toolserver.gateway.upstream_file import Upstream
from mcp_toolserver.protocol.upstreams.redirect import listening
from mcp_toolserver.runtime.background import Background
from mcp_toolserver.runtime.web.guard import Guard, PrivateHost, parse_private_host
from mcp_toolserver.stores.oauth_tokens import TokenStore
from mcp_toolserver.text.web.urls import bracketed, is_loopback, parse_url

LOGIN_SECONDS = 300.0
"""That the user has for a login."""

_REQUEST_SECONDS = 30.0
_MOST_BYTES, _MOST_LOGGED = 1 << 20, 500
_SENT = frozenset({"accept", "authorization", "content-type", "mcp-protocol-version"})
_ENCODING = frozenset({"content-encoding", "content-length", "transfer-encoding"})

_HEADERS = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
_PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}

log = logging.getLogger(__name__)

# Its messages may hold tokens.
logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL)


class _Grant(BaseModel):
    """What the SDK's client needs to go on. It stores client and tokens itself, here; the rest has to survive
    too, or it would send a refresh token to the MCP server."""

    url: str
    """The address of the server; no other gets the tokens."""
    client: OAuthClientInformationFull | None = None
    tokens: OAuthToken | None = None
    expires: float | None = None
    server: OAuthMetadata | None = None
    resource: ProtectedResourceMetadata | None = None

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    def usable_token(self, refused: str) -> str | None:
        """The access token, unless it has expired or is the one that was `refused`."""
        token = self.tokens.access_token if self.tokens else None
        has_expired = self.expires is not None and self.expires < time.time()
        return None if token == refused or has_expired else token


class Authorization(httpx2.Auth):
    """The authorization at one server. As the `auth` of the client that connects to it, it adds the stored
    token and renews it, and never starts a login."""

    def __init__(
        self, upstream: Upstream, state: str, private: Sequence[PrivateHost], seconds: float = 0.0
    ) -> None:
        """`private` is what `web-private` permits; a call waits for a user at most `seconds`. Raises:
        SettingsError: the address of the server is not valid."""
        self._upstream, self._name, self._seconds = upstream, upstream.name, seconds
        try:
            url = parse_url(upstream.url)
        except ValueError as error:
            raise SettingsError(f"the url of {upstream.name}: {error}") from None
        own = parse_private_host(f"{bracketed(url.host)}:{url.port}")
        self._guard = Guard(private=(*private, own))
        self._store = TokenStore(state=state, name=upstream.name)
        self._login: tuple[asyncio.Future[str], asyncio.Task[str]] | None = None
        """That is in progress: the address for the user, and its end."""
        self.refusal = ""
        """Why the server rejected the last request and what to do, if it takes a login."""

    # --- requests ------------------------------------------------------------------------------------------

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Add the token; if it is rejected, renew it and send the request once more."""
        token, why = await self._add_token(request)
        response = yield request
        if response.status_code == 401 and token:
            token, why = await self._add_token(request, refused=token)
            if token:
                response = yield request
        lacks_scope = "insufficient_scope" in response.headers.get("www-authenticate", "")
        self.refusal = ""
        if response.status_code == 401 or (response.status_code == 403 and lacks_scope):
            self.refusal = (
                f"The MCP server {self._name} takes a login: {why}. Call McpAuth for it, or ask the "
                f"operator of this server to run `mcp-toolserver upstream login {self._name}`."
            )

    async def _add_token(self, request: httpx2.Request, refused: str = "") -> tuple[str | None, str]:
        """Add a usable token; return it, and why the server may reject the request."""
        try:
            if (grant := self._load()) is None:
                return None, "no token is stored"
            if not (token := grant.usable_token(refused)):
                async with self._store.locked(_REQUEST_SECONDS):
                    # Another server may have renewed or removed it meanwhile.
                    if grant := self._load():
                        token = grant.usable_token(refused) or await self._renew(grant)
        except (ToolError, OSError) as error:
            return None, f"its token cannot be used ({error})"
        if not token:
            return None, "its token has expired or was rejected"
        request.headers["authorization"] = f"Bearer {token}"
        return token, "it rejects the token"

    async def _renew(self, grant: _Grant) -> str | None:
        """Renew the token and return it; None if the authorization server refuses. Raises: ToolError."""
        provider = self._provider(grant, "http://127.0.0.1/callback")
        context = provider.context
        context.oauth_metadata, context.protected_resource_metadata = grant.server, grant.resource
        context.token_expiry_time = 1.0
        request = httpx2.Request("POST", self._upstream.url, headers=_HEADERS)
        flow = provider.async_auth_flow(request)
        async with self._client() as http, aclosing(flow):
            outgoing = await anext(flow)
            while outgoing is not request:
                outgoing = await flow.asend(await http.send(outgoing))
        if context.is_token_valid():
            self._save(grant, provider)
            return grant.usable_token("")
        return None

    # --- logins --------------------------------------------------------------------------------------------

    async def authorize(self, background: Background) -> str:
        """Return the state. If the server takes a login, start one and return the address for the user; while
        it is in progress, wait for its end. Raises: ToolError: it failed."""
        if self._login is None:
            status = await self._ask(self)
            if not self.refusal:
                return f"{self._name} takes no login now (it answers HTTP {status})."
        patience = self._seconds
        # Another call may have started it meanwhile.
        if self._login is None:
            patience, page = 0.0, asyncio.get_running_loop().create_future()
            self._login = page, asyncio.create_task(self.log_in(page.set_result))
            background.start(partial(_end_with_server, self._login[1]), name=f"the login to {self._name}")
        page, end = self._login
        await asyncio.wait((page, end), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait((end,), timeout=patience)
        if not end.done():
            return (
                f"{self._name} takes a login. Show the user this address, to open in a browser here "
                f"within {LOGIN_SECONDS:g} s, and call McpAuth again, which waits for the end.\n"
                f"{page.result()}"
            )
        self._login = None
        return end.result()

    async def log_in(self, show: Callable[[str], None]) -> str:
        """Call `show` with the address that the user has to open, wait for the redirect, store the token, and
        return the new state.

        Raises:
            Unavailable, Denied, TimedOut: the login failed; a token that was stored remains.
        """
        with anyio.move_on_after(LOGIN_SECONDS):
            async with listening(self._upstream.oauth.callback_port) as redirect:
                grant = _Grant(url=self._upstream.url)
                provider = self._provider(grant, redirect.uri)

                async def open_page(url: str) -> None:
                    start, _, query = url.partition("?")
                    fields = dict(parse_qsl(query))
                    if scope := self._upstream.oauth.scope:
                        fields["scope"] = scope
                    address = str(parse_url(f"{start}?{urlencode(fields)}"))
                    if why := _insecure(address):
                        raise Denied(why)
                    redirect.state = fields["state"]
                    show(address)

                async def result() -> AuthorizationCodeResult:
                    fields = await redirect.fields
                    if "code" not in fields:
                        raise Denied(f"The user or the provider of {self._name} refused the login.")
                    return AuthorizationCodeResult.model_validate(fields)

                provider.context.redirect_handler, provider.context.callback_handler = open_page, result
                status = await self._ask(provider)
            if not grant.tokens:
                return f"{self._name} takes no login (it answers HTTP {status})."
            if status in (401, 403):
                raise Unavailable(
                    f"{self._name} rejects the token that its authorization server gave (HTTP {status}). "
                    "Nothing is stored. Perhaps it is for another audience: compare the url in the "
                    "operator's file with the one that the server expects."
                )
            self._save(grant, provider)
            return f"{self._name} accepts the token, which is stored."
        raise TimedOut(
            f"Nobody finished the login to {self._name} within {LOGIN_SECONDS:g} s; start it again."
        )

    def _provider(self, grant: _Grant, redirect: str) -> OAuthClientProvider:
        """Return the SDK's client, with the operator's registration if there is one."""
        given = self._upstream.oauth
        if given.client_id and not grant.client:
            grant.client = OAuthClientInformationFull(
                client_id=given.client_id,
                client_secret=given.client_secret or None,
                token_endpoint_auth_method="client_secret_post" if given.client_secret else "none",
            )
        about = OAuthClientMetadata(client_name="mcp-toolserver", redirect_uris=[AnyUrl(redirect)])
        return OAuthClientProvider(self._upstream.url, about, grant)

    async def _ask(self, auth: httpx2.Auth) -> int:
        """Send a request that changes nothing, and return its status. Raises: ToolError."""
        # A GET of the older transport does not end.
        method, body = ("HEAD", None) if self._upstream.kind == "sse" else ("POST", _PING)
        async with self._client(auth) as http:
            return (await http.request(method, self._upstream.url, headers=_HEADERS, json=body)).status_code

    @asynccontextmanager
    async def _client(self, auth: httpx2.Auth | None = None) -> AsyncGenerator[httpx2.AsyncClient]:
        """Raises: Unavailable: in place of the SDK's errors, which hold tokens and texts of the servers."""
        try:
            async with httpx2.AsyncClient(transport=_Guarded(self._guard), auth=auth) as http:
                yield http
                return
        except ToolError:
            raise
        except OAuthRegistrationError:
            why = "registers no client; the operator has to set oauth.client_id in the entry of the server"
        except OAuthTokenError:
            why = "gives no token; start the login again"
        except OAuthFlowError as error:
            log.warning("the authorization server of %s: %r", self._name, str(error)[:_MOST_LOGGED])
            why = "does not describe itself as it should; the operator finds more in the log"
        except Exception:  # noqa: BLE001  the libraries raise many kinds on invalid responses
            why = "gives a response that is not valid; the operator has to look at it"
        raise Unavailable(f"The authorization server of {self._name} {why}.")

    # --- tokens --------------------------------------------------------------------------------------------

    def _load(self) -> _Grant | None:
        """Raises: Unavailable: the file cannot be read."""
        try:
            grant = _Grant.model_validate_json(self._store.path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            raise Unavailable(f"the stored token of {self._name} cannot be read; log in again") from None
        return grant if grant.url == self._upstream.url else None

    def _save(self, grant: _Grant, provider: OAuthClientProvider) -> None:
        """Raises: Unavailable: the token cannot be written."""
        context = provider.context
        grant.expires = context.token_expiry_time
        grant.server, grant.resource = context.oauth_metadata, context.protected_resource_metadata
        try:
            self._store.save(grant.model_dump_json())
        except OSError as error:
            raise Unavailable(f"the token cannot be stored: {error.strerror}") from None


async def _end_with_server(login: asyncio.Task[str]) -> None:
    try:
        await asyncio.wait((login,))
    finally:
        login.cancel()


def _insecure(url: str) -> str | None:
    found = parse_url(url)
    if found.scheme == "https" or is_loopback(found.host):
        return None
    return f"{found.origin} is not an https address, and tokens are not sent there."


class _Guarded(httpx2.AsyncBaseTransport):
    """Sends requests through the client of the web tools, with its guard and limits."""

    def __init__(self, guard: Guard) -> None:
        # Its import takes a tenth of a second, and few servers take a login.
        from mcp_toolserver.runtime.web.client import HttpClient

        self._guard, self._client = guard, HttpClient(guard)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises: Denied, Unavailable, TimedOut."""
        if why := _insecure(str(request.url)):
            raise Denied(why)
        sent = WebSend(
            url=str(request.url),
            method=request.method,
            headers={name: value for name, value in request.headers.items() if name in _SENT},
            body=await request.aread() or None,
            most=_MOST_BYTES,
            seconds=_REQUEST_SECONDS,
        )
        answer = await self._client.fetch(sent, self._guard, refuses=_insecure)
        headers = {name: value for name, value in answer.headers.items() if name not in _ENCODING}
        return httpx2.Response(answer.status, headers=headers, content=answer.body)
