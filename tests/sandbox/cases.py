"""Tables of cases in one test, of which every case runs and all failures are told, and waiting, bounded."""

import time
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


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Wait, bounded, until something is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not become so"
        time.sleep(0.02)
