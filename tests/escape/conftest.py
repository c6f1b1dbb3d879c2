"""Scenes of paths, for each engine that opens them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.escape.path_scenes import ENGINES, Scene, built


@pytest.fixture(params=ENGINES)
def scenes(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Scene]:
    """Gives a new scene for a case by its name."""
    return lambda name: built(tmp_path / name, request.param)


@pytest.fixture
def scene(scenes: Callable[[str], Scene]) -> Scene:
    """One scene, for a test that needs no more."""
    return scenes("scene")
