"""The files of a registry of packages called `tiny`, for several package managers."""

import hashlib
import io
import json
import tarfile
import zipfile
from pathlib import Path

from tests.support.confinement import git, put


def fill(folder: Path, url: str) -> None:
    """Write the registry that is served as `url`."""
    wheel = folder / "files/tiny-1.0-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("tiny.py", "print('tiny runs')\n")
        about = "tiny-1.0.dist-info"
        packed.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        packed.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        packed.writestr(f"{about}/RECORD", "")
    put(folder / "simple/tiny/index.html", f'<a href="{url}/files/{wheel.name}">{wheel.name}</a>')

    package = {"name": "tiny", "version": "1.0.0"}
    tarball = archive(folder / "files/tiny-1.0.0.tgz", {"package/package.json": json.dumps(package)})
    dist = {
        "tarball": f"{url}/files/{tarball.name}",
        "shasum": hashlib.sha1(tarball.read_bytes()).hexdigest(),
    }
    versions = {
        "name": "tiny",
        "dist-tags": {"latest": "1.0.0"},
        "versions": {"1.0.0": {**package, "dist": dist}},
    }
    put(folder / "npm/tiny", json.dumps(versions))

    manifest = '[package]\nname = "tiny"\nversion = "1.0.0"\nedition = "2021"\n'
    (folder / "crates/tiny/1.0.0").mkdir(parents=True)
    crate = archive(
        folder / "crates/tiny/1.0.0/download",
        {"tiny-1.0.0/Cargo.toml": manifest, "tiny-1.0.0/src/lib.rs": ""},
    )
    checksum = hashlib.sha256(crate.read_bytes()).hexdigest()
    entry = {"name": "tiny", "vers": "1.0.0", "deps": [], "cksum": checksum, "features": {}, "yanked": False}
    put(folder / "cargo/ti/ny/tiny", json.dumps(entry) + "\n")
    put(folder / "cargo/config.json", json.dumps({"dl": f"{url}/crates"}))

    put(folder / "work/file", "from the repository\n")
    git(folder / "work", "init", "--quiet")
    git(folder / "work", "add", "file")
    git(folder / "work", "commit", "--quiet", "--message=first")
    git(folder, "clone", "--quiet", "--bare", "work", "repository.git")
    git(folder / "repository.git", "update-server-info")


def archive(file: Path, content: dict[str, str]) -> Path:
    with tarfile.open(file, "w:gz") as archive:
        for name, text in content.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return file
