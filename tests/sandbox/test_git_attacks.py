"""ATTACKS on git in workspace-write with default settings: what a command leaves in a repository, and in the
folders of installed packages, does nothing when the user works there.

`git_attacks.txt` has the calls of each attack; after `later:` what the user runs afterwards; after `harms:`
the path that it makes where nothing stops it (`ran`), which is tried as well; after `stays:` a path that
has to be there in spite of it.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests.sandbox.test_protected_served import user_runs
from tests.support.cases import collected, rows, until
from tests.support.confinement import (
    AS_ROOT_IN_LONG,
    AS_UNPRIVILEGED_IN_LONG,
    USERS,
    WORKSPACE_WRITE,
    Servers,
    copy_of,
    free,
    git,
    put,
    scene,
    serving,
)
from tests.support.extent import rounds

TODO = ".git/rebase-merge/git-rebase-todo"
WORDS = {
    "AS_USER": "git -c user.name=A -c user.email=a@example.com",
    "RUNS": "'touch ../ran; false'",
    "SCRIPT": "printf '#!/bin/sh\\ntouch ../ran\\n'",
    "EVIL_CONFIG": "printf '[core]\\n\\tfsmonitor = ./evil\\n'",
    "REBASING": "GIT_SEQUENCE_EDITOR='sed -i 1s/^pick/edit/' git rebase -q -i HEAD~1 2> /dev/null",
    "TODO": TODO,
}
ATTACKS = rows(Path(__file__).with_name("git_attacks.txt"), WORDS)
MARKED = ("later: ", "harms: ", "stays: ")
PREPARED = """
git init -q -b main r && cd r && git config user.name A && git config user.email a@example.com
git config filter.x.clean 'touch ../ran; cat'
echo 1 > a && git add a && git commit -qm one && echo 2 > a && git commit -qam two && git branch side HEAD~1
"""
"""The repository of the user."""


@pytest.mark.rounds
@pytest.mark.parametrize("user", AS_UNPRIVILEGED_IN_LONG)
def test_what_a_command_leaves_in_a_repository_does_no_harm_later(user: str) -> None:
    assert len(ATTACKS) >= 80
    with scene(user) as at, copy_of(at, at.base) as outside, serving(at, WORKSPACE_WRITE) as server:
        put(at.base / "run/pattern/node_modules/p/.vscode/tasks.json", "{}\n")
        at.own()
        user_runs(at, f"cd ../run/pattern && {PREPARED}")
        scenes = (at, outside) if user == USERS[0] else (at,)
        with collected() as case:
            for number, (name, lines) in enumerate(list(ATTACKS.items())[:: rounds(4, 1)]):
                named = dict(line.split(": ", 1) for line in lines if line.startswith(MARKED))
                calls = [line for line in lines if not line.startswith(MARKED)]
                target, stays = f"a{number}/{named.get('harms', 'ran')}", named.get("stays")
                for where in scenes:
                    user_runs(where, f"cp -a {at.base}/run/pattern a{number}")
                for script in (f"cd a{number}; {call}" for call in calls):
                    server.bash(script, timeout=30_000)
                    if len(scenes) > 1:
                        free(outside, script)
                later = f"cd a{number}; ({named.get('later', 'true')}) > /dev/null 2>&1; true"
                for where in scenes:
                    user_runs(where, later)
                with case(name):
                    assert not os.path.lexists(at.root / target)
                    assert not stays or (at.root / f"a{number}" / stays).exists()
                    assert os.path.lexists(scenes[-1].root / target) == (len(scenes) > 1), (
                        "nothing stops it here"
                    )
                for where in scenes:
                    # Where nothing confines it, root made what the user may not remove.
                    subprocess.run(["rm", "-rf", where.root / f"a{number}"], check=True)


@pytest.mark.parametrize("user", AS_ROOT_IN_LONG)
def test_a_command_that_changes_a_new_repository_seconds_later_is_found_out(
    servers: Servers, user: str
) -> None:
    server = servers(user, WORKSPACE_WRITE)
    root = server.scene.root
    job = server.start(
        f"git init -q n; touch made; sleep 5; {WORDS['EVIL_CONFIG']} >> n/.git/config; exec sleep 300"
    )
    until((root / "made").exists)
    assert server.bash("sleep 2; git -C n status --short --branch").startswith("## No commits yet")
    until(lambda: "n/.git/config appeared" in server.call("TaskOutput", task_id=job, until="now").text)
    assert not (root / "n/.git/config").exists()
    assert "running for" in server.call("TaskOutput", task_id=job, until="now").text
    server.call("TaskStop", task_id=job)
    server.bash("rm -rf n made")


@pytest.mark.parametrize("user", AS_ROOT_IN_LONG)
def test_packages_are_removed_and_installed_again_and_only_what_was_there_comes_back(user: str) -> None:
    with scene(user) as at:
        put(at.root / "node_modules/p/.envrc", "export A=1\n")
        put(at.root / "node_modules/p/.vscode/tasks.json", "{}\n")
        put(at.root / "site-packages/kept/.vscode/tasks.json", "{}\n")
        git(at.root, "add", "--force", "site-packages")
        # A root called as a folder of packages is none.
        named = at.base / "run/node_modules"
        put(named / ".vscode/tasks.json", "{}\n")
        at.own()
        with serving(at, WORKSPACE_WRITE, roots=[at.root, named]) as server:
            server.bash("echo evil > .vscode/tasks.json; mkdir .idea p; mkdir p/.idea", cwd=str(named))
            assert [path.name for path in named.rglob(".idea")] == []
            assert (named / ".vscode/tasks.json").read_text(encoding="utf-8") == "{}\n"
            install = "mkdir -p node_modules/p/.vscode; echo {} > node_modules/p/.vscode/x"
            server.bash(
                f"cp node_modules/p/.envrc e; rm -rf node_modules; {install}; cp e node_modules/p/.envrc"
            )
            assert (at.root / "node_modules/p/.vscode/x").exists()
            assert (at.root / "node_modules/p/.envrc").read_text(encoding="utf-8") == "export A=1\n"
            assert "moved away" in server.bash("echo evil >> node_modules/p/.envrc")
            # What git tracks is protected, also when a command has made git forget it.
            server.bash(
                "git rm -q --cached -r site-packages; echo evil > site-packages/kept/.vscode/tasks.json"
            )
            server.bash("echo evil > site-packages/kept/.vscode/tasks.json; rm -rf site-packages")
            assert (at.root / "site-packages/kept/.vscode/tasks.json").read_text(encoding="utf-8") == "{}\n"
        assert not (at.root / "node_modules/p/.envrc").exists()
