"""Changes todo lists and formats them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from mcp_toolserver.capabilities.stored import Todo, TodoList, TodoPriority
from mcp_toolserver.errors import InvalidInput, NotFound

MOST = 200
"""Maximum items of a list."""

_ENOUGH_TO_VERIFY = 3
_MARKS = {"pending": " ", "in_progress": "~", "completed": "x"}


def replaced(before: TodoList, todos: Sequence[Todo]) -> TodoList:
    """Replace the list by `todos`; a list of completed items alone becomes empty."""
    if all(todo.status == "completed" for todo in todos):
        return TodoList(next_id=before.next_id)
    return TodoList(todos=tuple(todos), next_id=max(todo.id for todo in todos) + 1)


def added(before: TodoList, text: str, priority: TodoPriority) -> TodoList:
    """Add an item at the end. Raises: InvalidInput: the list is full."""
    if len(before.todos) >= MOST:
        raise InvalidInput(f"The list holds {MOST} things already; remove some, or start a new list.")
    new = Todo(id=before.next_id, content=text, priority=priority)
    return TodoList(todos=(*before.todos, new), next_id=before.next_id + 1)


def toggled(before: TodoList, number: int) -> TodoList:
    """Complete an item, or reopen a completed one. Raises: NotFound."""
    found = _found(before, number)
    other = replace(found, status="pending" if found.status == "completed" else "completed")
    return replace(before, todos=tuple(other if todo is found else todo for todo in before.todos))


def removed(before: TodoList, number: int) -> TodoList:
    """Remove an item. Raises: NotFound."""
    found = _found(before, number)
    return replace(before, todos=tuple(todo for todo in before.todos if todo is not found))


def cleared(before: TodoList) -> TodoList:
    """Remove all items."""
    return replace(before, todos=())


def wants_verification(todos: Sequence[Todo]) -> bool:
    """Whether a list of some length was finished and nothing on it was to verify the rest."""
    is_done = all(todo.status == "completed" for todo in todos)
    return (
        is_done and len(todos) >= _ENOUGH_TO_VERIFY and not any("verif" in t.content.lower() for t in todos)
    )


def shown(todos: Iterable[Todo]) -> str:
    """Format each item as a line: id, mark, text."""
    return "\n".join(map(_line, todos))


def _line(todo: Todo) -> str:
    return f"{todo.id} [{_MARKS[todo.status]}] {todo.content}{''.join(_remarks(todo))}"


def _remarks(todo: Todo) -> Iterator[str]:
    if todo.priority != "medium":
        yield f" ({todo.priority})"
    if todo.status == "in_progress" and todo.active_form not in ("", todo.content):
        yield f": {todo.active_form}"


def _found(before: TodoList, number: int) -> Todo:
    found = next((todo for todo in before.todos if todo.id == number), None)
    if found is None:
        known = ", ".join(str(todo.id) for todo in before.todos) or "none: the list is empty"
        raise NotFound(f"Nothing on the list has the id {number}. Ids on it: {known}.")
    return found
