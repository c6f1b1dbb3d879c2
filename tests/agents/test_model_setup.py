"""The set-up that docs/agent-model.md describes, done literally for each example in a home of its own."""

import json
import os
import re
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import anyio
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from mcp_toolserver.commands.doctor.doctor import check_model
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.invocation import load
from mcp_toolserver.settings import Settings
from tests import ROOT
from tests.agents.test_models import KEY, PATH
from tests.agents.test_provider_behaviours import HERE, turn
from tests.support.live import text
from tests.web.web import Reply, site

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
