"""What the operator may say about the model of agents, and what happens when it is wrong: no start."""

from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.app.agent_model import model_options
from mcp_toolserver.app.compose import build_application
from mcp_toolserver.app.confinement import check, sandbox
from mcp_toolserver.capabilities.model import ModelLimits
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.invocation import load
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.runtime.models.model import ProviderModel
from mcp_toolserver.settings import TABLES, Settings, public_settings

KEY = "sk-canary-0123456789"
HOST = "canary-host.example"

GIVEN: dict[str, Any] = {"agent_provider": "anthropic", "agent_model": "m"}


def key_file(folder: Path, content: str = KEY, mode: int = 0o600) -> str:
    path = folder / "key"
    path.write_text(content, encoding="utf-8")
    path.chmod(mode)
    return str(path)


def configured(folder: Path, text: str, *flags: str) -> Settings:
    config = folder / "config.toml"
    config.write_text(text, encoding="utf-8")
    return load(["--config", str(config), *flags], {"HOME": str(folder)}).settings


def test_the_table_of_the_config_file_says_everything_about_the_model(tmp_path: Path) -> None:
    key_file(tmp_path)
    settings = configured(
        tmp_path,
        f"""
        [agent]
        provider = "openai"
        base-url = "https://{HOST}/base/v1/"
        model = "large"
        models = ["Explore=small", "Plan=vendor/middle"]
        context-tokens = 64000
        output-tokens = 9000
        model-limits = ["vendor/middle=2000/500"]
        key-file = "~/key"
        input-price = 3
        output-price = 15.5
        turn-seconds = 20
        """,
    )
    options: Any = model_options(settings)
    models = {"Explore": "small", "Plan": "vendor/middle"}
    assert (options.provider, options.model, options.models) == ("openai", "large", models)
    limits = ProviderModel(options).limits
    usual, own = ModelLimits(context=64_000, output=9_000), ModelLimits(context=2_000, output=500)
    assert (limits("", ""), limits("small", ""), limits("", "Plan")) == (usual, usual, own)
    assert limits("vendor/middle", "Explore") == limits("Plan", "") == own
    assert chosen(**GIVEN).limits == ModelLimits(context=200_000, output=8_192)
    assert (options.endpoint.url, options.endpoint.host) == (f"https://{HOST}/base/v1", HOST)
    assert (options.key, options.prices, options.seconds) == (KEY, (3.0, 15.5), 20.0)
    assert KEY not in repr(options)
    assert HOST not in repr(options)


def chosen(**given: Any) -> Any:
    """The options of settings that give a model."""
    return model_options(Settings(**given))


def test_the_address_of_a_provider_is_known_and_the_key_may_be_in_a_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert model_options(Settings()) is None
    monkeypatch.setenv("THE_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not this one")
    for provider in ("anthropic", "openai"):
        options = chosen(agent_provider=provider, agent_model="m", agent_key_variable="THE_KEY")
        assert (options.endpoint.host, options.endpoint.port) == (f"api.{provider}.com", 443)
        assert options.key == KEY


def test_a_setting_that_is_wrong_stops_the_start(tmp_path: Path) -> None:
    for line in (Path(__file__).with_name("wrong_models.txt")).read_text(encoding="utf-8").splitlines()[2:]:
        says, _, content = line.partition("|")
        content = content.replace("+", '[agent]\nprovider = "anthropic"\nmodel = "m"\n').replace("%", "\n")
        with pytest.raises(SettingsError) as caught:
            model_options(configured(tmp_path, content))
        assert says.strip() in str(caught.value), line
        assert HOST not in str(caught.value), line


def test_a_key_is_not_sent_unencrypted_but_to_this_machine(tmp_path: Path) -> None:
    given = {**GIVEN, "agent_key_file": key_file(tmp_path)}
    with pytest.raises(SettingsError, match="https"):
        model_options(Settings(**given, agent_base_url=f"http://{HOST}"))
    for host in ("localhost", "127.0.0.1:8080", "[::1]:8080"):
        assert chosen(**given, agent_base_url=f"http://{host}").endpoint.is_loopback
    assert chosen(**GIVEN, agent_base_url=f"http://{HOST}")


def test_a_malformed_key_stops_the_start_and_is_not_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for content in ("", "two keys", "x" * 5000):
        monkeypatch.setenv("THE_KEY", content)
        places: tuple[dict[str, Any], ...] = (
            {"agent_key_file": key_file(tmp_path, content)},
            {"agent_key_variable": "THE_KEY"},
        )
        for given in places:
            with pytest.raises(SettingsError, match=r"\[agent\] key-") as caught:
                model_options(Settings(**GIVEN, **given))
            assert not content or content not in str(caught.value)
    with pytest.raises(SettingsError, match="only its owner can read"):
        model_options(Settings(**GIVEN, agent_key_file=key_file(tmp_path, mode=0o644)))


def test_the_key_is_out_of_reach_of_tools_and_commands(tmp_path: Path) -> None:
    file = key_file(tmp_path)
    assert file in sandbox(Settings(agent_key_file=file)).hidden
    (tmp_path / "root").mkdir()
    inside = f'[agent]\nkey-file = "{tmp_path}/root/key"\n'
    with pytest.raises(SettingsError, match="key file"):
        configured(tmp_path, inside, "--root", str(tmp_path / "root"))
    with pytest.raises(SettingsError, match="THE_KEY"):
        check(Settings(agent_key_variable="THE_KEY", command_environment=("THE_*",)))
    check(Settings(agent_key_variable="THE_KEY", command_environment=("OTHER_*",)))


def test_the_model_is_a_fact_of_the_host_and_no_setting_of_it_is_public(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    settings = Settings(
        **GIVEN,
        agent_base_url=f"https://{HOST}",
        agent_key_file=key_file(tmp_path),
        root=(str(tmp_path / "root"),),
        state_dir=str(tmp_path / "state"),
    )
    app = build_application(settings, None, HostExecutables(), held_by=None)
    assert app.shared.facts.agent_model
    # The toolset is listed with the default ones.
    assert {"Agent", "TeamCreate", "SendMessage", "ls"} <= app.listed
    assert "CronCreate" not in app.listed
    assert app.shared.model is not None
    shown = str(public_settings(settings, ()))
    assert not [option for option in TABLES["agent"] if option.attribute in shown or option.name in shown]
    assert HOST not in repr(app.shared.model)
