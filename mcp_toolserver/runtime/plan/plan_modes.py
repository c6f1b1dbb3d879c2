"""The plan modes of all sessions, in memory: each ends with its session or the server."""

import math
import os
import secrets
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from anyio import to_thread

from mcp_toolserver.capabilities.cron import owner_of, runs_of
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.errors import InvalidInput, NotFound, Unavailable
from mcp_toolserver.pipeline.narrowings import PLAN_MODE, Narrowings
from mcp_toolserver.policy.rules import Narrowing
from mcp_toolserver.runtime.files.root import TemporaryFolder
from mcp_toolserver.runtime.processes.broker_client import Writers
from mcp_toolserver.runtime.processes.child import Child
from mcp_toolserver.runtime.short_handle import short_handle
from mcp_toolserver.stores.disk import enforce_limits
from mcp_toolserver.stores.state_dir import OPEN_FOLDER, READ, private_folder

FOLDER = "plans"
FILE = "plan.md"

MAX_CHARACTERS = 20_000
"""Of a plan: what a user can be asked to read and approve."""

KEPT_SECONDS = 30 * 86_400.0
"""How long the plan file of a server that was killed stays."""

SUSPEND_SECONDS = 5.0
"""How long a program may take to be suspended before it is killed."""


@dataclass(frozen=True, kw_only=True)
class PlanMode:
    """The plan mode of a session."""

    handle: str
    path: str
    """The plan file, absolute: the one file that the session can write."""
    is_new: bool = False
    """Whether it has just begun."""
    may_write: bool = False
    """Whether the permission mode of the server lets file tools write the plan file."""
    suspended: tuple[str, ...] = ()
    """The programs that it suspended, by name, ..."""
    stopped: tuple[str, ...] = ()
    """... and those that it stopped, because they could not be suspended."""


@dataclass(frozen=True)
class PlanModes:
    """The plan modes by the owner of the session."""

    state: str
    narrowings: Narrowings
    writers: Writers
    ceiling: Permission
    user: str = ""
    modes: dict[str, PlanMode] = field(default_factory=dict[str, PlanMode])
    folders: dict[str, TemporaryFolder] = field(default_factory=dict[str, TemporaryFolder])
    """The folders of their plan files."""

    @property
    def runs(self) -> str:
        """Whose calls the runs of schedules make."""
        return runs_of(owner_of(self.user))

    def forget(self, owner: str) -> tuple[str, ...]:
        """Remove the plan file of `owner`, who left plan mode or will not return; returns the names of the
        programs that go on."""
        if self.modes.pop(owner, None) is None:
            return ()
        shutil.rmtree(self.folders.pop(owner).path, ignore_errors=True)
        if not self.modes:
            self.narrowings.remove(self.runs, PLAN_MODE)
        return _names(self.writers.settle())

    def close(self) -> None:
        """Remove all plan files."""
        for owner in tuple(self.modes):
            self.forget(owner)


@dataclass(frozen=True)
class OwnerPlans:
    """The plan mode of the session that makes the call."""

    plans: PlanModes
    owner: str

    async def enter(self) -> PlanMode:
        """Begin plan mode, or return the one that has begun: from now on every call of the session, and of
        what it started, can only read, and write the plan file. Its running programs that may write are
        suspended; its tasks, and the schedules of its user, wait.

        Raises:
            Unavailable: the plan file cannot be made.
        """
        plans, modes = self.plans, self.plans.modes
        if self.owner in modes:
            return modes[self.owner]
        handle = short_handle("plan_", {mode.handle for mode in modes.values()})
        try:
            every = private_folder(plans.state, FOLDER)
            with suppress(OSError):
                # The plan files of servers that were killed long ago.
                enforce_limits(every, total=sys.maxsize, seconds=KEPT_SECONDS, since=math.inf)
            path = f"{every}/{secrets.token_hex(16)}"
            os.mkdir(path, 0o700)
            folder = TemporaryFolder(path, partial(os.open, path, OPEN_FOLDER))
            # Open from now on, so that nothing that has its path later is used instead.
            folder.root()
        except OSError as error:
            why = error.strerror or "it is in use"
            raise Unavailable(f"The plan file cannot be made: {why}. Plan mode has not begun.") from None
        may_write = plans.ceiling is not Permission.READ_ONLY
        mode = PlanMode(handle=handle, path=f"{folder.path}/{FILE}", may_write=may_write)
        for held in (self.owner, plans.runs):
            plans.narrowings.put(held, PLAN_MODE, _narrowing(mode))
        modes[self.owner], plans.folders[self.owner] = mode, folder
        programs = plans.writers.settle()
        suspended = [program for program in programs if await program.paused(SUSPEND_SECONDS)]
        stopped = [program for program in programs if program not in suspended]
        return replace(mode, is_new=True, suspended=_names(suspended), stopped=_names(stopped))

    async def current(self, handle: str) -> PlanMode:
        """Return the plan mode of the session. `handle` is empty or its handle.

        Raises:
            NotFound: the session is not in plan mode, or that is not its handle.
        """
        found = self.plans.modes.get(self.owner)
        if found is None or handle not in ("", found.handle):
            raise NotFound(
                "This session is not in plan mode, or this is not its handle. EnterPlanMode begins it."
            )
        return found

    async def read(self) -> str:
        """Return the text of the plan file.

        Raises:
            InvalidInput: it is longer than a user can be asked to read, or not text.
            NotFound: the session is not in plan mode, or the file was removed.
        """
        mode = await self.current("")
        return await to_thread.run_sync(_read, mode.path)

    async def leave(self, handle: str) -> tuple[str, ...]:
        """End plan mode, because a human approved it; returns the names of the programs that go on. Nothing
        if it has ended."""
        found = self.plans.modes.get(self.owner)
        if found is None or found.handle != handle:
            return ()
        self.plans.narrowings.remove(self.owner, PLAN_MODE)
        return self.plans.forget(self.owner)


def _names(programs: Sequence[Child]) -> tuple[str, ...]:
    return tuple(program.name for program in programs)


def _narrowing(mode: PlanMode) -> Narrowing:
    how = f"Write your plan to {mode.path} and call" if mode.may_write else "Call"
    return Narrowing(
        source=PLAN_MODE,
        advice=f"{how} ExitPlanMode, which asks the user to approve the plan.",
        ceiling=Permission.READ_ONLY,
        exempt=mode.path,
    )


def _read(path: str) -> str:
    try:
        with os.fdopen(os.open(path, READ), "rb") as file:
            content = file.read(4 * MAX_CHARACTERS + 1)
    except FileNotFoundError:
        return ""
    try:
        text = content.decode(errors="replace" if len(content) > 4 * MAX_CHARACTERS else "strict")
    except UnicodeDecodeError:
        raise InvalidInput("The plan file is not UTF-8 text. Write it again.") from None
    if len(text) > MAX_CHARACTERS:
        raise InvalidInput(
            f"The plan has more than {MAX_CHARACTERS} characters, too many to be approved. Shorten it."
        )
    return text
