"""Parses robots.txt and matches paths against it (RFC 9309)."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mcp_toolserver.text.search.glob import wildcard
from mcp_toolserver.text.web.urls import canonical_url

_MOST_RULES = 5_000
_LINE = re.compile(r"\s*(?P<key>[A-Za-z-]+)\s*:\s*(?P<value>[^#]*?)\s*(?:#.*)?")


@dataclass(frozen=True, kw_only=True)
class Robots:
    """The rules of a site for one user agent."""

    rules: tuple[tuple[int, bool, Callable[[str], bool]], ...]
    """Of each how specific it is, whether it allows, and what it matches; the first that matches wins."""

    def allows(self, target: str) -> bool:
        """Whether the path and query, in canonical spelling, may be read."""
        return next((allows for _, allows, matches in self.rules if matches(target)), True)


def parse_robots(text: str, agent: str) -> Robots:
    """Parse the rules for `agent`, or those for everybody if none name it."""
    own = agent.lower()
    groups: dict[str, list[tuple[int, bool, Callable[[str], bool]]]] = {own: [], "*": []}
    names: set[str] = set()
    seen: set[str] = set()
    is_heading = False
    for key, value in _lines(text):
        if key == "user-agent":
            names = {*(names if is_heading else ()), value.partition("/")[0].lower()}
            seen |= names
        elif value:
            for name in names & groups.keys():
                groups[name].append((len(value), key == "allow", _matcher(value)))
        is_heading = key == "user-agent"
    found = groups[own if own in seen else "*"][:_MOST_RULES]
    # The most specific rule wins; of two that are equally so, the one that allows.
    return Robots(rules=tuple(sorted(found, key=lambda rule: (-rule[0], not rule[1]))))


def _lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.lstrip("\ufeff").splitlines():
        found = _LINE.fullmatch(line)
        if found and (key := found["key"].lower()) in ("user-agent", "allow", "disallow"):
            yield key, found["value"]


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Compile a rule: it matches every path that starts with it; with a final `$`, only that path."""
    ends = pattern.endswith("$")
    spelt = _canonical(pattern.removesuffix("$"))
    return wildcard(spelt if ends else f"{spelt}*")


def _canonical(path: str) -> str:
    """Return the path in canonical spelling; see `canonical_url`."""
    try:
        return canonical_url(f"http://host{path if path.startswith('/') else '/' + path}").removeprefix(
            "http://host"
        )
    except ValueError:
        return path
