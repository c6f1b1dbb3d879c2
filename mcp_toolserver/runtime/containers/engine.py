"""How each container engine is told what to do. Pure: what goes in and argument lists out."""

import csv
import io
import os
from dataclasses import dataclass

APPLE = "container"
WORKSPACE = "/workspace"

_SHELL = (
    'command -v timeout >/dev/null && exec timeout -s KILL "$1" sh -c "$2"',
    'exec sh -c "$2"',
)
"""Within the container the time is kept too: should the server be killed, nobody else would end it."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """An engine, and what all its containers have in common."""

    program: str
    """Absolute."""
    image: str
    network: bool
    processes: int
    memory: int
    """Bytes."""
    user: str
    """Who owns what is made in the workspace, as `uid:gid`."""

    @property
    def name(self) -> str:
        """What it is called."""
        return os.path.basename(self.program)

    @property
    def pull(self) -> str:
        """The command that gets the image."""
        return f"{self.name} {'image pull' if self._is_apple else 'pull'} {self.image}"

    def create(self, name: str, root: str, script: str, seconds: int) -> tuple[str, ...]:
        """Makes a container called `name` that will run `script` on the folder `root`; starts nothing."""
        return (
            *(self.program, "create", "--rm", "--name", name),
            *("--mount", _fields("type=bind", f"source={root}", f"target={WORKSPACE}")),
            *("--workdir", WORKSPACE, *self._walls()),
            *(self.image, "sh", "-c", "\n".join(_SHELL), "sh", str(seconds), script),
        )

    def start(self, name: str) -> tuple[str, ...]:
        """Runs it, with its output and exit status as those of the engine."""
        return (self.program, "start", "--attach", name)

    def remove(self, name: str) -> tuple[str, ...]:
        """Kills and removes it."""
        return (self.program, "delete" if self._is_apple else "rm", "--force", name)

    @property
    def _is_apple(self) -> bool:
        return self.name == APPLE

    def _walls(self) -> tuple[str, ...]:
        if self._is_apple:
            # Each of its containers is a virtual machine with bounds of its own.
            return () if self.network else ("--network", "none")
        # Rootless podman maps the user of this machine to root in the container.
        user = () if self.name == "podman" else ("--user", self.user, "--env", "HOME=/tmp")
        return (
            *(() if self.network else ("--network", "none")),
            *("--pull", "never", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
            *("--pids-limit", str(self.processes), "--memory", str(self.memory), *user),
        )


def _fields(*fields: str) -> str:
    """Fields as engines read them: separated by commas, quoted where they hold one."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()
