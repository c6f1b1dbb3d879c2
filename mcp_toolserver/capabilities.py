"""What a tool may ask of the host, what each costs, and the shapes that cross that line.

A tool declares its `needs`; it gets a runtime with those and nothing else. The implementations live in
`runtime/` and `stores/`; this file knows no operating system.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, IntEnum
from typing import BinaryIO, Literal, NewType, Protocol, TypeVar

T = TypeVar("T")

CanonicalPath = NewType("CanonicalPath", str)
"""A path in the one spelling that rules match and capabilities take: `/`-separated, links resolved, relative
to the first root, or absolute when it lies in another root. Made by the host, never by a tool."""


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

    FS_READ = "fs_read"
    FS_WRITE = "fs_write"
    SEARCH = "search"
    GIT = "git"
    PROCESS = "process"
    JOBS = "jobs"
    CLOCK = "clock"
    ASK = "ask"
    TELL = "tell"
    TODOS = "todos"
    PREFERENCES = "preferences"
    FETCH = "fetch"
    SEND = "send"


Prices = Mapping[Capability, Permission]

PRICES: Prices = {
    Capability.FS_READ: Permission.READ_ONLY,
    Capability.FS_WRITE: Permission.WORKSPACE_WRITE,
    Capability.SEARCH: Permission.READ_ONLY,
    Capability.GIT: Permission.READ_ONLY,
    Capability.PROCESS: Permission.DANGER_FULL_ACCESS,
    Capability.JOBS: Permission.READ_ONLY,
    Capability.CLOCK: Permission.READ_ONLY,
    Capability.ASK: Permission.READ_ONLY,
    Capability.TELL: Permission.READ_ONLY,
    Capability.TODOS: Permission.READ_ONLY,
    Capability.PREFERENCES: Permission.READ_ONLY,
    Capability.FETCH: Permission.READ_ONLY,
    Capability.SEND: Permission.DANGER_FULL_ACCESS,
}
"""What each capability costs where nothing but this process enforces it. A host that confines processes in
the kernel lowers the price of `PROCESS`; a host on which no job can start raises that of `JOBS`."""


# --- files -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a write did."""

    created: bool
    before: bytes
    """The content before; empty when the file was created."""
    after: bytes
    sha256: str
    """Of `after`, in hexadecimal."""
    links: int
    """Hard links the old file had. Above 1, the other names keep the old content."""


@dataclass(frozen=True, kw_only=True)
class FileChange:
    """What is to become of one file."""

    path: CanonicalPath
    content: bytes | None
    """None: the file goes away."""
    like: CanonicalPath | None = None
    """The file whose mode bits and attributes a new one gets: one of those that are changed together."""
    executable: bool | None = None
    """Whether it may be run from now on; None: as before."""


Contents = Mapping[CanonicalPath, bytes | None]
"""What files hold now; None for one that is not there."""


EntryKind = Literal["file", "folder", "link", "FIFO", "socket", "device"]


@dataclass(frozen=True, kw_only=True)
class FolderQuery:
    """What to list."""

    path: CanonicalPath
    depth: int = 1
    """How many levels of folders to look into."""
    hidden: bool = False
    """Also names that start with a dot."""
    ignored: bool = True
    """Also what .gitignore and its kin exclude."""
    details: bool = False
    """Size and time of change too."""
    limit: int
    """Entries to give in all; upper levels come first."""
    each: int
    """Entries to give of one folder."""
    skip: int = 0
    """Entries of each folder to leave out first."""


@dataclass(frozen=True, kw_only=True)
class FolderEntry:
    """One name in a folder. Links are named, not followed."""

    name: str
    kind: EntryKind
    size: int | None = None
    changed: float | None = None
    """Seconds since 1970."""


@dataclass(frozen=True, kw_only=True)
class FolderContent:
    """What a folder holds, by name."""

    entries: tuple[FolderEntry, ...]
    total: int
    """How many there are, given or not."""
    dots: int = 0
    """Names with a dot in front, which were not asked for."""
    complete: bool = True
    """Whether `total` counts all of them; false for a huge folder."""
    error: str = ""
    """Why it could not be looked into."""


