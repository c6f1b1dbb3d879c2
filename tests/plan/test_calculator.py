"""What calculator, current_datetime and StructuredOutput answer."""

import json
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as some

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.text.calculator import calculate, numeral
from tests.plan.planning import host, planner, refused_each
from tests.support.extent import examples
from tests.support.workbench import Person, call, dispatcher

VALUES = (
    ("(1 + 2) * 3", "9"),
    ("0.1 + 0.2", "0.3"),
    ("2 ** 3 ** 2", "512"),
    ("-2 ** 2", "-4"),
    ("2 ** -2 * 4", "1"),
    ("5.5 % 2", "1.5"),
    ("1 / 3", "0.333333333333333 (1/3)"),
    ("1 / 3 * 3", "1"),
    ("1e-5", "0.00001"),
    (".5 + 1.", "1.5"),
    ("10 ** 20 / 7", "1.42857142857143e+19 (100000000000000000000/7)"),
    ("1 / 3 ** 50", "1.39295556909854e-24"),
    ("3!!", "720"),
    ("2 ** 3!", "64"),
    ("sqrt(2)", "1.4142135623731"),
    ("2 ** 0.5", "1.4142135623731"),
    ("sin(pi / 2)", "1"),
    ("atan2(1, 1) * 4 - pi", "0"),
    ("round(2.567, 2)", "2.57"),
    ("min(3, 1, 2) + max(1, 2)", "3"),
    ("6 × 7 ÷ 2 − 1", "20"),
    ("0 ** 0", "1"),
    ("1 ** 99999999999999999", "1"),
    ("(-1) ** 99999999999999999", "-1"),
    ("2 ** 9999 // 2 ** 9990", "512"),
    (" 1\t+\n1 ", "2"),
)
TOO_MUCH = (
    *("9**9**9", "2**-99999999999", "(1/3)**9999999", "1001!"),
    *("factorial(10**9)", "1e999999999", "1e-999999999", "2**9999 * 2**9999", "exp(1000)", "2.5**100000.5"),
    *("10**400 * sin(1)", "round(1, 10**9)", "lcm(2**9999, 3**6000)", "(10**300 * e) ** 2", "cosh(10**5)"),
)
WRONG = (
    ("2 +", "the end at character 4 stands where a number is expected"),
    ("(1", "the end at character 3 stands where ')' is expected"),
    ("5 5", "'5' at character 3 stands where an operator is expected"),
    ("1..2", "'.2' at character 3"),
    ("foo(1)", "'foo' at character 1 is unknown; there are pi, e"),
    ("min(1)", "'min' at character 1 takes 2 to 100 values and is given 1"),
    ("1 / 0", "'/' at character 3 divides by zero"),
    ("0 ** -1", "divides by zero"),
    ("sqrt(-1)", "'sqrt' at character 1 has no real value"),
    ("(1/2)!", "no real value"),
    ("(" * 51 + "1" + ")" * 51, "nested deeper than 50"),
    ("-" * 51 + "1", "nested deeper than 50"),
    ("1" * 1001, "longer than 1000 characters"),
    ("__import__('os').system('true')", "'_' at character 1 stands where a number"),
    ("", "expression"),
)


async def test_it_calculates(tmp_path: Path) -> None:
    """Nothing takes too long, and what is wrong is named with its place."""
    server = planner(tmp_path)
    for expression, value in VALUES:
        result = await call(server, "calculator", expression=expression)
        assert (result.error, result.text) == (None, value), expression
    wrong = (*((one, "3,000 digits") for one in TOO_MUCH), *WRONG)
    await refused_each(server, "calculator", [({"expression": one}, says) for one, says in wrong])


NUMBERS = some.integers(min_value=0, max_value=50).map(str)
EXPRESSIONS = some.recursive(
    NUMBERS,
    lambda inner: some.one_of(
        some.tuples(inner, some.sampled_from(["+", "-", "*", "//", "%", "/"]), inner).map(
            lambda parts: f"({' '.join(parts)})"
        ),
        inner.map(lambda one: f"(-{one})"),
    ),
    max_leaves=12,
)


@examples(30)
@given(EXPRESSIONS)
def test_it_agrees_with_exact_arithmetic(expression: str) -> None:
    spelt = re.sub(r"\d+", r"F(\g<0>)", expression)
    try:
        expected: Fraction | None = eval(spelt, {"F": Fraction})
    except ZeroDivisionError:
        expected = None
    if expected is None:
        with pytest.raises(InvalidInput):
            calculate(expression)
    else:
        assert calculate(expression) == expected


@examples(30)
@given(some.text(alphabet="0123456789.+-*/%^!(), episqrtlog", max_size=60))
def test_any_text_has_a_value_or_a_reason(expression: str) -> None:
    with suppress(InvalidInput):
        assert numeral(calculate(expression))


SECOND = timedelta(seconds=1)


async def test_it_is_the_time_there_and_not_another(tmp_path: Path) -> None:
    server = planner(tmp_path)
    for zone in ("Asia/Kathmandu", "Europe/Paris", "UTC", ""):
        before = datetime.now(UTC)
        text = (await call(server, "current_datetime", timezone=zone)).text
        after = datetime.now(UTC)
        there, names = re.findall(r"^(\S+) \((.*)\)$", text, re.MULTILINE)[0]
        said = datetime.fromisoformat(there)
        assert before - SECOND <= said <= after
        there_now = said.astimezone(ZoneInfo(zone)) if zone else said.astimezone()
        assert said.utcoffset() == there_now.utcoffset()
        assert names.split(", ")[0] == f"{said:%A}"
        assert zone in names
        utc, unix = re.findall(r"UTC (\S+), Unix (\d+)$", text)[0]
        assert datetime.fromisoformat(utc) == said
        assert int(unix) == int(said.timestamp())


async def test_an_unknown_zone_is_named_with_a_likely_one(tmp_path: Path) -> None:
    hints = (
        ("Europe/Pariss", "did you mean Europe/Paris"),
        ("xyzzy", "for example Europe/Paris"),
        ("America", "no time zone"),
        ("../../etc/passwd", "no time zone"),
        ("/etc/passwd", "no time zone"),
        ("zone.tab", "no time zone"),
        ("x" * 101, "timezone"),
    )
    wrong = [({"timezone": zone}, hint) for zone, hint in hints]
    await refused_each(planner(tmp_path), "current_datetime", wrong)


@pytest.mark.requirement("CL-52")
async def test_any_object_comes_back_as_it_is(tmp_path: Path) -> None:
    """A server that only reads has it too."""
    server = dispatcher(host(tmp_path), ceiling=Permission.READ_ONLY)
    payloads: tuple[dict[str, Any], ...] = (
        {"answer": 42},
        {"a": {"b": [1, 2.5, None, True, "é"]}, "c": ""},
        # Names of ours.
        {"model_config": 1, "json": 2, "self": 3, "args": 4},
    )
    for payload in payloads:
        result = await server.call("StructuredOutput", payload, Person())
        assert result.error is None, result.text
        assert result.data == {"structured_output": payload}
        assert json.loads(result.text.partition(": ")[2]) == payload


async def test_nothing_and_what_no_json_can_carry_exactly_is_refused(tmp_path: Path) -> None:
    result = await call(planner(tmp_path), "StructuredOutput")
    assert (result.error, "must not be empty" in result.text) == ("invalid_input", True)
    assert (await call(planner(tmp_path), "StructuredOutput", big=10**20)).error == "invalid_input"
