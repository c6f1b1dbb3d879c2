"""`upstream prepare`: servers that npx and uvx start, confined and offline, by the real installers."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Generator
from pathlib import Path

import pytest

from mcp_toolserver.commands import prepare as preparing
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.gateway.prepared import launch_of
from mcp_toolserver.invocation import load
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.runtime.sandbox.broker.messages import Script, decode, encode
from tests import ROOT
from tests.gateway.strangers import program
from tests.gateway.test_wrap import ATTEMPTING, Ground, attempted, tree
from tests.sandbox.package_registry import archive
from tests.support.confinement import put
from tests.support.families import lines
from tests.support.process_layer import server_command
from tests.web.web import Site, files, site

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("npx"), reason="needs npm, and the sandbox of Linux"
)

PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

NODE = """#!/usr/bin/env node
const fs = require("fs"), version = "VERSION"
const attempt = (code) => { try { return String(eval(code)) } catch (error) { return `Error ${error}` } }
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line)
  const answers = {
    initialize: () => ({ protocolVersion: params.protocolVersion, capabilities: { tools: {} },
                         serverInfo: { name: "tiny", version } }),
    "tools/list": () => ({ tools: [{ name: "attempt", inputSchema: { type: "object" } }] }),
    "tools/call": () => ({ content: [{ type: "text", text: attempt(params.arguments.code) }] }),
  }
  const error = { code: -32601, message: method }
  const answer = answers[method] ? { result: answers[method]() } : { error }
  if (id !== undefined) console.log(JSON.stringify({ jsonrpc: "2.0", id, ...answer }))
})
"""
PYTHON = f"""
version = "VERSION"
def main():
    exec({program(ATTEMPTING)!r}, globals())
