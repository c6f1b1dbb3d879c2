"""A client of each revision of the protocol gets what its revision knows, and nothing else."""

import json
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import mcp_types as mcp
import pytest
from mcp import Client
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.mcp_server import ToolServer
from mcp_toolserver.protocol.translate import downgrade
from tests.protocol.lines import ENVELOPE, READY
from tests.support.confinement import git
from tests.support.http_server import ACCEPT, MODERN
from tests.support.live import ERAS, TOKEN, Setup, serving
from tests.support.workbench import dispatcher, machine

# One server for all revisions.
pytestmark = pytest.mark.xdist_group("test_protocol_versions")

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN)

Keys = Mapping[str, set[str]]
"""By revision, what it adds."""

SERVER: Keys = {"2024-11-05": {"name", "version"}, "2025-06-18": {"title"}, "2025-11-25": set()}
TOOL: Keys = {
    "2024-11-05": {"name", "description", "inputSchema"},
    "2025-03-26": {"annotations"},
    "2025-06-18": {"outputSchema"},
}
CALL: Keys = {"2024-11-05": {"content", "isError"}, "2025-06-18": {"structuredContent"}}
CACHED = {"ttlMs", "cacheScope", "resultType", "_meta"}

OPTIONAL: Mapping[str, Keys] = {
    "server": {"2025-11-25": {"icons", "websiteUrl", "description"}},
    "capabilities": {
        "2024-11-05": {"experimental", "logging", "prompts", "resources", "tools"},
        "2025-03-26": {"completions"},
        MODERN: {"extensions"},
    },
    "tool": {"2025-06-18": {"title"}, "2025-11-25": {"icons"}},
    "resource": {
        "2024-11-05": {"name", "uri", "uriTemplate", "description", "mimeType", "size", "annotations"},
        "2025-06-18": {"title", "_meta"},
        "2025-11-25": {"icons"},
    },
    "prompt": {
        "2024-11-05": {"name", "description", "arguments"},
        "2025-06-18": {"title", "_meta"},
        "2025-11-25": {"icons"},
    },
}


def known(keys: Keys, revision: str) -> set[str]:
    return set[str]().union(*(added for since, added in keys.items() if since <= revision))


class Raw:
    """A client that takes no part in the SDK, and speaks one revision."""

    def __init__(self, http: httpx.Client, revision: str) -> None:
        self.revision = revision
        self._http = http
        self._headers = dict(ACCEPT)
        hello = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        if revision == MODERN:
            self.opening = self.ask("server/discover")["result"]
            return
        answer = self._post({"id": 1, "method": "initialize", "params": hello})
        self.opening = message_in(answer)["result"]
        session = answer.headers["mcp-session-id"]
        self._headers |= {"mcp-session-id": session, "mcp-protocol-version": revision}
        self._post(READY)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        headers: dict[str, str] = {}
        if self.revision == MODERN:
            headers = {"mcp-protocol-version": MODERN, "mcp-method": method}
            headers |= {"mcp-name": params["name"]} if "name" in params else {}
            params |= ENVELOPE
        return message_in(self._post({"id": 1, "method": method, "params": params}, headers))

    def call(self, name: str, arguments: Any) -> dict[str, Any]:
        return self.ask("tools/call", name=name, arguments=arguments)

    def _post(self, message: Mapping[str, Any], headers: Mapping[str, str] = {}) -> httpx.Response:
        sent = {"jsonrpc": "2.0", **message}
        return self._http.post("", json=sent, headers={**self._headers, **headers})


def message_in(answer: httpx.Response) -> dict[str, Any]:
    """The message of an answer, which may be a stream of events."""
    lines = answer.text.splitlines()
    found = [line.removeprefix("data: ") for line in lines if line.startswith("data: {")]
    return next(one for one in map(json.loads, found or [answer.text]) if "id" in one)


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Generator[httpx.Client]:
    """To the one server of all revisions."""
    setup = Setup.below(tmp_path_factory.mktemp("revision"), "danger-full-access", "--structured")
    (setup.root / "a.txt").write_text("content\n", encoding="utf-8")
    for words in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "--message=first")):
        git(setup.root, *words)
    headers = {"authorization": f"Bearer {TOKEN}"}
    with (
        serving(setup, "http") as url,
        httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False) as client,
    ):
        yield client


@pytest.fixture(scope="module", params=REVISIONS)
def raw(request: pytest.FixtureRequest, http: httpx.Client) -> Raw:
    return Raw(http, request.param)


def test_the_server_introduces_itself_as_the_revision_knows_it(raw: Raw) -> None:
    assert set(raw.opening["capabilities"]) <= known(OPTIONAL["capabilities"], raw.revision)
    if raw.revision == MODERN:
        assert set(raw.opening) == {"supportedVersions", "capabilities", "instructions", *CACHED}
        return
    assert raw.opening["protocolVersion"] == raw.revision
    assert set(raw.opening) == {"protocolVersion", "capabilities", "serverInfo", "instructions"}
    must = known(SERVER, raw.revision)
    assert must <= set(raw.opening["serverInfo"]) <= must | known(OPTIONAL["server"], raw.revision)


