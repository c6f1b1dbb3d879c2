"""Third-party projects to work on: pinned by version, checked by hash, unpacked into a folder of their own.

Source archives and the packages of the projects' Python come from pip and npm, once, into a cache folder.
One project is a copy of an installed package, for tasks that need no network.
"""

import hashlib
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Protocol

from benchmarks.client import Unanswered

CACHE = Path(__file__).parent.parent / ".cache" / "projects"
DOWNLOAD_SECONDS = 300
PACKAGES = {
    "build==1.2.2.post1": "1d61c0887fa860c01971625baae8bdd338e517b836a2f70dd1f7aa3a6b2fc5b5",
    "iniconfig==2.0.0": "b6a85871a79d2e3b22d2d1b94ac2824226a63c6b741c88f7ae975f18b6778374",
    "packaging==24.1": "5b8f2217dbdbd2f7f384c41c628544e6d52f2d0f53c6d0c3ea61aa5d1d7ff124",
    "pip==24.2": "2cd581cf58ab7fcfca4ce8efa6dcacd0de5bf8d0a3eb9ec927e07405f4d9e2a2",
    "pluggy==1.5.0": "44e1ad92c8ca002de6377e165f3e0f1be63266ab4d554740532335b9d75ea669",
    "pyproject_hooks==1.2.0": "9e5c6bfa8dcc30091c74b0cf803c81fdd29d94f01992a7707bc97babb1141913",
    "pytest==8.3.3": "a6853c7375b2663155079443d2e45de913a911a11d669df02a50814944db57b2",
    "setuptools==75.8.0": "e3982f444617239225d675215d51f6ba05f845d4eec313da4418fdbb56fb27e3",
}
"""What the Python of a source distribution's project can import: its test runner and its build tools."""


class Project(Protocol):
    """A released version of somebody's project."""

    def unpack(self, root: Path) -> None:
        """Put the files into the empty folder `root`.

        Raises:
            Unanswered: the project cannot be had here, or its hash differs.
        """
        ...


@dataclass(frozen=True)
class SourceDistribution:
    """A source archive for Python, with a Python that has pytest and build and imports from `src`."""

    name: str
    version: str
    sha256: str

    def unpack(self, root: Path) -> None:
        # pip runs code of the archive to learn its name, so it has to check the hash first.
        pinned = _pinned({f"{self.name}=={self.version}": self.sha256})
        download = _pip("download", "--dest", str(CACHE), f"--no-binary={self.name}", *pinned)
        _extract(_cached(f"{self.name}-{self.version}.tar.gz", self.sha256, download), root)
        _create_python(root, [str(root / "src"), str(root), str(_packages())])


@dataclass(frozen=True)
class NpmPackage:
    """The archive that npm publishes."""

    name: str
    version: str
    sha256: str

    def unpack(self, root: Path) -> None:
        npm = shutil.which("npm")
        if npm is None:
            raise Unanswered("npm is not installed")
        download = [npm, "pack", "--pack-destination", str(CACHE), f"{self.name}@{self.version}"]
        _extract(_cached(f"{self.name}-{self.version}.tgz", self.sha256, download), root)


@dataclass(frozen=True)
class InstalledPackage:
    """A package of the development environment, whose only dependency is et_xmlfile."""

    name: str
    version: str
    sha256: str
    """Of its Python files."""

    def unpack(self, root: Path) -> None:
        try:
            found = version(self.name)
        except PackageNotFoundError:
            found = "none"
        if found != self.version:
            raise Unanswered(f"{self.name} {self.version} is not installed, but {found}: use the extra `dev`")
        for package in (self.name, "et_xmlfile"):
            source = str(distribution(package).locate_file(package))
            shutil.copytree(source, root / package, ignore=shutil.ignore_patterns("__pycache__"))
        _check(self.name, _tree_hash(root / self.name), self.sha256)
        _create_python(root, [str(root)])


def _create_python(root: Path, paths: list[str]) -> None:
    """A virtual environment in `root` that imports from `paths`, in this order."""
    builder = venv.EnvBuilder(symlinks=True, with_pip=False)
    builder.create(root / ".venv")
    library = next((root / ".venv" / "lib").glob("python*/site-packages"))
    (library / "project.pth").write_text("\n".join(paths) + "\n", encoding="utf-8")


def _packages() -> Path:
    """The folder in which `PACKAGES` are installed."""
    folder = CACHE / f"packages-{hashlib.sha256(repr(PACKAGES).encode()).hexdigest()[:12]}"
    if not folder.exists():
        partial = CACHE / "packages-partial"
        shutil.rmtree(partial, ignore_errors=True)
        _run(_pip("install", "--target", str(partial), "--only-binary=:all:", *_pinned(PACKAGES)))
        partial.rename(folder)
    return folder


def _pinned(hashes: Mapping[str, str]) -> tuple[str, ...]:
    """Arguments of pip: these distributions with these hashes, and nothing that they require."""
    CACHE.mkdir(parents=True, exist_ok=True)
    requirements = CACHE / "requirements.txt"
    lines = [f"{pinned} --hash=sha256:{sha256}\n" for pinned, sha256 in hashes.items()]
    requirements.write_text("".join(lines), encoding="utf-8")
    return ("--no-deps", "--require-hashes", "--requirement", str(requirements))


def _pip(*arguments: str) -> list[str]:
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
    return [*pip, *arguments]


def _cached(name: str, sha256: str, download: list[str]) -> Path:
    """The archive in the cache, downloaded if it is not there."""
    archive = CACHE / name
    if not archive.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        _run(download)
    if not archive.exists():
        raise Unanswered(f"the download did not give {name}")
    _check(name, hashlib.sha256(archive.read_bytes()).hexdigest(), sha256)
    return archive


def _check(name: str, found: str, expected: str) -> None:
    if found != expected:
        raise Unanswered(f"{name} has the SHA-256 {found}, expected {expected}")


def _tree_hash(folder: Path) -> str:
    """Of the paths and contents of all Python files."""
    hashed = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        hashed.update(f"{file.relative_to(folder).as_posix()} {content}\n".encode())
    return hashed.hexdigest()


def _extract(archive: Path, root: Path) -> None:
    """The content of the archive's only top folder, in `root`."""
    with tarfile.open(archive) as tar:
        members = []
        for member in tar.getmembers():
            _, _, member.name = member.name.partition("/")
            if member.name:
                members.append(member)
        tar.extractall(root, members, filter="data")


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=DOWNLOAD_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise Unanswered(f"{' '.join(command[:4])} … failed: {done.stderr[-500:]}")
