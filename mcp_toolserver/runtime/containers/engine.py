"""Builds the argument lists for each container engine."""

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
"""The timeout also runs inside the container, in case the server is killed."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """An engine and the options shared by all its containers."""

    program: str
    """Absolute."""
    image: str
    network: bool
    processes: int
    memory: int
    """Bytes."""
    user: str
    """The owner of files created in the workspace, as `uid:gid`."""

    @property
    def name(self) -> str:
        """The engine's name."""
        return os.path.basename(self.program)

    @property
    def pull(self) -> str:
        """The command that downloads the image."""
        return f"{self.name} {'image pull' if self._is_apple else 'pull'} {self.image}"

    def create(self, name: str, root: str, script: str, seconds: int) -> tuple[str, ...]:
        """Create, but not start, a container that runs `script` on the folder `root`."""
        return (
            *(self.program, "create", "--rm", "--name", name),
            *("--mount", _fields("type=bind", f"source={root}", f"target={WORKSPACE}")),
            *("--workdir", WORKSPACE, *self._sandbox_options()),
            *(self.image, "sh", "-c", "\n".join(_SHELL), "sh", str(seconds), script),
        )

    def start(self, name: str) -> tuple[str, ...]:
        """Start it, with its output and exit status as the engine's."""
        return (self.program, "start", "--attach", name)

    def remove(self, name: str) -> tuple[str, ...]:
        """Kill and remove it."""
        return (self.program, "delete" if self._is_apple else "rm", "--force", name)

    @property
    def _is_apple(self) -> bool:
        return self.name == APPLE

    def _sandbox_options(self) -> tuple[str, ...]:
        if self._is_apple:
            # Each of its containers is a virtual machine with its own limits.
            return () if self.network else ("--network", "none")
        # Rootless podman maps the user of this machine to root in the container.
        user = () if self.name == "podman" else ("--user", self.user, "--env", "HOME=/tmp")
        return (
            *(() if self.network else ("--network", "none")),
            *("--pull", "never", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
            *("--pids-limit", str(self.processes), "--memory", str(self.memory), *user),
        )


def _fields(*fields: str) -> str:
    """Join fields with commas, quoted as engines expect."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()
