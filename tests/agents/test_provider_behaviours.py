"""What the caller of an agent, a task and a schedule record of each way in which a provider may behave.

`provider_behaviours.txt` has the table. Each answer there is the name of a function here and its arguments.
The gate tries what depends on the format of a provider with both, and tasks and schedules, which record what
their agent's caller reads, with one row of each kind. The set-up that docs/agent-model.md describes is
done literally for each example in a home of its own.
"""

import json
import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import repeat
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import anyio
import mcp_types as mcp
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

from mcp_toolserver.commands.doctor.doctor import check_model
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.invocation import load
from mcp_toolserver.runtime.models import client
from mcp_toolserver.runtime.models.model import ProviderName
from mcp_toolserver.settings import Settings
from tests import ROOT
from tests.agents.agents import Agents, Model
from tests.agents.test_models import KEY, PATH, PREFIX, PROVIDERS
from tests.agents.test_run_task_packet import PACKET
from tests.agents.test_sampling import TASK, Params, Sampler, in_memory
from tests.protocol.resource_clients import place
from tests.support.extent import IN_FULL
from tests.support.live import ERAS, text
from tests.support.workshop import workshop
from tests.tasks.schedules import scheduled
from tests.tasks.test_board import ID, created
from tests.web.web import Reply, site

HERE = Path(__file__).parent
SAID = "The work is finished.\nOUTCOME: done"
CALLS = {"ls": "ls {}", "unknown": "no_such_tool {}", "wrong": 'ls {"path": [1]}', "bad": 'ls {"path": '}
CALLS |= {"part": 'write_file {"path": "a', "write": 'write_file {"path": "a", "content": ""}'}
STOPS: Mapping[ProviderName, Mapping[str, str]] = {
    "anthropic": {"stop": "end_turn", "calls": "tool_use", "cut": "max_tokens", "filter": "refusal"},
    "openai": {"calls": "tool_calls", "cut": "length", "filter": "content_filter"},
}
FORMS = [line.split(" | ") for line in (HERE / "provider_forms.txt").read_text(encoding="utf-8").splitlines()]
"""Provider, part of an answer, and an event of it, with the number of the part ($n) and what it holds."""


def made(calls: str) -> list[tuple[str, str]]:
    """The name and the arguments of each call."""
    return [
        (CALLS[name].partition(" ")[0], CALLS[name].partition(" ")[2]) for name in calls.split(",") if name
    ]


def events(provider: str, said: str, calls: str, thought: str, stop: str) -> Iterator[str]:
    parts = [("thought", (thought,))] * bool(thought) + [("said", (said[:9], said[9:]))] * bool(said)
    parts = [("start", ()), *parts, *(("call", call) for call in made(calls)), ("stop", (stop,))]
    for number, (part, values) in enumerate(parts):
        filled = dict(zip("nab", map(json.dumps, (number, *values)), strict=False))
        for event in (event for of, name, event in FORMS if (of, name) == (provider, part)):
            yield Template(event).substitute(filled)


Answer = Callable[[Reply, ProviderName], object]
"""Answers a request in the format of a provider."""


def sse(*data: str) -> str:
    named = ((re.match(r'\{"type": "(\w+)"', one), one) for one in data)
    return "".join((f"event: {name[1]}\n" if name else "") + f"data: {one}\n\n" for name, one in named)


def turn(said: str = SAID, calls: str = "", thought: str = "", stop: str = "", **what: str) -> Answer:
    """A whole answer; or its `first` events, or all but some at the end (`without`), then an `error` or
    `more`; `drops` closes the connection after them."""

    def answer(reply: Reply, provider: ProviderName) -> None:
        reason = stop or ("calls" if calls else "stop")
        every = [*events(provider, said, calls, thought, STOPS[provider].get(reason, reason))]
        stream = sse(*every[: int(what.get("first", len(every) - int(what.get("without", 0))))])
        if kind := what.get("error"):
            stream += sse(json.dumps({"type": "error", "error": {"type": kind, "message": f"reason {KEY}"}}))
        (dropped if "drops" in what else raw)(stream + what.get("more", ""))(reply, provider)

    return answer


def dropped(sent: str = "") -> Answer:
    """Closes the connection after the headers and this much of an answer."""

    def answer(reply: Reply, _: str) -> None:
        reply.close_connection = True
        reply.send_response(200)
        reply.send_header("content-type", "text/event-stream")
        reply.send_header("content-length", str(len(sent) + 1000))
        reply.end_headers()
        reply.wfile.write(sent.encode())

    return answer


