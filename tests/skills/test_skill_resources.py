"""Skills as prompts, and by the skills extension of MCP (SEP-2640)."""

import base64
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mcp_types as mcp
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from mcp_toolserver.protocol.resources.feature import SKILLS
from mcp_toolserver.protocol.resources.skills import MAX_BYTES, MAX_FILES, PAGE
from mcp_toolserver.text.front_matter import front_matter
from tests.protocol.resource_clients import ERAS, completed, read, refusal
from tests.protocol.resource_clients import listed as addresses
from tests.protocol.test_prompts import ARGUMENTS, words
from tests.skills.skilled import RELEASE, call, skill, skilled
from tests.support.following import Anything, plain

GOOD = skill("Cut $ARGUMENTS.", name="release", description="Cut a release", argument_hint="[version]")

eras = pytest.mark.parametrize("era", ERAS)


async def _names(client: Client) -> list[str]:
    return [one.name for one in (await client.list_prompts(cache_mode="bypass")).prompts]


@eras
async def test_a_skill_is_a_prompt_with_one_argument(era: str, tmp_path: Path) -> None:
    async with skilled(tmp_path, {RELEASE: GOOD}) as made, made.client(era) as client:
        prompt = (await client.list_prompts()).prompts[-1]
        assert (prompt.name, prompt.description) == ("release", "Cut a release")
        assert prompt.arguments is not None
        assert [(one.name, one.description, one.required) for one in prompt.arguments] == [
            ("args", "[version]", False)
        ]
        said = words(await client.get_prompt("release", {"args": "v2"}))
        assert said.startswith('<skill_content name="release">\nCut v2.\n')
        assert "Cut ." in words(await client.get_prompt("release"))
        # A list that was kept would lack what comes.
        made.write(".agents/skills/new/SKILL.md", skill())
        assert await _names(client) == [*ARGUMENTS, "new", "release"]


async def test_a_prompt_takes_no_rights_and_leaves_the_active_skill(tmp_path: Path) -> None:
    files = {RELEASE: skill(allowed_tools="Read"), ".agents/skills/other/SKILL.md": skill(allowed_tools="")}
    write = {"path": "a.txt", "content": "x"}
    async with skilled(tmp_path, files) as made, made.client() as client:
        assert "allows" not in words(await client.get_prompt("other"))
        assert not (await client.call_tool("write_file", write)).is_error
        before = await client.list_tools(cache_mode="bypass")
        await client.call_tool("Skill", {"skill": "release"})
        assert await client.list_tools(cache_mode="bypass") == before
        await client.get_prompt("other")
        assert (await client.call_tool("write_file", write)).is_error
        assert not (await client.call_tool("read_file", {"path": "a.txt"})).is_error


async def test_prompts_are_the_skills_for_users_and_never_replace_those_of_the_server(
    tmp_path: Path,
) -> None:
    files = {
        ".claude/commands/quick.md": "Quick.",
        ".claude/commands/review-changes.md": "Not this.",
        ".agents/skills/hidden/SKILL.md": skill(user_invocable="false"),
        ".agents/skills/mine/SKILL.md": skill("For users.", disable_model_invocation="true"),
        ".agents/skills/shown/SKILL.md": '---\ndescription: "a\\u202eb"\n---\nx',
    }
    async with skilled(tmp_path, files) as made, made.client() as client:
        await call(made, "save_skill", name="saved", description="d", prompt="Saved.")
        await call(made, "save_skill", name="own", description="d", prompt="p", userInvocable=False)
        assert await _names(client) == [*ARGUMENTS, "mine", "shown", "quick", "saved"]
        listed = (await client.list_prompts(cache_mode="bypass")).prompts
        assert next(one.description for one in listed if one.name == "shown") == "a\\u{202e}b"
        assert "For users." in words(await client.get_prompt("mine"))
        assert "Not this" not in words(await client.get_prompt("review-changes"))
        with pytest.raises(MCPError, match="no such prompt"):
            await client.get_prompt("hidden")


