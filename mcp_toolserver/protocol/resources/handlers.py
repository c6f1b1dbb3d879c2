"""Puts together what answers for resources, prompts and completion; imported when the first is asked for."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp.server.context import ServerRequestContext

from mcp_toolserver.protocol.beside import Beside
from mcp_toolserver.protocol.completions import Completions
from mcp_toolserver.protocol.notices import Notices
from mcp_toolserver.protocol.prompts import OwnPrompts, Prompts
from mcp_toolserver.protocol.resources import Resources
from mcp_toolserver.protocol.sources.files import RootFiles
from mcp_toolserver.protocol.sources.jobs import BackgroundJobs
from mcp_toolserver.protocol.sources.outputs import LongOutputs
from mcp_toolserver.protocol.sources.status import ServerStatus
from mcp_toolserver.protocol.sources.todos import TodoLists

Answer = Callable[[ServerRequestContext[Any, Any], Any], Awaitable[Any]]


@dataclass(frozen=True, kw_only=True)
class Desk:
    """Where requests beside those for tools are answered."""

    answers: Mapping[str, Answer]
    """By method."""
    notices: Notices


def open_desk(beside: Beside) -> Desk:
    """The desk of a server."""
    handlers = beside.handlers
    offered = frozenset(entry.spec.name for entry in handlers.dispatcher.available()).__contains__
    shown, changes = handlers.dispatcher.shown, handlers.changes
    sources = (
        ServerStatus(security=beside.security, settings=beside.settings(), offered=offered),
        TodoLists(changes=changes, offered=offered),
        BackgroundJobs(changes=changes, offered=offered),
        LongOutputs(outputs=beside.outputs, changes=changes, shown=shown),
        RootFiles(roots=beside.roots, offered=offered),
        *beside.sources,
    )
    resources = Resources(handlers=handlers, sources=sources)
    spoken = (OwnPrompts(offered=offered, shown=shown), *beside.prompts)
    prompts = Prompts(spoken)
    completions = Completions(handlers=handlers, sources=sources, prompts=spoken)
    notices = Notices(handlers.owners, beside.changing, resources.watched, beside.further)
    return Desk(
        answers={
            "resources/list": resources.list_resources,
            "resources/templates/list": resources.list_templates,
            "resources/read": resources.read,
            "resources/subscribe": notices.subscribe,
            "resources/unsubscribe": notices.unsubscribe,
            "subscriptions/listen": notices.listen,
            "prompts/list": prompts.list_prompts,
            "prompts/get": prompts.get,
            "completion/complete": completions.complete,
        },
        notices=notices,
    )
