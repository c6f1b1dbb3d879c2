"""State that the server stores for its callers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

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


class Todos(Protocol):
    """Todo lists by handle; they outlive the server."""

    async def change(self, handle: str, change: Callable[[TodoList], TodoList]) -> TodoChange:
        """Replace a list by the result of `change`, one change at a time.

        An empty handle means the list that the caller changed last, or a new one.

        Raises:
            NotFound: the caller has no such list.
            Conflict: another server has been changing this state for seconds.
            Unavailable: the state cannot be read or written, or was damaged.
        """
        ...


Preference = str | bool | int | float


class Preferences(Protocol):
    """The stored preferences of a workspace, and the settings of the operator."""

    @property
    def decided(self) -> Mapping[str, Preference]:
        """Settings of the operator; no call changes them."""
        ...

    async def kept(self) -> Mapping[str, Preference]:
        """Return the stored preferences. Raises: Conflict, Unavailable: as for `Todos.change`."""
        ...

    async def put(self, key: str, value: Preference) -> Preference | None:
        """Store `value`; return the previous value. Raises: Conflict, Unavailable: as for `Todos.change`."""
        ...
