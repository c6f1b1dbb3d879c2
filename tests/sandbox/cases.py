"""A table of cases in one test: every case runs, and the test fails with the names of all that went wrong."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager

import pytest

Case = Callable[[str], AbstractContextManager[None]]


@contextmanager
def collected() -> Generator[Case]:
    """Gives `case`. What fails in `with case(name):` is told at the end, when every other case has run."""
    wrong: list[str] = []

    @contextmanager
    def case(name: str) -> Generator[None]:
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  # told below, with the others
            wrong.append(f"{name}: {str(error) or repr(error)}")

    yield case
    if wrong:
        pytest.fail("\n".join(wrong))
