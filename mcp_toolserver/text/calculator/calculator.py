"""Arithmetic: an expression to its value, exact as long as it can be, in bounded time and memory.

    expression := operand {operator expression}         by binding power, `**` to the right
    operand    := ("+" | "-") expression | primary {"!"}
    primary    := number | constant | function "(" expression {"," expression} ")" | "(" expression ")"

Whole numbers and fractions are exact; a root, a logarithm and the like make a floating-point number.
Nothing is looked up anywhere but in the tables here.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.text.calculator.functions import CONSTANTS, FUNCTIONS, MAX_BITS, Number, factorial, power

MAX_CHARACTERS = 1_000
MAX_DEPTH = 50

_TOKEN = re.compile(
    r"(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*)|(?P<sign>\*\*|//|[-+*/%^()!,])",
    re.ASCII,
)
_SPACE = re.compile(r"\s*")
_SPELT = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-"})
_MAX_EXPONENT = 3_000


@dataclass(frozen=True)
class _Operator:
    binding: int
    apply: Callable[[Number, Number], Number]
    to_the_right: bool = False


_POWER = _Operator(40, power, to_the_right=True)
_BINARY: Mapping[str, _Operator] = {
    "+": _Operator(10, lambda a, b: a + b),
    "-": _Operator(10, lambda a, b: a - b),
    "*": _Operator(20, lambda a, b: a * b),
    "/": _Operator(20, lambda a, b: Fraction(a) / b if isinstance(a, int) else a / b),
    "//": _Operator(20, lambda a, b: a // b),
    "%": _Operator(20, lambda a, b: a % b),
    "**": _POWER,
    "^": _POWER,
}
_UNARY = 30


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    place: int
    """Position in the expression, from 1."""


_END = ""


def calculate(expression: str) -> Number:
    """Calculate the value of `expression`.

    Raises:
        InvalidInput: it is no expression, has no real value, or one too large; the text says where.
    """
    if len(expression) > MAX_CHARACTERS:
        raise InvalidInput(
            f"The expression is longer than {MAX_CHARACTERS} characters; calculate it in parts."
        )
    parser = _Parser(_tokens(expression.translate(_SPELT)))
    value = parser.expression(0)
    parser.expect(_END)
    return value


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    place = _after_space(text, 0)
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise InvalidInput(
                f"{text[place]!r} at character {place + 1} has no meaning in an expression; remove it."
            )
        tokens.append(_Token(found.lastgroup or "", found[0], place + 1))
        place = _after_space(text, found.end())
    return [*tokens, _Token(_END, _END, place + 1)]


def _after_space(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return found.end() if found else place


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._depth = 0

    def expression(self, binding: int) -> Number:
        """Parse an expression, up to an operator that binds no tighter than `binding`."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InvalidInput(f"The expression is nested deeper than {MAX_DEPTH}; calculate it in parts.")
        value = self._operand()
        while (operator := _BINARY.get(self._peek().text)) and operator.binding > binding:
            token = self._take()
            right = self.expression(operator.binding - operator.to_the_right)
            value = _applied(token, operator.apply, (value, right))
        self._depth -= 1
        return value

    def expect(self, text: str) -> None:
        """Take the token that has to stand here."""
        token = self._take()
        if token.text != text:
            raise _unexpected(token, "an operator" if text == _END else repr(text))

    def _operand(self) -> Number:
        if self._peek().text in ("+", "-"):
            sign = self._take()
            value = self.expression(_UNARY)
            return -value if sign.text == "-" else value
        value = self._primary()
        while self._peek().text == "!":
            value = _applied(self._take(), factorial, (value,))
        return value

    def _primary(self) -> Number:
        token = self._take()
        if token.kind == "number":
            return _number(token)
        if token.kind == "name":
            return self._named(token)
        if token.text == "(":
            value = self.expression(0)
            self.expect(")")
            return value
        raise _unexpected(token, "a number")

    def _named(self, token: _Token) -> Number:
        name = token.text.lower()
        if name in CONSTANTS:
            return CONSTANTS[name]
        if name not in FUNCTIONS:
            known = ", ".join((*CONSTANTS, *FUNCTIONS))
            raise InvalidInput(f"{token.text!r} at character {token.place} is unknown; there are {known}.")
        function = FUNCTIONS[name]
        arguments = self._arguments()
        given = len(arguments)
        if not function.fewest <= given <= function.most:
            what = f"{name} at character {token.place}"
            raise InvalidInput(f"{what} takes {function.takes} and is given {given}.")
        return _applied(token, function.apply, arguments)

    def _arguments(self) -> tuple[Number, ...]:
        self.expect("(")
        found = [self.expression(0)]
        while self._peek().text == ",":
            self._take()
            found.append(self.expression(0))
        self.expect(")")
        return tuple(found)

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token


def _unexpected(token: _Token, wanted: str) -> InvalidInput:
    what = repr(token.text) if token.text else "the end"
    return InvalidInput(f"{what} at character {token.place} stands where {wanted} is expected.")


def _number(token: _Token) -> Number:
    exponent = re.split("[eE]", token.text)[1:]
    if exponent and abs(int(exponent[0])) > _MAX_EXPONENT:
        raise _too_large(token)
    return _plain(Fraction(token.text))


def _applied(token: _Token, apply: Callable[..., Number], values: tuple[Number, ...]) -> Number:
    try:
        value = _plain(apply(*values))
    except ZeroDivisionError:
        raise InvalidInput(
            f"{token.text!r} at character {token.place} divides by zero; change the divisor."
        ) from None
    except OverflowError:
        raise _too_large(token) from None
    except ValueError:
        raise InvalidInput(
            f"{token.text!r} at character {token.place} has no real value for its arguments; change them."
        ) from None
    if _is_too_large(value):
        raise _too_large(token)
    return value


def _plain(value: Number) -> Number:
    return value.numerator if isinstance(value, Fraction) and value.denominator == 1 else value


def _is_too_large(value: Number) -> bool:
    if isinstance(value, float):
        return value in (float("inf"), float("-inf")) or value != value
    return max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS


def _too_large(token: _Token) -> InvalidInput:
    return InvalidInput(
        f"{token.text!r} at character {token.place} makes a number of more than about 3,000 digits, or one "
        "beyond floating point. Calculate with logarithms instead."
    )
