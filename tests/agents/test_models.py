"""The operator's model over both wire formats, on loopback.

What is sent is checked against the types that the official packages publish.
"""

import json
import logging
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from importlib import import_module
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import jsonschema
import pytest
from pydantic import TypeAdapter

from mcp_toolserver.capabilities.model import (
    ModelRequest,
    ModelTool,
    ModelTurn,
    ToolCall,
    ToolReply,
    UserText,
)
from mcp_toolserver.errors import Unavailable
from mcp_toolserver.runtime.models.failures import quoted
from mcp_toolserver.runtime.models.model import OPERATOR, ModelOptions, ProviderModel, ProviderName, endpoint
from tests.client_programs.scripted_model import Answer, Call, ChatCompletions, Messages, scripted_model
from tests.web.web import Reply, Site, site

KEY = "sk-canary-0123456789"

PROVIDERS: tuple[ProviderName, ...] = ("anthropic", "openai")

PREFIX: Mapping[ProviderName, str] = {"anthropic": "", "openai": "/v1"}
PATH: Mapping[ProviderName, str] = {"anthropic": "/v1/messages", "openai": "/v1/chat/completions"}
FORMATS: Mapping[ProviderName, Messages | ChatCompletions] = {
    "anthropic": Messages(),
    "openai": ChatCompletions(),
}
PUBLISHED: Mapping[ProviderName, tuple[str, str]] = {
    "anthropic": ("anthropic.types.message_create_params", "MessageCreateParamsStreaming"),
    "openai": ("openai.types.chat.completion_create_params", "CompletionCreateParamsStreaming"),
}
"""Module and name. Each module takes seconds to import, which only the test that reads it should cost."""

