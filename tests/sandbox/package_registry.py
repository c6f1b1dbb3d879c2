"""A registry on loopback of packages called `tiny`, for several package managers, over HTTPS and HTTP."""

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from tests.support.confinement import git, put
from tests.web.authority import Authority


@dataclass(kw_only=True)
class Site:
    """A server on loopback."""

    port: int
    visits: list[str] = field(default_factory=list)
    """The paths that were asked for, and what was posted."""
    peers: list[int] = field(default_factory=list)
    """The ports from which connections came."""


@contextmanager
def site(folder: Path, authority: Authority | None = None) -> Generator[Site]:
    """Serve `folder`, over HTTPS with `authority`. `/to/URL` redirects to an address."""

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            made.visits.append(self.path)
            if not self.path.startswith("/to/"):
                return super().do_GET()
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to/"))
            return self.end_headers()

        def do_POST(self) -> None:
            made.visits.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(204)
            self.end_headers()

        def log_request(self, code: Any = "-", size: Any = "-") -> None:
            return

        def log_error(self, format: str, *args: Any) -> None:  # noqa: A002  # as in the base
            return

    class Server(ThreadingHTTPServer):
        def verify_request(self, request: Any, client_address: Any) -> bool:
            made.peers.append(client_address[1])
            return True

        def handle_error(self, request: Any, client_address: Any) -> None:
            return

    with Server(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        made = Site(port=server.server_port)
        if authority is not None:
            server.socket = authority.server.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()


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
    if dpkg := shutil.which("dpkg-deb"):
        _debian(folder / "apt", dpkg)


def archive(file: Path, content: dict[str, str]) -> Path:
    with tarfile.open(file, "w:gz") as archive:
        for name, text in content.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return file


def _debian(folder: Path, dpkg: str) -> None:
    control = (
        "Package: tiny\nVersion: 1.0\nArchitecture: all\nMaintainer: A <a@example.com>\nDescription: tiny\n"
    )
    put(folder / "tree/DEBIAN/control", control)
    package = folder / "tiny_1.0_all.deb"
    subprocess.run([dpkg, "--build", "--root-owner-group", folder / "tree", package], check=True, stdout=-3)
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    size = package.stat().st_size
    put(folder / "Packages", f"{control}Filename: ./{package.name}\nSize: {size}\nSHA256: {digest}\n")
