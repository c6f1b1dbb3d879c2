"""The interface between the dispatcher and the operating system's side."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from mcp_toolserver.capabilities.call_scope import Report, SavedOutput, Scope
from mcp_toolserver.capabilities.permissions import Capability, Permission, Reason
from mcp_toolserver.errors import SandboxUnavailable, Unavailable
from mcp_toolserver.pipeline.user import User
from mcp_toolserver.pipeline.validation import PathCanonicalizer
from mcp_toolserver.policy.client_restrictions import ClientRestrictions
from mcp_toolserver.tool_spec import Runtime

if TYPE_CHECKING:
    from mcp_toolserver.pipeline.nested_calls import NestedCalls

T = TypeVar("T")


class Host(PathCanonicalizer, Protocol):
    """The capabilities, paths and saved outputs of this machine, as far as one call may use them."""

    @property
    def permissions(self) -> Mapping[Capability, Permission]:
        """The permission that each available capability requires on this host."""
        ...

    @property
    def unavailable(self) -> Mapping[Capability, Reason]:
        """Why each other capability is unavailable, those that the client's own policy removes included."""
        ...

    @property
    def roots(self) -> tuple[str, ...]:
        """Absolute paths of the folders that calls may use."""
        ...

    @property
    def open_world(self) -> frozenset[Capability]:
        """The capabilities that reach beyond this machine's files."""
        ...

    def owned_by(self, owner: str) -> "Host":
        """The same host for the calls of `owner`, which may read the saved outputs of `owner` only."""
        ...

    def restricted_to(self, *lists: Sequence[str]) -> "Host":
        """The same host, restricted to what of its own roots lies in the folders of each list. Blocks."""
        ...

    async def look_up(self, client: str, work: Callable[[], T]) -> T:
        """Run `work`, which blocks while it resolves paths that `client` named, and return its result.

        Raises:
            TimedOut: the file system does not answer in time.
        """
        ...

    def under(self, restrictions: ClientRestrictions) -> "Host":
        """The same host, restricted to what `restrictions` allows. Blocks."""
        ...

    def lowered(self, ceiling: Permission, source: str) -> "Host":
        """The same host, with what a server with the permission mode `ceiling` has. `source` is what lowers
        it, for error messages."""
        ...

    def runtime(
        self,
        needs: frozenset[Capability],
        report: Report,
        user: User,
        scope: Scope,
        calls: "NestedCalls",
    ) -> Runtime:
        """A runtime with these capabilities and no others. `calls` are those that it may make itself."""
        ...

    async def save(self, text: str) -> SavedOutput:
        """Save a long text for the caller. Raises: OSError: it cannot be saved."""
        ...


def unavailable_error(tool: str, needs: Collection[Capability], host: Host) -> Unavailable:
    """The error that says why `tool`, which needs these capabilities, cannot run here."""
    found = reasons(needs, host)
    if sandbox := [why.text for why in found if why.kind == "sandbox"]:
        return SandboxUnavailable(sandbox[0])
    return Unavailable(f"{tool} is not available: {found[0].text}.")


def reasons(needs: Collection[Capability], host: Host) -> list[Reason]:
    """Why those of `needs` that are not available are not."""
    return [why for need, why in host.unavailable.items() if need in needs]
