"""Return the final result as structured data to the calling program. Pass the data as arguments, under the
names that the program asked for.
"""

import json
from typing import ClassVar

from pydantic import ConfigDict, JsonValue

from mcp_toolserver import tool as t


class StructuredOutput(t.Args):
    """The one tool whose arguments have no names of their own."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="allow", json_schema_extra={"additionalProperties": True}
    )

    @t.model_validator(mode="after")
    def _something(self) -> "StructuredOutput":
        if not self.model_extra:
            raise ValueError("structured output payload must not be empty")
        return self


class Handed(t.Record):
    structured_output: dict[str, JsonValue]


async def run(args: StructuredOutput, _: t.Runtime) -> t.Output:
    payload = args.model_extra or {}
    text = json.dumps(payload, ensure_ascii=False)
    return t.Output(
        f"Structured output provided successfully: {text}", data=Handed(structured_output=payload)
    )


TOOL = t.ToolSpec(
    name="StructuredOutput",
    title="Return structured result",
    needs=frozenset(),
    args=StructuredOutput,
    run=run,
    idempotent=True,
    deferred=True,
)