async def test_a_prompt_that_cannot_be_given_is_a_protocol_error(tmp_path: Path) -> None:
    wanted: tuple[tuple[str, dict[str, str], str], ...] = (
        ("release", {"x": "y"}, "no argument 'x'"),
        ("release", {"args": "x" * 20_001}, "args"),
        ("denied", {}, "denied"),
        ("../release", {}, "no such prompt"),
        ("", {}, "no such prompt"),
    )
    async with (
        skilled(tmp_path, {RELEASE: GOOD}, deny=("Skill(denied)",)) as made,
        made.client() as client,
    ):
        for name, arguments, why in wanted:
            with pytest.raises(MCPError, match=why) as refused:
                await client.get_prompt(name, arguments)
            assert refused.value.error.code == mcp.INVALID_PARAMS


async def test_without_the_tool_no_skill_is_shown(tmp_path: Path) -> None:
    without: tuple[dict[str, Any], ...] = ({"toolsets": ("files",)}, {"exclude_tools": ("Skill",)})
    for settings in without:
        async with skilled(tmp_path, {RELEASE: GOOD}, **settings) as made, made.client() as client:
            assert await _names(client) == list(ARGUMENTS)
            with pytest.raises(MCPError, match="no such prompt"):
                await client.get_prompt("release")
            assert SKILLS not in (client.server_capabilities.extensions or {})
            templates = (await client.list_resource_templates()).resource_templates
            assert not any(one.uri_template.startswith("skill:") for one in templates)
            await refusal(client, "skill://release/SKILL.md")


@pytest.mark.parametrize(("era", "says"), [("legacy", "allow"), ("auto", "deny")])
async def test_a_rule_that_asks_is_asked_about_a_prompt_and_not_about_a_list(
    era: str, says: str, tmp_path: Path
) -> None:
    asked: list[str] = []

    async def answer(_: object, params: mcp.ElicitRequestParams) -> mcp.ElicitResult:
        asked.append(params.message)
        return mcp.ElicitResult(action="accept", content={"decision": says})

    async with (
        skilled(tmp_path, {RELEASE: GOOD}, ask=("Skill",)) as made,
        made.client(era, elicitation_callback=answer) as client,
    ):
        assert await _names(client) == list(ARGUMENTS)
        with pytest.raises(MCPError):
            await _ask(client, "skills/list")
        assert asked == []
        if says == "allow":
            assert "Cut v2." in words(await client.get_prompt("release", {"args": "v2"}))
        else:
            with pytest.raises(MCPError, match="approval"):
                await client.get_prompt("release", {"args": "v2"})
        assert len(asked) == 1


class _Request(mcp.Request[dict[str, Any], str]):
    """A request of the extension."""


async def _ask(client: Client, method: str, **params: Any) -> Mapping[str, Any]:
    return plain(await client.session.send_request(_Request(method=method, params=params), Anything))


