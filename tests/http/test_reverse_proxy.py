"""The examples of docs/teams.md behave: TLS, the Host header, and streams that are passed on at once."""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests import ROOT
from tests.support.live import Setup, text
from tests.support.named import file_of_tokens
from tests.web.authority import Authority

PAGE = (ROOT / "docs/teams.md").read_text(encoding="utf-8")
UNIT = ROOT / "packaging/mcp-toolserver.service"


@dataclass(frozen=True)
class Proxy:
    """A proxy on a free port, in front of a server."""

    folder: Path
    port: int
    server: int
    certificate: Path

    @property
    def paths(self) -> dict[str, str]:
        return {"127.0.0.1:8765": f"127.0.0.1:{self.server}", "tools.example.org": "localhost"}

    def nginx(self) -> list[str]:
        (example,) = re.findall(r"```nginx\n(.*?)```", PAGE, re.DOTALL)
        for old, new in {
            "/etc/ssl/tools.example.org.pem": str(self.certificate),
            "/etc/ssl/tools.example.org.key": str(self.certificate),
            "listen 443": f"listen 127.0.0.1:{self.port}",
            **self.paths,
        }.items():
            assert old in example
            example = example.replace(old, new)
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        places = "".join(f"{kind}_temp_path {self.folder}/{kind};" for kind in kinds)
        file = self.folder / "nginx.conf"
        file.write_text(
            f"daemon off; worker_processes 1; pid {self.folder}/pid; error_log stderr;"
            f"events {{}} http {{ access_log off; {places} {example} }}",
            encoding="utf-8",
        )
        return ["nginx", "-e", "stderr", "-p", str(self.folder), "-c", str(file)]

    def caddy(self) -> list[str]:
        (example,) = re.findall(r"Caddy:\n\n```\n(.*?)```", PAGE, re.DOTALL)
        for old, new in self.paths.items():
            assert old in example
            example = example.replace(old, new)
        file = self.folder / "Caddyfile"
        site = (
            f"https://localhost:{self.port} {{\n bind 127.0.0.1\n tls {self.certificate} {self.certificate}\n"
        )
        example = example.replace("localhost {\n", site)
        file.write_text(f"{{\n admin off\n auto_https disable_redirects\n}}\n{example}", encoding="utf-8")
        return ["caddy", "run", "--adapter", "caddyfile", "--config", str(file)]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


@contextmanager
def running(command: list[str], folder: Path) -> Generator[None]:
    environ = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    process = subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=10)


@pytest.mark.parametrize("make", [Proxy.nginx, Proxy.caddy], ids=["nginx", "caddy"])
async def test_a_proxy_passes_answers_on_while_they_are_made(
    make: Callable[[Proxy], list[str]], tmp_path: Path
) -> None:
    if shutil.which(make.__name__) is None:
        pytest.skip(f"{make.__name__} is not installed")
    port = free_port()
    setup = Setup.below(tmp_path, "workspace-write", "--allowed-host", "localhost")
    names = file_of_tokens(setup.home, {"ann": {}})
    authority = Authority(tmp_path, "localhost")
    with names.serving(setup) as url:
        proxy = Proxy(tmp_path, port, httpx2.URL(url).port or 0, authority.file)
        with running(make(proxy), tmp_path):
            headers = {"authorization": f"Bearer {names.tokens['ann']}"}
            async with httpx2.AsyncClient(
                headers=headers, timeout=20, trust_env=False, verify=authority.client
            ) as http:
                address = f"https://localhost:{port}/mcp"
                await _answers(http, address)
                assert (await http.get(f"https://localhost:{port}/readyz")).is_error
                assert (await http.post(address, headers={"authorization": "Bearer x"})).status_code == 401
                wire = streamable_http_client(address, http_client=http)
                async with Client(wire, mode="legacy", read_timeout_seconds=20) as client:

                    async def reported(progress: float, total: float | None, message: str | None) -> None:
                        # The command ends only once its progress has come through.
                        (setup.root / "go").touch()

                    waits = {"command": "until [ -e go ]; do sleep 0.1; done; echo through"}
                    result = await client.call_tool("bash", waits, progress_callback=reported)
                    assert "through" in text(result)


async def _answers(http: httpx2.AsyncClient, address: str) -> None:
    with anyio.fail_after(10):
        while True:
            try:
                await http.get(address)
            except httpx2.ConnectError:
                await anyio.sleep(0.05)
            else:
                return


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    program = shutil.which("true") or ""
    unit = tmp_path / UNIT.name
    text = UNIT.read_text(encoding="utf-8").replace("/opt/mcp-toolserver/bin/mcp-toolserver", program)
    unit.write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, encoding="utf-8", check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_leaves_the_sandbox_of_commands_what_it_needs() -> None:
    harmful = (
        *("RestrictNamespaces", "PrivateUsers", "ProtectKernelTunables", "ProtectKernelLogs"),
        *("ProtectProc", "ProcSubset", "MemoryDenyWriteExecute", "SystemCallFilter"),
    )
    unit = UNIT.read_text(encoding="utf-8")
    assert [option for option in harmful if re.search(rf"^{option}=", unit, re.MULTILINE)] == []
