"""The operator's model and its settings. The library of its client is imported on first use, in a thread,
because that takes seconds.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import anyio
from anyio import to_thread

from mcp_toolserver.capabilities.model import ModelLimits, ModelRequest, ModelTurn
from mcp_toolserver.errors import SettingsError, TimedOut, Unavailable

if TYPE_CHECKING:
    from mcp_toolserver.runtime.models.client import ModelClient

ProviderName = Literal["anthropic", "openai"]

BASE_URLS: Mapping[ProviderName, str] = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com/v1",
}
"""The addresses of the providers' own endpoints."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where a provider answers. Its `repr` does not show the address."""

    url: str = field(repr=False)
    """Without a slash at the end."""
    host: str = field(repr=False)
    port: int = field(repr=False)

    @property
    def is_loopback(self) -> bool:
        """Whether it is on this machine."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The model that the operator configured; constant for the life of the process."""

    provider: ProviderName
    endpoint: Endpoint
    key: str = field(default="", repr=False)
    """Empty if the provider needs none."""
    model: str
    models: Mapping[str, str] = field(default_factory=dict[str, str])
    """Models by type of agent."""
    prices: tuple[float, float] | None = None
    """US dollars for a million tokens of input and of output; None for the published ones."""
    seconds: float = 300.0
    """How long one turn may take."""
    limits: ModelLimits = field(default_factory=ModelLimits)

    def chosen(self, name: str, agent_type: str) -> str:
        """The model for an agent of `agent_type` that asks for `name`: a model, a type, or empty.

        Raises:
            Unavailable: the operator did not configure a model of this name.
        """
        if not name:
            return self.models.get(agent_type, self.model)
        known = dict.fromkeys((self.model, *self.models.values()))
        if name not in known and name not in self.models:
            raise Unavailable(
                f"No model {name[:64]!r} is configured here. Leave `model` out, or choose from "
                f"{', '.join(known)}."
            )
        return self.models.get(name, name)


def endpoint(provider: ProviderName, base_url: str | None, *, has_key: bool) -> Endpoint:
    """Parse `base-url`. No error message repeats it, because it may hold a password.

    Raises:
        SettingsError: it is no address of the web, or a key would be sent to it unencrypted. The text
            does not repeat the address, because it may hold a password.
    """
    text = (base_url or BASE_URLS[provider]).rstrip("/")
    try:
        parts = urlsplit(text)
        port, host = parts.port, parts.hostname
    except ValueError:
        port, host, parts = None, None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host or not text.isascii() or not text.isprintable():
        raise SettingsError("[agent] base-url: it must be an address like https://HOST/PATH")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise SettingsError(
            "[agent] base-url: it must have no password, query or fragment; give the key in key-file or "
            "key-variable"
        )
    found = Endpoint(url=text, host=host, port=port or (443 if parts.scheme == "https" else 80))
    if parts.scheme == "http" and has_key and not found.is_loopback:
        raise SettingsError("[agent] base-url: the key would be sent unencrypted; use https")
    return found


def models_by_type(entries: Sequence[str]) -> dict[str, str]:
    """Parse `models`: `TYPE=MODEL`, once for each type.

    Raises:
        SettingsError: an entry has another form.
    """
    found: dict[str, str] = {}
    for entry in entries:
        kind, _, model = (part.strip() for part in entry.partition("="))
        if not kind or not model or kind in found:
            raise SettingsError(
                f"[agent] models: {entry!r} is not of the form TYPE=MODEL, once for each type"
            )
        found[kind] = model
    return found


def prices(per_input: float | None, per_output: float | None) -> tuple[float, float] | None:
    """The two prices; None if neither is given.

    Raises:
        SettingsError: one of them is missing.
    """
    if per_input is None and per_output is None:
        return None
    if per_input is None or per_output is None:
        raise SettingsError("[agent]: give both input-price and output-price, or neither")
    return per_input, per_output


class ProviderModel:
    """Implements `Model` with the endpoint of a provider."""

    def __init__(self, options: ModelOptions) -> None:
        self._options = options
        self._client: ModelClient | None = None
        self._importing = anyio.Lock()

    def limits(self, model: str, agent_type: str) -> ModelLimits:
        return self._options.limits

    async def turn(self, request: ModelRequest) -> ModelTurn:
        model = self._options.chosen(request.model, request.agent_type)
        client = await self._made()
        with anyio.move_on_after(self._options.seconds):
            return await client.turn(model, request)
        raise TimedOut(
            f"The model did not answer within {self._options.seconds:g} s. Try again later, or with a "
            "smaller task."
        )

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _made(self) -> "ModelClient":
        async with self._importing:
            if self._client is None:
                self._client = await to_thread.run_sync(_client, self._options, abandon_on_cancel=True)
            return self._client


def _client(options: ModelOptions) -> "ModelClient":
    from mcp_toolserver.runtime.models.client import ModelClient

    return ModelClient(options)