class Files(Protocol):
    """Files inside the roots. Every path is opened beneath a root by the kernel; a link cannot lead out.

    All methods raise `NotFound`, `Denied` (outside the roots, or hidden by a rule), `InvalidInput` (not a
    regular file) and never hang on a FIFO or a device.
    """

    async def read(self, path: CanonicalPath, reader: Callable[[BinaryIO, int], T]) -> T:
        """Give the open regular file and its size in bytes to `reader`, in a worker thread."""
        ...

    async def write(
        self, path: CanonicalPath, content: bytes, *, expected_sha256: str | None = None
    ) -> Written:
        """Create or replace a file atomically, with its parents; mode bits are kept.

        Raises:
            Conflict: `expected_sha256` is given and the file is gone or has other content.
        """
        ...

    async def update(
        self, path: CanonicalPath, change: Callable[[bytes], bytes], *, expected_sha256: str | None = None
    ) -> Written:
        """Replace a file's content by `change(content)`, atomically and serially with other changes of it.

        Raises:
            Conflict: as for `write`, or somebody else changed the file meanwhile.
        """
        ...

    async def update_all(
        self, paths: Sequence[CanonicalPath], change: Callable[[Contents], Sequence[FileChange]]
    ) -> Mapping[CanonicalPath, Written]:
        """Create, replace and delete files as `change` says, given their contents: all of them or none.

        Every file that it changes is one of `paths`. Each is put in place whole; when one cannot be, those
        before it are taken back. Only a machine that stops in the midst leaves some changed, with their old
        content beside them.

        Raises:
            Conflict: somebody else changed a file meanwhile, or what was done could not be taken back; the
                text says which.
        """
        ...

    async def make_folder(self, path: CanonicalPath) -> bool:
        """Make a folder, with its parents. False when it was there.

        Raises:
            Conflict: something else has the name.
        """
        ...

    async def folders(self, query: FolderQuery) -> Mapping[str, FolderContent]:
        """What a folder and those beneath it hold, by their path beneath it; `.` is the folder itself.

        What a rule hides is left out and not counted.
        """
        ...


# --- search ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FileQuery:
    """Which files to list."""

    pattern: str
    path: CanonicalPath
    hidden: bool = False
    ignored: bool = False
    """Also list what .gitignore and its kin exclude."""
    limit: int


@dataclass(frozen=True, kw_only=True)
class FoundFiles:
    """Files by time of change, newest first; equal times by path."""

    files: tuple[str, ...]
    total: int
    """How many matched, listed or not."""
    errors: tuple[str, ...] = ()
    """Places that could not be read, each with the reason."""


SearchMode = Literal["files_with_matches", "content", "count"]


@dataclass(frozen=True, kw_only=True)
class LineQuery:
    """Which lines to find. The pattern is a Rust regular expression."""

    pattern: str
    path: CanonicalPath
    mode: SearchMode
    glob: str | None = None
    type: str | None = None
    before: int = 0
    after: int = 0
    ignore_case: bool = False
    multiline: bool = False
    line_numbers: bool = True
    hidden: bool = False
    ignored: bool = False
    limit: int
    """Entries to give: files, matching lines or counts, by `mode`; 0 is no limit."""
    offset: int = 0
    """Entries to skip first."""


@dataclass(frozen=True, kw_only=True)
class FoundLines:
    """What a line query found, ready to show, in path order."""

    text: str
    """One entry a line; in content mode `path:line:text`, context as `path-line-text`."""
    shown: int
    """Entries in `text`."""
    total: int
    """Entries that matched in all."""
    complete: bool
    """Whether `total` is exact; false when the search ended early."""
    files: int
    """Files with at least one match."""
    matches: int
    """Matching lines in all (count mode: the sum of the counts)."""
    errors: tuple[str, ...] = ()


class Search(Protocol):
    """Searching inside the roots; links are not followed."""

    async def files(self, query: FileQuery) -> FoundFiles:
        """Raises: InvalidInput: a pattern that leaves the folder or explodes."""
        ...

    async def lines(self, query: LineQuery) -> FoundLines:
        """Raises: InvalidInput: a pattern that does not compile; the text says where."""
        ...


