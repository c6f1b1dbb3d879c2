"""The functions and constants of the calculator. Each takes bounded time for numbers up to `MAX_BITS`."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

Number = int | Fraction | float

MAX_BITS = 10_000
"""Maximum bits of an integer, or of the numerator or denominator of a fraction."""

MAX_FACTORIAL = 1_000
_MAX_PLACES = 1_000


@dataclass(frozen=True)
class Function:
    """A function of numbers. `apply` raises the errors of `math`: ValueError, OverflowError."""

    apply: Callable[..., Number]
    fewest: int = 1
    most: int = 1

    @property
    def takes(self) -> str:
        """The number of arguments, in words."""
        if self.fewest == self.most == 1:
            return "one value"
        return f"{self.fewest} values" if self.fewest == self.most else f"{self.fewest} to {self.most} values"


def power(base: Number, exponent: Number) -> Number:
    """Compute `base ** exponent`, after a check that the result is not too large."""
    if isinstance(exponent, int) and not isinstance(base, float):
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if abs(exponent) * (bits - 1) > MAX_BITS:
            raise OverflowError
        return Fraction(base) ** exponent
    return math.pow(base, exponent)


def factorial(value: Number) -> Number:
    """Compute `value!`."""
    number = _whole(value)
    if number > MAX_FACTORIAL:
        raise OverflowError
    return math.factorial(number)


def _whole(value: Number) -> int:
    if not isinstance(value, int):
        raise ValueError
    return value


def _square_root(value: Number) -> Number:
    """Compute the square root: exactly if it is rational, otherwise as a float."""
    if isinstance(value, float) or value < 0:
        return math.sqrt(value)
    root = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
    return root if root * root == value else math.sqrt(value)


def _logarithm(value: Number, base: Number = math.e) -> float:
    return math.log(value) if base == math.e else math.log(value) / math.log(base)


def _rounded(value: Number, places: Number = 0) -> Number:
    if abs(_whole(places)) > _MAX_PLACES:
        raise OverflowError
    return round(value, _whole(places)) if places else round(value)


def _with_whole(function: Callable[..., int]) -> Callable[..., Number]:
    return lambda *values: function(*map(_whole, values))


def _absolute(value: Number) -> Number:
    return abs(value)


CONSTANTS: Mapping[str, Number] = {"pi": math.pi, "e": math.e, "tau": math.tau}

_REAL: Mapping[str, Callable[[float], float]] = {
    "exp": math.exp,
    "log2": math.log2,
    "log10": math.log10,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
    "sinh": math.sinh,
    "cosh": math.cosh,
    "tanh": math.tanh,
    "degrees": math.degrees,
    "radians": math.radians,
}

FUNCTIONS: Mapping[str, Function] = {
    "abs": Function(_absolute),
    "floor": Function(math.floor),
    "ceil": Function(math.ceil),
    "round": Function(_rounded, 1, 2),
    "min": Function(min, 2, 100),
    "max": Function(max, 2, 100),
    "gcd": Function(_with_whole(math.gcd), 2, 10),
    "lcm": Function(_with_whole(math.lcm), 2, 10),
    "factorial": Function(factorial),
    "sqrt": Function(_square_root),
    "pow": Function(power, 2, 2),
    "ln": Function(_logarithm),
    "log": Function(_logarithm, 1, 2),
    "atan2": Function(math.atan2, 2, 2),
    "hypot": Function(math.hypot, 2, 10),
    **{name: Function(apply) for name, apply in _REAL.items()},
}
