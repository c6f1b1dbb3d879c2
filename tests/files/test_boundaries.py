"""No file tool reaches what lies outside the roots or what a rule hides or denies, and none writes where it
may only read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.capabilities.permissions import Permission
from tests.notebook.notebooks import made, written
from tests.support.calling import Bench, held, make
from tests.support.workbench import real_tools

READING: tuple[tuple[str, dict[str, Any]], ...] = (
    *((tool, {"path": "{}"}) for tool in ("read_file", "head", "tail", "view_image", "ls", "tree")),
    *(("diff", {"path": "{}", "other_path": "f"}), ("diff", {"path": "f", "other_path": "{}"})),
)
WRITING: tuple[tuple[str, dict[str, Any]], ...] = (
    ("mkdir", {"path": "{}"}),
    ("write_file", {"path": "{}", "content": "x", "overwrite": True}),
    ("edit_file", {"path": "{}", "old_string": "x", "new_string": "y"}),
    ("NotebookEdit", {"path": "{}", "cell_number": 0, "new_source": "1"}),
    *(
        ("apply_patch", {"patch": f"*** Begin Patch\n{section}\n*** End Patch"})
        for section in (
            *("*** Add File: {}\n+x", "*** Update File: {}\n@@\n-y\n+x", "*** Delete File: {}"),
            *("*** Update File: g\n*** Move to: {}", "*** Update File: {}\n*** Move to: moved"),
        )
    ),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {
        "f": b"x\n",
        "g": b"x\n",
        "sub/private/f": b"x\n",
        "sub/n.ipynb": written(made()),
        "secret/key.ipynb": b"x\n",
    }
    (tmp_path / "x").write_bytes(b"outside\n")
    root = make(tmp_path / "root", files)
    (root / "out").symlink_to("..")
    (root / "dangling").symlink_to("../y")
    return root


def filled(arguments: dict[str, Any], path: str) -> dict[str, Any]:
    return {
        name: value.replace("{}", path) if isinstance(value, str) else value
        for name, value in arguments.items()
    }


async def not_denied(
    root: Path,
    *paths: str,
    deny: tuple[str, ...] = (),
    hides: Callable[[tuple[str, ...]], bool] | None = None,
) -> list[tuple[str, str]]:
    """The tools that take one of these paths, each of which must be denied to all."""
    before = held(root.parent)
    found: list[tuple[str, str]] = []
    for tool, arguments in (*READING, *WRITING):
        denied = [rule.format(tool) for rule in deny]
        bench = Bench(tool=real_tools().entries[tool].spec, root=root, deny=denied, hides=hides)
        errors = {path: (await bench.result(**filled(arguments, path))).error for path in paths}
        found += [(tool, path) for path, error in errors.items() if error != "denied"]
    after = held(root.parent)
    assert {path: content for path, content in after.items() if not path.startswith("state/")} == before
    return found


async def test_no_tool_reaches_outside_of_the_roots(root: Path) -> None:
    absolute = f"{root.parent}/x"
    assert await not_denied(root, "../x", "sub/../../x", absolute, "out/x", "dangling", "/etc/passwd") == []


async def test_no_tool_reaches_what_a_rule_hides_or_denies_in_any_spelling(root: Path) -> None:
    (root / "link").symlink_to("sub")

    def hides(names: tuple[str, ...]) -> bool:
        return names[0].startswith("secret")

    hidden = ("secret/key.ipynb", "secret/new.ipynb", "sub/../secret/key.ipynb")
    assert await not_denied(root, *hidden, hides=hides) == []
    spellings = ("sub/private/f", "./sub//private/f", "link/private/f", f"{root}/sub/private/f")
    assert await not_denied(root, *spellings, "sub/private/new", deny=("{}(sub/private/**)",)) == []


async def test_where_nothing_forbids_it_each_tool_does_its_work(root: Path) -> None:
    inside = {
        "ls": "sub",
        "tree": "sub",
        "mkdir": "new",
        "write_file": "new.txt",
        "NotebookEdit": "sub/n.ipynb",
    }
    for tool, arguments in (*READING, *WRITING):
        bench = Bench(tool=real_tools().entries[tool].spec, root=root, deny=(f"{tool}(sub/private/**)",))
        path = "added" if "Add File" in str(arguments) else inside.get(tool, "f")
        wanted = "invalid_input" if tool == "view_image" else None  # which is no picture
        assert (await bench.result(**filled(arguments, path))).error == wanted, tool


async def test_in_read_only_mode_no_tool_writes(root: Path) -> None:
    before = held(root)
    for tool, arguments in WRITING:
        bench = Bench(tool=real_tools().entries[tool].spec, root=root, ceiling=Permission.READ_ONLY)
        assert (await bench.result(**filled(arguments, "f"))).error == "denied", tool
    assert held(root) == before
