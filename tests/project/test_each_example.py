"""Each tool has an example, and a real server gives the same answer."""

from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest
import pytest_asyncio

from tests.project.examples_stage import FOLDER, Example, Stage, example, path_of, stage, store, stored
from tests.support.generated import ENTRIES

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


@pytest.mark.parametrize("name", NAMES)
async def test_a_tool_answers_as_its_example_shows(name: str, there: Stage, update: bool) -> None:
    if name in there.offered:
        answer = await there.answer(name)
        if update:
            store(name, answer)
        assert Example(**stored(name)) == replace(example(name), answer=answer), (
            "review the change, then run python -m tests update"
        )
    assert example(name).answer


async def test_every_tool_has_one_example_and_nothing_else_has() -> None:
    assert {*FOLDER.rglob("*.json")} == {path_of(name) for name in NAMES}
