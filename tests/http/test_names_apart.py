"""What the names of tokens change in single parts: the sandbox of commands, stored state and messages."""

from pathlib import Path

import anyio
import pytest
from mcp import Client

from mcp_toolserver.app.compose import application_of
from mcp_toolserver.app.serve import Readiness
from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.http.tokens import Grant
from mcp_toolserver.protocol.mcp_server import ToolServer
from mcp_toolserver.runtime.processes.broker_client import BrokerPolicy
from mcp_toolserver.runtime.sandbox.broker.messages import Program, Script, decode, encode
from mcp_toolserver.runtime.sandbox.broker.policy import plan_for
from mcp_toolserver.runtime.sandbox.layers.spec import Proof, SandboxSpec
from tests.protocol.resource_clients import commanding, place

READ, WRITE, ALL = Permission


def grant(name: str, ceiling: Permission, *roots: str) -> Grant:
    return Grant(name=name, sha256=("a" * 64,), ceiling=ceiling, roots=roots)


def test_the_broker_refuses_to_run_read_only_what_nothing_confines() -> None:
    sandbox = SandboxSpec(mode="danger-full-access", roots=("/srv",), home="/root", state="/state")
    policy = BrokerPolicy(sandbox=sandbox, environment={})
    proof = Proof(commands="none", helpers="none")
    why = plan_for(policy, proof, Script(script="true", timeout=None, read_only=True))
    assert isinstance(why, str)
    assert "without a sandbox" in why
    with pytest.raises(ValueError, match="neither"):
        decode(encode(Script(script="true", timeout=None)).replace(b'"read_only": false', b'"read_only": 0'))
    assert isinstance(decode(encode(Program(argv=("/bin/true",), timeout=None))), Program)


async def test_a_name_below_full_access_has_no_commands_and_readiness_says_what_is_missing(
    tmp_path: Path,
) -> None:
    async with commanding(tmp_path) as at:
        for ceiling in (READ, WRITE):
            own = application_of(at.app, grant("ann", ceiling))
            offered = {entry.spec.name for entry in own.dispatcher.available}
            assert not offered & {"bash", "REPL"}
            assert "read_file" in offered
            assert Capability.PROCESS in own.dispatcher.host.unavailable
            await own.end()
        own = application_of(at.app, grant("ben", ALL))
        assert "bash" in {entry.spec.name for entry in own.dispatcher.available}
        assert own.dispatcher.policy.granted is ALL
        await own.end()
        readiness = Readiness(at.app, None)
        assert await readiness.unready() == []
        (tmp_path / "state").rename(tmp_path / "elsewhere")
        assert await readiness.unready() == ["state folder"]
        (tmp_path / "elsewhere").rename(tmp_path / "state")
        assert at.app.shared.broker is not None
        await anyio.to_thread.run_sync(at.app.shared.broker.close)
        assert await readiness.unready() == []
        again = Readiness(at.app, None)
        assert await again.unready() == ["broker"]


async def test_a_root_that_is_gone_leaves_no_root_and_what_is_granted_is_the_servers(tmp_path: Path) -> None:
    async with place(tmp_path, permission_mode=WRITE, granted=READ) as at:
        own = application_of(at.app, grant("ann", WRITE, f"{tmp_path}/root/gone"))
        assert own.dispatcher.policy.granted is READ
        assert own.roots == ()
        async with Client(ToolServer(Handlers(dispatcher=own.dispatcher, ask_seconds=1), "")) as client:
            answer = await client.call_tool("read_file", {"path": "a"})
            assert answer.is_error
            assert "none of the roots of its token" in str(answer.content)
    async with place(tmp_path, permission_mode=READ) as at:
        assert application_of(at.app, grant("ann", WRITE)).dispatcher.policy.ceiling is READ
