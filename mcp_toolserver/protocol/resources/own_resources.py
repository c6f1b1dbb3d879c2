"""The server's own resources: how it is set up, what the client's calls made, such as jobs and tasks, and the
files in the roots, unchanged.

It also completes paths. For files and paths the permission and rules of read_file apply.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

import mcp_types as mcp

from mcp_toolserver.capabilities.change_events import ChangeEvents, Kind
from mcp_toolserver.capabilities.files import FolderQuery
from mcp_toolserver.capabilities.processes import JobQuery, JobState
from mcp_toolserver.errors import InvalidInput, NotFound
from mcp_toolserver.pipeline.call import InputRequired
from mcp_toolserver.protocol.client_identity import file_path
from mcp_toolserver.protocol.resources.source import (
    BINARY,
    ESCAPES,
    LARGEST,
    Refused,
    Source,
    Visitor,
    file_output,
    file_resource,
    text,
)
from mcp_toolserver.protocol.translate import OUTPUT_URI
from mcp_toolserver.stores.saved_outputs import OutputStore
from mcp_toolserver.text.documents.file_type import image_type
from mcp_toolserver.text.shell.command_output import as_on_terminal, ending, lines
from mcp_toolserver.tool_spec import Output, Runtime

if TYPE_CHECKING:
    from mcp_toolserver.protocol.resources.feature import ResourceFeature

CONFIG = "toolserver://config"
TODOS = "toolserver://todos"
JOBS = "toolserver://jobs"
AGENTS = "toolserver://agents"
TASKS = "toolserver://tasks"
SCHEDULES = "toolserver://schedules"

_DAY_MS = 24 * 3600 * 1000
"""A client may cache an output: it never changes."""

_FIXED_MS = 300_000
"""Cache time of what does not change while the server runs."""

_TAIL = 60_000
"""Maximum bytes of the end of a command's output."""

_TEXT = "text/plain"

_FILE = "file:///{+path}"

READ_FILE = "read_file"
"""The tool whose permission and rules apply."""

_LOOKED_AT = 5_000
"""Maximum names read from one folder."""

_NAME_BYTES = 4 << 20
"""Maximum bytes of the names found in one folder."""


@dataclass(frozen=True, kw_only=True)
class OwnResource(Source):
    """One resource; with a `kind`, one for each handle of that kind which the client's calls made."""

    name: str
    uri: str
    """With a kind it ends with a slash, and the handle follows."""
    description: str
    content: Callable[[str, Visitor], Awaitable[str]]
    """Reads the text for a handle, which is empty without a kind."""
    tool: str = ""
    """Without this tool there is no such resource; empty if it needs none."""
    kind: Kind | None = None
    mime_type: str = "application/json"
    changing: bool = True
    """Whether clients may subscribe to it."""
    ttl_ms: int = 0
    public: bool = False
    """Whether all clients read the same."""
    changes: ChangeEvents

    async def listed(self, visitor: Visitor) -> Sequence[mcp.Resource]:
        return [
            mcp.Resource(name=self.name, uri=uri, description=self.description, mime_type=self.mime_type)
            for uri in self._uris(visitor.owner)
        ]

    async def templates(self, _: Visitor) -> Sequence[mcp.ResourceTemplate]:
        template = mcp.ResourceTemplate(
            name=self.name,
            uri_template=f"{self.uri}{{id}}",
            description=self.description,
            mime_type=self.mime_type,
        )
        return () if self.kind is None else (template,)

    async def read(self, uri: str, visitor: Visitor) -> mcp.ReadResourceResult | None:
        if uri != self.uri and (self.kind is None or not uri.startswith(self.uri)):
            return None
        content = await self.content(uri.removeprefix(self.uri), visitor)
        return text(uri, content, mime_type=self.mime_type, ttl_ms=self.ttl_ms, public=self.public)

    async def watch(self, uri: str, visitor: Visitor) -> bool:
        return self.changing and uri in self._uris(visitor.owner)

    async def complete(self, name: str, _: str, value: str, visitor: Visitor) -> Sequence[str] | None:
        if self.kind is None or name != f"{self.uri}{{id}}":
            return None
        return self.changes.of(visitor.owner, self.kind, value)

    def _uris(self, owner: str) -> Sequence[str]:
        if self.kind is None:
            return (self.uri,)
        return [f"{self.uri}{handle}" for handle in self.changes.of(owner, self.kind)]


