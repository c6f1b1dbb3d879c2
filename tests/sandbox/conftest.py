"""What the sandbox is tried on as each user: grounds for single commands, and servers over HTTP."""

from collections.abc import Generator

import pytest

from tests.sandbox.sandboxed import Ground, Starter, ground, starter
from tests.support import live
from tests.support.confinement import AS_ROOT_IN_LONG, AS_UNPRIVILEGED_IN_LONG, as_user, scene


@pytest.fixture(scope="module", params=AS_UNPRIVILEGED_IN_LONG)
def process(request: pytest.FixtureRequest) -> Generator[Starter]:
    """What starts commands for a user."""
    with starter(request.param) as started:
        yield started


@pytest.fixture
def here(process: Starter) -> Generator[Ground]:
    """A ground for one test; a test with a table makes one for each case."""
    with ground(process) as made:
        yield made


@pytest.fixture(scope="module", params=AS_ROOT_IN_LONG)
def url(request: pytest.FixtureRequest) -> Generator[str]:
    """The address of a server over HTTP, run by each user, for sessions of the tests."""
    with scene(request.param) as made:
        setup = live.Setup(root=made.root, home=made.base, around=as_user(made))
        with live.serving(setup, "http") as address:
            yield address
