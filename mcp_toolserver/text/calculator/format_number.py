"""A number as text: exact where it ends, else with 15 digits."""

from decimal import Context, Decimal, Inexact, localcontext
from fractions import Fraction

_DIGITS = 15
_MAX_DENOMINATOR = 1_000_000
_LONG = 40
"""Most digits of an exact number; a longer one is rounded like a number that does not end."""


def numeral(value: int | Fraction | float) -> str:
    """Write `value` as a person would."""
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return format(value, f".{_DIGITS}g")
    with localcontext(Context(prec=_LONG)) as context:
        quotient = Decimal(value.numerator) / Decimal(value.denominator)
        is_exact = not context.flags[Inexact]
    if is_exact:
        return format(quotient, "f") if abs(quotient.adjusted()) < _LONG else str(quotient)
    near = format(quotient, f".{_DIGITS}g")
    return f"{near} ({value})" if value.denominator <= _MAX_DENOMINATOR else near
