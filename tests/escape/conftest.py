"""Scenes that the attempts to escape start from."""

from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from tests.escape import path_scenes
from tests.support import confinement


@pytest.fixture(params=path_scenes.ENGINES)
def scenes(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], path_scenes.Scene]:
    """Gives a new scene of paths for a case by its name, with each engine that opens paths."""
    return lambda name: path_scenes.built(tmp_path / name, request.param)


@pytest.fixture
def scene(scenes: Callable[[str], path_scenes.Scene]) -> path_scenes.Scene:
    """One scene of paths, for a test that needs no more."""
    return scenes("scene")


@pytest.fixture(scope="session")
def pattern() -> Generator[confinement.Scene]:
    """A scene of commands to copy."""
    with confinement.scene(confinement.USERS[0]) as made:
        yield made


@pytest.fixture(scope="session")
def ground() -> Generator[Path]:
    """Where the copies go."""
    with confinement.visible_folder() as folder:
        yield folder
