"""JSON Schemas as small and as plain as clients like them."""

from pydantic import BaseModel, JsonValue, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

Schema = dict[str, JsonValue]

_SCHEMA: TypeAdapter[Schema] = TypeAdapter(Schema)


class _Plain(GenerateJsonSchema):
    """No null unions: some clients refuse unions, and every character costs the model's context."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        result = super().default_schema(schema)
        if result.get("default") in (None, [], ()):
            result.pop("default", None)
        return result


def plain_schema(model: type[BaseModel]) -> Schema:
    """The JSON Schema of `model`: root `type: object`, no titles, no description of the model itself."""
    generated = _SCHEMA.validate_python(model.model_json_schema(schema_generator=_Plain))
    generated.pop("description", None)
    generated.setdefault("properties", {})
    return {key: _untitled(value, names=key in ("properties", "$defs")) for key, value in _own(generated)}


def _own(node: Schema) -> list[tuple[str, JsonValue]]:
    return [(key, value) for key, value in node.items() if key != "title"]


def _untitled(node: JsonValue, *, names: bool = False) -> JsonValue:
    """`names`: the keys of `node` are names that somebody chose, among which "title" is none of ours."""
    if isinstance(node, list):
        return [_untitled(item) for item in node]
    if not isinstance(node, dict):
        return node
    items = node.items() if names else _own(node)
    return {key: _untitled(value, names=not names and key in ("properties", "$defs")) for key, value in items}
