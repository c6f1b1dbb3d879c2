"""The set-up that docs/agent-model.md describes, done literally for each example in a home of its own."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from tests import ROOT
from tests.agents.test_models import FIRST, KEY, PATH, model
from tests.agents.test_provider_behaviours import turn
from tests.support.live import text
from tests.web.web import Reply, Site, site

PAGE = (ROOT / "docs/agent-model.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"^(\w+)[^\n]*:\n\n```toml\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE))
CHECK, START = re.findall(r"^   (mcp-toolserver .*)$", PAGE, re.MULTILINE)
RECORDED = {
    part.partition("\n")[0]: part.partition("\n\n")[2].split("data: [DONE]\n")
    for part in Path(__file__).with_name("recorded_streams.txt").read_text(encoding="utf-8").split("\n## ")
}


def served(stack: ExitStack, name: str, config: str) -> tuple[Site, str]:
    """The server of an example, and the config file for it: hosted ones are replaced by one on loopback, and
    so is a port that is taken."""
    provider = "anthropic" if name == "Anthropic" else "openai"

    def route(reply: Reply) -> None:
        body = json.loads(reply.asked.body)
        is_call = len(body["messages"]) <= 2 and len(body["tools"]) > 1
        if name in RECORDED:
            reply.say(RECORDED[name][not is_call] + "data: [DONE]\n\n", kind="text/event-stream")
        else:
            (turn("I look.", calls="ls") if is_call else turn("I saw it."))(reply, provider)

    routes = {PATH[provider]: route}
    if (found := re.search(r'base-url = "http://127.0.0.1:(\d+)', config)) is None:
        at = stack.enter_context(site(routes))
        return at, config + f'base-url = "{at.url}{"/v1" * (provider == "openai")}"\n'
    try:
        return stack.enter_context(site(routes, at=("127.0.0.1", int(found[1])))), config
    except OSError:
        at = stack.enter_context(site(routes))
        return at, config.replace(found[1], str(at.port))


async def set_up(name: str, config: str, home: Path) -> None:
    with ExitStack() as stack:
        at, config = served(stack, name, config)
        (home / "project").mkdir(parents=True)
        file = home / ".config/mcp-toolserver/config.toml"
        file.parent.mkdir(parents=True)
        file.write_text(config, encoding="utf-8")
        if "key-file" in config:
            key = file.with_name("model-key")
            key.write_text(f"{KEY}\n", encoding="utf-8")
            key.chmod(0o600)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environ = {"HOME": str(home), "PATH": path}
        checked = await anyio.run_process(["bash", "-c", CHECK], env=environ, check=False, cwd=home)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        assert len(at.asked) == 1 + ("models" in config)
        assert re.match(rb"holds +model of agents +\w+, \S+ answers", b" ".join(checked.stdout.split())), name
        parameters = StdioServerParameters(command="bash", args=["-c", START], env=environ, cwd=home)
        async with Client(parameters, mode="auto", read_timeout_seconds=60) as client:
            listed = {tool.name for tool in (await client.list_tools()).tools}
            assert {"Agent", "read_file", "TaskOutput"} <= listed, name
            result = await client.call_tool("Agent", {"description": "a test", "prompt": "Look."})
        assert re.search(r"I saw it\.\n\[agent_\w+ finished; 2 turns, [1-9]", text(result)), (
            name,
            text(result),
        )
        sent = {asked.headers.get("x-api-key") or asked.headers.get("authorization") for asked in at.asked}
        assert all((KEY in str(one)) == ("key-file" in config) for one in sent)


@pytest.mark.long  # ten processes, of which each imports the library of its model
async def test_the_documented_steps_give_agents_each_kind_of_model(tmp_path: Path) -> None:
    assert {*EXAMPLES} == {"Anthropic", "OpenAI", "Ollama", "vLLM", "LiteLLM"}
    async with anyio.create_task_group() as tasks:
        for name, config in EXAMPLES.items():
            tasks.start_soon(set_up, name, config, tmp_path / name)


async def test_the_streams_of_other_servers_are_read() -> None:
    for name, bodies in RECORDED.items():
        if len(bodies) == 1:
            continue
        streams = iter(bodies)

        def route(reply: Reply, streams: Iterator[str] = streams) -> None:
            reply.say(next(streams), kind="text/event-stream")

        with site({PATH["openai"]: route}) as at:
            async with model("openai", at.url) as asked:
                first, last = await asked.turn(FIRST), await asked.turn(FIRST)
        [call] = first.calls
        assert (call.name, call.arguments in ({}, {"path": "."}), first.is_cut) == ("ls", True, False), name
        assert (last.text, last.calls, first.text in ("", "I look.")) == ("I saw it.", (), True), name
        assert min(first.context_tokens, first.output_tokens, last.input_tokens) > 0, name


def test_the_check_of_a_model_says_what_is_wrong(tmp_path: Path) -> None:
    (config := tmp_path / "config.toml").write_text(
        '[agent]\nprovider = "openai"\nmodel = "large"\nmodels = ["Explore=small"]\n', encoding="utf-8"
    )

    def route(reply: Reply) -> None:
        if json.loads(reply.asked.body)["model"] == "large":
            turn()(reply, "openai")
        else:
            reply.say('{"error": {"message": "no such model: small"}}', status=404)

    def checked(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "mcp_toolserver", "doctor", "--check-model", *arguments]
        return subprocess.run(command, capture_output=True, check=False, text=True, encoding="utf-8")

    with site({PATH["openai"]: route}) as at:
        with config.open("a", encoding="utf-8") as file:
            file.write(f'base-url = "{at.url}/v1"\n')
        said = checked("--config", str(config), "--json")
    large, small = json.loads(said.stdout)
    assert (said.returncode, said.stderr) == (2, "")
    assert (large["standing"], large["detail"]) == ("holds", "openai, large: answers")
    assert small["standing"] == "missing"
    assert "Please check model and base-url of [agent]." in small["detail"]
    assert 'It says: "no such model: small"' in small["detail"]
    for more, why in (
        ((), "there is no model"),
        (("--hosts",), "goes with neither"),
        (("--report", "x"), "goes"),
    ):
        said = checked(*more)
        assert (said.returncode, said.stdout) == (2, "")
        assert why in said.stderr
