"""The policy of the broker: what it may start. It is fixed before the fork; no request changes it."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from mcp_toolserver.runtime.sandbox.broker.limit_settings import CommandBounds
from mcp_toolserver.runtime.sandbox.broker.messages import Program, Request, Script
from mcp_toolserver.runtime.sandbox.layers.spec import Layer, Proof, Reach, SandboxSpec, with_tuples
from mcp_toolserver.runtime.sandbox.protected.names import GIT, protected_name
from mcp_toolserver.stores.disk import PREPARED_FOLDER
from mcp_toolserver.text.file_names import lies_in

UNCONFINED = "danger-full-access"
"""The one mode in which a command may run without a sandbox."""

READ_ONLY = "read-only"


@dataclass(frozen=True, kw_only=True)
class Helper:
    """One of the server's own programs."""

    argv: tuple[str, ...]
    """How its argument lists begin: an absolute path, and arguments that must follow it. An interpreter,
    which runs any script, is named with its own."""
    reach: Reach = "folder"
    places: tuple[str, ...] = ()
    """More paths that it reads: its own files, if they are not the system's."""
    writes: str = ""
    """The name of the folders in the roots that it may write in, each where a request asks for it; empty for
    none. In read-only mode it writes nowhere."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables that differ from those of other helpers."""


@dataclass(frozen=True, kw_only=True)
class BrokerPolicy:
    """The settings that are constant for the life of the broker."""

    sandbox: SandboxSpec
    environment: Mapping[str, str]
    """All that commands and helper programs get; see `command_environment`."""
    helpers: tuple[Helper, ...] = ()
    shell: tuple[str, ...] = field(default=())
    """The shell and its options, up to where the script goes; found by the broker when empty."""
    bounds: CommandBounds = field(default_factory=CommandBounds)
    scratch: str = ""
    """Where Seatbelt confines commands: the folder for their temporary files, which the broker creates. Links
    are resolved, as Seatbelt compares paths."""

    def helper_for(self, argv: tuple[str, ...]) -> Helper | None:
        return next((one for one in self.helpers if argv[: len(one.argv)] == one.argv), None)


@dataclass(frozen=True, kw_only=True)
class SandboxPlan:
    """The sandbox of one program."""

    layer: Layer
    sandbox: SandboxSpec
    program: str = ""
    """Bubblewrap, where it is the layer."""
    filtered: bool = True
    """Whether system calls are filtered behind bubblewrap; behind Landlock they always are."""
    helper: Helper | None = None
    """None for a command."""
    roots: tuple[str, ...] | None = None
    """The parts of the roots that a command sees; None for all."""
    writes: tuple[str, ...] = ()
    """Folders in the roots that a helper may write in."""
    hidden_git: tuple[str, ...] = ()
    """See `Script.hidden_git`."""
    user: str = ""
    """See `Script.user`."""
    prepared: str = ""
    """The folder with the prepared package of an MCP server, which it reads; empty for none."""

    @property
    def reads_one_folder(self) -> bool:
        """Whether it is of a helper that reads only the folder it is started in."""
        return self.helper is not None and self.helper.reach == "folder"

    @property
    def shown_roots(self) -> tuple[str, ...]:
        """The roots, or the parts of them, that the program sees."""
        return self.sandbox.roots if self.roots is None else self.roots

    @property
    def written_roots(self) -> tuple[str, ...]:
        """Those of `shown_roots` that the program may write in; the folder of a repository may be one."""
        if self.sandbox.mode == READ_ONLY:
            return ()
        sandbox = self.sandbox
        writable = (root for root in self.shown_roots if sandbox.git_writable or not _is_git(root))
        return tuple(root for root in writable if not sandbox.is_read_only(root))


def plan_for(broker_policy: BrokerPolicy, proof: Proof, request: Request) -> SandboxPlan | str:
    """Return the sandbox for `request`; or, as text, why it does not run."""
    match request:
        case Script():
            return _command(broker_policy.sandbox, proof, request)
        case Program(argv=argv, writes=writes):
            helper = broker_policy.helper_for(argv)
            if helper is None:
                return "the program is none of the helpers that this server was started with"
            return _helper(broker_policy.sandbox, proof, helper, writes)


