"""Commands in the sandbox that bubblewrap builds, as root and unprivileged, and the same without a sandbox.

Run as a module, it is the process that starts them: a line of JSON asks, a line of JSON answers.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mcp_toolserver.runtime.sandbox.layers import kernel, landlock, process_locks, seccomp
from mcp_toolserver.runtime.sandbox.layers.bubblewrap import bwrap_args, candidates, spelled
from mcp_toolserver.runtime.sandbox.layers.spec import SandboxSpec
from mcp_toolserver.runtime.sandbox.mounts.mounts import Visibility, mounts, scratch_folder
from mcp_toolserver.runtime.sandbox.protected.folder_scan import FolderScan
from mcp_toolserver.runtime.sandbox.protected.snapshot import changes, take_snapshot
from mcp_toolserver.runtime.sandbox.protected.unprotectable import Unprotectable
from mcp_toolserver.runtime.sandbox.protected.verifier import Verifier
from tests import ROOT
from tests.support.confinement import (
    NOBODY,
    READ_ONLY,
    WORKSPACE_WRITE,
    Scene,
    as_user,
    put,
    visible_folder,
)

PYTHON = os.path.realpath(sys.executable)
SHELL = ("/bin/bash", "--noprofile", "--norc", "-c")
PATIENCE = 20


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What came of a command."""

    status: int
    output: str
    notes: tuple[str, ...] = ()
    status_words: tuple[str, ...] = ()
    """What bubblewrap reported of it."""
    refused: str = ""


@dataclass(frozen=True, kw_only=True)
class Starter:
    """The process that starts commands for a user."""

    user: int
    process: "subprocess.Popen[str]"

    def ask(self, **asked: object) -> Seen:
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(asked) + "\n")
        stdin.flush()
        answer = json.loads(stdout.readline())
        answer |= {name: tuple(answer[name]) for name in ("notes", "status_words")}
        return Seen(**answer)


