"""Roots with a mode below the server's: nothing writes in them by any way, and each way works without."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.invocation import load
from tests.support.cases import collected
from tests.support.extent import rounds
from tests.support.live import Setup, connected, text
from tests.support.snapshot import differences, snapshot
from tests.support.workbench import Person
from tests.support.workshop import workshop

Attack = tuple[str, dict[str, Any]]

NOTEBOOK = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}
CELL = {"cell_type": "code", "id": "a", "source": "1", "metadata": {}, "outputs": [], "execution_count": None}
GIT = ("git", "-c", "user.name=n", "-c", "user.email=n@example.org")
MMAP = "import mmap,os; d=os.open(f'{}/f', os.O_RDWR); mmap.mmap(d, 0)[0:1] = b'X'"


def attacks(target: str) -> dict[str, Attack]:
    """Ways to write in the folder `target`."""

    def bash(script: str, **more: object) -> Attack:
        return "bash", {"command": script.replace("T", target), **more}

    return {
        "write": bash("echo x >> T/f"),
        "rename-into": bash("echo x > new; mv new T/new"),
        "rename-out": bash("mv T/f out"),
        "hard-link": bash("ln T/f alias && echo x >> alias"),
        "symlink": bash("ln -sfn T link && echo x >> link/f"),
        "mode": bash("chmod 600 T/f"),
        "mmap": bash(f'python3 -c "{MMAP.format(target)}"'),
        "git-in-bash": bash("cd T && git -c user.name=n -c user.email=n@x commit -q --allow-empty -m x"),
        "git-from-outside": bash("git --git-dir=T/.git update-ref refs/heads/other HEAD"),
        "background": bash("echo x >> T/f", run_in_background=True),
        "repl": ("REPL", {"language": "python", "code": f"open('{target}/f', 'a').write('x')"}),
        "write_file": ("write_file", {"path": f"{target}/new", "content": "x"}),
        "edit_file": ("edit_file", {"path": f"{target}/f", "old_string": "text", "new_string": "x"}),
        "through-a-link": ("write_file", {"path": "link-to-it/new", "content": "x"}),
        "mkdir": ("mkdir", {"path": f"{target}/new"}),
        "apply_patch": (
            "apply_patch",
            {"patch": f"*** Begin Patch\n*** Add File: {target}/new\n+x\n*** End Patch"},
        ),
        "move-out": (
            "apply_patch",
            {"patch": f"*** Begin Patch\n*** Update File: {target}/f\n*** Move to: moved\n@@\n-text\n+x\n"
            "*** End Patch"},
        ),
        "notebook": ("NotebookEdit", {"path": f"{target}/n.ipynb", "cell_id": "a", "new_source": "2"}),
        "git_commit": ("git_commit", {"message": "x", "paths": [f"{target}/changed"]}),
        "git_branch": ("git_branch", {"name": "b", "create": True, "path": target}),
    }  # fmt: skip


def filled(folder: Path) -> None:
    """Make the new `folder` a repository with a file, a notebook and an uncommitted change."""
    folder.mkdir(parents=True)
    (folder / "f").write_text("text\n", encoding="utf-8")
    (folder / "n.ipynb").write_text(json.dumps({**NOTEBOOK, "cells": [CELL]}), encoding="utf-8")
    (folder / "changed").write_text("1", encoding="utf-8")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "x")):
        subprocess.run([*GIT, *words], cwd=folder, check=True)
    (folder / "changed").write_text("2", encoding="utf-8")


async def harmed(setup: Setup, folder: Path, every: dict[str, Attack]) -> dict[str, str]:
    """The attacks after which something in `folder` differs, and what each answered."""
    seen: dict[str, str] = {}
    pattern = setup.home / "pattern"
    if not pattern.exists():
        filled(pattern)
    async with connected(setup) as client:
        for name, (tool, arguments) in every.items():
            left = [setup.root / one for one in ("new", "out", "alias", "link", "moved", "link-to-it", "old")]
            folder.mkdir(parents=True, exist_ok=True)
            subprocess.run(["rm", "-rf", *left, *folder.iterdir()], check=True)
            subprocess.run(["cp", "-a", f"{pattern}/.", folder], check=True)
            (setup.root / "link-to-it").symlink_to(os.path.relpath(folder, setup.root))
            if name in ("parent", "hard-link"):
                # Its protection would keep the folders above it in place, as mounts.
                subprocess.run(["rm", "-rf", folder / ".git"], check=True)
            if tool in ("edit_file", "apply_patch", "NotebookEdit"):
                for file in ("f", "n.ipynb"):
                    await client.call_tool("read_file", {"path": f"{folder}/{file}"})
            before = snapshot(folder)
            answer = await client.call_tool(tool, arguments)
            if arguments.get("run_in_background"):
                handle = re.findall(r"bg_\w+", text(answer))[0]
                asked = {"task_id": handle, "until": "end", "wait_ms": 20_000}
                assert "exit" in text(await client.call_tool("TaskOutput", asked))
            if differences(before, snapshot(folder)):
                seen[name] = text(answer)
    return seen


@pytest.mark.rounds
@pytest.mark.anyio
@pytest.mark.parametrize("where", [pytest.param("apart", marks=pytest.mark.long), "inside"])
async def test_nothing_writes_in_a_read_only_root_and_without_its_mode_everything_does(
    where: str, tmp_path: Path
) -> None:
    setup = Setup.below(tmp_path, "workspace-write", "--git-author", "n <n@example.org>")
    kept = tmp_path / "kept" if where == "apart" else setup.root / "deep" / "vendor"
    kept.mkdir(parents=True)
    every = attacks(str(kept))
    if where == "inside":
        every["parent"] = "bash", {"command": "mv deep old && mkdir -p deep/vendor && echo x > deep/vendor/y"}
    else:
        # Nothing leads from one root into another, with or without a mode.
        every = {name: one for name, one in every.items() if name not in ("hard-link", "through-a-link")}
    plain = ("--root", str(kept)) if where == "apart" else ()
    controls = dict(list(every.items())[:: rounds(3, 1)])
    harm = await harmed(replace(setup, flags=(*setup.flags, *plain)), kept, controls)
    assert controls.keys() - harm.keys() == set()
    held = replace(setup, flags=(*setup.flags, "--root", f"{kept}=read-only"))
    assert await harmed(held, kept, every) == {}


@pytest.mark.anyio
async def test_a_read_only_root_is_read_and_named_and_the_others_are_written(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    filled(kept)
    setup = Setup.below(tmp_path, "workspace-write", "--root", f"{kept}=read-only")
    async with connected(setup) as client:
        assert "text" in text(await client.call_tool("read_file", {"path": f"{kept}/f"}))
        copied = await client.call_tool("bash", {"command": f"cp {kept}/f copy && git -C {kept} status"})
        refused = await client.call_tool("git_commit", {"message": "x", "paths": [f"{kept}/changed"]})
        assert f"{kept} (read-only)" in (client.instructions or "")
    assert not copied.is_error
    assert (setup.root / "copy").read_text(encoding="utf-8") == "text\n"
    assert "read-only" in text(refused)


@pytest.mark.anyio
async def test_landlock_alone_keeps_a_read_only_root_and_refuses_commands_for_a_part_of_one(
    tmp_path: Path,
) -> None:
    kept, inner = tmp_path / "kept", tmp_path / "root" / "inner"
    for folder in (kept, inner):
        folder.mkdir(parents=True)
    for read_only, roots, answer in ((kept, (str(kept),), "Permission denied"), (inner, (), "read-only")):
        with anyio.fail_after(30):
            async with workshop(
                tmp_path,
                Permission.WORKSPACE_WRITE,
                more_roots=roots,
                bubblewrap=False,
                allow_degraded=True,
                read_only_roots=(str(read_only),),
            ) as at:
                result = await at.call("bash", {"command": f"echo x > f; echo x > {read_only}/f"}, Person())
        assert answer in result.text
        assert not (read_only / "f").exists()
        assert (tmp_path / "root" / "f").exists() == (read_only == kept)
        (tmp_path / "root" / "f").unlink(missing_ok=True)


@pytest.mark.anyio
async def test_a_client_that_works_in_a_part_of_a_read_only_root_writes_nothing_there(tmp_path: Path) -> None:
    kept, inner = tmp_path / "kept", tmp_path / "root" / "inner"
    for folder in (kept / "sub", inner / "sub"):
        folder.mkdir(parents=True)
    modes = {"more_roots": (str(kept),), "read_only_roots": (str(kept), str(inner))}
    with anyio.fail_after(60):
        async with workshop(tmp_path, Permission.WORKSPACE_WRITE, **modes) as at:
            for part in (kept / "sub", inner / "sub"):
                person = Person(works_in=(str(part),), owner=str(part))
                assert "Read-only" in (await at.call("bash", {"command": "echo x > f"}, person)).text
                code = {"language": "python", "code": "open('f', 'w')"}
                assert "Read-only" in (await at.call("REPL", code, person)).text
                assert (await at.call("write_file", {"path": "f", "content": "x"}, person)).error == "denied"
                assert list(part.iterdir()) == []


LOCKED = """
import sys
from mcp_toolserver.app.confinement import lock_server
from mcp_toolserver.invocation import load
folder, *flags = sys.argv[1:]
lock_server(load(flags, {}).settings)
for name in ("root", "kept"):
    try:
        open(f"{folder}/{name}/new", "w").close()
        print(name)
    except PermissionError:
        pass
