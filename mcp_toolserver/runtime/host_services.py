"""The services of this host, and the runtime of one call."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.capabilities.permissions import Capability, Permission, Reason
from mcp_toolserver.policy.client_restrictions import ClientRestrictions
from mcp_toolserver.runtime.clock import SystemClock
from mcp_toolserver.runtime.files.lookups import PathLookups
from mcp_toolserver.runtime.files.root import TemporaryFolder
from mcp_toolserver.runtime.files.workspace import Entered, Workspace
from mcp_toolserver.runtime.files.workspace_files import ConfinedFiles
from mcp_toolserver.tool_spec import Runtime, ToolContext

if TYPE_CHECKING:
    from mcp_toolserver.capabilities.call_scope import SavedOutput, Scope
    from mcp_toolserver.pipeline.call import User
    from mcp_toolserver.pipeline.nested_calls import NestedCalls
    from mcp_toolserver.stores.file_history import FileHistories
    from mcp_toolserver.stores.saved_outputs import OutputStore


@dataclass(frozen=True, kw_only=True)
class ServiceRequest:
    """The call that needs the service of a capability."""

    capability: Capability
    needs: frozenset[Capability]
    """Every capability that the tool declares."""
    host: HostServices
    """The host as far as the call may use it."""
    scope: Scope
    user: User
    calls: NestedCalls
    """The calls that the service may make on behalf of this one."""

    @property
    def workspace(self) -> Workspace:
        return self.host.workspace


Provide = Callable[[ServiceRequest], object]
"""Returns the service of a capability for one call."""


def _files(request: ServiceRequest) -> ConfinedFiles:
    may_write = Capability.FS_WRITE in request.needs
    history = request.host.histories.of(request.host.owner)
    return ConfinedFiles(request.workspace, may_write=may_write, history=history)


def _tool_context(request: ServiceRequest) -> ToolContext:
    calls = request.calls
    return ToolContext(
        working_directory=next(iter(request.workspace.roots), ""),
        session_id=request.scope.session,
        call_id=calls.parent_id,
        state=calls.dispatcher.states.get(request.scope.owner, {}),
        report=request.user.report,
    )


_CLOCK = SystemClock()

BUILT_IN: Mapping[Capability, Provide] = {
    Capability.FS_READ: _files,
    Capability.FS_WRITE: _files,
    Capability.CLOCK: lambda _: _CLOCK,
    Capability.ASK: lambda request: request.user.ask,
    Capability.TELL: lambda request: request.user.tell,
    Capability.CATALOGUE: lambda request: request.scope.catalogue,
    Capability.OWN_CODE: _tool_context,
}
"""What needs nothing beyond the call itself."""


@dataclass(frozen=True, kw_only=True)
class Available:
    """The capabilities of a host in one permission mode."""

    permissions: Mapping[Capability, Permission]
    """The permission that each available capability requires."""
    unavailable: Mapping[Capability, Reason] = field(default_factory=dict[Capability, Reason])
    """Why each other capability is not available."""
    protects: Callable[[str], str | None] = lambda _: None
    """Says why an absolute path must not be written in this mode; None where it may."""


@dataclass(frozen=True, kw_only=True)
class HostServices:
    """The capabilities, paths and saved outputs of this machine, as far as one call may use them."""

    permissions: Mapping[Capability, Permission]
    """The permission that each available capability requires on this host."""
    unavailable: Mapping[Capability, Reason] = field(default_factory=dict[Capability, Reason])
    """Why each other capability is unavailable, those that the client's own policy removes included."""
    in_mode: Callable[[Permission], Available] = lambda _: Available(permissions={})
    """What is available in a permission mode below that of the server."""
    open_world: frozenset[Capability] = frozenset({Capability.PROCESS})
    """Capabilities that reach beyond this machine's files."""
    view: Callable[[], Workspace]
    """Returns the workspace. A view of it is made when a call first uses it, because many tools use no file.

    No lock is held meanwhile, as that of `cached_property` in Python 3.11: a file system may hang.
    """
    outputs: OutputStore
    histories: FileHistories
    temporary: Callable[[str], TemporaryFolder | None] = lambda _: None
    """Returns the temporary folder of an owner's session."""
    worktrees: Mapping[str, Entered] = field(default_factory=dict[str, Entered])
    """The worktree that each owner works in."""
    plan_folders: Mapping[str, TemporaryFolder] = field(default_factory=dict[str, TemporaryFolder])
    """The folders of the plan files of sessions in plan mode, by owner."""
    owner: str = LOCAL
    """The owner of the calls it serves."""
    providers: Mapping[Capability, Provide] = field(default_factory=dict[Capability, Provide])
    """Those beyond `BUILT_IN`."""
    lookups: PathLookups = field(default_factory=PathLookups)
    is_outside: bool = False
    """Whether a user let the command of the call out of the sandbox of commands."""
    lowered_to: Permission | None = None
    """The mode to which what is in force lowers the calls; None if they have the mode of the server."""

    @property
    def workspace(self) -> Workspace:
        return self.view()

    def reasons(self, needs: Collection[Capability]) -> list[Reason]:
        """Why those of `needs` that are not available are not."""
        if self.unavailable.keys().isdisjoint(needs):
            return []
        return [why for need, why in self.unavailable.items() if need in needs]

    def owned_by(self, owner: str, *, is_outside: bool = False) -> HostServices:
        """The same host for the calls of `owner`, which may read the saved outputs of `owner` only."""

        def view() -> Workspace:
            folders = (self.outputs.folder(owner), self.histories.folder(owner))
            usable = (self.temporary(owner), self.plan_folders.get(owner))
            workspace = replace(
                self.workspace,
                readable=tuple(filter(None, folders)),
                temporary=tuple(filter(None, usable)),
                lookups=self.lookups,
                client=owner,
            )
            entered = self.worktrees.get(owner)
            return workspace if entered is None else workspace.within(entered)

        return replace(self, owner=owner, view=cache(view), is_outside=is_outside)

    def restricted_to(self, *lists: Sequence[str]) -> HostServices:
        """The same host, restricted to what of its own roots lies in the folders of each list.

        Blocks. Without lists it does not: no view of a workspace is made.
        """
        if not lists:
            return self

        def view() -> Workspace:
            workspace = self.workspace
            for folders in lists:
                if tuple(folders) != workspace.roots:
                    workspace = workspace.restricted_to(folders)
            kept = self.histories.folder(self.owner)
            if kept is not None and self.histories.of(self.owner).has_outside(workspace.roots):
                workspace = workspace.without(kept)
            return workspace

        host = replace(self, view=cache(view))
        _ = host.workspace
        return host

    def under(self, restrictions: ClientRestrictions) -> HostServices:
        """The same host, restricted to what `restrictions` allows. Blocks.

        Commands stay available only where their sandbox enforces `restrictions`.
        """
        resolved = restrictions.resolved(os.path.realpath)
        place, roots = self.workspace, self.workspace.roots
        kept = [path for root in roots for path in resolved.protected_paths(root)]
        held = all(map(resolved.writes, roots)) and all(map(place.is_protected, kept))

        def objects(absolute: str) -> str | None:
            why = f"may not be written: {resolved.source} allows that elsewhere only. Ask the user."
            return None if resolved.writes(absolute) else why

        removed = resolved.removed_capabilities(self.permissions, self.open_world, held=held)
        keeps_git = any(".git" in path.split("/") for path in kept)
        if keeps_git:
            why = f"{resolved.source} protects .git"
            removed |= {Capability.GIT_WRITE: why, Capability.WORKTREES: why}
        unavailable = {**self.unavailable, **{need: Reason("client", why) for need, why in removed.items()}}
        guarded = replace(place.guarded(objects), keeps_git=place.keeps_git or keeps_git)
        return replace(self, view=lambda: guarded, unavailable=unavailable)

    def lowered(self, ceiling: Permission, source: str) -> HostServices:
        """The same host, with what a server with the permission mode `ceiling` has. `source` is what lowers
        it, for error messages. What the client's own policy removed stays removed."""
        available = self.in_mode(ceiling)
        by_client = {need: why for need, why in self.unavailable.items() if why.kind == "client"}

        def view() -> Workspace:
            if ceiling is Permission.READ_ONLY:
                return self.workspace.read_only(f"cannot be written: {source} allows reading only.")
            return self.workspace.guarded(available.protects)

        return replace(
            self,
            permissions={
                need: permission
                for need, permission in available.permissions.items()
                if need in self.permissions
            },
            unavailable={**available.unavailable, **by_client},
            view=cache(view),
            lowered_to=ceiling,
        )

    async def save(self, text: str) -> SavedOutput:
        """Save a long text for the caller. Raises: OSError: it cannot be saved."""
        return await self.outputs.save(text, self.owner)

    def runtime(
        self, *, needs: frozenset[Capability], scope: Scope, user: User, calls: NestedCalls
    ) -> Runtime:
        """A runtime with the capabilities `needs` of a call that passed all checks, and no others."""

        services: dict[Capability, object] = {}
        for need in needs:
            request = ServiceRequest(
                capability=need, needs=needs, host=self, scope=scope, user=user, calls=calls
            )
            services[need] = (self.providers.get(need) or BUILT_IN[need])(request)
        return Runtime(
            services=services,
            report=user.report,
            compute=partial(self.lookups.compute, self.owner),
            room=scope.room,
        )
