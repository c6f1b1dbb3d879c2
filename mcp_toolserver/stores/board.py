"""Stores the task board of a workspace, which several servers share: tasks, and the runs of schedules.

A task with a prompt or a command is run by one server: the one that created it, or, if that has ended before
the task began, by one that serves the same user and can run it. Whoever changes a task does so in one
transaction, so two servers never run the same task, and every acknowledged change is stored.
"""

import json
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.capabilities.tasks import (
    FINAL,
    NewTask,
    Runs,
    TaskChange,
    TaskDetail,
    TaskMessage,
    TaskStatus,
    TaskSummary,
)
from mcp_toolserver.errors import Conflict, InvalidInput, NotFound, Unavailable
from mcp_toolserver.pipeline.call import Rights
from mcp_toolserver.pipeline.stored_rights import require
from mcp_toolserver.stores.database import Connection, Database, T
from mcp_toolserver.text.board import blocking, reachable


def new_id() -> str:
    """A new id, too long to be given twice."""
    return f"task_{secrets.token_hex(4)}"


DIED = "The server that ran it ended before the task did."
LEFT = "The client that created it has left."

_TABLES = (
    """CREATE TABLE IF NOT EXISTS board (
        number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,
        server TEXT NOT NULL, status TEXT NOT NULL, reason TEXT NOT NULL, subject TEXT NOT NULL,
        description TEXT NOT NULL, active_form TEXT NOT NULL, worker TEXT NOT NULL, prompt TEXT NOT NULL,
        command TEXT NOT NULL, runs TEXT NOT NULL, rights TEXT NOT NULL, messages TEXT NOT NULL,
        created REAL NOT NULL, updated REAL NOT NULL, output BLOB NOT NULL,
        output_start INTEGER NOT NULL, size INTEGER NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS board_needs (
        task TEXT NOT NULL REFERENCES board (id) ON DELETE CASCADE,
        need TEXT NOT NULL REFERENCES board (id) ON DELETE CASCADE, PRIMARY KEY (task, need)
    )""",
    "ALTER TABLE board ADD COLUMN schedule TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE board ADD COLUMN due INTEGER",
    "ALTER TABLE board ADD COLUMN began REAL",
)

_CREATE = (
    "INSERT INTO board (id, owner, server, status, reason, subject, description, active_form, worker, "
    "prompt, command, runs, rights, messages, created, updated, output, output_start, size, schedule, due) "
    "VALUES (?, ?, ?, ?, '', ?, ?, ?, ?, ?, ?, ?, ?, '[]', ?, ?, x'', 0, 0, ?, ?)"
)

KEPT_RUNS = 20
"""Ended runs of one schedule."""

RUN_OUTPUT = 8_000
"""Bytes of the output of a run."""


@dataclass(frozen=True, kw_only=True)
class BoardLimits:
    """Bounds of the board of one workspace; the runs of schedules have their own."""

    tasks: int = 1_000
    """The oldest ended ones are removed for new ones, unless a task that has not ended depends on them."""
    size: int = 64 << 20
    """Bytes of all tasks together, beyond which nothing can be added. The output of tasks that run is stored
    all the same."""
    output: int = 64 << 10
    """Bytes that are stored of the end of the output of one task."""
    messages: int = 50
    """Messages of one task."""
    needs: int = 50
    """Tasks that one task depends on directly."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A task that this server has to run now."""

    id: str
    owner: str
    subject: str
    prompt: str
    command: str
    rights: str
    """JSON: the rights under which it was created."""
    messages: tuple[TaskMessage, ...]
    schedule: str
    """The schedule of which it is a run; empty for a task."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a task ended, and the end of its output."""

    status: TaskStatus
    reason: str = ""
    output: bytes = b""
    output_start: int = 0
    """Byte offset of `output` in the whole output."""


@dataclass(frozen=True, kw_only=True)
class Left:
    """A task whose server ended before it began."""

    id: str
    runs: Runs
    rights: str


@dataclass(frozen=True, kw_only=True)
class StoredTask:
    """A task with its stored output."""

    detail: TaskDetail
    owner: str
    server: str
    output: bytes
    output_start: int


@dataclass
class _Board:
    """The statuses and dependencies of the tasks of an owner, or of all."""

    statuses: dict[str, TaskStatus] = field(default_factory=dict[str, TaskStatus])
    needs: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def is_ready(self, task: str) -> bool:
        return all(self.statuses[need] == "completed" for need in self.needs.get(task, ()))


