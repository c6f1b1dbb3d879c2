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
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

from benchmarks.client import Unanswered

CACHE = Path(__file__).parent.parent / ".cache" / "projects"
DOWNLOAD_SECONDS = 300
PACKAGES = {
    "build==1.2.2.post1": "1d61c0887fa860c01971625baae8bdd338e517b836a2f70dd1f7aa3a6b2fc5b5",
    "iniconfig==2.0.0": "b6a85871a79d2e3b22d2d1b94ac2824226a63c6b741c88f7ae975f18b6778374",
    "packaging==24.1": "5b8f2217dbdbd2f7f384c41c628544e6d52f2d0f53c6d0c3ea61aa5d1d7ff124",
    "pluggy==1.5.0": "44e1ad92c8ca002de6377e165f3e0f1be63266ab4d554740532335b9d75ea669",
    "pyproject_hooks==1.2.0": "9e5c6bfa8dcc30091c74b0cf803c81fdd29d94f01992a7707bc97babb1141913",
    "pytest==8.3.3": "a6853c7375b2663155079443d2e45de913a911a11d669df02a50814944db57b2",
    "setuptools==75.8.0": "e3982f444617239225d675215d51f6ba05f845d4eec313da4418fdbb56fb27e3",
}
"""What the Python of a source distribution's project can import: its test runner and its build tools."""


@dataclass(frozen=True, kw_only=True)
class Project:
    """A released version of somebody's project."""

    name: str
    version: str
    sha256: str
    """Of the archive; of an installed package, of its Python files."""
    unpack: Callable[["Project", Path], None]
    """Puts the files into an empty folder.

    Raises:
        Unanswered: the project cannot be had here, or its hash differs.
    """


def sdist(name: str, version: str, sha256: str) -> Project:
    """A source distribution for Python, with a Python that has pytest and build and imports from `src`."""
    return Project(name=name, version=version, sha256=sha256, unpack=_unpack_sdist)


def npm_package(name: str, version: str, sha256: str) -> Project:
    """The archive that npm publishes."""
    return Project(name=name, version=version, sha256=sha256, unpack=_unpack_npm_package)


def installed(name: str, version: str, sha256: str) -> Project:
    """A package of the development environment, whose only dependency is et_xmlfile."""
    return Project(name=name, version=version, sha256=sha256, unpack=_copy_installed)


def _unpack_sdist(project: Project, root: Path) -> None:
    archive = f"{project.name}-{project.version}.tar.gz"
    pinned = f"{project.name}=={project.version}"
    source = ("--no-deps", f"--no-binary={project.name}")
    _extract(_cached(archive, project.sha256, _pip("download", *source, "--dest", str(CACHE), pinned)), root)
    _create_python(root, [str(root / "src"), str(root), str(_packages())])


def _unpack_npm_package(project: Project, root: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise Unanswered("npm is not installed")
    pinned = f"{project.name}@{project.version}"
    command = [npm, "pack", "--pack-destination", str(CACHE), pinned]
    _extract(_cached(f"{project.name}-{project.version}.tgz", project.sha256, command), root)


def _copy_installed(project: Project, root: Path) -> None:
    try:
        found = version(project.name)
    except PackageNotFoundError:
        found = "none"
    if found != project.version:
        raise Unanswered(
            f"{project.name} {project.version} is not installed, but {found}: use the extra `dev`"
        )
    for package in (project.name, "et_xmlfile"):
        source = str(distribution(package).locate_file(package))
        shutil.copytree(source, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    _check(project.name, _tree_hash(root / project.name), project.sha256)
    _create_python(root, [str(root)])


def _create_python(root: Path, paths: list[str]) -> None:
    """A virtual environment in `root` that imports from `paths`, in this order."""
    builder = venv.EnvBuilder(symlinks=True, with_pip=False)
    builder.create(root / ".venv")
    library = next((root / ".venv" / "lib").glob("python*/site-packages"))
    (library / "project.pth").write_text("\n".join(paths) + "\n", encoding="utf-8")


def _packages() -> Path:
    """The folder in which `PACKAGES` are installed."""
    lines = [f"{pinned} --hash=sha256:{sha256}\n" for pinned, sha256 in PACKAGES.items()]
    folder = CACHE / f"packages-{hashlib.sha256(''.join(lines).encode()).hexdigest()[:12]}"
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        requirements = CACHE / "requirements.txt"
        requirements.write_text("".join(lines), encoding="utf-8")
        partial = CACHE / "packages-partial"
        shutil.rmtree(partial, ignore_errors=True)
        pinned = ("--require-hashes", "--no-deps", "--only-binary=:all:", "--requirement", str(requirements))
        _run(_pip("install", "--target", str(partial), *pinned))
        partial.rename(folder)
    return folder


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
