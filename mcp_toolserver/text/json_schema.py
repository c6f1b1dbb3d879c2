"""Generates small, plain JSON Schemas from pydantic models."""

import json
from dataclasses import dataclass

from pydantic import BaseModel, JsonValue, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

Schema = dict[str, JsonValue]

_SCHEMA: TypeAdapter[Schema] = TypeAdapter(Schema)


class _Plain(GenerateJsonSchema):
    """No null unions: some clients refuse unions, and every character costs the model's context.

    Of several choices the first is the default.
    """

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:
        return {"type": "string", "contentEncoding": "base64"}

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        result = super().default_schema(schema)
        choices = result.get("enum") or [None]
        if result.get("default") in (None, [], (), choices[0]):
            result.pop("default", None)
        return result


_OMITTED = frozenset({"title", "maxLength", "maxItems", "maximum", "pattern", "$defs"})
_OF_A_MODEL = frozenset({"description", "additionalProperties"})
_OBVIOUS = (
    *(("default", False), ("default", ""), ("default", ".")),
    *(("minLength", 1), ("minimum", 0), ("minimum", 1)),
)
"""Omitted from schemas to save context; a validation error states it when it matters."""


def plain_schema(model: type[BaseModel]) -> Schema:
    """Return the JSON Schema of `model`: root `type: object`, no references, no titles, no repetitions."""
    generated = _SCHEMA.validate_python(model.model_json_schema(schema_generator=_Plain))
    generated.pop("description", None)
    properties = generated.setdefault("properties", {})
    definitions = generated.get("$defs")
    assert isinstance(properties, dict)
    simplifier = _Simplifier(frozenset(properties), definitions if isinstance(definitions, dict) else {})
    plain = simplifier.plain(generated)
    plain["properties"] = {name: simplifier.node(value) for name, value in properties.items()}
    return plain


@dataclass(frozen=True)
class _Simplifier:
    """Simplifies schema nodes; knows the arguments of the tool and the models that references name."""

    arguments: frozenset[str]
    definitions: Schema

    def plain(self, node: Schema) -> Schema:
        """Return `node` without omitted and obvious keywords."""
        # A description may name the default, in brackets.
        named = "default" in node and f"({json.dumps(node['default'])})" in str(node.get("description"))
        simplified: Schema = {
            key: self._parts(value) if key == "properties" else self.node(value)
            for key, value in node.items()
            if key not in _OMITTED and (key, value) not in _OBVIOUS and not (key == "default" and named)
        }
        # What is not forbidden is allowed; some clients refuse a schema that says nothing.
        if simplified.get("additionalProperties") == {}:
            del simplified["additionalProperties"]
        return simplified

    def node(self, node: JsonValue) -> JsonValue:
        """Simplify any part of a schema."""
        if isinstance(node, list):
            return [self.node(item) for item in node]
        if not isinstance(node, dict):
            return node
        reference = node.get("$ref")
        return self._part(reference) if isinstance(reference, str) else self.plain(node)

    def _part(self, reference: str) -> Schema:
        """Return the model that `reference` names, inlined; some clients reject references."""
        target = self.definitions[reference.removeprefix("#/$defs/")]
        assert isinstance(target, dict)
        return self.plain({key: value for key, value in target.items() if key not in _OF_A_MODEL})

    def _parts(self, properties: JsonValue) -> JsonValue:
        """Simplify fields. A nested one named like an argument means the same and loses its description."""
        assert isinstance(properties, dict)
        nodes = {name: self.node(value) for name, value in properties.items()}
        for name in self.arguments & nodes.keys():
            if isinstance(node := nodes[name], dict):
                node.pop("description", None)
        return nodes
