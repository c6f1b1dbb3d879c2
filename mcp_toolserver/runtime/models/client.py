"""Asks a provider for one turn, through the clients of Pydantic AI. Importing this module takes seconds.

Requests go to one endpoint only, without proxies or compression.
"""

import logging
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import cache, partial

import anyio
import httpx2
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_ai import direct, messages, models
from pydantic_ai.models.anthropic import AnthropicModel, AnthropicModelSettings
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from mcp_toolserver.capabilities.model import ModelRequest, ModelTurn, ToolCall, ToolReply, UserText
from mcp_toolserver.errors import ToolError, Unavailable
from mcp_toolserver.runtime.models.failures import (
    MAX_BYTES,
    ForeignResponse,
    IncompleteAnswer,
    OversizeResponse,
    failure,
    quoted,
)
from mcp_toolserver.runtime.models.model import ModelOptions, estimated_tokens
from mcp_toolserver.runtime.web.client import create_tls_context

log = logging.getLogger(__name__)

CONNECT_SECONDS = 10.0

_SENT = {
    *("host", "connection", "accept", "content-type", "content-length", "transfer-encoding"),
    *("user-agent", "anthropic-version", "anthropic-beta"),
}
"""Headers of the client libraries that are sent. They add others from environment variables, even keys."""

_RETRIES = 2
"""How often a request is repeated after a failure that may pass; nothing of its answer was used before."""

PAUSE_SECONDS = 0.5
"""Before the first repetition; twice as long before the next. The provider may ask for another pause."""

LONGEST_PAUSE = 60.0

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
                    max_retries=0,
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
                    max_retries=0,
                    timeout=timeout,
                )
            )
            # Ollama ignores the newer name of the limit, and OpenAI rejects the older one.
            old_limit = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
            profile = old_limit if options.endpoint.is_loopback else None
            self._model = cache(partial(OpenAIChatModel, provider=provider, profile=profile))

    async def turn(self, model: str, request: ModelRequest) -> ModelTurn:
        """See `Model.turn`; `model` is the provider's name of the model."""
        attempt = 0
        while True:
            try:
                return self._turn(await self._response(self._model(model), request), request)
            except ToolError:
                raise
            except Exception as error:  # noqa: BLE001  what the libraries raise holds the address
                failed = failure(error, self._options)
            pause = PAUSE_SECONDS * 2**attempt if failed.pause is None else failed.pause
            left = anyio.current_effective_deadline() - anyio.current_time()
            if attempt == _RETRIES or not failed.may_pass or pause > min(LONGEST_PAUSE, left):
                log.warning("%s", failed.error)
                raise failed.error
            attempt += 1
            log.info("request repeated in %g s: %s", pause, failed.error)
            await anyio.sleep(pause)

    def _turn(self, response: messages.ModelResponse, request: ModelRequest) -> ModelTurn:
        """Raises: Unavailable: the response is no complete answer."""
        text = "".join(part.content for part in response.parts if isinstance(part, messages.TextPart))
        calls = tuple(
            ToolCall(id=part.tool_call_id, name=part.tool_name, arguments=_arguments(part))
            for part in response.parts
            if isinstance(part, messages.ToolCallPart)
        )
        details, reason = response.provider_details or {}, response.finish_reason
        if reason == "content_filter":
            why = quoted(details.get("refusal") or details.get("explanation"), self._options)
            raise _logged(f"The model's provider withheld the answer (content filter). Change the task.{why}")
        if reason not in ("stop", "length", "tool_call") or (reason == "tool_call" and not calls):
            why = quoted(details.get("finish_reason"), self._options)
            raise _logged(f"The model stopped before its answer was complete. Try again.{why}")
        if not response.usage.input_tokens + response.usage.output_tokens:
            # Some servers do not count.
            into, out = estimated_tokens(request, text, calls)
            response.usage = RequestUsage(input_tokens=into, output_tokens=out)
        return ModelTurn(
            text=text,
            calls=calls,
            input_tokens=_charged(response),
            output_tokens=response.usage.output_tokens,
            cost=self._cost(response),
            is_cut=reason == "length",
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
        # The library fills in a reason where a stream of chat completions has none.
        if response.finish_reason != "content_filter" and not (response.provider_details or {}).get(
            "finish_reason"
        ):
            raise IncompleteAnswer("no finish reason")
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


def _logged(why: str) -> Unavailable:
    log.warning("%s", why)
    return Unavailable(why)


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
