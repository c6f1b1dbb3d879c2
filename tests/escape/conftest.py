"""Scenes that the attempts to escape start from."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.escape import path_scenes


@pytest.fixture(params=path_scenes.ENGINES)
def scenes(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], path_scenes.Scene]:
    """Gives a new scene of paths for a case by its name, with each engine that opens paths."""
    return lambda name: path_scenes.built(tmp_path / name, request.param)


@pytest.fixture
def scene(scenes: Callable[[str], path_scenes.Scene]) -> path_scenes.Scene:
    """One scene of paths, for a test that needs no more."""
    return scenes("scene")