class StoredBoard:
    """The tasks of all owners in one workspace. Opens nothing before the first use.

    `changed` is called with the owner and the id of each task that was created or changed, `removed` with the
    id of each that was removed.
    """

    def __init__(
        self,
        database: Database,
        limits: BoardLimits | None = None,
        *,
        changed: Callable[[str, str], None] = lambda _, __: None,
        removed: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._database = database
        self.limits = limits or BoardLimits()
        self._changed = changed
        self._removed = removed
        self._closed = False

    @property
    def path(self) -> str:
        """Of the file that stores it."""
        return self._database.path

    async def create(self, owner: str, name: str, task: NewTask, rights: str) -> TaskDetail:
        """Add a task with the new id `name`.

        Raises:
            InvalidInput: a dependency is unknown.
            Unavailable: the board is full, or the server is shutting down.
        """
        if self._closed:
            raise Unavailable("The server is shutting down and takes no more tasks.")

        def work(database: Connection, news: _News) -> TaskDetail:
            self._insert(database, (name, owner), task, rights)
            self._put_needs(database, owner, name, task.blocked_by)
            self._make_room(database, news, name)
            news.changed.append((owner, name))
            return _stored(database, owner, name).detail

        return await self.run(work)

    async def get(self, owner: str, task: str) -> StoredTask:
        """One task of `owner`. Raises: NotFound."""
        return await self.run(lambda database, _: _stored(database, owner, task))

    async def all(self, owner: str) -> tuple[TaskSummary, ...]:
        """Every task of `owner`, oldest first."""

        def work(database: Connection, _: _News) -> tuple[TaskSummary, ...]:
            board = _board(database, owner)
            rows = database.execute(
                "SELECT id, subject, status, worker, runs, reason, server FROM board WHERE owner = ? "
                "ORDER BY number",
                (owner,),
            )
            return tuple(_summary(row, board) for row in rows)

        return await self.run(work)

    async def update(self, owner: str, change: TaskChange, rights: Rights) -> TaskDetail:
        """Change a task. `rights` are those of the caller."""

        def work(database: Connection, news: _News) -> TaskDetail:
            before = _stored(database, owner, change.id)
            self._change_fields(database, news, before, change)
            self._change_needs(database, news, before, change)
            news.changed.append((owner, change.id))
            news.add_dependents(database, owner, change.id)
            return _stored(database, owner, change.id).detail

        return await self._change(owner, (change.id, *change.add_blocks), rights, work)

    async def remove(self, owner: str, task: str, rights: Rights) -> TaskSummary:
        """Remove a task. `rights` are those of the caller.

        Raises:
            NotFound: `owner` has no such task.
            Denied: see `_change`.
            Conflict: it runs, or a task that has not ended depends on it.
        """

        def work(database: Connection, news: _News) -> TaskSummary:
            found = _stored(database, owner, task).detail.summary
            if found.runs and found.status == "in_progress":
                raise Conflict(f"{task} runs now. Stop it with TaskStop first.")
            if waiting := _dependents(database, task):
                raise Conflict(f"{task} cannot be removed, because {waiting[0]} depends on it.")
            database.execute("DELETE FROM board WHERE id = ?", (task,))
            news.removed.append(task)
            return found

        return await self._change(owner, (task,), rights, work)

    async def cancel(
        self, owner: str, task: str, reason: str, rights: Rights, *, runs_here: bool = False
    ) -> StoredTask:
        """Cancel a task that does not run. `rights` are those of the caller; a task that `runs_here` is left
        to the caller.

        Raises:
            NotFound: `owner` has no such task.
            Denied: see `_change`.
            Conflict: it has ended, or another server runs it.
        """

        def work(database: Connection, news: _News) -> StoredTask:
            before = _stored(database, owner, task)
            if runs_here:
                return before
            _refuse_ended(before.detail.summary)
            if before.detail.summary.runs and before.detail.summary.status == "in_progress":
                raise Conflict(f"{task} runs in another server of the workspace, which alone can stop it.")
            _set_status(database, news, owner, task, Outcome(status="cancelled", reason=reason))
            return _stored(database, owner, task)

        return await self._change(owner, (task,), rights, work)

    async def left(self, owner: str) -> tuple[Left, ...]:
        """The tasks of `owner` that a server has to take over, oldest first."""
        statement = (
            "SELECT id, runs, rights FROM board WHERE server = '' AND owner = ? AND status = 'pending' "
            "AND runs != '' ORDER BY number"
        )
        rows = await self.run(lambda database, _: database.execute(statement, (owner,)).fetchall())
        return tuple(Left(**row) for row in rows)

    async def claim(
        self,
        places: tuple[int, int],
        owners: Collection[str],
        *,
        adopts: Collection[str] = (),
        is_held: Callable[[str, str], bool] = lambda _, __: False,
    ) -> tuple[tuple[Claim, ...], bool]:
        """Mark tasks of this server and of `owners` that are ready as running, oldest first, while there are
        `places` for tasks and for runs of schedules. First take over those that `adopts` names. Those wait
        for whose owner and rights `is_held` is true.

        Returns:
            What to run, and whether more may become ready.
        """

        def work(database: Connection, news: _News) -> tuple[tuple[Claim, ...], bool]:
            if adopts:
                server = self._database.server.acquire()
                for task in adopts:
                    database.execute(
                        "UPDATE board SET server = ? WHERE id = ? AND server = '' AND status = 'pending'",
                        (server, task),
                    )
            board = _board(database)
            rows = database.execute(
                "SELECT id, owner, rights, schedule FROM board WHERE server = ? AND status = 'pending' "
                "AND runs != '' ORDER BY number",
                (self._database.server.name,),
            ).fetchall()
            mine = {row["id"]: row for row in rows if row["owner"] in owners}
            ready = [
                task
                for task, row in mine.items()
                if board.is_ready(task) and not is_held(row["owner"], row["rights"])
            ]
            tasks = [task for task in ready if not mine[task]["schedule"]][: max(places[0], 0)]
            runs = [task for task in ready if mine[task]["schedule"]][: max(places[1], 0)]
            claims = tuple(_claimed(database, news, task) for task in (*tasks, *runs))
            waits = len(ready) > len(claims) or any(
                task not in ready and not blocking(task, board.statuses, board.needs) for task in mine
            )
            return claims, waits

        return await self.run(work)

    async def finish(self, claim: Claim, outcome: Outcome) -> None:
        """Store how a task that this server ran has ended."""

        def work(database: Connection, news: _News) -> None:
            most = RUN_OUTPUT if claim.schedule else self.limits.output
            surplus = max(len(outcome.output) - most, 0)
            database.execute(
                "UPDATE board SET output = ?, output_start = ? WHERE id = ?",
                (outcome.output[surplus:], outcome.output_start + surplus, claim.id),
            )
            _measure(database, claim.id)
            _set_status(database, news, claim.owner, claim.id, outcome)
            if claim.schedule:
                database.execute(
                    "DELETE FROM board WHERE schedule = ?1 AND status NOT IN ('pending', 'in_progress') "
                    "AND number NOT IN (SELECT number FROM board WHERE schedule = ?1 "
                    "ORDER BY number DESC LIMIT ?2)",
                    (claim.schedule, KEPT_RUNS),
                )

        await self.run(work)

    async def existing(self, tasks: Collection[str]) -> frozenset[str]:
        """Those of `tasks`, which are runs of schedules, that were not removed."""
        statement = "SELECT id FROM board WHERE schedule != ''"
        found = await self.run(lambda database, _: database.execute(statement).fetchall())
        return frozenset(tasks) & {name for (name,) in found}

    async def leave(self, owner: str) -> tuple[str, ...]:
        """Cancel the tasks of `owner`, who will not return, and that no server runs; returns their ids."""

        def work(database: Connection, news: _News) -> tuple[str, ...]:
            rows = database.execute(
                "SELECT id FROM board WHERE owner = ? AND "
                "(status = 'pending' OR (status = 'in_progress' AND runs = ''))",
                (owner,),
            ).fetchall()
            for (name,) in rows:
                _set_status(database, news, owner, name, Outcome(status="cancelled", reason=LEFT))
            return tuple(name for (name,) in rows)

        return await self.run(work)

    async def aclose(self, owners: Collection[str]) -> None:
        """Fail what this server runs of `owners`, and leave what waits to others. Takes no more tasks.

        Raises:
            Conflict, Unavailable: the board cannot be written. The next server does the same.
        """
        self._closed = True
        if owners:
            name = self._database.server.name
            await self.run(lambda database, news: _abandon(database, news, name, owners))

    async def _change(
        self,
        owner: str,
        tasks: Iterable[str],
        rights: Rights,
        work: "Callable[[Connection, _News], T]",
    ) -> T:
        """Run `work`, which changes `tasks` of `owner` for a caller with `rights`, as `run` does.

        Raises:
            Denied: one of them, or one that waits for them, runs with a right that the caller does not have.
        """

        def checked(database: Connection, news: _News) -> T:
            found = "SELECT rights FROM board WHERE id = ? AND owner = ? AND rights != ''"
            for one in (one for task in tasks for one in (task, *_waiting(database, task))):
                for (stored,) in database.execute(found, (one, owner)).fetchall():
                    require(rights, stored, one)
            return work(database, news)

        return await self.run(checked)

    async def run(self, work: "Callable[[Connection, _News], T]", tables: Sequence[str] = ()) -> T:
        """Run `work` as one transaction, after settling tasks of dead servers, and announce its changes."""
        news = _News()

        def transaction(database: Connection) -> T:
            others = database.execute(
                "SELECT DISTINCT server FROM board WHERE server != '' "
                "AND status IN ('pending', 'in_progress')",
            )
            for name in self._database.server.dead_of(others):
                _abandon(database, news, name)
            return work(database, news)

        done = await self._database.run(transaction, (*_TABLES, *tables))
        for owner, task in dict.fromkeys(news.changed):
            self._changed(owner, task)
        for task in news.removed:
            self._removed(task)
        return done

    def add_run(
        self, database: Connection, news: "_News", task: NewTask, rights: str, run: tuple[str, str, int]
    ) -> None:
        """Add, in a transaction of `run`, a run for this server: of an owner, a schedule and a time."""
        owner, schedule, due = run
        name = new_id()
        self._insert(database, (name, owner), task, rights, (schedule, due))
        news.changed.append((owner, name))

    def _insert(
        self,
        database: Connection,
        whose: tuple[str, str],
        task: NewTask,
        rights: str,
        run: tuple[str, int | None] = ("", None),
    ) -> None:
        server = self._database.server.acquire() if task.runs else ""
        texts = (task.subject, task.description, task.active_form, task.worker, task.prompt, task.command)
        now = time.time()
        database.execute(_CREATE, (*whose, server, task.status, *texts, task.runs, rights, now, now, *run))

    def _make_room(self, database: Connection, news: "_News", task: str) -> None:
        """Measure `task`, which is new or has grown, and remove the oldest ended tasks until all fit."""
        _measure(database, task)
        while True:
            count, total = database.execute(
                "SELECT count(*), coalesce(sum(size), 0) FROM board WHERE schedule = ''"
            ).fetchone()
            if count <= self.limits.tasks and total <= self.limits.size:
                return
            oldest = database.execute(
                "SELECT id FROM board WHERE status NOT IN ('pending', 'in_progress') AND NOT EXISTS "
                "(SELECT 1 FROM board_needs JOIN board AS later ON later.id = task WHERE need = board.id AND "
                "later.status IN ('pending', 'in_progress')) AND id != ? AND schedule = '' "
                "ORDER BY number LIMIT 1",
                (task,),
            ).fetchone()
            if oldest is None:
                raise Unavailable(
                    f"The task board is full: it has room for {self.limits.tasks} tasks and "
                    f"{self.limits.size >> 20} MiB. Remove tasks with TaskUpdate, status deleted."
                )
            database.execute("DELETE FROM board WHERE id = ?", oldest)
            news.removed.append(oldest[0])

    def _change_fields(
        self, database: Connection, news: "_News", before: StoredTask, change: TaskChange
    ) -> None:
        summary = before.detail.summary
        if change.status is not None:
            self._change_status(database, news, before, change)
            before = _stored(database, before.owner, change.id)
        if change.output is not None and summary.runs:
            raise InvalidInput(f"{change.id} runs a {summary.runs}, which makes its output.")
        messages = [{"text": one.text, "at": one.at} for one in before.detail.messages]
        if change.message:
            if len(messages) >= self.limits.messages:
                raise Conflict(f"{change.id} has {self.limits.messages} messages already, and no more fit.")
            messages.append({"text": change.message, "at": time.time()})
        output = before.output if change.output is None else change.output.encode()
        texts = (change.subject, change.description, change.active_form, change.worker)
        database.execute(
            "UPDATE board SET subject = coalesce(?, subject), description = coalesce(?, description), "
            "active_form = coalesce(?, active_form), worker = coalesce(?, worker), messages = ?, output = ?, "
            "updated = ? WHERE id = ?",
            (*texts, json.dumps(messages), output, time.time(), change.id),
        )
        if any((*texts, change.message, change.output)):
            self._make_room(database, news, change.id)

    def _change_status(
        self, database: Connection, news: "_News", before: StoredTask, change: TaskChange
    ) -> None:
        summary = before.detail.summary
        assert change.status is not None
        if summary.runs and change.status == "pending" and summary.status in ("failed", "cancelled"):
            database.execute(
                "UPDATE board SET server = ?, output = x'', output_start = 0 WHERE id = ?",
                (self._database.server.acquire(), change.id),
            )
            _set_status(database, news, before.owner, change.id, Outcome(status="pending"))
            return
        _refuse_ended(summary)
        if summary.runs:
            raise InvalidInput(
                f"{change.id} runs a {summary.runs}, so the server sets its status. TaskStop cancels it."
            )
        reason = change.message if change.status in ("failed", "cancelled") else ""
        _set_status(database, news, before.owner, change.id, Outcome(status=change.status, reason=reason))

    def _change_needs(
        self, database: Connection, news: "_News", before: StoredTask, change: TaskChange
    ) -> None:
        if change.blocked_by is not None or change.add_blocked_by:
            _refuse_started(before.detail.summary)
            kept = before.detail.depends_on if change.blocked_by is None else change.blocked_by
            self._put_needs(database, before.owner, change.id, (*kept, *change.add_blocked_by))
        for other in change.add_blocks:
            found = _stored(database, before.owner, other).detail
            _refuse_started(found.summary)
            self._put_needs(database, before.owner, other, (*found.depends_on, change.id))
            news.changed.append((before.owner, other))

    def _put_needs(self, database: Connection, owner: str, task: str, needs: Iterable[str]) -> None:
        """Replace the dependencies of a task."""
        board, wanted = _board(database, owner), tuple(dict.fromkeys(needs))
        if unknown := [need for need in wanted if need not in board.statuses]:
            raise InvalidInput(f"There is no task {unknown[0]} to wait for. TaskList lists the tasks.")
        if len(wanted) > self.limits.needs:
            raise InvalidInput(f"{task} cannot depend on more than {self.limits.needs} tasks.")
        for need in wanted:
            if task in reachable((need,), board.needs):
                raise InvalidInput(f"{task} cannot wait for {need}, which waits for {task} itself: a cycle.")
        database.execute("DELETE FROM board_needs WHERE task = ?", (task,))
        database.executemany("INSERT INTO board_needs VALUES (?, ?)", [(task, need) for need in wanted])


@dataclass
class _News:
    """What a transaction changed."""

    changed: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    removed: list[str] = field(default_factory=list[str])

    def add_dependents(self, database: Connection, owner: str, task: str) -> None:
        """Add the tasks that wait for `task`, directly or not: whether they are blocked may change."""
        self.changed.extend((owner, other) for other in _waiting(database, task))


def _waiting(database: Connection, task: str) -> list[str]:
    """The tasks that have not ended and wait for `task`, directly or not."""
    found = [task]
    for one in found:
        found.extend(other for other in _dependents(database, one) if other not in found)
    return found[1:]


def _refuse_ended(task: TaskSummary) -> None:
    if task.status in FINAL:
        raise Conflict(f"task {task.id} is already in terminal state: {task.status}")


def _refuse_started(task: TaskSummary) -> None:
    _refuse_ended(task)
    if task.runs and task.status != "pending":
        raise Conflict(f"{task.id} has started; what it waits for cannot be changed any more.")


def _set_status(database: Connection, news: _News, owner: str, task: str, outcome: Outcome) -> None:
    database.execute(
        "UPDATE board SET status = ?, reason = ?, updated = ? WHERE id = ?",
        (outcome.status, outcome.reason, time.time(), task),
    )
    news.changed.append((owner, task))
    news.add_dependents(database, owner, task)


def _claimed(database: Connection, news: _News, task: str) -> Claim:
    row = database.execute(
        "SELECT id, owner, subject, prompt, command, rights, messages, schedule FROM board WHERE id = ?",
        (task,),
    ).fetchone()
    database.execute("UPDATE board SET began = ? WHERE id = ?", (time.time(), task))
    _set_status(database, news, row["owner"], task, Outcome(status="in_progress"))
    values: dict[str, Any] = {**row, "messages": _messages(row["messages"])}
    return Claim(**values)


def _abandon(database: Connection, news: _News, server: str, owners: Collection[str] | None = None) -> None:
    """Settle the tasks of a server that ends or has ended, of `owners` or of all."""
    rows = database.execute(
        "SELECT id, owner, status, schedule, due FROM board WHERE server = ? "
        "AND status IN ('pending', 'in_progress')",
        (server,),
    ).fetchall()
    for name, owner, status, schedule, due in rows:
        if owners is not None and owner not in owners:
            continue
        if status == "in_progress":
            _set_status(database, news, owner, name, Outcome(status="failed", reason=DIED))
        elif schedule:
            # It has not begun, so its time has not come yet for the next server.
            database.execute("DELETE FROM board WHERE id = ?", (name,))
            database.execute(
                "UPDATE cron_schedules SET next = ?, run_count = run_count - 1 WHERE id = ?", (due, schedule)
            )
        elif owner == LOCAL:
            database.execute("UPDATE board SET server = '' WHERE id = ?", (name,))
        else:
            _set_status(database, news, owner, name, Outcome(status="cancelled", reason=LEFT))


def _measure(database: Connection, task: str) -> None:
    database.execute(
        "UPDATE board SET size = length(output) + length(CAST(subject || description || active_form || "
        "worker || prompt || command || rights || messages AS BLOB)) WHERE id = ?",
        (task,),
    )


def _dependents(database: Connection, task: str) -> list[str]:
    """The tasks that have not ended and depend on `task` directly."""
    rows = database.execute(
        "SELECT task FROM board_needs JOIN board ON id = task WHERE need = ? AND "
        "status IN ('pending', 'in_progress') ORDER BY number",
        (task,),
    )
    return [name for (name,) in rows]


def _board(database: Connection, owner: str | None = None) -> _Board:
    board = _Board()
    board.statuses.update(
        database.execute("SELECT id, status FROM board WHERE ?1 IS NULL OR owner = ?1", (owner,))
    )
    rows = database.execute(
        "SELECT task, need FROM board_needs JOIN board ON id = task WHERE ?1 IS NULL OR owner = ?1 "
        "ORDER BY board_needs.rowid",
        (owner,),
    )
    for task, need in rows:
        board.needs.setdefault(task, []).append(need)
    return board


def _summary(row: Any, board: _Board) -> TaskSummary:
    name, status = row["id"], row["status"]
    blocked = blocking(name, board.statuses, board.needs) if status == "pending" else ""
    is_left = bool(row["runs"]) and status == "pending" and not row["server"]
    return TaskSummary(
        id=name,
        subject=row["subject"],
        status=status,
        worker=row["worker"],
        runs=row["runs"],
        blocked_by=tuple(need for need in board.needs.get(name, ()) if board.statuses[need] != "completed"),
        reason=row["reason"] or blocked or ("It waits for a server that can run it." if is_left else ""),
        is_blocked=bool(blocked),
        is_left=is_left,
    )


def _stored(database: Connection, owner: str, task: str) -> StoredTask:
    row = database.execute("SELECT * FROM board WHERE id = ? AND owner = ?", (task, owner)).fetchone()
    if row is None:
        raise NotFound(f"task not found: {task}. TaskList lists the tasks.")
    board = _board(database, owner)
    output, start = row["output"], row["output_start"]
    detail = TaskDetail(
        summary=_summary(row, board),
        description=row["description"],
        active_form=row["active_form"],
        prompt=row["prompt"],
        command=row["command"],
        depends_on=tuple(board.needs.get(task, ())),
        messages=_messages(row["messages"]),
        created=row["created"],
        updated=row["updated"],
        output_bytes=start + len(output),
    )
    return StoredTask(detail=detail, owner=owner, server=row["server"], output=output, output_start=start)


def _messages(text: str) -> tuple[TaskMessage, ...]:
    return tuple(TaskMessage(text=one["text"], at=one["at"]) for one in json.loads(text))
