"""The server's tools in the process of another program."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Self

from anyio import CancelScope, to_thread

from mcp_toolserver.app import confinement
from mcp_toolserver.app.compose import Application, build_application
from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.custom_tools import BuiltTool, ToolContext, ToolResult
from mcp_toolserver.custom_tools.tool import Payload, context_hooks
from mcp_toolserver.errors import SettingsError, Unavailable
from mcp_toolserver.invocation import embedded
from mcp_toolserver.pipeline.nested_calls import ServerCaller
from mcp_toolserver.pipeline.registry import Entry
from mcp_toolserver.runtime.platform_check import unsupported_reason
from mcp_toolserver.runtime.processes.broker_client import start_standalone_broker
from mcp_toolserver.settings import Raw


class Toolset:
    """The server's tools in this process, for asyncio: iterable inside `async with`, whose end ends all that
    they started.

    A call passes the stages of a server with these settings, with nobody there to ask: mode, rules and roots
    hold, and the kernel confines commands. It does not confine this process, as it does a server's;
    `enforcement` says what holds.
    """

    def __init__(
        self, *, mode: Permission | str, roots: Sequence[str | os.PathLike[str]], **settings: Raw
    ) -> None:
        """`settings` are keys of the config file, with `_` for `-`.

        Raises:
            SettingsError: one is unknown or wrong, or belongs to a transport.
        """
        keys = {key.replace("_", "-"): value for key, value in settings.items()}
        flag = mode.flag if isinstance(mode, Permission) else mode
        paths = [os.fspath(root) for root in roots]
        if why := unsupported_reason() or ("" if paths else "roots: no folder to work in"):
            raise SettingsError(why)
        if keys.keys() & {"permission-mode", "root"}:
            raise SettingsError("give the permission mode as mode, and the folders as roots")
        self._settings = embedded({**keys, "permission-mode": flag, "root": paths})
        confinement.check(self._settings)
        self._app: Application | None = None
        self._tools: tuple[BuiltTool, ...] = ()

    async def __aenter__(self) -> Self:
        """Start the broker, which starts commands.

        Raises:
            SettingsError: a setting cannot be kept on this machine.
        """
        if self._app is not None:
            raise RuntimeError("this toolset is open already")
        app = self._app = await to_thread.run_sync(self._application)
        try:
            listed = app.dispatcher.listed()
            choices = await app.dispatcher.described_choices({entry.spec.name for entry in listed})
            self._tools = tuple(self._tool(app, entry, choices.get(entry.spec.name, "")) for entry in listed)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        """End commands and sessions, and remove saved outputs."""
        app, self._app = self._app, None
        if app is not None:
            with CancelScope(shield=True):
                await app.aclose()

    def __iter__(self) -> Iterator[BuiltTool]:
        self._open()
        return iter(self._tools)

    @property
    def enforcement(self) -> str:
        """One line on what enforces the mode."""
        return self._open().status.summary

    def _open(self) -> Application:
        """Raises: Unavailable: it is not open."""
        if self._app is None:
            raise Unavailable("This toolset is not open.")
        return self._app

    def _application(self) -> Application:
        settings = self._settings
        found = confinement.host_executables(settings)
        try:
            broker = start_standalone_broker(confinement.broker_policy(settings, found))
        except Unavailable:
            broker = None
        try:
            confinement.require_sandbox(settings, broker and broker.proof)
            return build_application(settings, broker, found, held_by=0)
        except BaseException:
            if broker is not None:
                broker.close()
            raise

    def _tool(self, app: Application, entry: Entry, choices: str) -> BuiltTool:
        spec = entry.spec
        # What it is on this machine, for exports: the dispatcher has the tool itself.
        shown = replace(
            spec,
            description=f"{spec.description}{choices}",
            permission=min(spec.own_permission, app.dispatcher.level(entry)),
            needs=app.dispatcher.reach(entry),
        )
        return BuiltTool(
            spec=shown,
            input_schema=spec.schema,
            prepare=lambda payload, context: partial(self._call, spec.name, payload, context),
            check=_left_to_the_call,
            runs_hooks=True,
        )

    async def _call(self, name: str, payload: Payload, context: ToolContext) -> ToolResult:
        caller = ServerCaller(name=context.session_id, owner=LOCAL, progress=context.report)
        dispatcher = self._open().dispatcher
        if hooks := context_hooks(context):
            dispatcher = replace(dispatcher, hooks=(*dispatcher.hooks, *hooks))
        result = await dispatcher.call(name, payload, caller)
        return ToolResult(
            output=None if result.error else result.text,
            error=result.text if result.error else None,
            images=result.images,
            resources=result.resources,
            duration_ms=result.duration_ms,
        )


async def _left_to_the_call(payload: Payload, context: ToolContext) -> None:
    """The dispatcher decides, and records it."""