LOOK = ModelTool(
    name="look",
    description="Looks at a thing.",
    schema={"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
)
FIRST = ModelRequest(system="Be brief.", messages=(UserText("Look."),), tools=(LOOK,), max_tokens=100)

both = pytest.mark.parametrize("provider", PROVIDERS)


@asynccontextmanager
async def model(provider: ProviderName, url: str, **given: Any) -> AsyncGenerator[ProviderModel]:
    options = ModelOptions(
        provider=provider,
        endpoint=endpoint(provider, url + PREFIX[provider], has_key=True),
        **{"key": KEY, "model": "a-model", "seconds": 20.0, **given},
    )
    made = ProviderModel(options)
    try:
        yield made
    finally:
        await made.aclose()


@cache
def schema_of(provider: ProviderName) -> dict[str, Any]:
    """The published type of a request, without fields that it does not name."""
    module, name = PUBLISHED[provider]
    schema = TypeAdapter(getattr(import_module(module), name)).json_schema()
    for definition in (schema, *schema["$defs"].values()):
        if "properties" in definition:
            definition["additionalProperties"] = False
    return schema


NAMES: Mapping[ProviderName, str] = {"anthropic": "claude-sonnet-5-5", "openai": "gpt-5"}
BROKEN_CALL = ToolCall(id="broken", name="look", arguments="{")


@pytest.mark.long  # the official packages take seconds to import
@both
@pytest.mark.parametrize("known", [True, False])
async def test_requests_are_those_that_the_official_package_describes(
    provider: ProviderName, known: bool
) -> None:
    schema, name = schema_of(provider), NAMES[provider] if known else "x"
    script = [Call(tool="look", arguments={"at": "a"}), Call(tool="look", arguments={"at": "b"})]
    with scripted_model(script) as played:
        async with model(provider, played.url, model=name, models={"Explore": "small"}) as asked:
            first = await asked.turn(FIRST)
            [call] = first.calls
            assert (call.name, call.arguments) == ("look", {"at": "a"})
            replies = (ToolReply(id=call.id, name="look", text="nothing\nthere", is_error=True),)
            more = ModelRequest(
                system="Be brief.",
                messages=(
                    *FIRST.messages,
                    first,
                    replies,
                    ModelTurn(text=""),
                    ModelTurn(text="I look again", calls=(BROKEN_CALL, *first.calls)),
                    (ToolReply(id="broken", name="look", text="no JSON", is_error=True), *replies),
                ),
                tools=(LOOK,),
                agent_type="Explore",
            )
            last = await asked.turn(more)
            plain = await asked.turn(ModelRequest(system="", messages=(UserText("x"),)))
    assert (last.text, last.calls, plain.text) == ("done", (), "done")
    assert min(last.input_tokens, last.output_tokens) > 0
    bodies = [request.body for request in played.requests]
    assert [body["model"] for body in bodies] == [name, "small"]
    for body in bodies:
        assert body["stream"]
        jsonschema.validate(body, schema)
    assert "nothing" in played.requests[1].results[0]


def served(provider: ProviderName, route: Callable[[Reply], None]) -> Any:
    return site({PATH[provider]: route})


def stream(provider: ProviderName, answer: Answer | None = None) -> list[dict[str, Any]]:
    return list(FORMATS[provider].events(answer or Answer(number=1), {}))


def sent(reply: Reply, events: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> None:
    parts = (
        (f"event: {event['type']}\n" if "type" in event else "") + f"data: {json.dumps(event)}\n\n"
        for event in events
    )
    reply.pour((part.encode() for part in parts), kind="text/event-stream")


@both
async def test_a_request_has_the_key_and_nothing_from_the_environment(
    provider: ProviderName, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC", "OPENAI"):
        monkeypatch.setenv(f"{name}_API_KEY", "foreign-key")
        monkeypatch.setenv(f"{name}_CUSTOM_HEADERS", "x-foreign: foreign-header")
        monkeypatch.setenv(f"{name}_BASE_URL", "http://127.0.0.1:9")
        monkeypatch.setenv(f"{name}_LOG", "debug")
    monkeypatch.setenv("OPENAI_ORG_ID", "foreign-organization")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "foreign-admin")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with served(provider, lambda reply: sent(reply, stream(provider))) as at:
        async with model(provider, at.url) as asked:
            await asked.turn(FIRST)
        async with model(provider, at.url, key="") as asked:
            await asked.turn(FIRST)
    with_key, without = (request.headers for request in at.asked)
    header = "x-api-key" if provider == "anthropic" else "authorization"
    assert with_key[header].removeprefix("Bearer ") == KEY
    assert not {"x-api-key", "authorization"} & without.keys()
    assert "foreign" not in str(at.asked)
    assert with_key["accept-encoding"] == "identity"


@both
async def test_an_error_is_shown_and_logged_in_the_words_of_the_provider(
    provider: ProviderName, caplog: pytest.LogCaptureFixture
) -> None:
    """The client libraries log nothing of it. What must not be shown is left out."""
    caplog.set_level(logging.DEBUG)

    def fail(reply: Reply) -> None:
        at = f"127.0.0.1:{reply.site.port}"
        words = (
            f"\u200bkey {KEY}, ({KEY[4:14]}) or sk-p...345 at {at} http://{at}/v1 secret=abc " + "x. " * 900
        )
        reply.say(json.dumps({"error": {"type": "an_error", "message": words}}), status=403)

    with served(provider, fail) as at:
        async with model(provider, at.url) as asked:
            with pytest.raises(Unavailable) as caught:
                await asked.turn(FIRST)
    shows_nothing(caught.value, at)
    said = str(caught.value)
    shown = "\\u{200b}key [redacted] [redacted] or [redacted] at [address] [address] secret=[redacted] x. x."
    assert (
        f'the key may not use this model. {OPERATOR} check the key and model of [agent]. It says: "{shown}'
        in said
    )
    assert len(said) < 600
    assert said in caplog.text
    assert KEY not in caplog.text
    assert str(at.port) not in caplog.text
    at = endpoint(provider, "https://Gate.example/tenant/v1", has_key=True)
    options = ModelOptions(provider=provider, endpoint=at, model="")
    assert quoted("GATE.EXAMPLE:8 has no /tenant/v1/x", options) == ' It says: "[address] has no [address]/x"'


def shows_nothing(error: BaseException, at: Site) -> None:
    assert KEY not in str(error)
    assert str(at.port) not in str(error)
    assert "127.0.0.1" not in str(error)
    # A log would show a cause.
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__


@both
async def test_cancelling_a_turn_closes_its_connection(provider: ProviderName) -> None:
    begun, gone = anyio.Event(), anyio.Event()

    def slow(reply: Reply) -> None:
        def parts() -> Iterator[bytes]:
            while not at.closing.wait(0.01):
                anyio.from_thread.run_sync(begun.set, token=token)
                yield b": still here\n\n"

        reply.pour(parts(), kind="text/event-stream")
        anyio.from_thread.run_sync(gone.set, token=token)

    token = anyio.lowlevel.current_token()
    with served(provider, slow) as at:
        async with model(provider, at.url) as asked, anyio.create_task_group() as tasks:
            tasks.start_soon(asked.turn, FIRST)
            with anyio.fail_after(10):
                await begun.wait()
                tasks.cancel_scope.cancel()
        with anyio.fail_after(10):
            await gone.wait()


@both
async def test_nobody_at_the_address_is_an_error(provider: ProviderName) -> None:
    with site() as at:
        pass
    async with model(provider, at.url) as asked:
        with pytest.raises(Unavailable, match="cannot be reached") as caught:
            await asked.turn(FIRST)
    shows_nothing(caught.value, at)


@both
async def test_what_the_provider_has_seen_before_counts_a_tenth(provider: ProviderName) -> None:
    used = {"input_tokens": 100, "cache_read_input_tokens": 900, "output_tokens": 1}
    if provider == "openai":
        details = {"prompt_tokens_details": {"cached_tokens": 900}}
        used = {"prompt_tokens": 1_000, "completion_tokens": 1, "total_tokens": 1_001, **details}

    def cached(reply: Reply) -> None:
        first, *more = re.split(r'(?<="usage": )\{[^}]*\}', json.dumps(stream(provider, Answer(number=1))))
        # This format counts what every chunk has.
        again = "null" if provider == "openai" else json.dumps(used)
        sent(reply, json.loads(first + json.dumps(used) + again.join(more)))

    with served(provider, cached) as at:
        async with model(provider, at.url, prices=(1e6, 1e6)) as asked:
            turn = await asked.turn(FIRST)
    assert (turn.input_tokens, turn.cost) == (190, 191)


@both
async def test_the_cost_is_known_from_prices(provider: ProviderName) -> None:
    name = "claude-sonnet-5-5" if provider == "anthropic" else "gpt-4.1"
    with scripted_model([]) as played:
        async with model(provider, played.url, prices=(1e6, 2e6)) as asked:
            turn = await asked.turn(FIRST)
            assert turn.cost == turn.input_tokens + 2 * turn.output_tokens
        async with model(provider, played.url, model=name) as asked:
            assert 0 < ((await asked.turn(FIRST)).cost or 0) < 0.001
        async with model(provider, played.url) as asked:
            assert (await asked.turn(FIRST)).cost is None
