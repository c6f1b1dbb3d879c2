"""The real server with one more tool: `delegate`, whose work the operator's or the client's model does.

`python -m tests.agents.sampling_server` takes the flags of the server.
"""

from dataclasses import replace
from typing import Any

import anyio

from mcp_toolserver.app import compose
from mcp_toolserver.app.compose import Application
from mcp_toolserver.capabilities.model import Message, Model, ModelRequest, ModelTool, ToolReply, UserText
from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.errors import ToolError
from mcp_toolserver.pipeline.registry import Entry, Registry
from mcp_toolserver.runtime.host_services import HostServices, ServiceRequest
from mcp_toolserver.tool import Args, Field, Output, Runtime
from mcp_toolserver.tool_spec import Limits, ToolSpec

SYSTEM = "You are an agent of a test."

TOOL = ModelTool(
    name="look", description="Looks at a thing.", schema={"type": "object", "properties": {"at": {}}}
)


class Delegate(Args):
    task: str = Field(description="What to do.")
    agents: int = Field(1, description="How many work on it at the same time.")
    later: bool = Field(False, description="Whether to work on it after the call.")
    model: str = Field("", description="The name of the model.")
    hangs: bool = Field(False, description="Whether to do nothing, without end.")


class Delegation:
    """Runs agents in the simplest way."""

    def __init__(self, request: ServiceRequest, app: Application) -> None:
        self.request = request
        self.app = app

    async def work(self, args: Delegate, rt: Runtime) -> str:
        model = self.app.shared.model or self.request.user.caller.sampling()
        assert model is not None
        if args.later:
            detached = self.request.calls.detached(owner="later", name="later").caller.sampling()
            assert detached is model
            self.app.background.start(lambda: self._later(model, args, rt), name="later")
            return "started"
        said: list[str] = []

        async def one(number: int) -> None:
            said.append(await self._one(model, args, f"{args.task} {number}", rt))

        try:
            if args.hangs:
                LATER.answered.set()
                await anyio.sleep_forever()
            async with anyio.create_task_group() as tasks:
                for number in range(args.agents):
                    tasks.start_soon(one, number)
        finally:
            LATER.ended.set()
        return "\n".join(sorted(said))

    async def _one(self, model: Model, args: Delegate, task: str, rt: Runtime) -> str:
        messages: list[Message] = [UserText(task)]
        turns = 0
        try:
            while True:
                await rt.report(f"turn {turns + 1}")
                turn = await model.turn(
                    ModelRequest(system=SYSTEM, messages=tuple(messages), tools=(TOOL,), model=args.model)
                )
                turns += 1
                if not turn.calls:
                    return f"{turn.text} after {turns} turns, tokens: {turn.input_tokens > 0}"
                replies = (
                    ToolReply(id=call.id, name=call.name, text=f"seen {call.arguments}", is_error=False)
                    for call in turn.calls
                )
                messages += [turn, tuple(replies)]
        except ToolError as error:
            return f"{error.kind} after {turns} turns: {error}"

    async def _later(self, model: Model, args: Delegate, rt: Runtime) -> None:
        await LATER.answered.wait()
        LATER.said = await self._one(model, args, "later", rt)
        LATER.ended.set()


class Later:
    """What agents do, for servers in the test's own process."""

    def __init__(self) -> None:
        self.answered = anyio.Event()
        """The test sets it when a call with `later` is answered, and a call that hangs when it begins."""
        self.ended = anyio.Event()
        self.said = ""


LATER = Later()


async def _delegate(args: Delegate, rt: Runtime) -> Output:
    return Output(await rt.services[Capability.AGENTS].work(args, rt))


ENTRY = Entry(
    ToolSpec(
        name="delegate",
        description="Has an agent do something.",
        permission=Permission.DANGER_FULL_ACCESS,
        needs=frozenset({Capability.AGENTS}),
        args=Delegate,
        run=_delegate,
        subjects=lambda _: (),
        kind="other",
        limits=Limits(deadline=60.0),
        may_be_long=True,
    ),
    toolset="tests",
)


def with_delegate(app: Application) -> Application:
    """The application with the tool."""
    own, host = app.dispatcher, app.dispatcher.host
    assert isinstance(host, HostServices)
    registry = Registry((*own.registry.entries.values(), ENTRY))
    providers = {
        **host.providers,
        Capability.AGENTS: lambda request: Delegation(request, app),
    }
    dispatcher = replace(
        own,
        registry=registry,
        offered=own.offered | {ENTRY.spec.name},
        without_model=frozenset() if app.shared.facts.agent_model else registry.needing_a_model(),
        host=replace(host, providers=providers),
    )
    return replace(app, dispatcher=dispatcher)


def main() -> None:
    """Serve."""
    build = compose.build_application

    def built(*given: Any, **named: Any) -> Application:
        return with_delegate(build(*given, **named))

    compose.build_application = built
    from mcp_toolserver.main import main as serve

    serve()


if __name__ == "__main__":
    main()
