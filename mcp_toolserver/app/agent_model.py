"""The model of agents, from the settings."""

from importlib.util import find_spec

from mcp_toolserver.app.confinement import agent_key
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.runtime.models.model import ModelOptions, endpoint, models_by_type, prices
from mcp_toolserver.settings import Settings


def model_options(settings: Settings) -> ModelOptions | None:
    """The settings of the model that the operator configured; None without one.

    Raises:
        SettingsError: one of `[agent]` is invalid or missing, or its packages are not
            installed; the text holds no address and no key.
    """
    provider = settings.agent_provider
    if provider is None:
        _check_unused(settings)
        return None
    if settings.agent_model is None:
        raise SettingsError("[agent] model: name the model, as the provider calls it")
    if find_spec("pydantic_ai") is None or find_spec(provider) is None:
        raise SettingsError(
            "[agent]: the packages for models are not installed; install mcp-toolserver[agent], for example "
            "with pip install 'mcp-toolserver[agent]'"
        )
    key = agent_key(settings)
    found = endpoint(provider, settings.agent_base_url, has_key=bool(key))
    if settings.network == "none" and not found.is_loopback:
        raise SettingsError(
            "[agent]: --network none forbids connections, and the model is not on this machine; use "
            "--network fetch, or a base-url on loopback"
        )
    return ModelOptions(
        provider=provider,
        endpoint=found,
        key=key,
        model=settings.agent_model,
        models=models_by_type(settings.agent_models),
        prices=prices(settings.agent_input_price, settings.agent_output_price),
        seconds=settings.agent_turn_seconds,
    )


def _check_unused(settings: Settings) -> None:
    given = {
        "base-url": settings.agent_base_url,
        "model": settings.agent_model,
        "models": settings.agent_models,
        "key-file": settings.agent_key_file,
        "key-variable": settings.agent_key_variable,
    }
    for key, value in given.items():
        if value:
            raise SettingsError(f"[agent] {key}: it needs provider, which is anthropic or openai")
