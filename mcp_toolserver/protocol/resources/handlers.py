"""Builds the handlers of resources, prompts and completion; imported with the first request for one."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp.server.context import ServerRequestContext

from mcp_toolserver.protocol.resources.completions import Completions
from mcp_toolserver.protocol.resources.feature import ResourceFeature
from mcp_toolserver.protocol.resources.prompts import OwnPrompts, Prompts
from mcp_toolserver.protocol.resources.resources import Resources
from mcp_toolserver.protocol.resources.skill_prompts import TOOL as SKILL_TOOL
from mcp_toolserver.protocol.resources.skill_prompts import SkillPrompts
from mcp_toolserver.protocol.resources.sources.agents import AgentTranscripts
from mcp_toolserver.protocol.resources.sources.background_commands import BackgroundJobs
from mcp_toolserver.protocol.resources.sources.files import RootFiles
from mcp_toolserver.protocol.resources.sources.saved_outputs import LongOutputs
from mcp_toolserver.protocol.resources.sources.server_status import ServerStatus
from mcp_toolserver.protocol.resources.sources.skills import SkillFiles
from mcp_toolserver.protocol.resources.sources.tasks import BoardTasks
from mcp_toolserver.protocol.resources.sources.todos import TodoLists
from mcp_toolserver.protocol.resources.subscriptions import Subscriptions

Answer = Callable[[ServerRequestContext[Any, Any], Any], Awaitable[Any]]


@dataclass(frozen=True, kw_only=True)
class ResourceHandlers:
    """The handlers of requests for resources, prompts, completion and subscriptions."""

    answers: Mapping[str, Answer]
    """By method."""
    subscriptions: Subscriptions


def build_handlers(feature: ResourceFeature) -> ResourceHandlers:
    """The handlers of a server."""
    handlers = feature.handlers
    offered = frozenset(entry.spec.name for entry in handlers.dispatcher.available()).__contains__
    shown, changes = handlers.dispatcher.shown, handlers.changes
    skill_files = SkillFiles(handlers=handlers, is_offered=offered(SKILL_TOOL))
    sources = (
        ServerStatus(
            security=feature.security,
            settings=feature.settings(),
            is_shared=not handlers.dispatcher.user,
        ),
        TodoLists(changes=changes, offered=offered),
        BackgroundJobs(changes=changes, offered=offered),
        AgentTranscripts(changes=changes, offered=offered),
        BoardTasks(changes=changes, offered=offered),
        LongOutputs(outputs=feature.outputs, changes=changes, shown=shown),
        RootFiles(roots=feature.roots, offered=offered),
        skill_files,
        *feature.sources,
    )
    resources = Resources(handlers=handlers, sources=sources)
    spoken = (OwnPrompts(offered=offered, shown=shown), *feature.prompts)
    skills = SkillPrompts(handlers=handlers, is_offered=offered(SKILL_TOOL))
    prompts = Prompts(spoken, skills)
    completions = Completions(handlers=handlers, sources=sources, prompts=spoken)
    subscriptions = Subscriptions(handlers.client_ids, feature.changing, resources.watched, feature.extra)
    return ResourceHandlers(
        answers={
            "resources/list": resources.list_resources,
            "resources/templates/list": resources.list_templates,
            "resources/read": resources.read,
            "resources/subscribe": subscriptions.subscribe,
            "resources/unsubscribe": subscriptions.unsubscribe,
            "subscriptions/listen": subscriptions.listen,
            "skills/list": skill_files.list_skills,
            "skills/get": skill_files.get_skill,
            "prompts/list": prompts.list_prompts,
            "prompts/get": prompts.get,
            "completion/complete": completions.complete,
        },
        subscriptions=subscriptions,
    )
