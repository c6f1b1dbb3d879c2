"""Provides `Containers`."""

import os

from mcp_toolserver.runtime.containers.containers import Containers
from mcp_toolserver.runtime.containers.engine import Engine
from mcp_toolserver.runtime.providers import Provider, ProviderContext

REMOVE_TIMEOUT = 10.0
"""Seconds for a container engine to remove containers, which outlive their client."""


def provider(context: ProviderContext) -> Provider:
    """See `providers`."""
    facts, program = context.facts, context.programs.engine
    assert program is not None
    engine = Engine(
        program=program,
        image=context.container_image,
        network=facts.network == "commands",
        processes=context.bounds.processes,
        memory=context.bounds.memory,
        user=f"{os.getuid()}:{os.getgid()}",
    )
    containers = Containers(context.broker, context.commands, engine, failover=facts.containers == "failover")
    return Provider(
        provide=lambda request: containers.for_call(
            request.workspace, request.workspace.roots, request.scope
        ),
        aclose=containers.aclose,
        needs_commands_to_close=True,
        shutdown_timeout=lambda: REMOVE_TIMEOUT if containers.has_any else 0.0,
    )
