"""Every tool has one example, which docs/tools.md shows and a real server answers so."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.examples_stage import FOLDER, Stage, example, stage, store
from tests.generated import ENTRIES

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    # One server for all.
    pytest.mark.xdist_group("test_each_example"),
]

NAMES = [entry.spec.name for entry in ENTRIES]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def there(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Stage]:
    async with stage(tmp_path_factory.mktemp("stage")) as made:
        yield made


async def test_every_tool_has_one_example_and_nothing_else_has() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.json")) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
async def test_a_tool_answers_as_its_example_shows(name: str, there: Stage, update: bool) -> None:
    if name in there.offered:
        answer = await there.answer(name)
        if update:
            store(name, answer)
        assert answer == example(name).answer, "review the change, then run pytest --update"
    assert example(name).answer
