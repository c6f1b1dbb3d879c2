"""State that the server stores for its callers."""

from dataclasses import dataclass
from typing import Literal

TodoStatus = Literal["pending", "in_progress", "completed"]
TodoPriority = Literal["medium", "high", "low"]


@dataclass(frozen=True, kw_only=True)
class Todo:
    """An item of a todo list."""

    id: int
    content: str
    active_form: str = ""
    """The text while the item is in progress; empty for `content`."""
    status: TodoStatus = "pending"
    priority: TodoPriority = "medium"


@dataclass(frozen=True, kw_only=True)
class TodoList:
    """Items in order. Ids of removed items are not reused."""

    todos: tuple[Todo, ...] = ()
    next_id: int = 1


@dataclass(frozen=True, kw_only=True)
class TodoChange:
    """A list before and after a change."""

    handle: str
    before: TodoList
    after: TodoList
