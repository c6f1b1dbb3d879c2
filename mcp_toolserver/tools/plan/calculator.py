"""Evaluate an arithmetic expression: + - * / // % ^ or **, !, brackets, pi, e, and functions such as sqrt,
log, sin (radians), round, min, gcd. Integers and fractions are exact; other results have 15 digits.
"""

from mcp_toolserver import tool as t


class Calculator(t.Args):
    expression: str = t.Field(
        min_length=1, description="Expression to evaluate, such as `(1/3 + 2^10) * sqrt(2)`"
    )


async def run(args: Calculator, rt: t.Runtime) -> t.Output:
    from mcp_toolserver.text.calculator import calculate, numeral

    return t.Output(await rt.compute(lambda: numeral(calculate(args.expression))))


TOOL = t.ToolSpec(
    name="calculator",
    title="Calculate",
    needs=frozenset(),
    args=Calculator,
    run=run,
    idempotent=True,
)
