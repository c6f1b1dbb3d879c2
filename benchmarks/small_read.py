"""Small calls, one after another, against the SDK's bare echo and against the official server: one that does
next to nothing, and the read of a small file."""

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from benchmarks.benchmark import Benchmark, Effort
from benchmarks.client import Client, Era, Launch
from benchmarks.figures import MILLISECOND, Row, difference, interleaved, left_out, ratio
from benchmarks.servers import NO_NODE, bare, filesystem, ours, wrapped

OWN_COST = 0.4 * MILLISECOND
GATEWAY_COST = 1.0 * MILLISECOND
CHEAPEST = 0.85
"""Of the echo's time, for a call that does as little."""
FACTOR = 1.5
RULES_FACTOR = 1.05
RULES = {
    "deny": [f"Bash(tool{n} publish:*)" for n in range(150)]
    + [f"Read(secrets{n}/**)" for n in range(50)]
    + [f"WebFetch(host{n}.example)" for n in range(100)]
    + [f"capability:fs_write(*.lock{n})" for n in range(50)],
    "ask": [f"Bash(tool{n} install:*)" for n in range(150)] + [f"Write(docs{n}/**)" for n in range(150)],
    "allow": [f"Bash(tool{n} test:*)" for n in range(200)]
    + [f"Edit(src{n}/**)" for n in range(100)]
    + [f"Read(open{n}/**)" for n in range(50)],
}
"""A thousand, a tenth of them about the tool that is called."""

LINES = 20
IN_A_ROW = 100
"""Calls to one server before it is the next one's turn, as an agent at work makes them."""

NOW_AND_THEN = 10
"""The same for a server that is called seldom: the processor's caches then hold the others'."""


def run(effort: Effort, folder: Path) -> list[Row]:
    root = folder / "small"
    root.mkdir()
    file = root / "small.txt"
    file.write_text(
        "".join(f"line {number} of a small text file\n" for number in range(LINES)), encoding="utf-8"
    )
    return [_with_rules(effort, file), *(row for era in Era for row in _in_era(era, effort, file))]


def _with_rules(effort: Effort, file: Path) -> Row:
    config = file.parent.parent / "rules.toml"
    lists = (f"{name} = {json.dumps(rules)}" for name, rules in RULES.items())
    config.write_text("\n".join(("[rules]", *lists)), encoding="utf-8")
    launches = {"none": ours(file.parent), "rules": ours(file.parent, more=("--config", str(config)))}
    calls = dict.fromkeys(launches, ("read_file", {"path": file.name}))
    taken = _times(launches, calls, 4 * effort.calls, NOW_AND_THEN, Era.HANDSHAKE, effort.warm_up)
    count = sum(map(len, RULES.values()))
    what = f"p50 of a small read with {count} rules, against one with none"
    return ratio(what, taken["rules"], taken["none"], factor=RULES_FACTOR)


def _in_era(era: Era, effort: Effort, file: Path) -> list[Row]:
    official = filesystem(file.parent) if era is Era.HANDSHAKE else None
    launches = {"ours": ours(file.parent), "bare": bare()} | ({"official": official} if official else {})
    launches["wrapped"] = wrapped(launches["bare"], file.parent.parent / "state")
    launches["clock"] = ours(file.parent, toolset="plan")
    calls: Mapping[str, tuple[str, dict[str, str]]] = {
        "ours": ("read_file", {"path": file.name}),
        "bare": ("echo", {"text": "hello"}),
        "wrapped": ("echo", {"text": "hello"}),
        "clock": ("current_datetime", {}),
        "official": ("read_text_file", {"path": str(file)}),
    }
    taken = _times(launches, calls, effort.calls, IN_A_ROW, era, effort.warm_up)
    size = f"p50 of a {file.stat().st_size}-byte read, {era.value}"
    cost = difference(f"{size}, less the bare SDK's echo", taken["ours"], taken["bare"], most=OWN_COST)
    behind = f"p50 of the bare SDK's echo behind `wrap`, {era.value}, less the same alone"
    gateway = difference(behind, taken["wrapped"], taken["bare"], most=GATEWAY_COST)
    against = f"p50 of `current_datetime`, {era.value}, against the bare SDK's echo"
    cheapest = ratio(against, taken["clock"], taken["bare"], factor=CHEAPEST)
    if era is Era.ENVELOPE:  # which the official server does not speak
        return [cheapest, cost, gateway]
    against = f"{size}, against the official filesystem server"
    if official is None:
        return [cheapest, cost, gateway, left_out(against, NO_NODE)]
    seldom = _times(launches, calls, effort.calls, NOW_AND_THEN, era, effort.warm_up)
    return [
        cheapest,
        cost,
        gateway,
        ratio(against, taken["ours"], taken["official"], factor=FACTOR),
        ratio(f"the same, {NOW_AND_THEN} calls at a time", seldom["ours"], seldom["official"]),
    ]


def _times(
    launches: Mapping[str, Launch],
    calls: Mapping[str, tuple[str, dict[str, str]]],
    number: int,
    in_a_row: int,
    era: Era,
    warm_up: int,
) -> dict[str, list[float]]:
    """The seconds of every single call, by server."""
    with ExitStack() as stack:
        clients = {name: stack.enter_context(Client(launch, era)) for name, launch in launches.items()}
        for name, client in clients.items():
            for _ in range(warm_up):
                client.call(*calls[name])
        taken: dict[str, list[float]] = {name: [] for name in clients}
        turns = {name: _turn(client, calls[name], in_a_row, taken[name]) for name, client in clients.items()}
        interleaved(max(1, number // in_a_row), turns)
        return taken


def _turn(
    client: Client, call: tuple[str, dict[str, str]], in_a_row: int, taken: list[float]
) -> Callable[[], float]:
    def some() -> float:
        times = [client.call(*call).seconds for _ in range(in_a_row)]
        taken.extend(times)
        return sum(times)

    return some


BENCHMARK = Benchmark(name="small-read", title="Small calls over stdio", run=run)