def own_resources(feature: "ResourceFeature") -> Sequence[OwnResource]:
    """All of them whose tools are on offer."""
    handlers = feature.handlers

    async def enforced(_: str, __: Visitor) -> str:
        return feature.security

    resource = partial(OwnResource, changes=handlers.changes)
    table = (
        resource(
            name="security",
            uri="toolserver://security",
            description="What this server enforces, and by which layer.",
            content=enforced,
            mime_type=_TEXT,
            changing=False,
            ttl_ms=_FIXED_MS,
            public=not handlers.dispatcher.user,
        ),
        resource(
            name="config",
            uri=CONFIG,
            description="How this server is set up, and the preferences kept for this workspace.",
            content=partial(_config, feature.settings()),
        ),
        resource(
            name="todos",
            uri=TODOS,
            description="The todo lists that you created or changed since you connected.",
            content=_todo_lists,
            tool="TodoWrite",
        ),
        resource(
            name="jobs",
            uri=JOBS,
            description="Your commands in the background, and how each is doing.",
            content=_jobs,
            tool="TaskOutput",
        ),
        resource(
            name="job",
            uri=f"{JOBS}/",
            description="A command in the background: the end of its output.",
            content=_job,
            tool="TaskOutput",
            kind="job",
            mime_type=_TEXT,
        ),
        resource(
            name="agent",
            uri=f"{AGENTS}/",
            description="An agent that you started: its state and its conversation.",
            content=_transcript,
            tool="Agent",
            kind="agent",
        ),
        resource(
            name="tasks",
            uri=TASKS,
            description="Your tasks on the board, oldest first.",
            content=_tasks,
            tool="TaskList",
        ),
        resource(
            name="task",
            uri=f"{TASKS}/",
            description="A task of the board: status, texts, dependencies and messages.",
            content=_task,
            tool="TaskGet",
            kind="task",
        ),
        resource(
            name="schedules",
            uri=SCHEDULES,
            description="Your schedules, with the outcome and output of their last runs.",
            content=_schedules,
            tool="CronList",
        ),
        resource(
            name="full output",
            uri=OUTPUT_URI,
            description="The full text of a truncated result.",
            content=partial(_saved_output, feature.outputs),
            kind="output",
            mime_type=_TEXT,
            changing=False,
            ttl_ms=_DAY_MS,
        ),
    )
    return [one for one in table if not one.tool or one.tool in handlers.offered]


async def _config(settings: Mapping[str, object], _: str, visitor: Visitor) -> str:
    """The settings, and the preferences if clients may read them, whichever toolset has their tool."""

    async def run(_: object, rt: Runtime) -> Output:
        return Output(json.dumps(await rt.preferences.kept()))

    kept: dict[str, object] = {}
    with suppress(Refused):
        kept["preferences"] = json.loads((await visitor.call("Config", {}, run)).text)
    return json.dumps({**settings, **kept}, indent=1)


async def _todo_lists(_: str, visitor: Visitor) -> str:
    async def one(handle: str, rt: Runtime) -> dict[str, object]:
        found = await rt.todos.change(handle, lambda todos: todos)
        todos = [
            {"id": todo.id, "content": todo.content, "status": todo.status, "priority": todo.priority}
            for todo in found.after.todos
        ]
        return {"list_id": found.handle, "todos": todos}

    return await _each("todos", one, visitor, "TodoWrite", "list_id", action="list")


async def _jobs(_: str, visitor: Visitor) -> str:
    async def one(handle: str, rt: Runtime) -> dict[str, object]:
        state = await rt.jobs.output(JobQuery(handle=handle, limit=0))
        return {
            "id": state.handle,
            "running": state.running,
            "status": ending(state),
            "bytes": state.total,
        }

    return await _each("job", one, visitor, "TaskOutput", "task_id")


async def _each(
    kind: Kind,
    one: Callable[[str, Runtime], Awaitable[dict[str, object]]],
    visitor: Visitor,
    tool: str,
    argument: str,
    **fixed: str,
) -> str:
    """What `one` returns for each handle of the client, in one call of `tool` with the first."""
    handles = visitor.handlers.changes.of(visitor.owner, kind)

    async def run(_: object, rt: Runtime) -> Output:
        found: list[dict[str, object]] = []
        for handle in handles:
            # The store may have removed it since.
            with suppress(NotFound):
                found.append(await one(handle, rt))
        return Output(json.dumps(found, indent=1))

    return (await visitor.call(tool, {**fixed, argument: handles[0]}, run)).text if handles else "[]"


async def _job(handle: str, visitor: Visitor) -> str:
    async def run(args: Any, rt: Runtime) -> Output:
        state = await rt.jobs.output(JobQuery(handle=args.task_id, limit=0))
        start = max(0, state.total - _TAIL)
        return Output(_end(await rt.jobs.output(JobQuery(handle=args.task_id, offset=start, limit=_TAIL))))

    return (await visitor.call("TaskOutput", {"task_id": handle}, run)).text


