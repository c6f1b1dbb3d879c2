"""Provides the task board, and its tasks as background jobs."""

import logging
from dataclasses import replace
from functools import partial

from mcp_toolserver.capabilities.call_scope import LOCAL, longest_wait
from mcp_toolserver.errors import ToolError
from mcp_toolserver.pipeline import stored_rights
from mcp_toolserver.pipeline.call import Rights
from mcp_toolserver.pipeline.nested_calls import NestedCalls
from mcp_toolserver.runtime.host_services import ServiceRequest
from mcp_toolserver.runtime.providers import Provider, ProviderContext
from mcp_toolserver.runtime.tasks.runner import TaskRunner
from mcp_toolserver.runtime.tasks.service import OwnerTasks
from mcp_toolserver.stores.board import Claim, StoredBoard

log = logging.getLogger(__name__)


def provider(context: ProviderContext) -> Provider:
    """See `providers`."""
    commands, changes = context.commands_or_none, context.changes

    def changed(owner: str, task: str) -> None:
        with changes.on_behalf_of(owner):
            changes.changed("task", task)
        runner.changed()

    def calls_of(claim: Claim) -> NestedCalls:
        """The calls of a task that another server left. What is in force for its owner here applies too."""
        context.narrowings.adopt(claim.id, claim.owner)
        calls = context.calls_of(Rights(), claim.id, f"task {claim.id}")
        return replace(calls, rights=stored_rights.from_json(claim.rights, calls.dispatcher.rules))

    board = StoredBoard(context.database, changed=changed, removed=partial(changes.removed, "task"))
    runner = TaskRunner(
        board,
        context.background,
        commands,
        calls_of=calls_of,
        forget=changes.forget,
        narrowings=context.narrowings,
    )

    def provide(request: ServiceRequest) -> OwnerTasks:
        seconds = request.scope.seconds_to_answer
        return OwnerTasks(
            board=board,
            runner=runner,
            owner=request.scope.owner,
            calls=request.calls,
            longest_wait=longest_wait(seconds, None) if commands is None else commands.longest_wait(seconds),
        )

    def forget(owner: str) -> None:
        if owner != LOCAL and owner in runner.owners:
            runner.owners.discard(owner)
            context.background.start(partial(runner.leave, owner), name="the end of a client's tasks")

    async def aclose() -> None:
        try:
            await board.aclose()
        except ToolError as error:
            log.warning("the end of tasks could not be stored: %s", error)

    return Provider(provide=provide, forget=forget, aclose=aclose, resume=runner.adopt)
