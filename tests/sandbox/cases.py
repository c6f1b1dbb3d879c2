"""Tables of cases in one test, which runs them all and reports every failure, and waiting, bounded."""

import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager

import pytest

Case = Callable[[str], AbstractContextManager[None]]


@contextmanager
def collected() -> Generator[Case]:
    """Gives `case`. What fails in `with case(name):` is reported at the end, when all cases have run."""
    wrong: list[str] = []

    @contextmanager
    def case(name: str) -> Generator[None]:
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  # reported below, with the others
            wrong.append(f"{name}: {str(error) or repr(error)}")

    yield case
    if wrong:
        pytest.fail("\n".join(wrong))


def until(condition: Callable[[], object], seconds: float = 20) -> None:
    """Wait, bounded, until something is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not become so"
        time.sleep(0.02)
