"""Asks a provider for one turn, through the clients of Pydantic AI. Importing this module takes seconds.

Requests go to one endpoint only, without proxies or compression. Failures become errors whose texts hold
neither address nor key.
"""

import logging
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import islice

import httpx2
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_ai import direct, exceptions, messages, models
from pydantic_ai.models.anthropic import AnthropicModel, AnthropicModelSettings
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from mcp_toolserver.capabilities.model import (
    ConversationTooLong,
    ModelRequest,
    ModelTurn,
    ToolCall,
    ToolReply,
    UserText,
)
from mcp_toolserver.errors import TimedOut, ToolError, Unavailable
from mcp_toolserver.runtime.models.model import ModelOptions
from mcp_toolserver.runtime.web.client import causes, create_tls_context

MAX_BYTES = 32 << 20
"""Maximum bytes of one response. A streamed token takes about 300 bytes."""

CONNECT_SECONDS = 10.0

_SENT = {
    *("host", "connection", "accept", "content-type", "content-length", "transfer-encoding"),
    *("user-agent", "anthropic-version", "anthropic-beta"),
}
"""Headers of the client libraries that are sent. They add others from environment variables, even keys."""

_RETRIES = 2
"""How often a request is repeated after 408, 409, 429, 5xx or a lost connection."""

_OBJECT: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])

# Their messages hold the address.
for _library in ("anthropic", "openai", "httpx2", "httpcore2", "pydantic_ai"):
    logging.getLogger(_library).setLevel(logging.CRITICAL)


class ModelClient:
    """The models of one endpoint."""

    def __init__(self, options: ModelOptions) -> None:
        self._options = options
        timeout = httpx2.Timeout(options.seconds, connect=CONNECT_SECONDS)
        self._http = httpx2.AsyncClient(
            transport=EndpointTransport(options, create_tls_context()),
            timeout=timeout,
            trust_env=False,
            follow_redirects=False,
        )
        # With an empty key the clients would look for one in the environment; the transport sends no other.
        key, url = options.key or "none", options.endpoint.url
        self._model: Callable[[str], models.Model]
        """Returns the model of a name."""
        if options.provider == "anthropic":
            provider = AnthropicProvider(
                anthropic_client=AsyncAnthropic(
                    api_key=key,
                    base_url=url,
                    http_client=self._http,
                    max_retries=_RETRIES,
                    timeout=timeout,
                    open_telemetry=False,
                )
            )
            self._model = cache(partial(AnthropicModel, provider=provider))
        else:
            provider = OpenAIProvider(
                openai_client=AsyncOpenAI(
                    api_key=key,
                    base_url=url,
                    http_client=self._http,
                    max_retries=_RETRIES,
                    timeout=timeout,
                )
            )
            self._model = cache(partial(OpenAIChatModel, provider=provider))

    async def turn(self, model: str, request: ModelRequest) -> ModelTurn:
        """See `Model.turn`; `model` is the provider's name of the model."""
        try:
            response = await self._response(self._model(model), request)
        except ToolError:
            raise
        except Exception as error:  # noqa: BLE001  whatever a response makes the libraries raise holds the address
            raise tool_error(error) from None
        texts = [part.content for part in response.parts if isinstance(part, messages.TextPart)]
        calls = [part for part in response.parts if isinstance(part, messages.ToolCallPart)]
        return ModelTurn(
            text="".join(texts),
            calls=tuple(
                ToolCall(id=call.tool_call_id, name=call.tool_name, arguments=_arguments(call))
                for call in calls
            ),
            input_tokens=_charged(response),
            output_tokens=response.usage.output_tokens,
            cost=self._cost(response),
            is_cut=response.finish_reason == "length",
            context_tokens=response.usage.input_tokens + response.usage.output_tokens,
        )

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _response(self, model: models.Model, request: ModelRequest) -> messages.ModelResponse:
        parameters = models.ModelRequestParameters(
            function_tools=[
                ToolDefinition(
                    name=tool.name,
                    description=tool.description,
                    parameters_json_schema=dict(tool.schema),
                    strict=False,
                )
                for tool in request.tools
            ]
        )
        async with direct.model_request_stream(
            model,
            list(_history(request)),
            model_settings=self._settings(request),
            model_request_parameters=parameters,
            instrument=False,
        ) as stream:
            async for _ in stream:
                pass
            response = stream.get()
        if response.finish_reason == "content_filter":
            raise Unavailable("The model's provider withheld the answer (content filter). Change the task.")
        if response.finish_reason is None:
            # The stream ended without the mark of its end.
            raise Unavailable("The model's answer ended before it was complete. Try again.")
        return response

    def _settings(self, request: ModelRequest) -> ModelSettings:
        if self._options.provider == "openai":
            return ModelSettings(max_tokens=request.max_tokens)
        # Every turn repeats the conversation, and a provider charges a tenth for what it has seen before.
        return AnthropicModelSettings(
            max_tokens=request.max_tokens,
            anthropic_cache_instructions=True,
            anthropic_cache_tool_definitions=True,
            anthropic_cache_messages=True,
        )

    def _cost(self, response: messages.ModelResponse) -> float | None:
        if (prices := self._options.prices) is not None:
            return (_charged(response) * prices[0] + response.usage.output_tokens * prices[1]) / 1e6
        try:
            return float(response.cost().total_price)
        except (LookupError, ValueError, AssertionError):
            return None


