"""What the operator may say about the web, and what happens when it is wrong: the server does not start."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.app.compose import build_application, web_options
from mcp_toolserver.app.confinement import sandbox
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.invocation import load
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.pipeline.registry import discover
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.settings import Settings
from tests.support.workbench import Person

WEB = {"WebFetch", "WebSearch", "curl", "download", "RemoteTrigger"}


def key_file(folder: Path, content: str = "a-key", mode: int = 0o600) -> Path:
    path = folder / "key"
    path.write_text(content, encoding="utf-8")
    path.chmod(mode)
    return path


WRONG: Mapping[str, dict[str, Any]] = {
    "no host": {"web_hosts": ("a b",)},
    "a host with a path": {"web_hosts": ("a.example/path",)},
    "a private host with a path": {"web_private": ("a.example/path",)},
    "a network that is none": {"web_private": ("10.0.0.1/8",)},
    "a port that is none": {"web_private": ("10.0.0.0/8:99999",)},
    "a private address of the web": {"web_private": ("http://a.example",)},
    "an engine that is none": {"web_search": ("altavista",)},
    "an engine without its address": {"web_search": ("searxng",)},
    "an engine out of the web": {"web_search": ("searxng=ftp://a.example",)},
    "an engine without its key": {"web_search": ("brave",)},
    "a key without a file": {"web_search_keys": ("brave",)},
    "a file that is not there": {"web_search_keys": ("brave=/nowhere/key",)},
    "a folder": {"web_search_keys": ("brave=/",)},
}


def test_a_setting_that_is_wrong_stops_the_start(tmp_path: Path) -> None:
    strange: dict[str, Any] = {"web_search_keys": (f"altavista={key_file(tmp_path)}",)}
    for setting in (*WRONG.values(), strange):
        with pytest.raises(SettingsError):
            web_options(Settings(**setting))
    for rule in ("WebFetch(a*.example)", "curl(ftp://x)", "*(https://)"):
        with pytest.raises(SettingsError):
            dispatcher(tmp_path, deny=(rule,))


def test_a_file_without_a_usable_key_stops_the_start(tmp_path: Path) -> None:
    open_to_others = ("a-key", 0o644)
    for content, mode in (open_to_others, ("", 0o600), ("two keys", 0o600), ("x" * 5000, 0o600)):
        file = key_file(tmp_path, content, mode)
        with pytest.raises(SettingsError) as caught:
            web_options(Settings(web_search_keys=(f"brave={file}",)))
        assert not content or content not in str(caught.value)


def test_a_quota_or_time_of_searches_that_cannot_hold_stops_the_start(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    for line in ("searches = 0", "searches = 2.5", "search-seconds = 0", "search-seconds = 51"):
        config.write_text(f"web-{line}", encoding="utf-8")
        with pytest.raises(SettingsError, match="it must be"):
            load(["--config", str(config)], {})


@pytest.mark.requirement("GR-37")
def test_the_config_file_names_hosts_engines_and_keys(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(
        f"""
        web-hosts = ["a.example", "*.b.example:8443"]
        web-private = ["localhost:3000", "[::1]:80", "::1", "10.0.0.0/8", "*.corp"]
        web-robots = false
        web-searches = 3
        web-search-seconds = 2.5
        web-search = ["brave", "searxng=http://localhost:8888/base", "duckduckgo"]
        web-search-keys = ["brave={key_file(tmp_path)}"]
        """,
        encoding="utf-8",
    )
    options = web_options(load(["--config", str(config)], {}).settings)
    assert (len(options.hosts), len(options.private)) == (2, 5)
    assert (options.robots, options.searches) == (False, 3)
    assert {provider.seconds for provider in options.providers} == {2.5}
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


def dispatcher(folder: Path, **given: Any) -> Dispatcher:
    (folder / "root").mkdir(exist_ok=True)
    chosen = Settings(
        root=(str(folder / "root"),), state_dir=str(folder / "state"), toolsets=("all",), **given
    )
    return build_application(chosen, None, HostExecutables(), held_by=None).dispatcher


async def test_without_a_network_there_are_no_web_tools_and_a_call_says_why(tmp_path: Path) -> None:
    assert {entry.spec.name for entry in discover()} >= WEB
    for network in ("fetch", "commands", "none"):
        at = dispatcher(tmp_path, network=network, permission_mode=Permission.WORKSPACE_WRITE)
        offered = {entry.spec.name for entry in at.listed()}
        assert offered & WEB == (set() if network == "none" else {"WebFetch", "WebSearch", "download"})
    result = await at.call("WebFetch", {"url": "http://a.example/"}, Person())
    assert result.error == "unavailable"
    assert "--network none" in result.text