# --- git -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class GitChange:
    """A path that is not as the last commit has it."""

    path: str
    staged: str
    """A letter as `git status --short` has it: what the index holds; `.` for no change, `?` for untracked."""
    unstaged: str
    """The same for the file itself."""
    origin: str = ""
    """What it was called before, when it was renamed or copied."""


@dataclass(frozen=True, kw_only=True)
class GitState:
    """The branch, and what is not committed."""

    branch: str
    """Empty when no branch is checked out."""
    head: str
    """The commit; empty before the first."""
    upstream: str = ""
    ahead: int = 0
    behind: int = 0
    changes: tuple[GitChange, ...] = ()
    left_out: int = 0
    """Changes that a rule of the operator hides."""
    complete: bool = True
    """False when there is more than could be read."""


@dataclass(frozen=True, kw_only=True)
class GitCommit:
    """A commit."""

    id: str
    author: str
    email: str
    date: str
    """When it was written, in ISO 8601."""
    subject: str
    body: str = ""


@dataclass(frozen=True, kw_only=True)
class HistoryQuery:
    """Which commits to list."""

    path: CanonicalPath
    """In the repository; less than all of it lists only commits that touch it."""
    revision: str = ""
    """A commit or a range; empty for HEAD."""
    author: str = ""
    since: str = ""
    until: str = ""
    count: int
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class GitHistory:
    """Commits, newest first."""

    commits: tuple[GitCommit, ...]
    more: bool


DiffForm = Literal["patch", "stat"]


@dataclass(frozen=True, kw_only=True)
class DiffQuery:
    """Which changes to show."""

    path: CanonicalPath
    revision: str = ""
    """A commit to compare the files with, or a range of two; empty for the index."""
    staged: bool = False
    """Compare the index with the commit, which is HEAD unless given."""
    form: DiffForm = "patch"


ShowForm = Literal["patch", "stat", "metadata"]


@dataclass(frozen=True, kw_only=True)
class ShowQuery:
    """Which commit to show; of a `path` that is no folder, its content there."""

    path: CanonicalPath
    revision: str
    form: ShowForm = "patch"


@dataclass(frozen=True, kw_only=True)
class GitText:
    """What git prints for people."""

    text: str
    folder: str
    """What the names in it are relative to."""
    form: Literal["patch", "stat", "metadata", "file", "folder"]
    """What it is: `stat` also in the place of a patch that was too long."""
    left_out: int = 0
    """Files that a rule of the operator hides."""
    complete: bool = True


@dataclass(frozen=True, kw_only=True)
class BlameQuery:
    """Which lines to ask about."""

    path: CanonicalPath
    revision: str = ""
    """Empty for the file as it is now."""
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class GitLine:
    """A line of a file, and who wrote it."""

    number: int
    text: str
    commit: str
    """All zeros for what is not committed."""
    author: str
    date: str
    """The day, in ISO 8601."""


@dataclass(frozen=True, kw_only=True)
class GitBranch:
    """A branch, here or of a remote."""

    name: str
    commit: str
    date: str
    upstream: str = ""
    current: bool = False


@dataclass(frozen=True, kw_only=True)
class GitOverview:
    """A repository at a glance."""

    folder: str
    branches: tuple[GitBranch, ...]
    """Those with the newest commits first."""
    all_branches: int
    tags: int
    remotes: tuple[tuple[str, str], ...]
    """Names and addresses, credentials blanked."""
    commits: tuple[GitCommit, ...]
    """The last ones."""
    all_commits: int
    files: tuple[str, ...]
    """What git follows, relative to `folder`."""
    complete: bool = True
    """False when there are more files than could be read."""


class Git(Protocol):
    """Reading git repositories inside the roots. None of a repository's programs runs, and nothing changes.

    All methods raise `NotFound` (no repository, or no such file), `Denied` (the repository lies outside the
    roots or is set up to lead git astray; a rule hides the path), `InvalidInput` (no such commit), `TimedOut`
    and `Unavailable`. Names and contents that a rule of the operator hides are left out.
    """

    async def status(self, path: CanonicalPath) -> GitState: ...
    async def history(self, query: HistoryQuery) -> GitHistory: ...
    async def diff(self, query: DiffQuery) -> GitText: ...
    async def show(self, query: ShowQuery) -> GitText: ...
    async def blame(self, query: BlameQuery) -> tuple[GitLine, ...]:
        """At most the lines asked for; fewer where the file ends."""
        ...

    async def overview(self, path: CanonicalPath) -> GitOverview: ...


