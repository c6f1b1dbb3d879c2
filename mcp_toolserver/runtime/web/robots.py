"""Parses robots.txt by RFC 9309.

The parser is ours, because a hostile file can name thousands of agents before thousands of rules: it keeps
only the rules of this agent, and `protego` keeps each rule for each agent.
"""

import re
from contextlib import suppress

from mcp_toolserver.text.search.glob import Matches, wildcard
from mcp_toolserver.text.web.urls import canonical_url

AGENT = "mcp-toolserver"

MOST_BYTES = 500 * 1024

_MOST_RULES = 5_000
_LINE = re.compile(r"\s*(?P<key>[A-Za-z-]+)\s*:\s*(?P<value>[^#]*?)\s*(?:#.*)?")

Rules = tuple[tuple[int, bool, Matches], ...]
"""Of each rule how specific it is, whether it allows, and what it matches; the first that matches wins."""


def rules_of(status: int, body: bytes) -> Rules:
    """Parse robots.txt. A missing file allows everything; a server error forbids everything for now."""
    if status >= 500 or status == 429:
        return ((1, False, lambda _: True),)
    return parse_robots(body.decode(errors="replace"), AGENT) if 200 <= status < 300 else ()


def allows(rules: Rules, target: str) -> bool:
    """Whether the path and query, in canonical spelling, may be read."""
    return next((allowed for _, allowed, matches in rules if matches(target)), True)


def parse_robots(text: str, agent: str) -> Rules:
    """Parse the rules for `agent`, or those for everybody if none name it."""
    own = agent.lower()
    groups: dict[str, list[tuple[int, bool, Matches]]] = {own: [], "*": []}
    names: set[str] = set()
    seen: set[str] = set()
    is_heading = False
    for line in text.lstrip("\ufeff").splitlines():
        found = _LINE.fullmatch(line)
        key, value = (found["key"].lower(), found["value"]) if found else ("", "")
        if key not in ("user-agent", "allow", "disallow"):
            continue
        if key == "user-agent":
            names = {*(names if is_heading else ()), value.partition("/")[0].lower()}
            seen |= names
        elif value:
            for name in names & groups.keys():
                groups[name].append((len(value), key == "allow", _matcher(value)))
        is_heading = key == "user-agent"
    rules = groups[own if own in seen else "*"][:_MOST_RULES]
    # The most specific rule wins; of two that are equally so, the one that allows.
    return tuple(sorted(rules, key=lambda rule: (-rule[0], not rule[1])))


def _matcher(pattern: str) -> Matches:
    """Compile a rule: it matches every path that starts with it; with a final `$`, only that path."""
    path = pattern.removesuffix("$")
    with suppress(ValueError):
        path = canonical_url(f"http://host/{path.removeprefix('/')}").removeprefix("http://host")
    return wildcard(path if pattern.endswith("$") else f"{path}*")
