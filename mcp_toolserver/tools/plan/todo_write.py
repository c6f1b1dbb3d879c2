"""Write the todo list of this session: `todos` replaces the whole list, `action` makes one change. Returns
the list. A list_id from an earlier call selects another list, also one of an earlier session.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Literal

from mcp_toolserver import tool as t

MOST = 200
"""Maximum items of a list."""

_ENOUGH_TO_VERIFY = 3
_MARKS = {"pending": " ", "in_progress": "~", "completed": "x"}


Words = Annotated[str, t.Field(max_length=1_000), t.NotBlank]

Action = Literal["list", "add", "toggle", "remove", "clear"]

_TAKES: dict[Action | None, tuple[set[str], set[str]]] = {
    None: ({"todos"}, set()),
    "list": (set(), set()),
    "add": ({"text"}, {"priority"}),
    "toggle": ({"id"}, set()),
    "remove": ({"id"}, set()),
    "clear": (set(), set()),
}
"""Required and optional arguments of each action."""


class TodoItem(t.Args):
    content: Words = t.Field(description="What has to be done")
    active_form: Words | None = t.Field(
        default=None, alias="activeForm", description="The same in the -ing form, such as `Running tests`"
    )
    status: t.TodoStatus = t.Field(default="pending", description="Progress of this todo")


class TodoWrite(t.Args):
    todos: tuple[TodoItem, ...] = t.Field(
        default=(), strict=False, max_length=MOST, description="The whole list; replaces the previous one"
    )
    action: Action | None = t.Field(
        default=None, description="One change or look at the list, instead of todos"
    )
    text: Words | None = t.Field(default=None, description="Text of the todo to add")
    id: int | None = t.Field(default=None, description="Id of the todo to toggle or remove")
    priority: t.TodoPriority = t.Field(default="medium", description="Priority of the todo to add")
    list_id: str = t.Field(default="", max_length=100, description="List to change; default: the session's")

    @t.model_validator(mode="after")
    def _one_form(self) -> "TodoWrite":
        if not self.todos and self.action is None:
            raise ValueError("todos must not be empty; or give an action")
        what = self.action or "a list of todos"
        needed, possible = _TAKES[self.action]
        given = self.model_fields_set - {"action"}
        if surplus := sorted(given - needed - possible - {"list_id"}):
            raise ValueError(f"{what} does not take {', '.join(surplus)}")
        if missing := sorted(needed - given):
            raise ValueError(f"{what} needs {' and '.join(missing)}")
        return self


class Todos(t.Record):
    list_id: str
    newTodos: tuple[dict[str, t.JsonValue], ...] = ()  # noqa: N815  the name that clients know
    oldTodos: tuple[dict[str, t.JsonValue], ...] = ()  # noqa: N815  the name that clients know
    verificationNudgeNeeded: bool = False  # noqa: N815  the name that clients know

    @t.model_serializer
    def _nudge_or_nothing(self) -> dict[str, t.JsonValue]:
        record: dict[str, t.JsonValue] = {
            "list_id": self.list_id,
            "newTodos": list(self.newTodos),
            "oldTodos": list(self.oldTodos),
        }
        return {**record, "verificationNudgeNeeded": True} if self.verificationNudgeNeeded else record


async def run(args: TodoWrite, rt: t.Runtime) -> t.Output:
    changed = await rt.todos.change(args.list_id, lambda before: _changed(args, before))
    now = _sent(args, changed.before) if args.todos else changed.after.todos
    nudge = bool(args.todos) and _wants_verification(now)
    record = Todos(
        list_id=changed.handle,
        newTodos=_as_json(now),
        oldTodos=_as_json(changed.before.todos),
        verificationNudgeNeeded=nudge,
    )
    return t.Output("\n".join(_lines(record.list_id, now, nudge=nudge)), data=record)


def _changed(args: TodoWrite, before: t.TodoList) -> t.TodoList:
    todos = before.todos
    match args.action:
        case None:
            return _replaced(before, _sent(args, before))
        case "add":
            return _added(before, args.text or "", args.priority)
        case "toggle":
            found = _found(before, args.id or 0)
            other = replace(found, status="pending" if found.status == "completed" else "completed")
            return replace(before, todos=tuple(other if todo is found else todo for todo in todos))
        case "remove":
            found = _found(before, args.id or 0)
            return replace(before, todos=tuple(todo for todo in todos if todo is not found))
        case "clear":
            return replace(before, todos=())
        case _:
            return before


def _replaced(before: t.TodoList, todos: tuple[t.Todo, ...]) -> t.TodoList:
    """Replace the list by `todos`; a list of completed items alone becomes empty."""
    if all(todo.status == "completed" for todo in todos):
        return t.TodoList(next_id=before.next_id)
    return t.TodoList(todos=todos, next_id=max(todo.id for todo in todos) + 1)


def _added(before: t.TodoList, text: str, priority: t.TodoPriority) -> t.TodoList:
    if len(before.todos) >= MOST:
        raise t.InvalidInput(f"The list holds {MOST} things already; remove some, or start a new list.")
    new = t.Todo(id=before.next_id, content=text, priority=priority)
    return t.TodoList(todos=(*before.todos, new), next_id=before.next_id + 1)


def _found(before: t.TodoList, number: int) -> t.Todo:
    found = next((todo for todo in before.todos if todo.id == number), None)
    if found is None:
        known = ", ".join(str(todo.id) for todo in before.todos) or "none: the list is empty"
        raise t.NotFound(f"Nothing on the list has the id {number}. Ids on it: {known}.")
    return found


def _sent(args: TodoWrite, before: t.TodoList) -> tuple[t.Todo, ...]:
    """The whole list as sent. What stays on it keeps its priority, which is not sent."""
    priorities: dict[str, t.TodoPriority] = {todo.content: todo.priority for todo in before.todos}
    return tuple(
        t.Todo(
            id=number,
            content=item.content,
            active_form=item.active_form or "",
            status=item.status,
            priority=priorities.get(item.content, "medium"),
        )
        for number, item in enumerate(args.todos, start=1)
    )


def _as_json(todos: Sequence[t.Todo]) -> tuple[dict[str, t.JsonValue], ...]:
    return tuple(
        {
            "id": todo.id,
            "content": todo.content,
            "activeForm": todo.active_form or todo.content,
            "status": todo.status,
            "priority": todo.priority,
        }
        for todo in todos
    )


def _wants_verification(todos: Sequence[t.Todo]) -> bool:
    """Whether a list of some length was finished and nothing on it was to verify the rest."""
    is_done = all(todo.status == "completed" for todo in todos)
    is_verified = any("verif" in todo.content.lower() for todo in todos)
    return is_done and len(todos) >= _ENOUGH_TO_VERIFY and not is_verified


def _lines(handle: str, todos: Sequence[t.Todo], *, nudge: bool) -> Iterator[str]:
    done = sum(todo.status == "completed" for todo in todos)
    yield f"list_id {handle}: {done} of {len(todos)} done"
    for todo in todos:
        yield f"{todo.id} [{_MARKS[todo.status]}] {todo.content}{''.join(_remarks(todo))}"
    if nudge:
        yield "All is done, but nothing on the list was to verify it. Check the result before you say so."


def _remarks(todo: t.Todo) -> Iterator[str]:
    if todo.priority != "medium":
        yield f" ({todo.priority})"
    if todo.status == "in_progress" and todo.active_form not in ("", todo.content):
        yield f": {todo.active_form}"


TOOL = t.ToolSpec(
    name="TodoWrite",
    title="Update todo list",
    permission=t.Permission.WORKSPACE_WRITE,
    needs=frozenset({t.Capability.TODOS}),
    args=TodoWrite,
    run=run,
    subjects=lambda args: (args.list_id,) if args.list_id else (),
    output=Todos,
    aliases=(t.Alias("todo"), t.Alias("write_todos")),
    profile=t.Profile.DEFAULT,
)
