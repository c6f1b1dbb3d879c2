"""Reads the settings: flags override environment variables, which override the config file.

An unknown value or key stops start-up. This module uses the standard library only, because it runs before
the broker is forked and before anything else is imported.
"""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.command_line import ACTIONS, PROGRAM, Invocation, parse
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.settings import (
    OPTIONS,
    PREFIX,
    TABLES,
    Option,
    Raw,
    RuleText,
    Settings,
    Texts,
    Value,
    expand_home,
    rule_line,
)
from mcp_toolserver.text.file_names import lies_in
from mcp_toolserver.text.json_values import is_object

_CONFIG = f"{PREFIX}CONFIG"
"""The variable that names the config file."""

_MOST_POLICY = 1 << 20
"""Characters of a policy; more are no JSON."""

_AGENT_POLICY = (
    *("disabledMiddleware", "disabledTools", "approvals", "sandbox", "sandboxImage", "toolSearch"),
    *("auxiliaryMiddleware", "auxiliaryTools", "coreMCPServers", "toolSearchModel", "toolSearchLimit"),
)
"""Keys of an `AgentToolPolicy`. The last five do nothing without `toolSearch`."""


def load(argv: Sequence[str], environ: Mapping[str, str]) -> Invocation:
    """Read the command line, the environment and the config file they name.

    Raises:
        SettingsError: something is unknown or wrong; the text names it and the choices.
        SystemExit: `--help` or `--version` was printed.
    """
    invocation = parse(argv)
    flags = {option: raw for option in OPTIONS if (raw := vars(invocation).get(option.attribute)) is not None}
    variables = _from_variables(environ)
    config = invocation.config or environ.get(_CONFIG) or None
    config = config and _expanded(config, expand_home, environ)
    configured = {**_from_config(config), **variables}
    given = {option.attribute: _read(option, f"--{option.name}", raw) for option, raw in flags.items()}
    invocation.given = frozenset(option.name for option in flags)
    values = _expand_paths({**configured, **given}, environ)
    invocation.settings = with_root_modes(replace(Settings(), config=config, **values))
    if invocation.env:
        passed = (*invocation.settings.command_environment, *invocation.env)
        invocation.settings = replace(invocation.settings, command_environment=passed)
    # A path that a flag overrides need not be valid elsewhere.
    is_needed = invocation.action == "token"
    invocation.configured = _expand_paths(configured, environ) if is_needed else {}
    check_outside_roots(invocation.settings, config)
    invocation.settings = _with_policy(invocation.settings, environ)
    _check_arguments(invocation)
    return invocation


