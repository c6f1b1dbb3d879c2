"""Calculate: + - * / // % ^ or **, !, brackets, pi, e, and functions such as sqrt, log, sin (radians), round,
min, gcd. Whole numbers and fractions are exact; the rest has 15 digits.
"""

from mcp_toolserver.text.calculator import calculate
from mcp_toolserver.text.numerals import numeral
from mcp_toolserver.tool import Args, Field, Output, Permission, Runtime, ToolSpec


class Calculator(Args):
    expression: str = Field(min_length=1, description="`(1/3 + 2^10) * sqrt(2)`")


async def run(args: Calculator, rt: Runtime) -> Output:
    return Output(await rt.compute(lambda: numeral(calculate(args.expression))))


TOOL = ToolSpec(
    name="calculator",
    description=__doc__ or "",
    permission=Permission.READ_ONLY,
    needs=frozenset(),
    args=Calculator,
    run=run,
    kind="other",
    subjects=lambda _: (),
    idempotent=True,
)