# --- processes -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command for the shell."""

    script: str
    cwd: CanonicalPath
    timeout: float | None
    """Seconds until it is killed; None is no limit (background only)."""
    background: bool = False


@dataclass(frozen=True, kw_only=True)
class JobState:
    """A command, running or ended, and what it has printed so far."""

    handle: str
    """Unguessable; empty for a command that ended in the foreground."""
    text: str
    """The output asked for, stdout and stderr in the order written, decoded."""
    start: int
    """Byte offset of `text` in the whole output."""
    next_offset: int
    """Where to go on reading."""
    total: int
    """Bytes printed so far."""
    running: bool
    exit_status: int | None
    """0-255, or 128 + signal; None while it runs."""
    reason: Literal["running", "exited", "timed out", "stopped", "over a limit", "unwalled", "lost"]
    seconds: float
    detail: str = ""
    """The limit that ended it, in words that go on from "it used"; or why its walls could not be built."""
    notes: tuple[str, ...] = ()
    """What its reader should know beside: sentences."""
    spill: "Spill | None" = None
    omitted: int = 0
    """Bytes left out between `text` and `tail`, when the whole is too long to show."""
    tail: str = ""
    """The end of the output after what was left out."""


class Processes(Protocol):
    """Starting commands. Nothing a command starts outlives it."""

    async def run(self, command: Command, report: "Report") -> JobState:
        """Run to the end, or hand over to the background when it takes too long for a client to wait.

        Raises:
            Unavailable: commands cannot be started here, or too many run already.
        """
        ...


class Jobs(Protocol):
    """Commands that run in the background, by handle."""

    async def output(self, handle: str, *, offset: int, limit: int, wait: float) -> JobState:
        """Output from byte `offset`; waits up to `wait` seconds for more or for the end.

        Raises:
            NotFound: no such handle, or its record has expired.
        """
        ...

    async def stop(self, handle: str) -> JobState:
        """Kill the command with all it started.

        Raises:
            NotFound: as for `output`.
            Conflict: it has already ended.
        """
        ...