"""


def test_the_lock_of_the_server_itself_leaves_a_read_only_root_out(tmp_path: Path) -> None:
    for name in ("root", "kept", "state"):
        (tmp_path / name).mkdir()
    for mode, expected in (("", ["root", "kept"]), ("=read-only", ["root"])):
        flags = ["--permission-mode", "workspace-write", "--state-dir", str(tmp_path / "state")]
        flags += ["--root", str(tmp_path / "root"), "--root", f"{tmp_path}/kept{mode}"]
        command = [sys.executable, "-c", LOCKED, str(tmp_path), *flags]
        printed = subprocess.run(command, capture_output=True, check=True, text=True, encoding="utf-8")
        assert printed.stdout.split() == expected


def test_the_mode_of_a_root_only_lowers_and_is_no_part_of_a_name(tmp_path: Path) -> None:
    for name in ("a", "a/in", "b", "c=read-only", "d=x"):
        (tmp_path / name).mkdir()

    def roots(mode: str, *given: str) -> object:
        words = [word for one in given for word in ("--root", f"{tmp_path}/{one}")]
        try:
            found = load(["--permission-mode", mode, *words], {}).settings
        except SettingsError:
            return None
        return [
            [os.path.relpath(one, tmp_path) for one in part] for part in (found.root, found.read_only_roots)
        ]

    write, full = "workspace-write", "danger-full-access"
    with collected() as case:
        for mode, given, expected in (
            (write, ("a=read-only", "b"), [["a", "b"], ["a"]]),
            (write, ("a=workspace-write",), [["a"], []]),
            (write, ("a", "a/in=read-only"), [["a"], ["a/in"]]),
            (write, ("a/in=read-only", "a=read-only"), [["a"], ["a/in", "a"]]),
            (write, ("c=read-only=read-only", "d=x"), [["c=read-only", "d=x"], ["c=read-only"]]),
            (write, ("c=read-only=workspace-write",), [["c=read-only"], []]),
            ("read-only", ("a=read-only",), [["a"], []]),
            (full, ("a=danger-full-access",), [["a"], []]),
            (write, ("a=danger-full-access",), None),
            ("read-only", ("a=workspace-write",), None),
            (full, ("a=read-only",), None),
            (write, ("a=read-only", "a/in"), None),
            (write, ("a", "a=read-only"), None),
            (write, ("missing=read-only",), None),
        ):
            with case(f"{mode} {given}"):
                assert roots(mode, *given) == expected


def test_setup_keeps_the_modes_of_roots_variables_give_them_and_tokens_have_none(tmp_path: Path) -> None:
    home, program = tmp_path / "home", [sys.executable, "-m", "mcp_toolserver"]
    for name in ("home", "a/in", "b"):
        (tmp_path / name).mkdir(parents=True)
    roots = [str(tmp_path / "a"), f"{tmp_path}/b=read-only", f"{tmp_path}/a/in=read-only"]
    flags = [word for root in roots for word in ("--root", root)] + ["--permission-mode", "workspace-write"]

    def printed(*words: str) -> str:
        ended = subprocess.run(
            [*program, *words, *flags],
            env={**os.environ, "HOME": str(home)},
            capture_output=True,
            check=False,
            text=True,
            encoding="utf-8",
        )
        return ended.stdout + ended.stderr

    entry = printed("setup", "claude-desktop", "--print")
    assert all(f'"{root}"' in entry for root in roots)
    assert "no mode of their own" in printed("token", "add", "x", "--tokens", str(tmp_path / "tokens"))
    found = load(["--permission-mode", "workspace-write"], {"MCP_TOOLSERVER_ROOT": os.pathsep.join(roots)})
    assert found.settings.read_only_roots == (f"{tmp_path}/b", f"{tmp_path}/a/in")
