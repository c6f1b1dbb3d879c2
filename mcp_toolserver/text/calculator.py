"""Arithmetic: an expression to its value and its text, exact where possible, in bounded time and memory.

Whole numbers and fractions are exact; a root, a logarithm and the like make a floating-point number.
Nothing is looked up anywhere but in the tables here.
"""

import builtins
import math
import re
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, Inexact, localcontext
from fractions import Fraction

from mcp_toolserver.errors import InvalidInput

Number = int | Fraction | float

_MAX_CHARACTERS, _MAX_DEPTH, _MAX_ARGUMENT = 1_000, 50, 1_000
_MAX_BITS = 10_000
"""Maximum bits of an integer, or of the numerator or denominator of a fraction."""
_DIGITS, _EXACT_DIGITS, _MAX_DENOMINATOR = 15, 40, 1_000_000
_TOKEN = re.compile(
    r"(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?0*[0-9]{1,4})?)"
    r"|(?P<name>[A-Za-z]\w*)|\*\*|//|\S|\Z"
)
_SPELT = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-"})


def _checked(value: int) -> int:
    """Return `value`, an argument that decides how many digits the result has."""
    if abs(value) > _MAX_ARGUMENT:
        raise OverflowError
    return value


def _factorial(value: int) -> int:
    return math.factorial(_checked(value))


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, float) or not isinstance(exponent, int):
        return math.pow(base, exponent)
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(exponent) * (bits - 1) > _MAX_BITS:
        raise OverflowError
    return Fraction(base) ** exponent


def _square_root(value: Number) -> Number:
    if isinstance(value, float):
        return math.sqrt(value)
    root = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
    return root if root * root == value else math.sqrt(value)


def _round(value: Number, places: int = 0) -> Number:
    return round(value, _checked(places) or None)


_BINDING = {"+": 10, "-": 10, "*": 20, "/": 20, "//": 20, "%": 20, "**": 40, "^": 40}
_SIGN_BINDING, _TO_THE_RIGHT = 30, 40
_OPERATORS: Mapping[str, Callable[[Number, Number], Number]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: Fraction(a) / b if isinstance(a, int) else a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "**": _power,
    "^": _power,
}
_CONSTANTS: Mapping[str, Number] = {"pi": math.pi, "e": math.e, "tau": math.tau}
_MATH = "floor ceil exp log log2 log10 sin cos tan asin acos atan sinh cosh tanh degrees radians"
_FUNCTIONS: Mapping[str, Callable[..., Number]] = {
    **{name: getattr(builtins, name) for name in ("abs", "min", "max")},
    **{name: getattr(math, name) for name in (*_MATH.split(), "atan2", "hypot", "gcd", "lcm")},
    "factorial": _factorial,
    "ln": math.log,
    "pow": _power,
    "round": _round,
    "sqrt": _square_root,
}
_TAKES = {"round log": (1, 2), "pow atan2": (2, 2), "gcd lcm hypot": (2, 10), "min max": (2, 100)}
_ARGUMENTS = {name: takes for names, takes in _TAKES.items() for name in names.split()}
"""The fewest and the most arguments of a function; without an entry, it takes one."""


def calculate(expression: str) -> Number:
    """Calculate the value of `expression`.

    Raises:
        InvalidInput: it is no expression, has no real value, or one too large; the text says where.
    """
    if len(expression) > _MAX_CHARACTERS:
        raise InvalidInput(f"The expression is longer than {_MAX_CHARACTERS} characters; calculate in parts.")
    parser = _Parser(expression.translate(_SPELT))
    value = parser.expression(0)
    parser.take("", wanted="an operator")
    return value


def numeral(value: Number) -> str:
    """Write `value` as a person would: exactly where it ends, otherwise with 15 digits."""
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return format(value, f".{_DIGITS}g")
    with localcontext(Context(prec=_EXACT_DIGITS)) as context:
        quotient = Decimal(value.numerator) / Decimal(value.denominator)
        is_exact = not context.flags[Inexact]
    if is_exact:
        return format(quotient, "f") if abs(quotient.adjusted()) < _EXACT_DIGITS else str(quotient)
    near = format(quotient, f".{_DIGITS}g")
    return f"{near} ({value})" if value.denominator <= _MAX_DENOMINATOR else near


class _Parser:
    """Evaluates while it parses. A token is a match of `_TOKEN`; the last one is empty."""

    def __init__(self, text: str) -> None:
        self._rest = list(_TOKEN.finditer(text))[::-1]
        self._depth = 0

    def expression(self, binding: int) -> Number:
        """Parse an expression, up to an operator that binds no tighter than `binding`."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _wrong(self._rest[-1], f"is nested deeper than {_MAX_DEPTH}; calculate in parts")
        value = self._operand()
        while (own := _BINDING.get(self._rest[-1][0], 0)) > binding:
            token = self._rest.pop()
            right = self.expression(own - (own == _TO_THE_RIGHT))
            value = _applied(token, _OPERATORS[token[0]], value, right)
        self._depth -= 1
        return value

    def take(self, *texts: str, wanted: str) -> str:
        """Take a token, which has to be one of `texts`."""
        token = self._rest.pop()
        if token[0] not in texts:
            raise _wrong(token, f"stands where {wanted} is expected")
        return token[0]

    def _operand(self) -> Number:
        token = self._rest.pop()
        if token[0] in ("+", "-"):
            value = self.expression(_SIGN_BINDING)
            return -value if token[0] == "-" else value
        if token["number"]:
            value = _applied(token, Fraction, token[0])
        elif token["name"]:
            value = self._named(token)
        elif token[0] == "(":
            value = self.expression(0)
            self.take(")", wanted="')'")
        else:
            raise _wrong(token, "stands where a number is expected")
        while self._rest[-1][0] == "!":
            value = _applied(self._rest.pop(), _factorial, value)
        return value

    def _named(self, token: re.Match[str]) -> Number:
        name = token[0].lower()
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        if name not in _FUNCTIONS:
            raise _wrong(token, f"is unknown; there are {', '.join((*_CONSTANTS, *_FUNCTIONS))}")
        self.take("(", wanted="'('")
        arguments = [self.expression(0)]
        while self.take(",", ")", wanted="')'") == ",":
            arguments.append(self.expression(0))
        fewest, most = _ARGUMENTS.get(name, (1, 1))
        if not fewest <= len(arguments) <= most:
            takes = fewest if fewest == most else f"{fewest} to {most}"
            raise _wrong(token, f"takes {takes} value{'s' * (most > 1)} and is given {len(arguments)}")
        return _applied(token, _FUNCTIONS[name], *arguments)


def _applied(token: re.Match[str], apply: Callable[..., Number], *arguments: object) -> Number:
    try:
        value = apply(*arguments)
        exact = Fraction(value)
        if max(exact.numerator.bit_length(), exact.denominator.bit_length()) > _MAX_BITS:
            raise OverflowError
    except ZeroDivisionError:
        raise _wrong(token, "divides by zero; change the divisor") from None
    except OverflowError:
        size = "a number of more than about 3,000 digits, or one beyond floating point"
        raise _wrong(token, f"makes {size}. Calculate with logarithms instead") from None
    except (TypeError, ValueError):
        raise _wrong(token, "has no real value for its arguments; change them") from None
    return value if isinstance(value, float) or exact.denominator > 1 else exact.numerator


def _wrong(token: re.Match[str], why: str) -> InvalidInput:
    what = repr(token[0]) if token[0] else "the end"
    return InvalidInput(f"{what} at character {token.start() + 1} {why}.")