# --- the human -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One of the answers that a question offers."""

    label: str
    description: str = ""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question for the human behind the client."""

    text: str
    header: str = ""
    """A few words above it."""
    choices: tuple[Choice, ...] = ()
    """The answers to choose from; none is an answer in words."""
    several: bool = False
    """Any number of the choices may be chosen, none included."""
    required: bool = True


Answers = tuple[tuple[str, ...], ...]
"""For each question its answers: one, any number of choices, or none where it was left open."""


class Ask(Protocol):
    """Asks the human. Nothing may have been changed before: the call may be sent again with the answer."""

    async def __call__(self, questions: Sequence[Question]) -> Answers:
        """All questions at once.

        Raises:
            NobodyToAsk: the client cannot ask.
            Denied: the human would not answer.
            TimedOut: the human did not answer in time.
        """
        ...


class Tell(Protocol):
    """Gives the client a message for the human; nothing comes back, and nothing says that it was read."""

    async def __call__(self, message: str) -> None: ...


# --- what the server keeps -------------------------------------------------------------------------------


TodoStatus = Literal["pending", "in_progress", "completed"]
TodoPriority = Literal["medium", "high", "low"]


@dataclass(frozen=True, kw_only=True)
class Todo:
    """One thing to do."""

    id: int
    content: str
    active_form: str = ""
    """What it is called while it is being done; empty is as `content`."""
    status: TodoStatus = "pending"
    priority: TodoPriority = "medium"


@dataclass(frozen=True, kw_only=True)
class TodoList:
    """Things to do, in order. The number of one that is gone is not given to another."""

    todos: tuple[Todo, ...] = ()
    next_id: int = 1


@dataclass(frozen=True, kw_only=True)
class TodoChange:
    """A list before and after a change."""

    handle: str
    before: TodoList
    after: TodoList


class Todos(Protocol):
    """Lists of things to do, by handle; they outlive the server."""

    async def change(self, handle: str, change: Callable[[TodoList], TodoList]) -> TodoChange:
        """Replace a list by `change` of it, serially with all other changes; no handle makes a new list.

        Raises:
            NotFound: no such list.
            Conflict: another server has been changing this state for seconds.
            Unavailable: the state cannot be read or written, or was damaged.
        """
        ...


Preference = str | bool | int | float


class Preferences(Protocol):
    """What is remembered for those who work here, and beside it what the operator decided."""

    @property
    def decided(self) -> Mapping[str, Preference]:
        """What the operator decided; no call changes it."""
        ...

    async def kept(self) -> Mapping[str, Preference]:
        """Everything that was put. Raises: Conflict, Unavailable: as for `Todos.change`."""
        ...

    async def put(self, key: str, value: Preference) -> Preference | None:
        """Remember `value`; what was there before. Raises: Conflict, Unavailable: as for `Todos.change`."""
        ...


# --- time ------------------------------------------------------------------------------------------------


class Clock(Protocol):
    """Time, as this machine has it."""

    async def now(self, zone: str = "") -> datetime:
        """The time in an IANA zone; without one, in that of the machine.

        Raises:
            InvalidInput: no such zone.
            Unavailable: this machine has no list of zones.
        """
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""


# --- the web ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class WebRead:
    """What to read from the web."""

    url: str
    """In canonical spelling."""
    headers: Mapping[str, str]
    most: int
    """Bytes of the body to take at most, unpacked."""
    seconds: float
    """For all of it, redirects included."""


@dataclass(frozen=True, kw_only=True)
class WebSend(WebRead):
    """What to send to the web."""

    method: str
    body: bytes | None = None


@dataclass(frozen=True, kw_only=True)
class WebAnswer:
    """What a server of the web said. Nothing in it is to be trusted."""

    url: str
    """Where it came from in the end."""
    status: int
    reason: str
    """The usual words for the status; never the server's."""
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    complete: bool
    """Whether `body` is all there was."""
    mark: str
    """Random, so that nothing on a page can pass for the end of it."""


@dataclass(frozen=True, kw_only=True)
class WebQuery:
    """What to look for on the web."""

    text: str
    most: int
    """Results."""
    allowed_domains: tuple[str, ...] = ()
    """Only these and what is below them; empty is all."""
    blocked_domains: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WebHit:
    """One result of a search."""

    title: str
    url: str
    snippet: str


@dataclass(frozen=True, kw_only=True)
class WebHits:
    """What a search found."""

    hits: tuple[WebHit, ...]
    provider: str
    left: int
    """Searches that the session has left."""
    mark: str
    """As in `WebAnswer`."""


class Fetch(Protocol):
    """Reading from the web: GET alone, and no address but public ones and those the operator named.

    All methods raise `Denied` (an address, a port, a rule, robots.txt), `Unavailable` (no such host, no
    answer, one that breaks the protocol) and `TimedOut`.
    """

    async def get(self, request: WebRead) -> WebAnswer:
        """Read one address, through redirects, each of which is checked like the first."""
        ...

    async def search(self, query: WebQuery) -> WebHits:
        """Ask the search engine of this session."""
        ...


class Send(Protocol):
    """Any request to the web, under the same guard as `Fetch`."""

    async def send(self, request: WebSend) -> WebAnswer:
        """Raises: as for `Fetch`; robots.txt is not asked."""
        ...


# --- every call ------------------------------------------------------------------------------------------


class Report(Protocol):
    """Tells the client how a long call is going; does nothing when nobody listens."""

    async def __call__(self, message: str) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Spill:
    """A result too long to send, kept for the caller in the server's private folder."""

    handle: str
    path: str
    """Absolute; `read_file` reads it."""
    size: int
    """Bytes."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """On whose behalf a call runs, and what it may go on to."""

    session: str
    """Whose call it is; what is counted per session is counted by this."""
    refuses: Callable[[str], str | None]
    """Why the call may not touch this subject too, such as where a redirect leads; None when it may."""