def error(status: str, message: str = "", **more: str) -> Answer:
    """An error, with headers and with fields of its body."""

    def answer(reply: Reply, _: str) -> None:
        fields = {"message": f"reason {KEY} {reply.site.url}/v1 {message}", "type": "an_error", "code": None}
        body = json.dumps({"type": "error", "error": {**fields, **more}})
        reply.say(body, status=int(status), headers={key: more[key] for key in more if "-" in key})

    return answer


def raw(content: str, kind: str = "text/event-stream", status: str = "200") -> Answer:
    body = content.replace("%", "\n")
    return lambda reply, _: reply.say(f"{body}\n\n" if body else "", kind=kind, status=int(status))


def sampled(said: str = SAID, calls: str = "", stop: str | None = None) -> mcp.CreateMessageResultWithTools:
    """What the model of a client answers."""
    content: list[Any] = [mcp.TextContent(text=said)]
    content += [mcp.ToolUseContent(id=f"c{one}", name=one, input=json.loads(of)) for one, of in made(calls)]
    return mcp.CreateMessageResultWithTools(role="assistant", content=content, model="m", stop_reason=stop)


ENDLESS = b": comment " + b"x" * 4096 + b"\n"
SINGLE: Mapping[str, Any] = {
    "redirect": lambda reply, _: reply.redirect(f"{reply.site.url}/elsewhere", 307),
    "compressed": lambda reply, _: reply.pour([b"x"], encoding="gzip"),
    "endless": lambda reply, _: reply.pour(repeat(ENDLESS), kind="text/event-stream"),
    "lost": lambda reply, _: setattr(reply, "close_connection", True),
    "silent": lambda reply, _: reply.site.closing.wait(),
    "drips": lambda reply, _: reply.pour(
        b": yet\n\n" for _ in iter(lambda: reply.site.closing.wait(0.05), True)
    ),
    "dropped": dropped(),
    "declines": mcp.ErrorData(code=-1, message="no"),
}
BUILT: Mapping[str, Callable[..., Any]] = {"turn": turn, "error": error, "raw": raw, "sampled": sampled}


class Row(NamedTuple):
    says: str
    asked: str
    """A number of requests; with a `+`, at least that many."""
    answers: Sequence[Any]
    has_format: bool = True
    """Whether an answer is in the format of the provider."""

    def is_asked(self, times: int) -> bool:
        return times >= int(self.asked[:-1]) if self.asked.endswith("+") else times == int(self.asked)


def answer_of(source: str) -> Any:
    name, *words = shlex.split(source)
    named = dict(word.split("=", 1) for word in words if re.match(r"[a-z-]+=", word))
    return SINGLE[name] if name in SINGLE else BUILT[name](*words[: len(words) - len(named)], **named)


def tables() -> Iterator[dict[str, Row]]:
    """Those of the file."""
    for table in (HERE / "provider_behaviours.txt").read_text(encoding="utf-8").split("\n## ")[1:]:
        rows = ([part.strip() for part in line.split("|", 3)] for line in table.splitlines() if "|" in line)
        yield {
            row[0]: Row(row[1], row[2], [*map(answer_of, row[3].split("; "))], "turn" in row[3])
            for row in rows
        }


DONE, FAILED, LATE, SAMPLED = tables()
ROWS = {**DONE, **FAILED, **LATE}
DEFERRED = ROWS if IN_FULL else ("bad arguments", "400", "dropped in text", "cut", "empty", "silent")
"""Rows that a task and a schedule meet as well."""


