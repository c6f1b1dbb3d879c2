"""A dispatcher on a real folder, with tools made for the test or the real ones."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import anyio

from mcp_toolserver.app.policy import rule_context
from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.capabilities.model import Model
from mcp_toolserver.capabilities.permissions import Capability, Permission, Reason
from mcp_toolserver.capabilities.user import Answers, ForeignQuestion, Question
from mcp_toolserver.errors import NobodyToAsk
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.pipeline.registry import Entry, Registry, discover
from mcp_toolserver.policy.client_restrictions import ClientRestrictions
from mcp_toolserver.policy.rules import Policy, Rules, parse
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.host_services import Available, HostServices, Provide
from mcp_toolserver.stores.file_history import FileHistories
from mcp_toolserver.stores.saved_outputs import OutputStore
from mcp_toolserver.tool_spec import Args, Kind, Limits, Output, Runtime, ToolSpec

Permissions = Mapping[Capability, Permission]


def required(*needs: Capability) -> Permissions:
    """The permissions that `needs` require where only the server's process enforces them."""
    return {need: need.permission for need in needs}


FILES = required(Capability.FS_READ, Capability.FS_WRITE)
"""A host that has files and nothing else."""
NO_PROVIDERS: Mapping[Capability, Provide] = {}


@dataclass
class Person:
    """A caller who gives prepared answers and remembers the questions."""

    says: bool | None = False
    """None where the client cannot ask."""
    works_in: Sequence[str] | None = None
    asked: list[str] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    answers: Answers | None = None
    """What they say to a tool's questions; None when nobody is there."""
    questions: list[Question] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    name: str = "a test"
    owner: str = LOCAL
    confines_itself_to: ClientRestrictions | None = None
    model: Model | None = None

    async def ask(self, question: str) -> bool | None:
        self.asked.append(question)
        return self.says

    async def elicit(self, questions: Sequence[Question]) -> Answers:
        if self.answers is None:
            raise NobodyToAsk
        self.questions += questions
        return self.answers

    async def forward(self, question: ForeignQuestion) -> None:
        raise NobodyToAsk

    async def tell(self, message: str) -> bool:
        self.messages.append(message)
        return True

    async def report(self, message: str) -> None:
        self.heard.append(message)

    async def roots(self) -> Sequence[Sequence[str]]:
        return () if self.works_in is None else (self.works_in,)

    def restrictions(self) -> ClientRestrictions | None:
        return self.confines_itself_to

    def sampling(self) -> Model | None:
        return self.model


def tool(
    run: Callable[..., Awaitable[Output]],
    args: type[Args] = Args,
    *,
    name: str = "probe",
    permission: Permission = Permission.READ_ONLY,
    needs: Iterable[Capability] = (),
    subjects: Callable[..., tuple[str, ...]] = lambda _: (),
    script: Callable[..., str] = lambda _: "",
    kind: Kind = "read",
    limits: Limits = Limits(deadline=5.0),  # noqa: B008  frozen
    may_be_long: bool = False,
) -> Entry:
    spec = ToolSpec(
        name=name,
        description="A tool for a test.",
        permission=permission,
        needs=frozenset(needs),
        args=args,
        run=run,
        kind=kind,
        subjects=subjects,
        script=script,
        limits=limits,
        may_be_long=may_be_long,
    )
    return Entry(spec, toolset="tests")


def machine(
    folder: Path, permissions: Permissions = FILES, hides: Callable[[tuple[str, ...]], bool] | None = None
) -> HostServices:
    """This machine, with `folder/root` as the one root."""
    (folder / "root").mkdir(exist_ok=True)
    outputs, histories = OutputStore(str(folder / "state")), FileHistories(str(folder / "state"))
    workspace = Workspace([str(folder / "root")], hides=hides or (lambda _: False))
    host = HostServices(permissions={}, view=lambda: workspace, outputs=outputs, histories=histories)
    return with_services(host, permissions)


def with_services(
    host: HostServices, permissions: Permissions, providers: Mapping[Capability, Provide] = NO_PROVIDERS
) -> HostServices:
    """The same host with exactly these capabilities, and with these providers added to its own."""
    missing = [need for need in Capability if need not in permissions]
    return replace(
        host,
        permissions=permissions,
        in_mode=lambda _: Available(permissions=permissions),
        unavailable=dict.fromkeys(missing, Reason("configuration", "the test leaves it out")),
        providers={**host.providers, **providers},
    )


@cache
def real_tools() -> Registry:
    """All the tools of the server's own: what a test does with a registry does not change it."""
    return Registry(discover())


def dispatcher(
    host: HostServices,
    *entries: Entry,
    ceiling: Permission = Permission.DANGER_FULL_ACCESS,
    granted: Permission | None = None,
    deny: Iterable[str] = (),
    ask: Iterable[str] = (),
    allow: Iterable[str] = (),
    offered: Iterable[str] | None = None,
) -> Dispatcher:
    """A dispatcher of `entries`, or of all the real tools."""
    registry = Registry(entries) if entries else real_tools()
    words = rule_context(registry)
    rules = [Rules(parse(text, words) for text in texts) for texts in (deny, ask, allow)]
    policy = Policy(
        ceiling=ceiling,
        granted=ceiling if granted is None else granted,
        deny=rules[0],
        ask=rules[1],
        allow=rules[2],
    )
    return Dispatcher(
        registry=registry,
        offered=frozenset(registry.entries if offered is None else offered),
        policy=policy,
        host=host,
    )


async def call(server: Dispatcher, name: str, person: Person | None = None, **arguments: Any) -> Result:
    """A call that must come back."""
    with anyio.fail_after(30):
        return await server.call(name, arguments, person or Person())


__all__ = [
    "Args",
    "Capability",
    "Limits",
    "Output",
    "Person",
    "Runtime",
    "call",
    "dispatcher",
    "machine",
    "tool",
]
