"""Each tool has an example, and a real server on a small project gives the same answer.

`tests/examples/<toolset>/<tool>.json` stores one. `arguments` are those of the call; a test file
`test_<tool>.py` that defines `EXAMPLE` decides them. `answer` is the text of the result, which
`python -m tests update` writes, without what differs from run to run. `before` are calls that run first; the
handle that the last of them returned replaces an argument that ends with `_…`. `says` is what the user
answers. On a machine that lacks what a tool needs, the stored answer stays.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from importlib import import_module
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import anyio
import pytest

from mcp_toolserver.app import confinement
from mcp_toolserver.app.compose import Application, build_application
from mcp_toolserver.app.upstreams import start_upstreams
from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.runtime.desktop.executables import DesktopExecutables
from mcp_toolserver.runtime.executables import find_host_executables
from mcp_toolserver.runtime.processes.broker_client import start_standalone_broker
from mcp_toolserver.runtime.web.calls import WebServices
from mcp_toolserver.runtime.web.options import WebOptions, providers
from mcp_toolserver.settings import Settings
from tests import ROOT
from tests.agents.agents import Call, Says, model_api
from tests.support.calling import HANDLE
from tests.support.cases import collected
from tests.support.confinement import git
from tests.support.generated import ENTRIES
from tests.support.processes import PATIENCE
from tests.support.workbench import Person
from tests.web.web import Internet, Route, Site, page, site

FOLDER = ROOT / "tests" / "examples"

TOOLSETS = {entry.spec.name: entry.toolset for entry in ENTRIES}

ADA = {
    f"GIT_{role}_{key}": value
    for role in ("AUTHOR", "COMMITTER")
    for key, value in (("NAME", "Ada"), ("EMAIL", "ada@example.org"), ("DATE", "2026-03-02T09:00:00+01:00"))
}
NOON = datetime(2026, 3, 4, 12, 0, tzinfo=timezone(timedelta(hours=1), "CET"))
_FILES = {
    "README.md": "# Shop\n\nPrices are in cents.\n",
    "src/shop.py": (
        '"""A shop."""\n\nRATE = 19\n\n\ndef total(net: int) -> int:\n    return net + net * RATE // 100\n'
    ),
    "src/old.py": '"""A shop."""\n\nRATE = 16\n',
    "tests/test_shop.py": "from shop import total\n\n\ndef test_total():\n    assert total(100) == 119\n",
    "notes.ipynb": (
        '{\n "cells": [\n  {\n   "cell_type": "code",\n   "execution_count": 1,\n   "id": "sum",\n'
        '   "metadata": {},\n'
        '   "outputs": [],\n   "source": [\n    "1 + 1"\n   ]\n  }\n ],\n "metadata": {},\n "nbformat": 4,\n'
        ' "nbformat_minor": 5\n}\n'
    ),
    ".gitignore": "*.log\n",
}
_PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)
_PAGE = (
    "<html><head><title>VAT rates</title></head><body><h1>VAT rates</h1><p>The usual rate is "
    '<b>19&nbsp;%</b>. See <a href="/old">older rates</a>.</p></body></html>'
)
_HITS = {
    "query": "usual VAT rate",
    "results": [
        {"title": "VAT rates", "url": "http://example.org/vat", "content": "The usual rate is 19 %."}
    ],
}

_NOTES = """
from mcp.server import MCPServer
server = MCPServer("notes")
@server.tool()
def find(word: str) -> str:
    'Find a note.'
    return f"note://rates mentions {word}"
@server.resource("note://rates")
def rates() -> str:
    'The usual rates'
    return "The usual rate is 19 %."
server.run()
"""


@dataclass(frozen=True, kw_only=True)
class Example:
    arguments: dict[str, Any]
    answer: str = ""
    before: Sequence[Mapping[str, Any]] = ()
    says: Sequence[Sequence[str]] | None = None


def path_of(tool: str) -> Path:
    return FOLDER / TOOLSETS[tool] / f"{tool}.json"


def example(tool: str) -> Example:
    """The example of a tool. Without one the test fails, and says what to write."""
    content = stored(tool)
    arguments = _declared(tool) or content.get("arguments")
    if arguments is None:
        pytest.fail(
            f"{tool} has no example: define EXAMPLE, the arguments of one call, in {_test_file(tool)} in the "
            "folder of its toolset, then run python -m tests update",
            pytrace=False,
        )
    return Example(**{**content, "arguments": arguments})


def store(tool: str, answer: str) -> None:
    content = {**stored(tool), "arguments": example(tool).arguments, "answer": answer}
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    path_of(tool).write_text(text, encoding="utf-8")


def stored(tool: str) -> dict[str, Any]:
    """The content of the tool's file; empty before the first `python -m tests update`."""
    path = path_of(tool) if tool in TOOLSETS else None
    return json.loads(path.read_text(encoding="utf-8")) if path and path.exists() else {}


