"""A real server, held by the kernel, on a network of its own: it reads from the web, or it cannot.

Everything is on the loopback interface of a namespace, in which this module runs as a program: a name server
where the system expects one, sites on the usual ports, and a public address that belongs to this machine.
"""

import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.client import Client, Launch
from tests import ROOT
from tests.support.confinement import READ_ONLY, WORKSPACE_WRITE
from tests.support.live import Setup
from tests.web.authority import Authority
from tests.web.web import PUBLIC, page, site

CALLS = {
    "plain": ("WebFetch", {"url": "http://wiki.example/"}),
    "sealed": ("WebFetch", {"url": "https://wiki.example/"}),
    "stranger": ("WebFetch", {"url": "http://stranger.example/"}),
    "this machine": ("WebFetch", {"url": "http://me.example/"}),
    "nobody": ("WebFetch", {"url": "http://nobody.example/"}),
    "loopback": ("WebFetch", {"url": "http://127.0.0.1/"}),
    "download": ("download", {"url": "http://wiki.example/", "path": "page.html"}),
}


@pytest.mark.parametrize("mode", [pytest.param(READ_ONLY, marks=pytest.mark.long), WORKSPACE_WRITE])
def test_a_server_looks_names_up_and_checks_certificates_behind_its_lock(mode: str, tmp_path: Path) -> None:
    """Names by the system's resolver over UDP, certificates by the file of SSL_CERT_FILE."""
    answers = dict(zip(CALLS, inside(tmp_path, mode, list(CALLS.values())), strict=True))
    for fetched in ("plain", "sealed"):
        assert not answers[fetched]["error"], answers[fetched]["text"]
        assert "# read" in answers[fetched]["text"]
    assert "not public" in answers["stranger"]["text"]
    assert "is this machine" in answers["this machine"]["text"]
    assert "has no address" in answers["nobody"]["text"]
    assert "not public" in answers["loopback"]["text"]
    assert all(answers[refused]["error"] for refused in ("stranger", "this machine", "nobody", "loopback"))
    if mode == READ_ONLY:
        assert answers["download"]["error"]
    else:
        assert (tmp_path / "root/page.html").read_text(encoding="utf-8") == "<h1>read</h1>"


NAMES = {"wiki.example": "127.0.0.1", "stranger.example": "127.0.0.1", "me.example": PUBLIC}
"""What the name server answers; the operator names the first."""

Calls = Sequence[tuple[str, Mapping[str, str]]]


def inside(folder: Path, mode: str, calls: Calls) -> list[dict[str, Any]]:
    """What a server of this mode that may fetch answers to the calls, as text and whether it is an error."""
    asked = json.dumps({"folder": str(folder), "mode": mode, "calls": calls})
    apart = ("unshare", "--map-root-user", "--mount", "--net")
    command = [*apart, sys.executable, "-m", "tests.web.test_web_locked", asked]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


def main(asked: Mapping[str, Any]) -> None:
    folder = Path(asked["folder"])
    _raise_loopback()
    with _name_server(folder):
        authority = Authority(folder, "wiki.example")
        sites = (("", 80), ("", 443))
        routes = {"/": page("<h1>read</h1>")}
        with site(routes, at=sites[0]), site(routes, tls=authority.server, at=sites[1]):
            print(json.dumps(_answers(folder, asked, authority)))


def _answers(folder: Path, asked: Mapping[str, Any], authority: Authority) -> list[dict[str, Any]]:
    config = folder / "config.toml"
    config.write_text('web-private = ["wiki.example"]\n', encoding="utf-8")
    setup = Setup.below(folder, asked["mode"], "--network", "fetch", "--config", str(config))
    environment = {**setup.environment, "SSL_CERT_FILE": str(authority.file)}
    with Client(Launch(command=setup.command, cwd=ROOT, environment=environment)) as client:
        found = [
            client.request("tools/call", {"name": name, "arguments": arguments}).result
            for name, arguments in asked["calls"]
        ]
    return [{"text": one["content"][0]["text"], "error": bool(one.get("isError"))} for one in found]


_SET_FLAGS, _SET_ADDRESS = 0x8914, 0x8916
_UP_AND_RUNNING = 0x41


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        flags = struct.pack("16sh14x", b"lo", _UP_AND_RUNNING)
        fcntl.ioctl(any_socket, _SET_FLAGS, flags)
        address = struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton(PUBLIC))
        fcntl.ioctl(any_socket, _SET_ADDRESS, address)


@contextmanager
def _name_server(folder: Path) -> Generator[None]:
    """Answers on the usual port; the system's list of name servers says so, in this namespace alone."""
    listed = folder / "resolv.conf"
    listed.write_text("nameserver 127.0.0.1\n", encoding="utf-8")
    subprocess.run(["mount", "--bind", str(listed), os.path.realpath("/etc/resolv.conf")], check=True)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.bind(("127.0.0.1", 53))
        threading.Thread(target=_answer_names, args=(asked,), daemon=True).start()
        yield


def _answer_names(asked: socket.socket) -> None:
    while True:
        question, sender = asked.recvfrom(512)
        asked.sendto(_answered(question), sender)


def _answered(question: bytes) -> bytes:
    """The address of the name, in DNS: header, the question again, and one record or none."""
    labels, at = [], 12
    while size := question[at]:
        labels.append(question[at + 1 : at + 1 + size].decode())
        at += 1 + size
    kind = int.from_bytes(question[at + 1 : at + 3])
    address = NAMES.get(".".join(labels).lower())
    has_record = kind == 1 and address is not None
    header = question[:2] + struct.pack(">HHHHH", 0x8180, 1, int(has_record), 0, 0)
    if address is None:
        header = question[:2] + struct.pack(">HHHHH", 0x8183, 1, 0, 0, 0)
    record = struct.pack(">HHHIH", 0xC00C, 1, 1, 0, 4) + socket.inet_aton(address or "0.0.0.0")
    return header + question[12 : at + 5] + (record if has_record else b"")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
