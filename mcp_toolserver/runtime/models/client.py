"""Asks a provider for one turn, through the clients of Pydantic AI. Importing this module takes seconds."""

import logging
from collections.abc import Iterator, Mapping, Sequence

import httpx2
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_ai import direct, messages, models
from pydantic_ai.models.anthropic import AnthropicModel, AnthropicModelSettings
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from mcp_toolserver.capabilities.model import ModelRequest, ModelTurn, ToolCall, ToolReply, UserText
from mcp_toolserver.errors import ToolError
from mcp_toolserver.runtime.models.failures import ended_early, tool_error, withheld
from mcp_toolserver.runtime.models.options import ModelOptions
from mcp_toolserver.runtime.models.transport import CONNECT_SECONDS, http_client
from mcp_toolserver.runtime.web.transport import create_tls_context

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
        self._http = http_client(options, create_tls_context())
        self._models: dict[str, models.Model] = {}
        timeout = httpx2.Timeout(options.seconds, connect=CONNECT_SECONDS)
        # With an empty key the clients would look for one in the environment; the transport sends no other.
        key, url = options.key or "none", options.endpoint.url
        if options.provider == "anthropic":
            self._anthropic = AnthropicProvider(
                anthropic_client=AsyncAnthropic(
                    api_key=key,
                    base_url=url,
                    http_client=self._http,
                    max_retries=_RETRIES,
                    timeout=timeout,
                    open_telemetry=False,
                )
            )
        else:
            self._openai = OpenAIProvider(
                openai_client=AsyncOpenAI(
                    api_key=key, base_url=url, http_client=self._http, max_retries=_RETRIES, timeout=timeout
                )
            )

    async def turn(self, model: str, request: ModelRequest) -> ModelTurn:
        """See `Model.turn`; `model` is the provider's name of the model."""
        try:
            response = await self._response(self._model(model), request)
        except ToolError:
            raise
        except Exception as error:  # noqa: BLE001  whatever a response makes the libraries raise holds the address
            raise tool_error(error) from None
        return self._turn(response)

    async def aclose(self) -> None:
        """Close every connection."""
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
            raise withheld()
        if response.finish_reason is None:
            raise ended_early()
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

    def _model(self, name: str) -> models.Model:
        if name not in self._models:
            self._models[name] = (
                AnthropicModel(name, provider=self._anthropic)
                if self._options.provider == "anthropic"
                else OpenAIChatModel(name, provider=self._openai)
            )
        return self._models[name]

    def _turn(self, response: messages.ModelResponse) -> ModelTurn:
        texts = [part.content for part in response.parts if isinstance(part, messages.TextPart)]
        calls = [part for part in response.parts if isinstance(part, messages.ToolCallPart)]
        return ModelTurn(
            text="".join(texts),
            calls=tuple(
                ToolCall(id=call.tool_call_id, name=call.tool_name, arguments=_arguments(call))
                for call in calls
            ),
            input_tokens=response.usage.input_tokens,
            output_tokens=response.usage.output_tokens,
            cost=self._cost(response),
        )

    def _cost(self, response: messages.ModelResponse) -> float | None:
        if (prices := self._options.prices) is not None:
            usage = response.usage
            return (usage.input_tokens * prices[0] + usage.output_tokens * prices[1]) / 1e6
        try:
            return float(response.cost().total_price)
        except (LookupError, ValueError, AssertionError):
            return None


def _history(request: ModelRequest) -> Iterator[messages.ModelMessage]:
    """The conversation in the library's form."""
    for message in request.messages:
        if isinstance(message, ModelTurn):
            if parts := list(_response_parts(message)):
                yield messages.ModelResponse(parts=parts)
        else:
            yield messages.ModelRequest(parts=_request_parts(message), instructions=request.system or None)


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


def _response_parts(turn: ModelTurn) -> Iterator[messages.ModelResponsePart]:
    if turn.text:
        yield messages.TextPart(content=turn.text)
    for call in turn.calls:
        arguments = call.arguments if isinstance(call.arguments, str) else dict(call.arguments)
        yield messages.ToolCallPart(tool_name=call.name, args=arguments, tool_call_id=call.id)


def _arguments(call: messages.ToolCallPart) -> Mapping[str, JsonValue] | str:
    text = call.args if isinstance(call.args, str) else call.args_as_json_str()
    try:
        return _OBJECT.validate_json(text or "{}")
    except ValidationError:
        return text