def test_all_is_listed_with_what_the_revision_knows(raw: Raw) -> None:
    listed = raw.ask("tools/list")["result"]
    assert set(listed) == {"tools", *(CACHED if raw.revision == MODERN else ())}
    must = known(TOOL, raw.revision)
    assert must <= set().union(*listed["tools"]) <= must | known(OPTIONAL["tool"], raw.revision)
    for offered in listed["tools"]:
        for schema in filter(None, (offered["inputSchema"], offered.get("outputSchema"))):
            assert schema["type"] == "object"
            jsonschema.Draft202012Validator.check_schema(schema)
    for method, field, kind in LISTS:
        answer = raw.ask(method)
        if "error" in answer:
            assert field not in raw.opening["capabilities"]
            continue
        listed = answer["result"]
        assert set(listed) == {field, *(CACHED if raw.revision == MODERN else ())}
        assert set().union(*listed[field]) <= known(OPTIONAL[kind], raw.revision)


LISTS = (
    ("resources/list", "resources", "resource"),
    ("resources/templates/list", "resourceTemplates", "resource"),
    ("prompts/list", "prompts", "prompt"),
)


TODO = {"content": "look", "activeForm": "looking", "status": "in_progress"}
RECORDS: Mapping[str, dict[str, Any]] = {"git_status": {}, "git_log": {}, "TodoWrite": {"todos": [TODO]}}


def test_results_have_data_that_fits_its_schema_and_links_where_the_revision_has_them(raw: Raw) -> None:
    tools = {tool["name"]: tool for tool in raw.ask("tools/list")["result"]["tools"]}
    for name, arguments in RECORDS.items():
        result = raw.call(name, arguments)["result"]
        assert result["content"][0]["text"]
        extra = {"resultType", "_meta"} if raw.revision == MODERN else set[str]()
        assert set(result) == known(CALL, raw.revision) | extra
        if "structuredContent" in result:
            jsonschema.validate(result["structuredContent"], tools[name]["outputSchema"])
    content = raw.call("bash", {"command": "seq 100000"})["result"]["content"]
    assert [block["type"] for block in content] == ["text", "resource_link"][
        : 1 + (raw.revision >= "2025-06-18")
    ]
    assert "read_file" in content[0]["text"]
    for answer in (raw.call("read_file", None), raw.ask("tools/call", name="read_file")):
        assert "path: Field required" in answer["result"]["content"][0]["text"]
    near = "read_fiel; did you mean read_file or edit_file?"
    for name, words in (("nope", "nope"), ("read_fiel", near)):
        error = raw.call(name, {})["error"]
        assert (error["code"], error["message"]) == (mcp.INVALID_PARAMS, f"Unknown tool: {words}")


BLOCKS = [
    {"type": "text", "text": "t", "annotations": {"priority": 1, "lastModified": "x"}, "_meta": {}},
    {"type": "resource_link", "uri": "u", "name": "n"},
    "not even an object",
]
TRIMMED = {"type": "text", "text": "t", "annotations": {"priority": 1}}

PROMPTS = {
    "prompts": [{"name": "p", "title": "P", "icons": [], "arguments": [{"name": "a", "title": "A"}]}],
    "nextCursor": "c",
}
UNTITLED = {"prompts": [{"name": "p", "arguments": [{"name": "a"}]}], "nextCursor": "c"}


DOWNGRADES: Mapping[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "blocks-of-another-age": (
        "tools/call",
        {"content": BLOCKS, "structuredContent": {}},
        "2025-03-26",
        {"content": [TRIMMED, "not even an object"]},
    ),
    "prompts-without-titles": ("prompts/list", PROMPTS, "2025-03-26", UNTITLED),
    "contents": (
        "resources/read",
        {"contents": [{"uri": "u", "text": "t", "_meta": {}}]},
        "2025-03-26",
        {"contents": [{"uri": "u", "text": "t"}]},
    ),
    "not-of-this-shape": ("tools/list", {"tools": None}, "2024-11-05", {"tools": None}),
}


def test_what_an_older_revision_does_not_know_is_left_out() -> None:
    for name, (method, result, version, left) in DOWNGRADES.items():
        before = json.dumps(result)
        assert downgrade(method, result, version) == left, name
        assert json.dumps(result) == before, name


async def fail(_: ServerRequestContext[Any, Any], __: mcp.PaginatedRequestParams | None) -> Any:
    raise RuntimeError("a secret of the server")


@pytest.mark.parametrize("era", ERAS)
async def test_the_words_of_an_exception_stay_in_the_log(
    era: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = ToolServer(Handlers(dispatcher=dispatcher(machine(tmp_path)), ask_seconds=5), "")
    server.add_request_handler("resources/list", mcp.PaginatedRequestParams, fail)
    async with Client(server, mode=era, raise_exceptions=False) as client:
        with pytest.raises(MCPError) as failure:
            await client.list_resources()
    assert failure.value.error.code == mcp.INTERNAL_ERROR
    assert "secret" not in str(failure.value.error)
    assert "a secret of the server" in caplog.text