def _command(sandbox: SandboxSpec, proof: Proof, request: Script) -> SandboxPlan | str:
    roots = request.roots
    if sandbox.mode == UNCONFINED or (roots is not None and set(roots) == set(sandbox.roots)):
        roots = None
    if proof.commands == "none" and sandbox.mode != UNCONFINED:
        return f"commands run only in a sandbox in {sandbox.mode}, and none was proven at start"
    if roots is not None and not _are_within(sandbox.roots, roots):
        return "a command may work only in the roots that this server was started with, or in folders of them"
    if proof.commands == "landlock" and not request.read_only and _read_only_parts(sandbox):
        return f"Landlock alone cannot keep {_read_only_parts(sandbox)[0]}, which lies in a root, read-only"
    if request.read_only and sandbox.mode == UNCONFINED:
        return f"no command is kept from writing in {UNCONFINED}, where commands run without a sandbox"
    sandbox = replace(sandbox, git_writable=sandbox.git_writable and not request.keeps_git)
    return SandboxPlan(
        roots=roots,
        layer=proof.commands,
        sandbox=replace(sandbox, mode=READ_ONLY) if request.read_only else sandbox,
        program=proof.program,
        filtered=proof.filtered,
        hidden_git=request.hidden_git,
        user=request.user,
        prepared=request.prepared and f"{sandbox.state}/{PREPARED_FOLDER}/{request.prepared}",
    )


def _read_only_parts(sandbox: SandboxSpec) -> tuple[str, ...]:
    """Folders in roots that are read-only although the roots are not."""
    return tuple(path for path in sandbox.read_only if path not in sandbox.roots)


def _is_git(root: str) -> bool:
    return protected_name(os.path.basename(root)) == GIT


def _are_within(own: tuple[str, ...], asked: tuple[str, ...]) -> bool:
    return bool(asked) and all(any(lies_in(root, folder) for root in own) for folder in asked)


def _helper(sandbox: SandboxSpec, proof: Proof, helper: Helper, writes: tuple[str, ...]) -> SandboxPlan | str:
    """A helper reads, whatever the mode is, and writes in the folders `writes`."""
    layer = proof.helpers if helper.reach == "folder" or proof.commands == "none" else proof.commands
    if layer == "none" and sandbox.mode != UNCONFINED:
        return f"programs run only in a sandbox in {sandbox.mode}, and none was proven at start"
    # Where nothing confines commands, they write everywhere.
    if writes and sandbox.mode != UNCONFINED and (why := _refused_writes(sandbox, proof, helper, writes)):
        return why
    return SandboxPlan(
        layer=layer,
        sandbox=replace(sandbox, mode=READ_ONLY, network=False),
        program=proof.program,
        filtered=proof.filtered,
        helper=helper,
        writes=writes,
    )


def _refused_writes(sandbox: SandboxSpec, proof: Proof, helper: Helper, writes: tuple[str, ...]) -> str:
    """Why a helper may not write in `writes`; empty if it may."""
    roots = sandbox.roots
    if sandbox.mode == READ_ONLY:
        return "no program writes in the roots in read-only"
    if proof.commands == "none":
        mode = sandbox.mode
        return f"programs write in the roots only in the sandbox of commands in {mode}, and there is none"
    kept = (
        place for place in writes for one in sandbox.read_only if lies_in(one, place) or lies_in(place, one)
    )
    if any(kept):
        return "nothing writes in a root that was given as read-only"
    if not all(os.path.basename(place) == helper.writes and _are_within(roots, (place,)) for place in writes):
        return f"it may write only in folders of the roots that are called {helper.writes or 'nothing'}"
    return ""


def find_shell(path: str) -> tuple[str, ...]:
    """Bash by absolute path with no start-up file, or else /bin/sh."""
    places = ("/bin", "/usr/bin", *(entry for entry in path.split(":") if entry.startswith("/")))
    bashes = (f"{place}/bash" for place in places)
    bash = next((file for file in bashes if os.access(file, os.X_OK)), None)
    return (bash, "--noprofile", "--norc", "-c") if bash else ("/bin/sh", "-c")


# --- for a broker in an interpreter of its own -----------------------------------------------------------


def encode_policy(broker_policy: BrokerPolicy) -> bytes:
    return json.dumps(asdict(broker_policy)).encode()


def read_policy() -> BrokerPolicy:
    """The policy that `encode_policy` returned, from the standard input of this process."""
    broker_policy = json.load(sys.stdin.buffer)
    return BrokerPolicy(
        sandbox=SandboxSpec(**with_tuples(broker_policy["sandbox"])),
        environment=broker_policy["environment"],
        helpers=tuple(Helper(**with_tuples(helper)) for helper in broker_policy["helpers"]),
        shell=tuple(broker_policy["shell"]),
        bounds=CommandBounds(**broker_policy["bounds"]),
        scratch=broker_policy["scratch"],
    )
