"""What the operator may say about the model of agents, and what happens when it is wrong: no start."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.app.agent_model import model_options
from mcp_toolserver.app.compose import build_application
from mcp_toolserver.app.confinement import check, sandbox
from mcp_toolserver.errors import SettingsError, Unavailable
from mcp_toolserver.invocation import load
from mcp_toolserver.runtime.executables import HostExecutables
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
        models = ["Explore=small"]
        key-file = "~/key"
        input-price = 3
        output-price = 15.5
        turn-seconds = 20
        """,
    )
    options = model_options(settings)
    assert options is not None
    assert (options.provider, options.model, options.models) == ("openai", "large", {"Explore": "small"})
    assert (options.endpoint.url, options.endpoint.host) == (f"https://{HOST}/base/v1", HOST)
    assert (options.key, options.prices, options.seconds) == (KEY, (3.0, 15.5), 20.0)
    assert KEY not in repr(options)
    assert HOST not in repr(options)


def test_without_the_table_there_is_no_model() -> None:
    assert model_options(Settings()) is None


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_the_address_of_a_provider_is_known(provider: str) -> None:
    options = model_options(Settings(agent_provider=provider, agent_model="m"))
    assert options is not None
    assert options.endpoint.host == f"api.{provider}.com"
    assert options.endpoint.port == 443


def test_the_key_may_come_from_a_variable_that_the_operator_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not this one")
    options = model_options(Settings(**GIVEN, agent_key_variable="THE_KEY"))
    assert options is not None
    assert options.key == KEY


@pytest.mark.parametrize(
    ("given", "named"),
    [
        pytest.param({"agent_model": "m"}, "model", id="a model without a provider"),
        pytest.param({"agent_key_file": "/k"}, "key-file", id="a key without a provider"),
        pytest.param({"agent_provider": "openai"}, "model", id="a provider without a model"),
        pytest.param({**GIVEN, "agent_base_url": f"ftp://{HOST}"}, "base-url", id="not the web"),
        pytest.param({**GIVEN, "agent_base_url": HOST}, "base-url", id="no scheme"),
        pytest.param({**GIVEN, "agent_base_url": f"https://u:p@{HOST}"}, "base-url", id="a password"),
        pytest.param({**GIVEN, "agent_base_url": f"https://{HOST}?a=b"}, "base-url", id="a query"),
        pytest.param({**GIVEN, "agent_base_url": f"https://{HOST}:x"}, "base-url", id="no port"),
        pytest.param(
            {**GIVEN, "agent_base_url": f"https://{HOST}/\x1b"}, "base-url", id="control characters"
        ),
        pytest.param({**GIVEN, "agent_models": ("Explore",)}, "models", id="a type without a model"),
        pytest.param({**GIVEN, "agent_models": ("E=a", "E=b")}, "models", id="a type twice"),
        pytest.param({**GIVEN, "agent_input_price": 1.0}, "output-price", id="one price"),
        pytest.param(
            {**GIVEN, "agent_key_variable": "NOT_SET_ANYWHERE"}, "key-variable", id="no such variable"
        ),
        pytest.param({**GIVEN, "agent_key_file": "/nowhere/key"}, "key-file", id="no such file"),
        pytest.param(
            {**GIVEN, "agent_key_file": "/k", "agent_key_variable": "K"}, "not both", id="a key twice"
        ),
        pytest.param({**GIVEN, "network": "none"}, "--network none", id="a remote model without a network"),
    ],
)
def test_a_setting_that_is_wrong_stops_the_start(given: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingsError, match=named) as caught:
        model_options(Settings(**given))
    assert HOST not in str(caught.value)


def test_a_key_is_not_sent_unencrypted_but_to_this_machine(tmp_path: Path) -> None:
    given = {**GIVEN, "agent_key_file": key_file(tmp_path)}
    with pytest.raises(SettingsError, match="https"):
        model_options(Settings(**given, agent_base_url=f"http://{HOST}"))
    for host in ("localhost", "127.0.0.1:8080", "[::1]:8080"):
        options = model_options(Settings(**given, agent_base_url=f"http://{host}"))
        assert options is not None
        assert options.endpoint.is_loopback
    assert model_options(Settings(**GIVEN, agent_base_url=f"http://{HOST}")) is not None


@pytest.mark.parametrize("content", ["", "two keys", "x" * 5000])
def test_a_malformed_key_stops_the_start_and_is_not_quoted(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", content)
    places: list[dict[str, Any]] = [
        {"agent_key_file": key_file(tmp_path, content)},
        {"agent_key_variable": "THE_KEY"},
    ]
    for given in places:
        with pytest.raises(SettingsError, match=r"\[agent\] key-") as caught:
            model_options(Settings(**GIVEN, **given))
        assert not content or content not in str(caught.value)


def test_a_key_that_others_can_read_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="only its owner can read"):
        model_options(Settings(**GIVEN, agent_key_file=key_file(tmp_path, mode=0o644)))


def test_the_file_of_the_key_is_out_of_reach_of_tools_and_commands(tmp_path: Path) -> None:
    file = key_file(tmp_path)
    assert file in sandbox(Settings(agent_key_file=file)).hidden
    (tmp_path / "root").mkdir()
    inside = f'[agent]\nkey-file = "{tmp_path}/root/key"\n'
    with pytest.raises(SettingsError, match="key file"):
        configured(tmp_path, inside, "--root", str(tmp_path / "root"))


def test_commands_may_not_get_the_variable_of_the_key() -> None:
    with pytest.raises(SettingsError, match="THE_KEY"):
        check(Settings(agent_key_variable="THE_KEY", command_environment=("THE_*",)))
    check(Settings(agent_key_variable="THE_KEY", command_environment=("OTHER_*",)))


def test_without_its_packages_the_start_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "mcp_toolserver.app.agent_model.find_spec",
        lambda name: None if name == "pydantic_ai" else real(name),
    )
    with pytest.raises(SettingsError, match=r"mcp-toolserver\[agent\]"):
        model_options(Settings(**GIVEN))


def test_an_agent_gets_only_models_that_the_operator_named() -> None:
    options = model_options(Settings(**GIVEN, agent_models=("Explore=small",)))
    assert options is not None
    assert options.chosen("", "general-purpose") == "m"
    assert options.chosen("", "Explore") == "small"
    assert options.chosen("small", "general-purpose") == "small"
    assert options.chosen("Explore", "general-purpose") == "small"
    with pytest.raises(Unavailable, match=r"'dear'.*m, small"):
        options.chosen("dear", "general-purpose")


@pytest.mark.parametrize("table", ['agent = "x"', "[agent]\nkey = 1", '[agent]\nprovider = "x"'])
def test_a_table_that_is_wrong_stops_the_start(table: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="agent"):
        configured(tmp_path, table)


@pytest.mark.parametrize("price", ["-1", "true", '"3"', "10001"])
def test_a_price_is_a_number_of_dollars(price: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="US dollars"):
        configured(tmp_path, f"[agent]\ninput-price = {price}\n")


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
    assert app.shared.model is not None
    shown = str(public_settings(settings, ()))
    assert not [option for option in TABLES["agent"] if option.attribute in shown or option.name in shown]
    assert HOST not in repr(app.shared.model)