@pytest.mark.rounds
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_no_failure_of_a_provider_is_recorded_as_success(
    provider: ProviderName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(client, "MAX_BYTES", 1 << 20)
    asked, wrong = Counter[str](), list[str]()

    def route(reply: Reply) -> None:
        prompt, name = re.findall(r"((?:caller|task|schedule): ([^.]*)\.)", reply.asked.body.decode())[0]
        answers = ROWS[name].answers
        asked[prompt] += 1
        answers[min(asked[prompt], len(answers)) - 1](reply, provider)

    async def check(at: Agents, name: str, limiter: anyio.CapacityLimiter) -> None:
        async with limiter:
            result = await at.agent(f"caller: {name}.")
            succeeded, said = {result.error is None}, [result.text]
            if name in DEFERRED:
                task = await created(at.server, prompt=f"task: {name}.")
                task = (await at.call("TaskOutput", task_id=task, until="end")).text
                run = await scheduled(at.server, f"schedule: {name}.")
                succeeded |= {"[completed; " in task, run.outcome == "succeeded"}
                said += (task, run.output)
        row, times = ROWS[name], asked[f"caller: {name}."]
        if succeeded != {name in DONE} or row.says not in result.text or not row.is_asked(times):
            wrong.append(f"{name}: {succeeded}, {times} requests, {said}")
        if KEY in str(said) or str(server.port) in str(said):
            wrong.append(f"{name} shows a secret: {said}")

    with site({PATH[provider]: route}) as server:
        (key := tmp_path / "key").touch(0o600)
        key.write_text(KEY, encoding="utf-8")
        given: dict[str, Any] = {"agent_provider": provider, "agent_model": "m", "agent_running": 100}
        given |= {"agent_key_file": str(key), "agent_base_url": server.url + PREFIX[provider]}
        for seconds, rows in ((60.0, (*DONE, *FAILED)), (1.0, LATE)):
            rows = [name for name in rows if ROWS[name].has_format or IN_FULL or provider == "openai"]
            if not rows:
                continue
            (folder := tmp_path / f"{seconds:g}").mkdir()
            async with workshop(folder, agent_turn_seconds=seconds, **given) as made:
                at = Agents(server=made, model=Model("", {}), root=folder / "root")
                limiter = anyio.CapacityLimiter(6)
                async with anyio.create_task_group() as tasks:
                    for name in rows:
                        tasks.start_soon(check, at, name, limiter)
            assert not [*(folder / "root").iterdir()]
    assert not wrong, "\n".join(wrong)
    assert {one.path for one in server.asked} == {PATH[provider]}
    assert all(b'"max_tokens":8192' in one.body.replace(b" ", b"") for one in server.asked)
    assert sum(b"arguments are not a JSON object" in one.body for one in server.asked) == 3
    assert len(ROWS) >= 60


@pytest.mark.parametrize("era", ERAS)
async def test_no_failure_of_the_model_of_a_client_is_recorded_as_success(era: str, tmp_path: Path) -> None:
    asked = Counter[str]()

    def answer(params: Params) -> Any:
        name = params.messages[0].model_dump()["content"]["text"]
        asked[name] += 1
        # With a handshake the client answers for ever.
        answers = SAMPLED[name].answers if asked[name] < 30 else [sampled()]
        return answers[min(asked[name], len(answers)) - 1]

    async with place(tmp_path) as made, in_memory(made.app, era, Sampler(answer=answer)) as session:
        for name, row in SAMPLED.items():
            if era == "auto" and "error" in name:
                # The official client ends a stateless call itself.
                with pytest.raises(MCPError, match="no"):
                    await session.call_tool("Agent", {**TASK, "prompt": name})
                continue
            result = await session.call_tool("Agent", {**TASK, "prompt": name})
            if (name, era) == ("calls on and on", "legacy"):
                row = Row("finished; 30 turns", "30", ())
            assert row.says in text(result), name
            assert result.is_error == (not row.says.startswith("finished")), name
            assert row.is_asked(asked[name]), name
        # Tasks and schedules have no client when they run.
        refused = {"RunTaskPacket": PACKET, "CronCreate": {"schedule": "@daily", "prompt": "x"}}
        for tool, arguments in refused.items():
            assert (await session.call_tool(tool, arguments)).is_error, tool
        for task in ID.findall(text(await session.call_tool("TaskCreate", {"prompt": "plain"}))):
            ended = await session.call_tool("TaskOutput", {"task_id": task, "until": "end", "wait_ms": 500})
            assert "[completed" not in text(ended)
        listed = {tool.name for tool in (await session.list_tools()).tools}
        assert listed & {"Agent", "RunTaskPacket", "TeamCreate"} == ({"Agent"} if era == "legacy" else set())
    assert not [*(tmp_path / "root").iterdir()]


PAGE = (ROOT / "docs/agent-model.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"^(\w+)[^\n]*:\n\n```toml\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE))
CHECK, START = re.findall(r"^   (mcp-toolserver .*)$", PAGE, re.MULTILINE)
PARTS = (HERE / "recorded_streams.txt").read_text(encoding="utf-8").split("\n## ")
RECORDED = {part.partition("\n")[0]: part.partition("\n\n")[2].split("data: [DONE]\n") for part in PARTS[1:]}


async def set_up(name: str, config: str, home: Path) -> None:
    """Follow the steps. Hosted servers, and one whose port is taken, are replaced by one on a free port."""
    provider = "anthropic" if name == "Anthropic" else "openai"

    def route(reply: Reply) -> None:
        body = json.loads(reply.asked.body)
        is_call = len(body["messages"]) <= 2 and len(body["tools"]) > 1
        if name in RECORDED:
            reply.say(f"{RECORDED[name][not is_call]}data: [DONE]\n\n", kind="text/event-stream")
        else:
            (turn("I look.", calls="ls") if is_call else turn("I saw it."))(reply, provider)

    with ExitStack() as stack:
        at, port = None, re.search(r'(?<=base-url = "http://127.0.0.1:)\d+', config)
        if port:
            with suppress(OSError):
                at = stack.enter_context(site({PATH[provider]: route}, at=("127.0.0.1", int(port[0]))))
        if at is None:
            at = stack.enter_context(site({PATH[provider]: route}))
            base = at.url + PATH[provider].removesuffix("/chat/completions").removesuffix("/v1/messages")
            config = f'{re.sub("base-url.*", "", config)}base-url = "{base}"\n'
        file = home / ".config/mcp-toolserver/config.toml"
        for folder in (home / "project", file.parent):
            folder.mkdir(parents=True)
        file.write_text(config, encoding="utf-8")
        if "key-file" in config:
            (key := file.with_name("model-key")).touch(0o600)
            key.write_text(f"{KEY}\n", encoding="utf-8")
        environ = {"HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        checked = await anyio.run_process(["bash", "-c", CHECK], env=environ, check=False, cwd=home)
        assert re.match(rb"holds +model of agents +\w+, \S+\s+answers", checked.stdout), checked
        assert (checked.returncode, len(at.asked)) == (0, 1 + ("models" in config))
        started = StdioServerParameters(command="bash", args=["-c", START], env=environ, cwd=home)
        async with Client(started, mode="auto", read_timeout_seconds=60) as client:
            listed = {tool.name for tool in (await client.list_tools()).tools}
            assert {"Agent", "read_file", "TaskOutput"} <= listed, name
            said = text(await client.call_tool("Agent", {"description": "a test", "prompt": "Look."}))
        assert re.search(r"I saw it\.\n\[agent_\w+ finished; 2 turns, [1-9]", said), (name, said)
        assert all((KEY in str(one.headers)) == ("key-file" in config) for one in at.asked)


@pytest.mark.long  # ten processes, of which each imports the library of its model
async def test_the_documented_steps_give_agents_each_kind_of_model(tmp_path: Path) -> None:
    assert {*EXAMPLES} == {"Anthropic", "OpenAI", "Ollama", "vLLM", "LiteLLM"}
    async with anyio.create_task_group() as tasks:
        for name, config in EXAMPLES.items():
            tasks.start_soon(set_up, name, config, tmp_path / name)


def test_the_check_of_a_model_says_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """In this process: the steps above run the command."""

    def route(reply: Reply) -> None:
        if json.loads(reply.asked.body)["model"] == "large":
            turn(stop="cut")(reply, "openai")
        else:
            reply.say('{"error": {"message": "no such model: small"}}', status=404)

    # The check sets it, too.
    caplog.set_level("ERROR", logger="mcp_toolserver")
    with site({PATH["openai"]: route}) as at:
        config = '[agent]\nprovider = "openai"\nmodel = "large"\nmodels = ["Explore=small"]\n'
        (file := tmp_path / "c.toml").write_text(f'{config}base-url = "{at.url}/v1"\n', encoding="utf-8")
        asked = load(["doctor", "--check-model", "--config", str(file), "--json"], {})
        assert (asked.check_model, check_model(asked.settings, as_json=asked.json)) == (True, 2)
        large, small = json.loads(capsys.readouterr().out)
        assert len(at.asked) == 2
    assert (large["standing"], large["detail"]) == ("holds", "openai, large: answers")
    assert (small["what"], small["standing"]) == ("model of agents", "missing")
    assert small["detail"].endswith('check model and base-url of [agent]. It says: "no such model: small"')
    with pytest.raises(SettingsError, match="there is no model"):
        check_model(Settings(), as_json=False)