def _end(state: JobState) -> str:
    """The end of an output, whose first character may be cut in two."""
    printed = state.text.lstrip("\ufffd") if state.start else state.text
    left_out = f"[{state.start} bytes before; TaskOutput reads them]\n" if state.start else ""
    return f"{left_out}{lines(as_on_terminal(printed))}[{ending(state)}]"


async def _transcript(handle: str, visitor: Visitor) -> str:
    async def run(_: object, rt: Runtime) -> Output:
        return Output(await rt.jobs.transcript(handle))

    return (await visitor.call("TaskOutput", {"task_id": handle}, run)).text


async def _tasks(_: str, visitor: Visitor) -> str:
    found = (await visitor.call("TaskList", {})).data or {}
    return json.dumps(found["tasks"], indent=1, ensure_ascii=False)


async def _task(handle: str, visitor: Visitor) -> str:
    found = (await visitor.call("TaskGet", {"task_id": handle})).data or {}
    return json.dumps(found["task"], indent=1, ensure_ascii=False)


async def _schedules(_: str, visitor: Visitor) -> str:
    async def run(_: object, rt: Runtime) -> Output:
        found = await rt.cron.all(await rt.clock.now())
        return Output(json.dumps([asdict(one) for one in found], indent=1, default=datetime.isoformat))

    return (await visitor.call("CronList", {}, run)).text


async def _saved_output(outputs: OutputStore, handle: str, visitor: Visitor) -> str:
    try:
        content = await outputs.read(handle, visitor.owner, LARGEST)
    except NotFound as error:
        raise Refused(error.kind, str(error)) from None
    shown = visitor.handlers.dispatcher.shown(content.decode(errors="replace"))
    if len(shown) > LARGEST:
        why = "With its escapes it is too long to be read at once; read_file reads it in parts."
        raise Refused(NotFound.kind, why)
    return shown


@dataclass(frozen=True, kw_only=True)
class RootFiles(Source):
    """Files are not listed; tools find them."""

    roots: Sequence[str]

    async def templates(self, _: Visitor) -> Sequence[mcp.ResourceTemplate]:
        description = "A whole file in the roots, unchanged."
        return [mcp.ResourceTemplate(name="file", uri_template=_FILE, description=description)]

    async def read(self, uri: str, visitor: Visitor) -> mcp.ReadResourceResult | None:
        if (path := file_path(uri)) is None:
            return None
        result = await visitor.call(READ_FILE, {"path": path}, _read_file, LARGEST * ESCAPES)
        if len(result.text) > LARGEST:
            why = "With its escapes it is too long; read a part of it with read_file."
            raise Refused("invalid_input", why)
        return file_resource(uri, result)

    async def complete(self, name: str, _: str, value: str, visitor: Visitor) -> Sequence[str] | None:
        """Paths without the leading slash, which is part of the template."""
        if name != _FILE:
            return None
        path = f"/{value.removeprefix('/')}"
        roots = [f"{root}/" for root in self.roots if f"{root}/" != path and f"{root}/".startswith(path)]
        found = roots or await completed(path, visitor)
        return [name.removeprefix("/") for name in found]


async def _read_file(args: Any, rt: Runtime) -> Output:
    return await rt.fs.read(args.path, lambda file, size: _whole_file(args.path, file, size))


def _whole_file(path: str, file: BinaryIO, size: int) -> Output:
    if size > LARGEST:
        raise InvalidInput(f"'{path}' has {size} bytes; read a part of it with read_file.")
    content = file.read(LARGEST)
    return file_output(content, image_type(content) or BINARY)


async def completed(value: str, visitor: Visitor) -> Sequence[str]:
    """Paths that start with `value`; those of folders end with a slash.

    Hidden, denied and missing paths are omitted, and no question is asked.
    """
    folder, slash, start = value.rpartition("/")
    path = folder or slash or "."
    try:
        found = await visitor.call(
            READ_FILE, {"path": path}, lambda args, rt: _folder_names(args, rt, start), _NAME_BYTES
        )
    except (Refused, InputRequired):
        return ()
    return [f"{folder}{slash}{name}" for name in found.text.split("\n") if name]


async def _folder_names(args: Any, rt: Runtime, start: str) -> Output:
    query = FolderQuery(
        path=args.path,
        hidden=start.startswith("."),
        ignored=start.startswith("."),
        limit=_LOOKED_AT,
        each=_LOOKED_AT,
    )
    content = (await rt.fs.folders(query))["."]
    names = (
        f"{entry.name}/" if entry.kind == "folder" else entry.name
        for entry in content.entries
        if entry.name.startswith(start)
        and entry.kind in ("file", "folder")
        # A name with escapes is not the real name, so the path would not exist.
        and "\\" not in entry.name
    )
    return Output("\n".join(names))
