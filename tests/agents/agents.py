"""A server with agents, and a model API on loopback whose answers a test writes.

The API is that of OpenAI's chat completions, streamed, so the server's real client speaks to it. A script is
found by the first message of a conversation, and its turn by how many turns the conversation has already.
"""

import json
import re
import shutil
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import anyio
from anyio import to_thread

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.runtime.agents.agents import CallAgents
from tests.support.workbench import Person
from tests.support.workshop import granted, workshop
from tests.web.web import Reply, Site, site

PATIENCE = 60.0
"""Seconds that a test waits for what must come."""

HANDLE = re.compile(r"agent_[0-9a-f]{12}")


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call that the model makes; arguments as a text are sent as they are."""

    tool: str
    arguments: Mapping[str, object] | str = field(default_factory=dict[str, object])


def bash(command: str, *, background: bool = False) -> Call:
    return Call(tool="bash", arguments={"command": command, "run_in_background": background})


@dataclass(frozen=True)
class Says:
    """One turn of the model."""

    text: str = ""
    calls: Sequence[Call] = ()
    tokens: tuple[int, int] = (10, 5)
    """In and out."""
    after: threading.Event | None = None
    """The turn comes once this is set."""
    status: int = 200
    """With one of an error, the text is the code and the message of the error."""
    is_cut: bool = False
    """Whether it ends at its limit of tokens."""


@dataclass
class Request:
    """What the server sent."""

    prompt: str
    """The first message, which names the script."""
    system: str
    model: str
    tools: tuple[str, ...]
    results: tuple[str, ...]
    """The results of calls so far."""
    said: tuple[str, ...]
    """All messages that are no results, in order."""
    characters: int
    """Of everything that it holds."""


Script = Sequence[Says] | Callable[[Request], Says]
"""The turns of a conversation, or what makes them from the requests."""


@dataclass
class Model:
    """A running model API."""

    url: str
    scripts: Mapping[str, Script]
    asked_of: Site | None = None
    """Where its requests come in."""
    requests: list[Request] = field(default_factory=list[Request])
    asked: threading.Condition = field(default_factory=threading.Condition)

    async def has_been_asked(self, times: int, prompt: str) -> None:
        """Wait until that many requests with this prompt have come."""

        def wait() -> bool:
            with self.asked:
                return self.asked.wait_for(lambda: len(self.of(prompt)) >= times, PATIENCE)

        assert await to_thread.run_sync(wait)

    def of(self, prompt: str) -> list[Request]:
        """The requests of the conversations whose prompt begins like this."""
        return [one for one in self.requests if one.prompt.startswith(prompt)]

    def answer(self, body: dict[str, Any]) -> Says:
        """The next turn of the conversation."""
        messages: list[dict[str, Any]] = body["messages"]
        users = [str(one["content"]) for one in messages if one["role"] == "user"]
        turns = sum(one["role"] == "assistant" for one in messages)
        request = Request(
            prompt=users[0],
            system="".join(str(one["content"]) for one in messages if one["role"] == "system"),
            model=body["model"],
            tools=tuple(tool["function"]["name"] for tool in body.get("tools") or ()),
            results=tuple(str(one["content"]) for one in messages if one["role"] == "tool"),
            said=tuple(str(one.get("content")) for one in messages if one["role"] in ("user", "assistant")),
            characters=len(json.dumps([messages, body.get("tools")])),
        )
        with self.asked:
            self.requests.append(request)
            self.asked.notify_all()
        script = self._script(users[0])
        says = script(request) if callable(script) else script[turns]
        if says.after is not None:
            assert says.after.wait(PATIENCE)
        return says

    def _script(self, prompt: str) -> Script:
        """That of the prompt, or of its beginning, because the server adds to the prompt of a member."""
        return next(script for start, script in self.scripts.items() if prompt.startswith(start))


@contextmanager
def model_api(scripts: Mapping[str, Script], host: str = "127.0.0.1") -> Generator[Model]:
    """A model API on a free port of loopback."""

    def route(reply: Reply) -> None:
        says = model.answer(json.loads(reply.asked.body))
        content = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in _chunks(says)) + "data: [DONE]\n\n"
        if says.status != 200:
            error = {"message": says.text or "refused", "type": "error", "code": says.text}
            content = json.dumps({"error": error})
        reply.say(content, status=says.status, kind="text/event-stream")

    with site({"/v1/chat/completions": route}, at=(host, 0)) as at:
        model = Model(f"http://{host}:{at.port}/v1", scripts, asked_of=at)
        yield model


def _chunks(says: Says) -> Generator[dict[str, Any]]:
    head = {"id": "chat", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    calls: list[dict[str, Any]] = []
    for index, call in enumerate(says.calls):
        given = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
        function = {"name": call.tool, "arguments": given}
        calls.append({"index": index, "id": f"call_{index}", "type": "function", "function": function})
    delta = {"role": "assistant", "content": says.text or None, **({"tool_calls": calls} if calls else {})}
    yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    reason = "length" if says.is_cut else "tool_calls" if calls else "stop"
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    into, out = says.tokens
    usage = {"prompt_tokens": into, "completion_tokens": out, "total_tokens": into + out}
    yield {**head, "choices": [], "usage": usage}


@dataclass
class Agents:
    """A server with agents, their model, and the root."""

    server: Dispatcher
    model: Model
    root: Path

    def plays(self, scripts: Mapping[str, Script]) -> Self:
        """The same server for the next test: its root is empty, and its model follows these scripts."""
        for path in self.root.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        self.model.scripts = scripts
        self.model.requests.clear()
        return self

    @property
    def jobs(self) -> CallAgents:
        """The background jobs of the one client."""
        found = granted(self.server, Capability.AGENTS).agents
        assert isinstance(found, CallAgents)
        return found

    async def call(self, tool: str, person: Person | None = None, /, **arguments: Any) -> Result:
        """The result of a call."""
        with anyio.fail_after(PATIENCE):
            return await self.server.call(tool, arguments, person or Person())

    async def agent(self, prompt: str, person: Person | None = None, /, **arguments: Any) -> Result:
        """The result of a call of Agent."""
        return await self.call("Agent", person, description="a test", prompt=prompt, **arguments)


@asynccontextmanager
async def agents(
    folder: Path,
    scripts: Mapping[str, Script],
    mode: Permission = Permission.WORKSPACE_WRITE,
    **settings: Any,
) -> AsyncGenerator[Agents]:
    """A server on `folder/root` with all tools, in the sandbox of its mode."""
    with model_api(scripts) as model:
        given = {
            "agent_provider": "openai",
            "agent_base_url": model.url,
            "agent_model": "scripted",
            **settings,
        }
        async with workshop(folder, mode, **given) as server:
            yield Agents(server=server, model=model, root=folder / "root")
