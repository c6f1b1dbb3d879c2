"""Where the fuzzer works: a scene with more ways out of it, and looking at what must not change."""

import os
import random
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.confinement import READ_ONLY, Scene, put, scene
from tests.support.snapshot import Snapshot, snapshot

KEPT = "what lies outside and must not be shown"


@dataclass(frozen=True, kw_only=True)
class Ground:
    """A scene, with a folder that commands cannot even see, and a copy of the root to renew it from."""

    scene: Scene
    unseen: Path
    pattern: Path
    mark: str
    """The length that only our own sleeping processes sleep."""

    def watched(self, mode: str) -> Snapshot:
        """All that must stay as it is."""
        inside = (
            [self.scene.root]
            if mode == READ_ONLY
            else [self.scene.root / ".git/hooks", self.scene.root / ".git/config"]
        )
        return {**self.scene.around(), **snapshot(self.unseen, *inside)}

    def renew(self) -> None:
        """Put the root back as it was, but for its repository, which nothing may touch."""
        for entry in os.scandir(self.scene.root):
            if entry.name != ".git":
                _remove(entry)
        names = [path for path in self.pattern.iterdir() if path.name != ".git"]
        subprocess.run(["cp", "--archive", *names, self.scene.root], check=True)

    def sleepers(self) -> list[str]:
        """Our processes that still run."""
        return [pid for pid in os.listdir("/proc") if pid.isdecimal() and self._sleeps(pid)]

    def _sleeps(self, pid: str) -> bool:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return words[:2] == [b"sleep", self.mark.encode()]


def _remove(entry: os.DirEntry[str]) -> None:
    if not entry.is_dir(follow_symlinks=False):
        Path(entry.path).unlink()
        return
    for folder, folders, _ in os.walk(entry.path):
        for name in folders:
            path = Path(folder, name)
            if not path.is_symlink():
                path.chmod(stat.S_IRWXU)
    shutil.rmtree(entry.path)


@contextmanager
def ground(user: str, seed: int) -> Generator[Ground]:
    """A scene with more ways out of it."""
    with scene(user) as made, tempfile.TemporaryDirectory(prefix="fuzz-") as unseen:
        Path(unseen).chmod(0o777)
        put(made.outside / "kept", KEPT)
        put(made.base / "root-evil/f", KEPT)
        put(Path(unseen, "kept"), KEPT)
        (made.root / "link_folder").symlink_to("../outside")
        (made.root / "link_absolute").symlink_to(made.outside)
        (made.root / "link_chain").symlink_to("link_folder/kept")
        (made.root / "link_loop").symlink_to("link_loop")
        (made.root / "link_proc").symlink_to(f"/proc/self/root{made.outside}")
        (made.root / "fifo").unlink()
        made.own()
        pattern = made.base / "run/pattern"
        subprocess.run(["cp", "--archive", made.root, pattern], check=True)
        mark = f"8{seed % 10**6:06d}{random.SystemRandom().randrange(10**5):05d}"
        yield Ground(scene=made, unseen=Path(unseen), pattern=pattern, mark=mark)