def _declared(tool: str) -> dict[str, Any] | None:
    for path in (ROOT / "tests").rglob(_test_file(tool)):
        return getattr(import_module(".".join(path.relative_to(ROOT).with_suffix("").parts)), "EXAMPLE", None)
    return None


def _test_file(tool: str) -> str:
    return f"test_{re.sub('(?<=[a-z])(?=[A-Z])', '_', tool).lower()}.py"


class Noon:
    async def now(self, zone: str = "") -> datetime:
        return NOON.astimezone(ZoneInfo(zone)) if zone else NOON

    async def sleep(self, seconds: float) -> None:
        """Time passes at once."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    folder: Path
    app: Application
    dispatcher: Dispatcher

    @property
    def offered(self) -> set[str]:
        return {entry.spec.name for entry in self.dispatcher.available}

    async def answer(self, tool: str) -> str:
        """The answer to the tool's example, without what differs from run to run."""
        _fill(self.folder)
        host = self.dispatcher.host
        assert isinstance(host.worktrees, dict)
        host.worktrees.pop(LOCAL, None)
        # An owner of its own, so that no example changes what another one may do.
        shown, person = example(tool), Person(says=True, owner=f"the example of {tool}")
        person.answers = None if shown.says is None else tuple(map(tuple, shown.says))
        text = ""
        for step in (*shown.before, {"tool": tool, "arguments": shown.arguments}):
            with anyio.fail_after(60):
                arguments = _with_handles(step["arguments"], text)
                result = await self.dispatcher.call(step["tool"], arguments, person)
            text = result.text
            assert result.error is None, text
        self.app.changes.forget(person.owner)
        return tidied(text, self.folder)


def tidied(text: str, folder: Path) -> str:
    """`text` without the paths, handles, marks and durations of one run."""
    text = text.replace(str(folder / "root"), "/home/you/shop").replace(str(folder), "/home/you")
    text = re.sub(r"\b([a-z]+_)?[0-9a-f]{32}\b", lambda found: f"{found[1] or ''}…", text)
    text = re.sub(r"^(Committed|Amended) [0-9a-f]{12}", r"\1 …", text)
    text = re.sub(r"\b(bg|plan|repl|task)_[0-9a-f]{6,8}\b", r"\1_…", text)
    text = re.sub(r"(created|changed) 20\d\d-[-:.\dT]+Z", r"\1 2026-03-04T11:00:00.000Z", text)
    text = HANDLE.sub("…", text)
    text = re.sub(r"\b(agent|team)_[0-9a-f]{12}\b", r"\1_…", text)
    text = re.sub(r"(interpreter: ).*]", r"\1CPython 3.12.1, /usr/bin/python3]", text)
    text = re.sub(r"(\[untrusted .+ )[0-9a-f]+( (?:begins|ends))", r"\1…\2", text)
    text = re.sub(r"^(server|date): .*\n", "", text, flags=re.MULTILINE)
    return re.sub(r"\b\d+\.\d s\b", "0.1 s", text)


def _with_handles(value: Any, text: str) -> Any:
    if isinstance(value, dict):
        return {name: _with_handles(inner, text) for name, inner in value.items()}
    if not isinstance(value, str) or not value.endswith("_…"):
        return value
    found = re.search(rf"\b{value.removesuffix('…')}[0-9a-f]+", text)
    assert found, text
    return found[0]


def _fill(folder: Path) -> None:
    root, template = folder / "root", folder / "template"
    if not template.exists():
        _make(template)
    for path in root.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(template, root, dirs_exist_ok=True, symlinks=True)


def _make(project: Path) -> None:
    project.mkdir()
    git(project, "init", "--quiet", "--initial-branch=main")
    for name, content in _FILES.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(content, encoding="utf-8")
    (project / "logo.png").write_bytes(_PIXEL)
    rate = project / "src/shop.py"
    rate.write_text(_FILES["src/shop.py"].replace("19", "16"), encoding="utf-8")
    git(project, "add", ".")
    git(project, "commit", "--quiet", "--message=Open the shop", **ADA)
    rate.write_text(_FILES["src/shop.py"], encoding="utf-8")
    git(project, "commit", "--quiet", "--all", "--message=Raise the rate", **ADA)
    (project / "README.md").write_text(_FILES["README.md"] + "Taxes are in percent.\n", encoding="utf-8")
    for age, path in enumerate(sorted(project.rglob("[!.]*"))):
        os.utime(path, (NOON.timestamp() - age, NOON.timestamp() - age))


def _agents(end: threading.Event) -> dict[str, list[Says]]:
    """The scripts of agents; some run until `end` is set."""
    return {
        "Watch the tests.": [Says("", after=end)],
        "Where is the VAT rate set?": [
            Says(calls=[Call(tool="grep_search", arguments={"pattern": "RATE ="})]),
            Says("src/shop.py sets RATE = 19; src/old.py has the older 16."),
        ],
    }


