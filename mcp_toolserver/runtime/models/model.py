"""The operator's model and its settings. The library of its client is imported on first use, in a thread,
because that takes seconds.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import anyio
from anyio import to_thread

from mcp_toolserver.capabilities.model import (
    Message,
    ModelLimits,
    ModelRequest,
    ModelTurn,
    ToolCall,
    UserText,
)
from mcp_toolserver.errors import SettingsError, TimedOut, Unavailable
from mcp_toolserver.text.web.urls import is_loopback

if TYPE_CHECKING:
    from mcp_toolserver.runtime.models.client import ModelClient

ProviderName = Literal["anthropic", "openai"]

_CHARACTERS_OF_TOKEN = 4

OPERATOR = "Tell the user to ask the operator of this server to"
"""In errors, before what the operator should do."""

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
        return is_loopback(self.host)


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
    own_limits: Mapping[str, ModelLimits] = field(default_factory=dict[str, ModelLimits])
    """Those of single models."""

    @property
    def known(self) -> Collection[str]:
        """The names of all its models."""
        return dict.fromkeys((self.model, *self.models.values()))

    @property
    def names(self) -> tuple[str, ...]:
        """What an agent may ask for: a model, or a type of agent for its model."""
        return (*self.known, *self.models)

    def chosen(self, name: str, agent_type: str) -> str:
        """The model for an agent of `agent_type` that asks for `name`: a model, a type, or empty.

        Raises:
            Unavailable: the operator did not configure a model of this name.
        """
        if not name:
            return self.models.get(agent_type, self.model)
        if name not in self.names:
            raise Unavailable(
                f"No model {name[:64]!r} is configured here. Leave `model` out, or choose from "
                f"{', '.join(self.known)}."
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


def model_limits(entries: Sequence[str], known: Collection[str]) -> dict[str, ModelLimits]:
    """Parse `model-limits`: `MODEL=CONTEXT/OUTPUT`, once for each of the models `known`.

    Raises:
        SettingsError: an entry has another form, or names another model.
    """
    found: dict[str, ModelLimits] = {}
    for entry in entries:
        model, _, numbers = (part.strip() for part in entry.rpartition("="))
        context, _, output = numbers.partition("/")
        if model in found or not all(part.isascii() and part.isdecimal() for part in (context, output)):
            raise SettingsError(
                f"[agent] model-limits: {entry!r} is not of the form MODEL=CONTEXT/OUTPUT, both in tokens, "
                "once for each model"
            )
        if model not in known:
            raise SettingsError(f"[agent] model-limits: {model!r} is none of {', '.join(known)}")
        found[model] = checked_limits(int(context), int(output), "model-limits")
    return found


def checked_limits(context: int, output: int, key: str) -> ModelLimits:
    """Raises: SettingsError: an answer would leave no room for a conversation."""
    if not 0 < 2 * output <= context:
        raise SettingsError(
            f"[agent] {key}: an answer of {output} tokens may take at most half of the context of {context}"
        )
    return ModelLimits(context=context, output=output)


def estimated_tokens(request: ModelRequest, text: str, calls: Sequence[ToolCall]) -> tuple[int, int]:
    """Tokens in and out of a turn, where nobody counts them."""
    sent = len(request.system) + sum(map(_size, request.messages))
    received = len(text) + sum(len(str(call.arguments)) for call in calls)
    return sent // _CHARACTERS_OF_TOKEN, received // _CHARACTERS_OF_TOKEN


def _size(message: Message) -> int:
    match message:
        case UserText() | ModelTurn():
            return len(message.text)
        case _:
            return sum(len(reply.text) for reply in message)


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
        options = self._options
        return options.own_limits.get(options.chosen(model, agent_type), options.limits)

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
