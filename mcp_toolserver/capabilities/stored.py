"""What the server keeps for its callers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

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
        """Replace a list by `change` of it, serially with all other changes; without a
        handle, the list that the caller used last, or a new one.

        Raises:
            NotFound: the caller has no such list.
            Conflict: another server has been changing this state for seconds.
            Unavailable: the state cannot be read or written, or was damaged.
        """
        ...


Preference = str | bool | int | float


class Preferences(Protocol):
    """What is remembered for those who work here, and what the operator decided."""

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