class Ground(Scene):
    """A scene whose commands `starter` starts."""

    def __init__(self, *, base: Path, user: str, starter: Starter, sandbox: SandboxSpec) -> None:
        super().__init__(base=base, user=user)
        self.starter, self.sandbox = starter, sandbox

    @property
    def quarantined(self) -> dict[str, str]:
        """The files in quarantine, by the path they had, and what they hold."""
        folder = self.state / "quarantine"
        files = (file for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
        return {
            str(Path(*file.relative_to(folder).parts[1:])): file.read_text(encoding="utf-8") for file in files
        }

    def put(self, path: str, text: str = "before\n") -> Path:
        """A file of the user, with its folders; `path` is from the base."""
        file = put(self.base / path, text)
        self.own()
        return file

    def run(self, script: str, mode: str = WORKSPACE_WRITE, *, meanwhile: str = "", **changed: Any) -> Seen:
        """Run `script` in the sandbox. When it prints `ready`, `meanwhile` is run without a sandbox."""
        mounted = changed.pop("mounted", True)
        sandbox = replace(self.sandbox, mode=mode, **changed)
        asked = {"sandbox": asdict(sandbox), "script": script, "meanwhile": meanwhile, "mounted": mounted}
        seen = self.starter.ask(**asked)
        # As the server does: a socket of another program that was to be covered may have gone meanwhile.
        return self.starter.ask(**asked) if seen.output.startswith("bwrap: Can't") else seen

    def run_free(self, script: str) -> Seen:
        """Run `script` as the same user with no sandbox."""
        return self.starter.ask(script=script, root=str(self.root))


@contextmanager
def starter(user: str) -> Generator[Starter]:
    """The process that starts commands for `user`, one of `USERS`."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "TMPDIR"))}
    with (
        visible_folder() as folder,
        subprocess.Popen(
            [*as_user(Scene(base=folder, user=user)), sys.executable, "-m", "tests.sandbox.sandboxed"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            cwd=ROOT,
            env=environ,
        ) as process,
    ):
        yield Starter(user=NOBODY if os.geteuid() == 0 and user != "root" else os.geteuid(), process=process)
        assert process.stdin is not None
        process.stdin.close()


@contextmanager
def ground(starter: Starter) -> Generator[Ground]:
    """An empty root, with what lies around it."""
    with visible_folder() as folder:
        base = Path(os.path.realpath(folder))
        for name in ("root", "outside", "home", "state"):
            (base / name).mkdir()
        sandbox = SandboxSpec(
            mode=WORKSPACE_WRITE,
            roots=(str(base / "root"),),
            home=str(base / "home"),
            state=str(base / "state"),
        )
        user = "root" if starter.user == 0 else "unprivileged"
        made = Ground(base=base, user=user, starter=starter, sandbox=sandbox)
        made.put("outside/target")
        yield made


def _answer(asked: dict[str, Any]) -> Seen:
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent", "PY": PYTHON}
    if "sandbox" not in asked:
        done = subprocess.run(
            [*SHELL, asked["script"]],
            cwd=asked["root"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=PATIENCE,
        )
        return Seen(status=done.returncode, output=done.stdout)
    words = {
        key: tuple(value) if isinstance(value, list) else value for key, value in asked["sandbox"].items()
    }
    sandbox = SandboxSpec(**{**words, "programs": candidates(os.environ["PATH"], words["roots"])})
    roots = {root: os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for root in sandbox.roots}
    try:
        return _run_sandboxed(sandbox, roots, asked, {**environment, "HOME": sandbox.home})
    except Unprotectable as error:
        return Seen(status=-1, output="", refused=str(error))
    finally:
        for descriptor in roots.values():
            os.close(descriptor)


def _run_sandboxed(
    sandbox: SandboxSpec, roots: dict[str, int], asked: dict[str, Any], environment: dict[str, str]
) -> Seen:
    mounted = asked["mounted"]
    scans = {root: FolderScan(descriptor) for root, descriptor in roots.items()}
    verifier = Verifier(sandbox, roots, scans if sandbox.mode == WORKSPACE_WRITE else {}, mounted=mounted)
    watched, places = verifier.begin(roots, lambda: None)
    before = take_snapshot(sandbox, roots, places, mounted=mounted)
    with contextlib.closing(before):
        calls = process_locks.command_filter(sandbox.mode, sandbox.network)
        rules = seccomp.as_descriptor(seccomp.program(calls))
        reading, writing = os.pipe()
        passed = {"--seccomp": rules, "--json-status-fd": writing}
        made = mounts(before, Visibility(hides_sockets=sandbox.mode == READ_ONLY))
        inside = bwrap_args(before, made, sandbox.programs[0], cwd=sandbox.roots[0], passed=passed)
        sockets = [path for path, mount in made.items() if mount == "socket"]
        descriptors = [word for word in inside if isinstance(word, int)]
        around = spelled(inside, sockets, isolates_network=not sandbox.network) if mounted else ()
        with subprocess.Popen(
            (*around, *SHELL, asked["script"]),
            cwd=sandbox.roots[0],
            env={**environment, "TMPDIR": scratch_folder(made)},
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            preexec_fn=landlock.scope_signals,
        ) as process:
            for descriptor in descriptors:
                os.close(descriptor)
            assert process.stdout is not None
            output = ""
            if asked["meanwhile"]:
                output = process.stdout.readline()
                subprocess.run([*SHELL, asked["meanwhile"]], cwd=sandbox.roots[0], check=True)
            output += process.communicate(timeout=PATIENCE)[0]
        # What the command left, which bubblewrap's end kills.
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
        with os.fdopen(reading, encoding="utf-8") as status:
            status_words = tuple(status.read().splitlines())
        notes = (*changes(before), *verifier.end(watched))
    return Seen(status=process.returncode, output=output, notes=notes, status_words=status_words)


def main() -> None:
    """Answer until standard input ends."""
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    for line in sys.stdin:
        print(json.dumps(asdict(_answer(json.loads(line)))), flush=True)


if __name__ == "__main__":
    main()