def _routes() -> dict[str, Route]:
    return {
        "/vat": page(_PAGE),
        "/rates.csv": lambda reply: reply.say("year,rate\n2025,19\n", kind="text/csv"),
        "/hook": lambda reply: reply.say('{"queued": true}', kind="application/json"),
        "/search": lambda reply: reply.say(json.dumps(_HITS), kind="application/json"),
    }


@asynccontextmanager
async def stage(folder: Path) -> AsyncGenerator[Stage]:
    for name in ("root", "home"):
        (folder / name).mkdir()
    servers = {"notes": {"command": sys.executable, "args": ["-c", _NOTES]}}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    end = threading.Event()
    with pytest.MonkeyPatch.context() as patch, site(_routes()) as web, model_api(_agents(end)) as model:
        settings = Settings(
            permission_mode=Permission.DANGER_FULL_ACCESS,
            root=(str(folder / "root"),),
            state_dir=str(folder / "state"),
            upstreams=str(folder / "servers.json"),
            toolsets=("all",),
            git_author="Ada <ada@example.org>",
            agent_provider="openai",
            agent_base_url=model.url,
            agent_model="scripted",
        )
        patch.setenv("HOME", str(folder / "home"))
        patch.setenv("TZ", "UTC")
        # A container engine may lack its daemon or the image, and the desktop belongs to the user.
        here = find_host_executables(os.environ, settings.root)
        found = replace(here, engine=None, desktop=DesktopExecutables())
        broker = start_standalone_broker(confinement.broker_policy(settings, found))
        upstreams = start_upstreams(settings, found, os.environ, start_standalone_broker)
        app = build_application(settings, broker, found, held_by=None, upstreams=upstreams)
        try:
            yield Stage(folder=folder, app=app, dispatcher=_with_web(app.dispatcher, web))
        finally:
            end.set()
            await app.aclose()


def _with_web(dispatcher: Dispatcher, web: Site) -> Dispatcher:
    """The same, with a web of one site and a fixed clock."""
    internet = Internet.of(web, "example.org", "search.example.org")
    options = WebOptions(providers=providers(("searxng=http://search.example.org",), {}))
    host = dispatcher.host
    made = WebServices(options, resolve=internet.resolve, network=internet).provide
    services = {Capability.CLOCK: lambda _: Noon(), Capability.FETCH: made, Capability.SEND: made}
    return replace(dispatcher, host=replace(host, providers={**host.providers, **services}))


IN_LONG = {"Agent", "CallTool", "LSP", "lsp_edit"}
"""They load the library of a model, or start another server, and have tests of their own."""


@pytest.mark.parametrize(
    "tools",
    [
        pytest.param([name for name in TOOLSETS if name not in IN_LONG], id="quick"),
        pytest.param(sorted(IN_LONG), id="slow", marks=pytest.mark.long),
    ],
)
async def test_every_tool_answers_as_its_example_shows(
    tools: list[str], tmp_path: Path, update: bool
) -> None:
    with collected() as case:
        async with stage(tmp_path) as there:
            for name in tools:
                with case(name):
                    if name in there.offered:
                        answer = await there.answer(name)
                        if update:
                            store(name, answer)
                        shown = replace(example(name), answer=answer)
                        assert Example(**stored(name)) == shown, "review it, then run python -m tests update"
                    assert example(name).answer


def test_every_tool_has_one_example_and_nothing_else_has() -> None:
    assert {*FOLDER.rglob("*.json")} == {path_of(name) for name in TOOLSETS}


PROGRAM = ROOT / "examples" / "work_session.py"


def without_handles(text: str) -> str:
    """`text` without the handles, paths and dates of one run."""
    text = re.sub(r"/\S*/\.example-\w+", "/home/you", text)
    text = re.sub(r"\b(plan|task|cron)_[0-9a-f]+", r"\1_…", text)
    text = re.sub(r"\b[0-9a-f]{32}\b", "…", text)
    return re.sub(r"\d{4}-\d\d-\d\dT00:00\+00:00", "2026-11-24T00:00+00:00", text)


@pytest.mark.long
def test_the_file_shows_what_the_program_prints(tmp_path: Path, update: bool) -> None:
    # Commands of the server do not see the folder of temporary files.
    folder = ROOT / "benchmarks" / ".cache" / f"example-{tmp_path.name}"
    folder.mkdir(parents=True)
    try:
        done = subprocess.run(
            [sys.executable, str(PROGRAM)],
            cwd=folder,
            check=True,
            capture_output=True,
            encoding="utf-8",
            timeout=10 * PATIENCE,
        )
        assert list(folder.iterdir()) == []
    finally:
        folder.rmdir()
    printed = without_handles(done.stdout).strip() + "\n"
    shown = PROGRAM.with_suffix(".txt")
    if update:
        shown.write_text(printed, encoding="utf-8")
    assert shown.read_text(encoding="utf-8") == printed, "review the change, then run python -m tests update"