def serves_stdio(argv: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether an invalid command line is that of a server over stdio, as far as flags and variables say."""
    if argv[:1] == ["wrap"]:
        return True
    if argv[:1] and argv[0] != "serve" and argv[0] in ACTIONS:
        return False
    words = [word for argument in argv for word in argument.split("=", 1)]
    flags = [value for flag, value in pairwise(words) if flag == "--transport"]
    return (flags or [environ.get(f"{PREFIX}TRANSPORT")])[-1] not in ("http", "sse")


def _check_arguments(invocation: Invocation) -> None:
    """Reject what is valid by itself, and not for the command."""
    if invocation.check_model and (invocation.report or invocation.hosts):
        raise SettingsError("--check-model goes with neither --report nor --hosts")
    action, settings = invocation.action, invocation.settings
    if settings.dry_run and (action == "wrap" or (action == "cron" and invocation.what == "run")):
        raise SettingsError(f"--dry-run is for serve and call, and {action} runs what it decides on")
    if settings.hooks.each and action == "wrap":
        raise SettingsError("wrap runs no hooks; give it a config file without [[hooks]]")
    listed, name = invocation.list or invocation.print_entry, invocation.name
    if invocation.action == "setup" and invocation.client is None and not listed:
        raise SettingsError(f"name a client; `{PROGRAM} setup --list` shows all")
    if invocation.action == "setup" and not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        raise SettingsError(f"--name: {name!r} must have 1 to 64 of the characters A-Z a-z 0-9 _ -")
    asked = (bool(invocation.wrap), invocation.wrap_all, invocation.unwrap is not None)
    others = (invocation.remove, invocation.confine, invocation.url, invocation.windows, listed)
    if sum(asked) > 1 or (any(asked) and (any(others) or name != Invocation.name)):
        raise SettingsError(
            "give one of --wrap, --wrap-all and --unwrap, with --scope, --print, --yes and flags of `wrap`"
        )
    if invocation.action == "token" and (invocation.what == "list") == bool(invocation.token_name):
        raise SettingsError("token list takes no NAME; token add, rotate and revoke take one")


def _from_variables(environ: Mapping[str, str]) -> dict[str, Value]:
    """An unknown variable is a typing error that would otherwise go unseen. Empty is not set."""
    known = {option.variable: option for option in OPTIONS if option.flag}
    names = known.keys() | {_CONFIG}
    ours = {name: raw for name, raw in environ.items() if name.startswith(PREFIX) and raw}
    if unknown := [name for name in ours if name not in names]:
        raise SettingsError(
            f"unknown environment variable {unknown[0]}; known are {', '.join(sorted(names))}"
        )
    return {
        option.attribute: _read(option, name, raw.split(option.separator) if option.repeatable else raw)
        for name, option in known.items()
        if (raw := ours.get(name)) is not None
    }


def _from_config(path: str | None) -> dict[str, Value]:
    if path is None:
        return {}
    # Servers without a config file skip this import.
    import tomllib

    try:
        text = Path(path).read_text(encoding="utf-8")
        content: dict[str, Raw] = tomllib.loads(text)
    except OSError as error:
        raise SettingsError(f"cannot read the config file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"the config file {path} is not TOML: {error}") from None
    values = _from_content(path, content, OPTIONS)
    return values | {option.attribute: _placed(values, option, path, text) for option in TABLES["rules"]}


def _placed(values: Mapping[str, Value], option: Option, path: str, text: str) -> Texts:
    """The rules of a list in the config file, each with its line."""
    found = values.get(option.attribute)
    rules = tuple(map(RuleText, found if isinstance(found, tuple) else ()))
    for rule in rules:
        rule.source = f"{path}:{rule_line(text, option.key, rule)}"
    return rules


def embedded(content: Mapping[str, Raw]) -> Settings:
    """The settings of a program that has the tools in its own process: `content` is as in a config file, but
    has nothing on transports.

    Raises:
        SettingsError: something is unknown or wrong.
    """
    options = [option for option in OPTIONS if option.group.title != "Transport"]
    values = _expand_paths(_from_content("Toolset", content, options), {})
    settings = with_root_modes(replace(Settings(), **values))
    check_outside_roots(settings, None)
    return _with_policy(settings, {})


def _with_policy(settings: Settings, environ: Mapping[str, str]) -> Settings:
    """The settings with the rules of the policy file, which raise no permission.

    An `AgentToolPolicy` is left as it is: it says something only of tools that exist.
    """
    if settings.policy is None:
        return settings
    # Few servers have one.
    from mcp_toolserver.policy.claude_permissions import Surroundings, translate
    from mcp_toolserver.text import jsonc

    roots = [os.path.realpath(root) for root in settings.root or (os.getcwd(),)]
    try:
        with Path(settings.policy).open(encoding="utf-8") as file:
            content = jsonc.parse(file.read(_MOST_POLICY))
        if not isinstance(content, dict) or "permissions" not in content:
            return replace(settings, agent_policy=_agent_policy(content))
        rules, unasked = translate(
            content,
            Surroundings(
                file=os.path.realpath(settings.policy),
                home=os.path.realpath(_expanded("~", expand_home, environ)),
                roots=tuple(roots),
                ceiling=settings.permission_mode,
                resolve=os.path.realpath,
            ),
        )
    except OSError as error:
        raise SettingsError(f"cannot read the policy {settings.policy}: {error.strerror}") from None
    except ValueError as error:
        raise SettingsError(f"the policy {settings.policy}: {error}") from None
    granted = settings.permission_mode if settings.granted is None else settings.granted

    def added(own: Texts, more: Mapping[str, str]) -> Texts:
        texts = tuple(map(RuleText, more))
        for text in texts:
            text.source = f"{settings.policy}, {more[text]}"
        return (*own, *texts)

    return replace(
        settings,
        deny=added(settings.deny, rules["deny"]),
        ask=added(settings.ask, rules["ask"]),
        allow=added(settings.allow, rules["allow"]),
        granted=min(granted, unasked),
    )


def _agent_policy(content: object) -> str:
    """The content as JSON. Raises: ValueError: it has other keys than an `AgentToolPolicy`."""
    if not is_object(content) or not content:
        raise ValueError("it is neither an AgentToolPolicy nor Claude Code's settings with `permissions`")
    if content.get("toolSearch"):
        raise ValueError(
            "toolSearch: this server lists tools by --toolsets; lean lists six and finds the others"
        )
    if unknown := content.keys() - _AGENT_POLICY:
        raise ValueError(f"unknown key {min(unknown)}; choose from {', '.join(_AGENT_POLICY)}")
    return json.dumps(content)


def overridden(settings: Settings, place: str, content: Mapping[str, Raw]) -> Settings:
    """`settings` with those of `content`, which is as in a config file. Raises: SettingsError."""
    values = _expand_paths(_from_content(place, content, OPTIONS), {})
    settings = replace(settings, **values)
    if "root" in values:
        settings = with_root_modes(settings)
    check_outside_roots(settings, settings.config)
    return settings


def with_root_modes(settings: Settings) -> Settings:
    """`settings` with the modes of `root` taken off it, and put into `read_only_roots`.

    The text after the last `=` is a mode only if it is the name of one. A read-only root may lie in another,
    of which it becomes a part; no other root may lie in it.

    Raises:
        SettingsError: the mode of a root cannot be kept, or contradicts that of another.
    """
    modes, own = {mode.flag: mode for mode in Permission}, settings.permission_mode
    parts = [(text, *text.rpartition("=")) for text in settings.root]
    given = [(folder, modes[last]) if last in modes else (text, own) for text, folder, _, last in parts]
    real = {folder: os.path.realpath(folder) for folder, _ in given}
    lower = {folder: real[folder] for folder, mode in given if mode < own}
    for folder, mode in given:
        inner = [one for one, its in given if its == own and mode < own and lies_in(real[folder], real[one])]
        wrong = {
            f"it is above --permission-mode {own.flag}": mode > own,
            f"commands run without a sandbox in {own.flag}": mode < own
            and own is Permission.DANGER_FULL_ACCESS,
            "it is no folder": mode < own and not os.path.isdir(real[folder]),
            f"--root {''.join(inner[:1])} lies in it": bool(inner),
        }
        if why := next((why for why, holds in wrong.items() if holds), None):
            raise SettingsError(f"--root {folder}={mode.flag} cannot be kept: {why}")
    kept = {
        one for one in lower.values() if any(lies_in(other, one) and other != one for other in real.values())
    }
    roots = tuple(folder for folder, _ in given if real[folder] not in kept)
    return replace(settings, root=roots, read_only_roots=tuple(dict.fromkeys(lower.values())))


def _from_content(path: str, content: Mapping[str, Raw], keys: Sequence[Option]) -> dict[str, Value]:
    values = _known(path, {key: raw for key, raw in content.items() if key not in TABLES}, keys)
    for name, options in TABLES.items():
        table = content.get(name, {})
        if not isinstance(table, dict):
            raise SettingsError(f"{path}: {name} must be a table, [{name}]")
        values |= _known(f"{path} [{name}]", table, options)
    return values


def _expand_paths(given: Mapping[str, Value], environ: Mapping[str, str]) -> dict[str, Value]:
    """The values, with `~` expanded in paths."""
    found = dict(given)
    for option in (*OPTIONS, *TABLES["agent"]):
        value, expand = given.get(option.attribute), option.expand
        if expand is not None and isinstance(value, str):
            found[option.attribute] = _expanded(value, expand, environ)
        elif expand is not None and isinstance(value, tuple):
            found[option.attribute] = tuple(_expanded(text, expand, environ) for text in value)
    return found


def _expanded(text: str, expand: Callable[[str, str], str], environ: Mapping[str, str]) -> str:
    """`text` with the user's home folder in place of `~`. Raises: SettingsError: it is needed and unknown."""
    if expand(text, "") == text:
        return text
    home = environ.get("HOME", "")
    if not home:
        # Windows has no such module, and is refused later with a better message.
        with suppress(ImportError, KeyError):
            import pwd

            home = pwd.getpwuid(os.getuid()).pw_dir
    if not os.path.isabs(home):
        raise SettingsError(f"{text}: the home folder is unknown (HOME is {home!r}); write the whole path")
    return expand(text, home.rstrip("/"))


def _known(place: str, content: Mapping[str, Raw], options: Sequence[Option]) -> dict[str, Value]:
    by_key = {option.key: option for option in options}
    for key in content:
        if key not in by_key:
            raise SettingsError(f"{place}: unknown key {key!r}; choose from {', '.join(by_key)}")
    return {by_key[key].attribute: _read(by_key[key], f"{place}: {key}", raw) for key, raw in content.items()}


def _read(option: Option, source: str, raw: Raw) -> Value:
    try:
        return option.read(raw)
    except ValueError as error:
        raise SettingsError(f"{source}: {error}") from None


def check_outside_roots(settings: Settings, config: str | None) -> None:
    """Reject settings files inside a root, where tools could change them."""
    places = (
        *(
            ("file of servers", settings.upstreams),
            ("config file", config),
            ("token file", settings.token_file),
            ("file of tokens", settings.tokens),
            ("policy", settings.policy),
        ),
        *(("state folder", settings.state_dir), ("key file", settings.agent_key_file)),
        *(("key file", entry.partition("=")[2] or None) for entry in settings.web_search_keys),
        *(("tool file", path) for path in settings.tool_files),
        # Hooks start in /. A word may also be --option=FILE.
        *(
            ("hook", os.path.join("/", path))
            for hook in settings.hooks.each
            for word in hook.command
            for path in (word, word.partition("=")[2])
        ),
    )
    for what, path in places:
        for root in settings.root:
            # Also as it is written: a link in the root can be redirected.
            forms = (os.path.abspath, os.path.realpath)
            if path is not None and any(lies_in(form(root), form(path)) for form in forms):
                raise SettingsError(
                    f"the {what} {path} lies inside the root {root}, where tools could change it; move it out"
                )