def _charged(response: messages.ModelResponse) -> int:
    """Input tokens; those that the provider has seen before count a tenth, as it charges them."""
    cached = response.usage.cache_read_tokens
    return response.usage.input_tokens - cached + cached // 10


def _history(request: ModelRequest) -> Iterator[messages.ModelMessage]:
    """The conversation in the library's form."""
    for message in request.messages:
        if not isinstance(message, ModelTurn):
            yield messages.ModelRequest(parts=_request_parts(message), instructions=request.system or None)
            continue
        parts: list[messages.ModelResponsePart] = []
        if message.text:
            parts.append(messages.TextPart(content=message.text))
        for call in message.calls:
            given = call.arguments if isinstance(call.arguments, str) else dict(call.arguments)
            parts.append(messages.ToolCallPart(tool_name=call.name, args=given, tool_call_id=call.id))
        if parts:
            yield messages.ModelResponse(parts=parts)


def _request_parts(message: UserText | tuple[ToolReply, ...]) -> Sequence[messages.ModelRequestPart]:
    if isinstance(message, UserText):
        return [messages.UserPromptPart(content=message.text)]
    return [
        messages.ToolReturnPart(
            tool_name=reply.name,
            content=reply.text,
            tool_call_id=reply.id,
            outcome="failed" if reply.is_error else "success",
        )
        for reply in message
    ]


def _arguments(call: messages.ToolCallPart) -> Mapping[str, JsonValue] | str:
    text = call.args if isinstance(call.args, str) else call.args_as_json_str()
    try:
        return _OBJECT.validate_json(text or "{}")
    except ValidationError:
        return text


# --- the endpoint ----------------------------------------------------------------------------------------


_KEY_HEADERS = {"anthropic": ("x-api-key", ""), "openai": ("authorization", "Bearer ")}
"""The header with the key, and what stands before the key in it."""


class OversizeResponse(httpx2.TransportError):
    """The response is longer than `MAX_BYTES`."""


class ForeignResponse(httpx2.TransportError):
    """The request leads elsewhere, or the response is compressed."""


class EndpointTransport(httpx2.AsyncBaseTransport):
    """Sends requests to the endpoint of `options` and nowhere else."""

    def __init__(self, options: ModelOptions, trusted: ssl.SSLContext) -> None:
        self._endpoint = options.endpoint
        # The limit counts what is received; compressed, a small response could be huge.
        self._headers = {"accept-encoding": "identity"}
        if options.key:
            name, prefix = _KEY_HEADERS[options.provider]
            self._headers[name] = prefix + options.key
        # Environment variables would name proxies and certificates.
        self._inner = httpx2.AsyncHTTPTransport(verify=trusted, trust_env=False, retries=0)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request. Raises: ForeignResponse."""
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        if (request.url.host, port) != (self._endpoint.host, self._endpoint.port):
            raise ForeignResponse("another host")
        for name in set(request.headers) - _SENT:
            del request.headers[name]
        request.headers.update(self._headers)
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise ForeignResponse("compressed")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Limited(response.stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Limited(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = 0
        async for part in self._inner:
            received += len(part)
            if received > MAX_BYTES:
                raise OversizeResponse("too long")
            yield part

    async def aclose(self) -> None:
        await self._inner.aclose()


# --- failures --------------------------------------------------------------------------------------------

_OPERATOR = "Tell the user to ask the operator of this server to"

_ADVICE: Mapping[int, str] = {
    400: f"it does not accept the request. {_OPERATOR} check provider, model and base-url of [agent].",
    401: f"check the key. {_OPERATOR} look at key-file or key-variable of [agent].",
    403: f"the key may not use this model. {_OPERATOR} check the key and model of [agent].",
    404: f"it does not have this model or address. {_OPERATOR} check model and base-url of [agent].",
    413: "the conversation is too long for it. Give the agent a smaller task.",
    429: "too many requests. Try again later, with fewer agents at once.",
}


def tool_error(error: Exception) -> ToolError:
    chain = tuple(islice(causes(error), 10))
    if any(isinstance(one, OversizeResponse) for one in chain):
        return Unavailable(f"The model's provider answered with more than {MAX_BYTES >> 20} MiB.")
    if isinstance(error, exceptions.ModelContextWindowExceededError):
        return ConversationTooLong(
            "The conversation is longer than the model can read. Give the agent a smaller task."
        )
    if isinstance(error, exceptions.ModelQuotaExceededError):
        return Unavailable(
            f"The model's provider refuses because the account has no credit left. {_OPERATOR} add some."
        )
    if isinstance(error, exceptions.ModelTimeoutError) or any(
        isinstance(one, httpx2.TimeoutException) for one in chain
    ):
        return TimedOut("The model's provider did not answer in time. Try again later.")
    if isinstance(error, exceptions.ModelHTTPError):
        usual = "it failed. Try again later." if error.status_code >= 500 else _ADVICE[400]
        advice = _ADVICE.get(error.status_code, usual)
        return Unavailable(f"The model's provider answered {error.status_code}: {advice}")
    if isinstance(error, exceptions.ModelConnectionError) or any(
        isinstance(one, httpx2.TransportError) for one in chain
    ):
        return Unavailable(
            f"The model's provider cannot be reached, or closed the connection. {_OPERATOR} check "
            "base-url of [agent] and the network."
        )
    if isinstance(error, exceptions.ModelAPIError):
        return Unavailable("The model's provider reported an error while it answered. Try again later.")
    return Unavailable(
        f"The model's provider answered with something that is no valid response. {_OPERATOR} check provider "
        "and base-url of [agent]."
    )
