"""The pages of docs/clients/ show what `setup` writes."""

import json
import sys
from functools import reduce
from pathlib import Path

import pytest

from mcp_toolserver.commands.setup.clients import CLIENTS, Client
from mcp_toolserver.runtime.sandbox.protected.names import PROJECT_FILES, is_protected
from tests.client_programs.programs import PROGRAMS
from tests.setup.client_setup import OBSERVED, PAGES, PROGRAM, PROJECT, page, setup, setup_line


@pytest.mark.parametrize("client", CLIENTS.values(), ids=list(CLIENTS))
def test_the_page_of_a_client_shows_what_setup_prints(client: Client, tmp_path: Path, update: bool) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()

    def printed(*more: str) -> str:
        line = [*setup_line(client, str(project)), "--permission-mode", "workspace-write"]
        done = setup(*line, *more, "--print", home=home)
        assert done.returncode == 0, done.stderr
        program = str(Path(sys.executable).with_name("mcp-toolserver"))
        places = {str(project): PROJECT, str(home): "~", program: PROGRAM}
        return reduce(lambda text, place: text.replace(place, places[place]), places, done.stdout)

    text = page(client, printed(), printed("--confine") if client.confine else None)
    file = PAGES / f"{client.name}.md"
    if update:
        PAGES.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text, "run python -m tests update"


def test_every_file_of_a_project_is_one_that_no_tool_changes() -> None:
    clients = CLIENTS.values()
    files = {file for one in clients for file in (one.project, one.confine_project) if file}
    assert files == {path for paths in PROJECT_FILES.values() for path in paths}
    assert [path for path in files if not is_protected(path, git_writable=True)] == []


def test_every_page_is_of_a_client() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == CLIENTS.keys()


def test_what_a_client_supports_is_observed() -> None:
    observed = json.loads(OBSERVED.read_text(encoding="utf-8"))
    assert observed.keys() == {program.client for program in PROGRAMS}
