"""The key and the address of the operator's model appear nowhere, and the locked server reaches it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.client_programs.scripted_model import Answer, Messages
from tests.support.live import Setup, connected, text
from tests.support.process_layer import ran
from tests.web.web import Reply, Site, site

KEY = "sk-canary-5f3a9c"
HOST = "127.91.82.73"
"""An address of loopback that nothing else uses."""

SERVED = Messages()


def model(reply: Reply, at: Site) -> None:
    """Looks once, says "done", then fails with what must not be shown."""
    asked = json.loads(reply.asked.body)
    if "fail" in str(asked["messages"][0]):
        message = f"the key {KEY} is not for http://{HOST}:{at.port}"
        reply.say(json.dumps({"error": {"type": "authentication_error", "message": message}}), status=401)
        return
    answer = Answer(number=1, name="ls", arguments={}) if len(asked["messages"]) == 1 else Answer(number=2)
    events = "".join(
        f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in SERVED.events(answer, asked)
    )
    reply.say(events, kind="text/event-stream")


def configured(folder: Path, at: Site, host: str, mode: str, *flags: str) -> Setup:
    """A server whose model is at this address; its messages go to `stderr` in the folder."""
    made = Setup.below(folder, mode)
    key, config = folder / "home/model-key", folder / "home/config.toml"
    key.write_text(KEY, encoding="utf-8")
    key.chmod(0o600)
    config.write_text(
        f'[agent]\nprovider = "anthropic"\nmodel = "large"\nkey-file = "{key}"\n'
        f'base-url = "http://{host}:{at.port}"\n',
        encoding="utf-8",
    )
    return replace(
        made,
        flags=("--config", str(config), "--log-level", "debug", *flags),
        around=("bash", "-c", 'exec "$@" 2>>"$0"', str(folder / "stderr")),
    )


@pytest.mark.parametrize(
    ("mode", "network", "host", "era"),
    [
        # A server without a network finds its model by the name of loopback.
        pytest.param("read-only", "none", "localhost", "legacy", marks=pytest.mark.long),
        ("workspace-write", "fetch", HOST, "auto"),
    ],
)
async def test_the_key_and_the_address_appear_nowhere(
    mode: str, network: str, host: str, era: str, tmp_path: Path
) -> None:
    seen: list[str] = []
    with site(at=(host, 0)) as at:
        at.routes["/v1/messages"] = lambda reply: model(reply, at)
        setup = configured(tmp_path, at, host, mode, "--network", network)
        # The first agent waits for the library of its model.
        async with connected(setup, era=era, read_timeout_seconds=120) as client:
            seen.append(str(await client.list_tools()))
            assert "'Agent'" in seen[0]
            for arguments, words in (
                ({"prompt": "find", "model": "large"}, "finished; 2 turns"),
                ({"prompt": "fail"}, "answered 401: check the key"),
                ({"prompt": "find", "model": "dear"}, "choose from large"),
            ):
                said = text(await client.call_tool("Agent", {"description": "a test", **arguments}))
                assert words in said
                seen.append(said)
            resources = (await client.list_resources()).resources
            seen += [str(await client.read_resource(one.uri)) for one in resources]
            commands = (f"cat {tmp_path}/home/model-key", "env; cat /proc/*/environ /proc/*/cmdline")
            seen += [str(await client.call_tool("bash", {"command": one})) for one in commands]
        assert {asked.headers["x-api-key"] for asked in at.asked} == {KEY}
    if mode == "workspace-write":
        seen.append(reported_by_doctor(setup))
    seen.append((tmp_path / "stderr").read_text(encoding="utf-8"))
    files = [file for file in (tmp_path / "home/state").rglob("*") if file.is_file()]
    assert files
    seen += [file.read_bytes().decode("latin-1") for file in files]
    for one in seen:
        assert KEY not in one
        assert HOST not in one
        assert f"localhost:{at.port}" not in one


def reported_by_doctor(setup: Setup) -> str:
    done = ran([*setup.command[4:7], "doctor", "--json", *setup.command[7:]], env=setup.environment)
    assert "anthropic, large" in done.stdout
    return done.stdout + done.stderr
