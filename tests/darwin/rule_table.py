"""A compiled profile as lines for `stand_in.c`: for each operation its default, then its rules in order.

A filter is written before its parts. Strings are hexadecimal, so that a line holds any path.
"""

from collections.abc import Iterator

from tests.darwin import operations, sbpl


def encode(profile: sbpl.Profile) -> str:
    """The table of every operation that is no group."""
    return "".join(f"{line}\n" for line in _lines(profile))


def _lines(profile: sbpl.Profile) -> Iterator[str]:
    leaves = {name for name in operations.OPERATIONS if not name.endswith("*")} | {"process-exec*"}
    for operation in sorted(leaves):
        default, rules = profile.decisions(operation)
        yield f"O {operation} {default:d}"
        for rule in rules:
            yield f"R {rule.allow:d}"
            if rule.filters:
                yield from _filter(rule.filters)


def _filter(found: sbpl.Filter) -> Iterator[str]:
    match found:
        case sbpl.All(parts) | sbpl.Either(parts):
            yield f"{'all' if isinstance(found, sbpl.All) else 'any'} {len(parts)}"
            for part in parts:
                yield from _filter(part)
        case sbpl.Negation(part):
            yield "not"
            yield from _filter(part)
        case sbpl.PathFilter(how, path):
            yield f"{how} {_hex(path)}"
        case sbpl.PatternFilter("path", pattern):
            yield f"regex {_hex(pattern)}"
        case sbpl.PatternFilter(_, pattern):
            yield f"name-regex {_hex(pattern)}"
        case sbpl.AddressFilter(side, protocol, host, port, paths):
            yield f"{side} {protocol} {host or '*'} {port or 0} {paths is not None:d}"
            if paths is not None:
                yield from _filter(paths)
        case sbpl.WordFilter(of, value):
            yield f"{of} {_hex(value)}"


def _hex(text: str) -> str:
    return text.encode(errors="surrogateescape").hex() or "-"
