"""The model of agents, from the settings."""

from importlib.util import find_spec

from mcp_toolserver.app.confinement import agent_key
from mcp_toolserver.capabilities.model import ModelRequest, ModelTool, UserText
from mcp_toolserver.errors import SettingsError, ToolError
from mcp_toolserver.runtime.models.model import (
    OPERATOR,
    ModelOptions,
    ProviderModel,
    checked_limits,
    endpoint,
    model_limits,
    models_by_type,
    prices,
)
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
    models = models_by_type(settings.agent_models)
    return ModelOptions(
        provider=provider,
        endpoint=found,
        key=key,
        model=settings.agent_model,
        models=models,
        limits=checked_limits(settings.agent_context_tokens, settings.agent_output_tokens, "output-tokens"),
        own_limits=model_limits(settings.agent_model_limits, (settings.agent_model, *models.values())),
        prices=prices(settings.agent_input_price, settings.agent_output_price),
        seconds=settings.agent_turn_seconds,
    )


async def failures(options: ModelOptions) -> dict[str, str]:
    """Ask each configured model for an answer, with a tool; returns why it gives none, or an empty text."""
    model, found = ProviderModel(options), dict[str, str]()
    tool = ModelTool(name="look", description="Looks.", schema={"type": "object", "properties": {}})
    words = UserText("Answer with the word ok.")
    try:
        for name in options.known:
            try:
                # The answer may be cut: it proves the key and the model all the same.
                await model.turn(
                    ModelRequest(system="", messages=(words,), tools=(tool,), model=name, max_tokens=32)
                )
                found[name] = ""
            except ToolError as error:
                found[name] = str(error).replace(OPERATOR, "Please")
    finally:
        await model.aclose()
    return found


def _check_unused(settings: Settings) -> None:
    given = {
        "base-url": settings.agent_base_url,
        "model": settings.agent_model,
        "models": settings.agent_models,
        "model-limits": settings.agent_model_limits,
        "key-file": settings.agent_key_file,
        "key-variable": settings.agent_key_variable,
    }
    for key, value in given.items():
        if value:
            raise SettingsError(f"[agent] {key}: it needs provider, which is anthropic or openai")
