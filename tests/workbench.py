"""A dispatcher on a real folder, with tools made for the test or the real ones."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mcp_toolserver.assembly import vocabulary
from mcp_toolserver.capabilities.human import Answers, Question
from mcp_toolserver.capabilities.prices import PRICES, Capability, Permission, Prices
from mcp_toolserver.dispatch import Dispatcher
from mcp_toolserver.errors import NobodyToAsk
from mcp_toolserver.policy.narrowing import Narrowing
from mcp_toolserver.policy.rules import Policy, parse
from mcp_toolserver.policy.watchdog import commands
from mcp_toolserver.registry import Entry, Registry, discover
from mcp_toolserver.runtime.fs import Workspace
from mcp_toolserver.runtime.grant import Machine
from mcp_toolserver.spec import Args, Kind, Limits, Output, Runtime, ToolSpec
from mcp_toolserver.stores.outputs import Outputs

FILE_PRICES: Prices = {need: PRICES[need] for need in (Capability.FS_READ, Capability.FS_WRITE)}
"""A host that has files and nothing else."""


@dataclass
class Person:
    """A caller who answers questions as told and remembers what was asked."""

    says: bool = False
    works_in: Sequence[str] | None = None
    asked: list[str] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    answers: Answers | None = None
    """What they say to a tool's questions; None when nobody is there."""
    questions: list[Question] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    name: str = "a test"
    confines_itself_to: Narrowing | None = None

    async def ask(self, question: str) -> bool:
        self.asked.append(question)
        return self.says

    async def elicit(self, questions: Sequence[Question]) -> Answers:
        if self.answers is None:
            raise NobodyToAsk
        self.questions += questions
        return self.answers

    async def tell(self, message: str) -> None:
        self.told.append(message)

    async def report(self, message: str) -> None:
        self.heard.append(message)

    async def roots(self) -> Sequence[str] | None:
        return self.works_in

    def narrowing(self) -> Narrowing | None:
        return self.confines_itself_to


def tool(
    run: Callable[..., Awaitable[Output]],
    args: type[Args] = Args,
    *,
    name: str = "probe",
    permission: Permission = Permission.READ_ONLY,
    needs: Iterable[Capability] = (),
    subjects: Callable[..., tuple[str, ...]] = lambda _: (),
    kind: Kind = "read",
    limits: Limits = Limits(deadline=5.0),  # noqa: B008  frozen
    may_be_long: bool = False,
) -> Entry:
    """A tool made for a test."""
    spec = ToolSpec(
        name=name,
        description="A tool for a test.",
        permission=permission,
        needs=frozenset(needs),
        args=args,
        run=run,
        kind=kind,
        subjects=subjects,
        limits=limits,
        may_be_long=may_be_long,
    )
    return Entry(spec, toolset="tests")


def machine(
    folder: Path, prices: Prices = FILE_PRICES, hides: Callable[[tuple[str, ...]], bool] | None = None
) -> Machine:
    """This machine, with `folder/root` as the one root."""
    (folder / "root").mkdir(exist_ok=True)
    outputs = Outputs(str(folder / "state"))
    workspace = Workspace([str(folder / "root")], readable=outputs.folder, hides=hides or (lambda _: False))
    return Machine(
        prices=prices, workspace=workspace, outputs=outputs, search=None, processes=None, jobs=None
    )


def dispatcher(
    host: Machine,
    *entries: Entry,
    ceiling: Permission = Permission.DANGER_FULL_ACCESS,
    granted: Permission | None = None,
    deny: Iterable[str] = (),
    ask: Iterable[str] = (),
    allow: Iterable[str] = (),
    offered: Iterable[str] | None = None,
) -> Dispatcher:
    """A dispatcher of `entries`, or of all the real tools."""
    registry = Registry(entries or discover())
    running = frozenset(name for name, entry in registry.entries.items() if entry.label.kind == "execute")
    words = vocabulary(registry)
    rules = [tuple(parse(text, words) for text in texts) for texts in (deny, ask, allow)]
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
        objections=(commands(running),),
    )


__all__ = ["Args", "Capability", "Limits", "Output", "Person", "Runtime", "dispatcher", "machine", "tool"]
