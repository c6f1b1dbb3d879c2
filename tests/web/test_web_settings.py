"""What the operator may say about the web, and what happens when it is wrong: the server does not start."""

from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.app.compose import build_application, web_options
from mcp_toolserver.app.confinement import sandbox
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.invocation import load
from mcp_toolserver.pipeline.registry import discover
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.settings import Settings
from tests.support.workbench import Person
from tests.web.web import page, site

WEB = {"WebFetch", "WebSearch", "curl", "download", "RemoteTrigger"}


def key_file(folder: Path, content: str = "a-key", mode: int = 0o600) -> Path:
    path = folder / "key"
    path.write_text(content, encoding="utf-8")
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param({"web_hosts": ("a b",)}, id="no host"),
        pytest.param({"web_hosts": ("a.example/path",)}, id="a host with a path"),
        pytest.param({"web_private": ("a.example/path",)}, id="a private host with a path"),
        pytest.param({"web_private": ("10.0.0.1/8",)}, id="a network that is none"),
        pytest.param({"web_private": ("10.0.0.0/8:99999",)}, id="a port that is none"),
        pytest.param({"web_private": ("http://a.example",)}, id="a private address of the web"),
        pytest.param({"web_search": ("altavista",)}, id="an engine that is none"),
        pytest.param({"web_search": ("searxng",)}, id="an engine without its address"),
        pytest.param({"web_search": ("searxng=ftp://a.example",)}, id="an engine out of the web"),
        pytest.param({"web_search": ("brave",)}, id="an engine without its key"),
        pytest.param({"web_search_keys": ("brave",)}, id="a key without a file"),
        pytest.param({"web_search_keys": ("brave=/nowhere/key",)}, id="a file that is not there"),
        pytest.param({"web_search_keys": ("brave=/",)}, id="a folder"),
    ],
)
def test_a_setting_that_is_wrong_stops_the_start(setting: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        web_options(Settings(**setting))


@pytest.mark.parametrize(
    ("content", "mode"),
    [
        pytest.param("a-key", 0o644, id="open to others"),
        pytest.param("", 0o600, id="empty"),
        pytest.param("two keys", 0o600, id="two words"),
        pytest.param("x" * 5000, 0o600, id="too long"),
    ],
)
def test_a_file_without_a_usable_key_stops_the_start(content: str, mode: int, tmp_path: Path) -> None:
    file = key_file(tmp_path, content, mode)
    with pytest.raises(SettingsError) as caught:
        web_options(Settings(web_search_keys=(f"brave={file}",)))
    assert not content or content not in str(caught.value)


def test_a_key_for_an_engine_that_is_none_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        web_options(Settings(web_search_keys=(f"altavista={key_file(tmp_path)}",)))


def test_the_config_file_names_hosts_engines_and_keys(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(
        f"""
        web-hosts = ["a.example", "*.b.example:8443"]
        web-private = ["localhost:3000", "[::1]:80", "::1", "10.0.0.0/8", "*.corp"]
        web-robots = false
        web-search = ["brave", "searxng=http://localhost:8888/base", "duckduckgo"]
        web-search-keys = ["brave={key_file(tmp_path)}"]
        """,
        encoding="utf-8",
    )
    options = web_options(load(["--config", str(config)], {}).settings)
    assert (len(options.hosts), len(options.private)) == (2, 5)
    assert options.robots is False
    engines = [(provider.engine, str(provider.base), provider.key) for provider in options.providers]
    assert engines == [
        ("brave", "https://api.search.brave.com/", "a-key"),
        ("searxng", "http://localhost:8888/base", ""),
        ("duckduckgo", "https://html.duckduckgo.com/", ""),
    ]
    assert "a-key" not in repr(options)


def test_key_files_are_hidden_from_commands_and_lie_out_of_reach(tmp_path: Path) -> None:
    file = key_file(tmp_path)
    assert str(file) in sandbox(Settings(web_search_keys=(f"brave={file}",))).hidden
    config = tmp_path / "config.toml"
    (tmp_path / "root").mkdir()
    inside = tmp_path / "root/key"
    config.write_text(f'web-search-keys = ["brave={inside}"]', encoding="utf-8")
    with pytest.raises(SettingsError):
        load(["--config", str(config), "--root", str(tmp_path / "root")], {})


def settings(folder: Path, **given: Any) -> Settings:
    (folder / "root").mkdir(exist_ok=True)
    return Settings(root=(str(folder / "root"),), state_dir=str(folder / "state"), toolsets=("all",), **given)


@pytest.mark.parametrize("network", ["none", "fetch", "commands"])
def test_without_a_network_there_are_no_web_tools(network: str, tmp_path: Path) -> None:
    chosen = settings(tmp_path, network=network, permission_mode=Permission.WORKSPACE_WRITE)
    app = build_application(chosen, None, HostExecutables(), held_by=None)
    offered = {entry.spec.name for entry in app.dispatcher.listed()}
    assert {entry.spec.name for entry in discover()} >= WEB
    assert offered & WEB == (set() if network == "none" else {"WebFetch", "WebSearch", "download"})


async def test_a_call_of_a_web_tool_without_a_network_says_why(tmp_path: Path) -> None:
    dispatcher = build_application(
        settings(tmp_path, network="none"), None, HostExecutables(), held_by=None
    ).dispatcher
    result = await dispatcher.call("WebFetch", {"url": "http://a.example/"}, Person())
    assert result.error == "unavailable"
    assert "--network none" in result.text


async def test_a_server_put_together_from_settings_fetches_what_they_open(tmp_path: Path) -> None:
    with site({"/": page("fine")}) as service:
        closed = build_application(settings(tmp_path), None, HostExecutables(), held_by=None).dispatcher
        opened = build_application(
            settings(tmp_path, web_private=(f"127.0.0.1:{service.port}",)),
            None,
            HostExecutables(),
            held_by=None,
        ).dispatcher
        refused = await closed.call("WebFetch", {"url": service.url}, Person())
        fetched = await opened.call("WebFetch", {"url": service.url}, Person())
    assert refused.error == "denied"
    assert "fine" in fetched.text


@pytest.mark.parametrize("rule", ["WebFetch(a*.example)", "curl(ftp://x)", "*(https://)"])
def test_a_rule_with_a_pattern_for_no_address_stops_the_start(rule: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        build_application(settings(tmp_path, deny=(rule,)), None, HostExecutables(), held_by=None)