"""
SPY = """
const fs = require("fs"), { execSync } = require("child_process")
const attempt = (act) => { try { return String(act()) } catch (error) { return "Error" } }
fs.writeFileSync("spied", [
  () => attempt(() => fs.writeFileSync("STATE/spied", "")) && fs.readdirSync("STATE").includes("audit"),
  () => fs.writeFileSync(require("os").homedir() + "/.spied", ""),
  () => execSync("curl -sS --fail http://localhost:PORT/spied", { stdio: "ignore" }),
].map(attempt).join(" "))
"""
"""An install script that tries what it may not."""

SCRIPTS = "[console_scripts]\ntiny = tiny:main\nother = os:abort\n"

CHANGES = {
    "npx": (
        "fs.writeFileSync(__filename, '')",
        "fs.rmSync(__filename)",
        "fs.writeFileSync(__dirname + '/new', '')",
    ),
    "uvx": ("open(__file__, 'w')", "os.remove(__file__)", "os.mkdir(os.path.dirname(__file__) + '/new')"),
}


def publish(folder: Path, port: int, *versions: str, spy: str = "") -> None:
    """Write what the registry on `port` has of the packages `tiny`."""
    found, links, scripts = dict[str, object](), "", {"postinstall": "node spy.js"} if spy else {}
    for version in versions:
        wheel = folder / f"files/tiny-{version}-py3-none-any.whl"
        wheel.parent.mkdir(parents=True, exist_ok=True)
        about = f"tiny-{version}.dist-info"
        with zipfile.ZipFile(wheel, "w") as file:
            file.writestr("tiny.py", PYTHON.replace("VERSION", version))
            file.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n")
            file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            file.writestr(f"{about}/entry_points.txt", SCRIPTS)
            file.writestr(f"{about}/RECORD", "")
        links += f'<a href="/files/{wheel.name}">{wheel.name}</a>'
        bins = {"other": "spy.js", "tiny": "server.js"}
        package = {"name": "tiny", "version": version, "bin": bins, "scripts": scripts}
        content = {"package.json": json.dumps(package), "server.js": NODE.replace("VERSION", version)}
        content |= {"spy.js": spy, ".mcp.json": "{}", ".vscode/settings.json": "{}"}
        packed = {f"package/{name}": text for name, text in content.items()}
        tarball = archive(folder / f"files/tiny-{version}.tgz", packed)
        dist = {"tarball": f"http://localhost:{port}/files/{tarball.name}"}
        digest = hashlib.sha1(tarball.read_bytes()).hexdigest()
        found[version] = {**package, "hasInstallScript": bool(spy), "dist": {**dist, "shasum": digest}}
    put(folder / "simple/tiny/index.html", links)
    index = {"name": "tiny", "dist-tags": {"latest": versions[-1]}, "versions": found}
    put(folder / "tiny", json.dumps(index))


def prepare(ground: Ground, *words: str) -> tuple[int, str]:
    """Exit status, and what it printed."""
    command = [*server_command(), "upstream", "prepare", *words]
    environment = {**os.environ, "PATH": PATH, "MCP_TOOLSERVER_STATE_DIR": str(ground.state)}
    ended = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, check=False, encoding="utf-8", timeout=300
    )
    return ended.returncode, ended.stdout + ended.stderr


def launcher(kind: str, port: int, package: str = "tiny") -> list[str]:
    if kind == "npx":
        return ["npx", "-y", f"--registry=http://localhost:{port}/", package]
    return ["uvx", "--default-index", f"http://localhost:{port}/simple", package]


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


@pytest.fixture
def registry(tmp_path: Path) -> Generator[Site]:
    with site(other=files(tmp_path / "registry")) as made:
        yield made


@pytest.mark.parametrize("kind", CHANGES)
async def test_a_prepared_server_runs_offline_in_one_version_that_nothing_changes(
    ground: Ground, registry: Site, tmp_path: Path, kind: str
) -> None:
    """With npx, an install script writes its package and reaches the registry only."""
    command, published = launcher(kind, registry.port), tmp_path / "registry"
    with site(other=files(tmp_path / "root")) as unlisted:
        spy = SPY.replace("STATE", str(ground.state)).replace("PORT", str(unlisted.port))
        publish(published, registry.port, "1.0.0", spy=spy)
        status, said = prepare(ground, "tiny", "--", *command, "an argument")
        assert unlisted.asked == []
    assert (status, "is prepared: tiny" in said, "1.0.0" in said) == (0, True, True), said
    assert not (ground.state / "spied").exists()
    publish(published, registry.port, "1.0.0", "2.0.0")
    visits, before = len(registry.asked), tree(ground.state / "prepared")
    words = ("--name", "tiny")
    async with ground.client("workspace-write", *words, command=[*command, "--x"], era="legacy") as client:
        assert await attempted(client, "version") == "1.0.0"
        for change in CHANGES[kind]:
            assert re.search("EROFS|Read-only", await attempted(client, change)), change
        if kind == "npx":
            assert await attempted(client, "fs.readFileSync(__dirname + '/spied')") == "false Error Error"
            assert await attempted(client, "fs.existsSync(__dirname + '/.mcp.json')") == "true"
    assert (len(registry.asked), tree(ground.state / "prepared")) == (visits, before)
    if kind == "npx":
        refused = {str(registry.port): set[bool](), str(unlisted.port): set[bool]()}
        for line in lines(ground.state.parent):
            for port in refused:
                if f"localhost:{port}" in str(line):
                    refused[port].add(line["verdict"].startswith("refused"))
        assert refused == {str(registry.port): {False}, str(unlisted.port): {True}}


@pytest.mark.long
@pytest.mark.parametrize("kind", CHANGES)
def test_preparing_again_replaces_the_version_and_a_failure_keeps_it(
    ground: Ground, registry: Site, tmp_path: Path, kind: str
) -> None:
    publish(tmp_path / "registry", registry.port, "1.0.0")
    command = launcher(kind, registry.port)
    assert prepare(ground, "tiny", "--", *command)[0] == 0
    publish(tmp_path / "registry", registry.port, "1.0.0", "2.0.0")
    file = tmp_path / "upstreams.json"
    entry = {"command": command[0], "args": command[1:]}
    file.write_text(json.dumps({"mcpServers": {"tiny": entry, "known": entry}}), encoding="utf-8")
    flags = ("--root", str(ground.root), "--upstreams", str(file))

    def version(name: str) -> str:
        said = ground.printed("call", f"mcp__{name}__attempt", '{"code": "version"}', *flags)
        return next(line for line in said.splitlines() if line.endswith(".0.0"))

    # The command that started the server last is known; that of a file, too.
    assert version("tiny") == "1.0.0"
    for name, *more in (("tiny",), ("known", *flags[2:])):
        status, said = prepare(ground, name, *more)
        assert status == 0, said
    # A failure changes nothing but that the version before the last goes.
    status, said = prepare(ground, "tiny", "--", *launcher(kind, registry.port, "tiny@9"))
    assert (status, "tiny is not prepared: " in said, " ended with " in said) == (1, True, True), said
    assert sum(one.is_dir() for one in (ground.state / "prepared/tiny").iterdir()) == 1
    assert (version("tiny"), version("known")) == ("2.0.0", "2.0.0")


def test_what_cannot_be_prepared_says_why_and_what_was_not_says_how(
    ground: Ground, registry: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    def prepared(name: str, *words: str) -> int:
        invocation = load(["upstream", "prepare", name, "--state-dir", str(ground.state), *words], {})
        return preparing.prepare(invocation, HostExecutables(), {})

    assert prepared("x", "--", "node", "server.js") == 0
    assert prepared("x", "--", "npx", "-c", "ls") == 1
    assert re.search(r"nothing to prepare(.|\n)*option -c not recognized", "".join(capsys.readouterr()))
    for name, words, why in (("x", (), "put it after --"), ("a__b", ("--", "npx", "y"), "a__b")):
        with pytest.raises(SettingsError, match=why):
            prepared(name, *words)
    status, said = prepare(ground, "x", "--", *launcher("uvx", registry.port))
    assert (status, "uv ended with" in said) == (1, True), said
    request = b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}\n'
    wrapped = ground.wrapping("read-only", [*launcher("npx", registry.port), "--key=secret"], "--name", "x")
    ended = subprocess.run(wrapped, input=request, capture_output=True, check=False, timeout=60, cwd=ROOT)
    error = json.loads(ended.stdout)["error"]["message"]
    assert "upstream prepare x -- npx ..." in error
    assert "secret" not in error


def test_the_command_of_a_package_runner_is_taken_apart() -> None:
    found = {
        "npx -y @org/server-files@1.2 /home -y": (3, "-- @org/server-files@1.2", ""),
        "/opt/bin/npx --package=a -p b -- run x": (6, "-- a b", "run"),
        "npm exec --registry http://x/ a -- b": (6, "--registry http://x/ -- a", ""),
        "bunx a": (2, "-- a", ""),
        "pnpm dlx a": (3, "-- a", ""),
        "uvx --from git+https://x/y --with z run --p": (6, "--with z -- git+https://x/y", "run"),
        "uv tool run -q --python 3.12 a@1": (7, "--python 3.12 -- a@1", ""),
    }
    for command, (count, arguments, started) in found.items():
        launch = launch_of(command.split())
        assert launch
        taken = (len(launch.words), " ".join(launch.arguments), launch.program)
        assert taken == (count, arguments, started), command
    for command in ("npm run x", "uv run x", "node npx", "python -m uvx"):
        assert launch_of(command.split()) is None, command
    for command in ("npx", "uvx --from a", "npx --call=x", "uvx --unknown a b"):
        with pytest.raises(SettingsError):
            launch_of(command.split())


def test_the_broker_shows_no_other_part_of_the_state_folder() -> None:
    assert decode(encode(Script(script="true", timeout=None, prepared="a.b")))
    for name in ("..", "../audit", "a/b", "/etc", ".hidden", "a\0"):
        with pytest.raises(ValueError, match=r"file|null"):
            decode(encode(Script(script="true", timeout=None, prepared=name)))