@eras
async def test_an_entry_says_all_that_a_client_needs_to_verify_what_it_reads(
    era: str, tmp_path: Path
) -> None:
    files = {
        RELEASE: skill("Do.", name="release", description="Cut", metadata="{a: [1, true]}"),
        ".agents/skills/release/a b#1.md": "odd \u202e name",
        ".agents/skills/release/deep/x.py": "print(1)",
        ".agents/skills/unnamed/SKILL.md": skill(),
        ".agents/skills/Large/SKILL.md": skill(name="Large", description="no such name there"),
        ".agents/skills/mine/SKILL.md": skill(name="mine", description="d", disable_model_invocation="true"),
        ".claude/commands/quick.md": skill(name="quick", description="d"),
    }
    async with skilled(tmp_path, files) as made, made.client(era) as client:
        made.write(".agents/skills/release/logo.bin", b"\xff\0")
        made.write(".agents/skills/release/old.txt", b"caf\xe9")
        await call(made, "save_skill", name="saved", description='say "x": y', prompt="Saved.")
        if era == "auto":
            # The SDK declares no extensions before 2026-07-28; the requests are answered all the same.
            assert (client.server_capabilities.extensions or {})[SKILLS] == {}
        listed = await _ask(client, "skills/list")
        assert (listed["resultType"], listed["ttlMs"], listed["cacheScope"]) == ("complete", 0, "private")
        assert "nextCursor" not in listed
        assert [one["frontmatter"]["name"] for one in listed["skills"]] == ["release", "saved"]
        for entry in listed["skills"]:
            uri = entry["uri"]
            assert uri == f"skill://{entry['frontmatter']['name']}/SKILL.md"
            assert uri in [file["uri"] for file in entry["resources"]]
            assert front_matter(await read(client, uri)).fields == _frozen(entry["frontmatter"])
            assert (await _ask(client, "skills/get", uri=uri))["skill"] == entry
            for file in entry["resources"]:
                content = await _bytes(client, file["uri"])
                assert file["size"] == len(content)
                assert file["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
        uris = [file["uri"] for file in listed["skills"][0]["resources"]]
        assert "skill://release/a%20b%231.md" in uris
        assert len(uris) == 5
        assert not any(uri.startswith("skill:") for uri in await addresses(client))


def _frozen(value: object) -> object:
    if isinstance(value, dict):
        return {name: _frozen(one) for name, one in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


async def _bytes(client: Client, uri: str) -> bytes:
    content = (await client.read_resource(uri, cache_mode="bypass")).contents[0]
    if isinstance(content, mcp.BlobResourceContents):
        return base64.b64decode(content.blob)
    assert isinstance(content, mcp.TextResourceContents)
    return content.text.encode()


async def test_many_skills_come_in_pages(tmp_path: Path) -> None:
    names = [f"s{number:03}" for number in range(PAGE + 3)]
    files = {f".agents/skills/{name}/SKILL.md": skill(name=name, description="d") for name in names}
    async with skilled(tmp_path, files) as made, made.client() as client:
        first = await _ask(client, "skills/list")
        second = await _ask(client, "skills/list", cursor=first["nextCursor"])
        found = [one["frontmatter"]["name"] for one in (*first["skills"], *second["skills"])]
        assert found == names
        with pytest.raises(MCPError, match="Invalid cursor"):
            await _ask(client, "skills/list", cursor="nothing")


async def test_what_is_no_skill_is_an_error_and_what_is_not_in_its_folder_is_not_read(
    tmp_path: Path,
) -> None:
    files = {RELEASE: GOOD, ".agents/skills/unnamed/SKILL.md": skill("the secret")}
    async with skilled(tmp_path, files) as made, made.client() as client:
        for uri in (
            "skill://none/SKILL.md",
            "skill://release/other.md",
            "skill://release",
            "skill://../SKILL.md",
            "file:///etc/passwd",
            "skill://unnamed/SKILL.md",
            "skill://release/%ff",
        ):
            with pytest.raises(MCPError) as refused:
                await _ask(client, "skills/get", uri=uri)
            assert refused.value.error.code == mcp.INVALID_PARAMS, uri
        for path in ("../unnamed/SKILL.md", "%2e%2e/unnamed/SKILL.md", "/etc/passwd", "x", "%ff"):
            assert "the secret" not in str(await refusal(client, f"skill://release/{path}"))
        # Files of skills are neither completed nor watched.
        assert await completed(client, "skill://{name}/{+path}", "x", "name") == []
        watched = mcp.SubscribeRequestParams(uri="skill://release/SKILL.md")
        with pytest.raises(MCPError, match="no change notifications"):
            await client.session.send_request(mcp.SubscribeRequest(params=watched), mcp.EmptyResult)


async def test_a_skill_over_the_limits_of_the_extension_is_left_out(tmp_path: Path) -> None:
    skills = {name: skill(name=name, description="d") for name in ("large", "huge", "many", "small")}
    files = {f".agents/skills/{name}/SKILL.md": text for name, text in skills.items()}
    files |= {f".agents/skills/large/{number}": "\0" * (MAX_BYTES // 2) for number in range(3)}
    files |= {f".agents/skills/many/{number}": "" for number in range(MAX_FILES)}
    async with skilled(tmp_path, files) as made, made.client() as client:
        made.write(".agents/skills/huge/x", "")
        os.truncate(made.root / ".agents/skills/huge/x", 100_000_000)
        listed = await _ask(client, "skills/list")
        assert [one["frontmatter"]["name"] for one in listed["skills"]] == ["small"]
