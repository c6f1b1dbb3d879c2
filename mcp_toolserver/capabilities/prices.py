"""What a tool may need, and what each need costs."""

from collections.abc import Mapping
from enum import Enum, IntEnum


class Permission(IntEnum):
    """How much a call may change, in ascending order."""

    READ_ONLY = 0
    WORKSPACE_WRITE = 1
    DANGER_FULL_ACCESS = 2

    @property
    def flag(self) -> str:
        """The spelling on the command line: `read-only`, `workspace-write` or `danger-full-access`."""
        return self.name.lower().replace("_", "-")


class Capability(Enum):
    """One thing a tool may need from the host."""

    # A call looks dozens of them up in sets, and the hash that enumerations have is written in Python.
    __hash__ = object.__hash__

    FS_READ = "fs_read"
    FS_WRITE = "fs_write"
    SEARCH = "search"
    GIT = "git"
    CLONES = "clones"
    PROCESS = "process"
    JOBS = "jobs"
    SESSIONS = "sessions"
    POWERSHELL = "powershell"
    CONTAINERS = "containers"
    CLOCK = "clock"
    ASK = "ask"
    TELL = "tell"
    TODOS = "todos"
    PREFERENCES = "preferences"
    FETCH = "fetch"
    SEND = "send"
    CATALOGUE = "catalogue"
    OWN_CODE = "own_code"
    LANGUAGES = "languages"
    DESKTOP_OPEN = "desktop_open"
    DESKTOP_NOTIFY = "desktop_notify"
    DESKTOP_SAY = "desktop_say"
    CLIPBOARD_READ = "clipboard_read"
    CLIPBOARD_WRITE = "clipboard_write"
    SCREEN = "screen"
    WINDOWS = "windows"
    DESKTOP_APP = "desktop_app"
    DESKTOP_FIND = "desktop_find"
    NOTES_READ = "notes_read"
    NOTES_WRITE = "notes_write"


Prices = Mapping[Capability, Permission]

PRICES: Prices = {
    Capability.FS_READ: Permission.READ_ONLY,
    Capability.FS_WRITE: Permission.WORKSPACE_WRITE,
    Capability.SEARCH: Permission.READ_ONLY,
    Capability.GIT: Permission.READ_ONLY,
    Capability.CLONES: Permission.WORKSPACE_WRITE,
    Capability.PROCESS: Permission.DANGER_FULL_ACCESS,
    Capability.JOBS: Permission.READ_ONLY,
    Capability.SESSIONS: Permission.DANGER_FULL_ACCESS,
    Capability.POWERSHELL: Permission.DANGER_FULL_ACCESS,
    Capability.CONTAINERS: Permission.DANGER_FULL_ACCESS,
    Capability.CLOCK: Permission.READ_ONLY,
    Capability.ASK: Permission.READ_ONLY,
    Capability.TELL: Permission.READ_ONLY,
    Capability.TODOS: Permission.READ_ONLY,
    Capability.PREFERENCES: Permission.READ_ONLY,
    Capability.FETCH: Permission.READ_ONLY,
    Capability.SEND: Permission.DANGER_FULL_ACCESS,
    Capability.CATALOGUE: Permission.READ_ONLY,
    Capability.OWN_CODE: Permission.READ_ONLY,
    Capability.LANGUAGES: Permission.DANGER_FULL_ACCESS,
    Capability.DESKTOP_OPEN: Permission.DANGER_FULL_ACCESS,
    Capability.DESKTOP_NOTIFY: Permission.DANGER_FULL_ACCESS,
    Capability.DESKTOP_SAY: Permission.DANGER_FULL_ACCESS,
    Capability.CLIPBOARD_READ: Permission.DANGER_FULL_ACCESS,
    Capability.CLIPBOARD_WRITE: Permission.DANGER_FULL_ACCESS,
    Capability.SCREEN: Permission.DANGER_FULL_ACCESS,
    Capability.WINDOWS: Permission.DANGER_FULL_ACCESS,
    Capability.DESKTOP_APP: Permission.DANGER_FULL_ACCESS,
    Capability.DESKTOP_FIND: Permission.DANGER_FULL_ACCESS,
    Capability.NOTES_READ: Permission.DANGER_FULL_ACCESS,
    Capability.NOTES_WRITE: Permission.DANGER_FULL_ACCESS,
}
"""What each capability costs where nothing but this process enforces it. A host that confines processes in
the kernel lowers the prices of `PROCESS`, `SESSIONS`, `POWERSHELL` and `LANGUAGES`; a host on which no job
can start raises that of `JOBS`. What a user's own code costs, its tool has to declare. Nothing lowers that of
`CONTAINERS`: who can ask a container engine for something can do everything."""
