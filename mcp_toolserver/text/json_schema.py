"""JSON Schemas as small and as plain as clients like them."""

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

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        result = super().default_schema(schema)
        choices = result.get("enum") or [None]
        if result.get("default") in (None, [], (), choices[0]):
            result.pop("default", None)
        return result


_UNTOLD = frozenset({"title", "maxLength", "maxItems", "maximum", "pattern", "$defs"})
_OF_A_MODEL = frozenset({"description", "additionalProperties"})
_OBVIOUS = (
    ("default", False),
    ("default", ""),
    ("default", "."),
    ("minLength", 1),
    ("minimum", 0),
    ("minimum", 1),
)
"""Said by an error when it matters; told to every model at every start, it would only cost."""


def plain_schema(model: type[BaseModel]) -> Schema:
    """The JSON Schema of `model`: root `type: object`, no references, no titles, nothing said twice."""
    generated = _SCHEMA.validate_python(model.model_json_schema(schema_generator=_Plain))
    generated.pop("description", None)
    properties = generated.setdefault("properties", {})
    definitions = generated.get("$defs")
    assert isinstance(properties, dict)
    told = _Told(frozenset(properties), definitions if isinstance(definitions, dict) else {})
    plain = told.plain(generated)
    plain["properties"] = {name: told.node(value) for name, value in properties.items()}
    return plain


def _in_words(key: str, node: Schema) -> bool:
    """Whether it is a default that the description names, in brackets."""
    return key == "default" and f"({json.dumps(node[key])})" in str(node.get("description"))


@dataclass(frozen=True)
class _Told:
    """What is known by now: the arguments of the tool itself, and the models that references name."""

    arguments: frozenset[str]
    definitions: Schema

    def plain(self, node: Schema) -> Schema:
        """`node` without what is untold or obvious."""
        told: Schema = {
            key: self._parts(value) if key == "properties" else self.node(value)
            for key, value in node.items()
            if key not in _UNTOLD and (key, value) not in _OBVIOUS and not _in_words(key, node)
        }
        # What is not forbidden is allowed; some clients refuse a schema that says nothing.
        if told.get("additionalProperties") == {}:
            del told["additionalProperties"]
        return told

    def node(self, node: JsonValue) -> JsonValue:
        """Any part of a schema."""
        if isinstance(node, list):
            return [self.node(item) for item in node]
        if not isinstance(node, dict):
            return node
        reference = node.get("$ref")
        return self._part(reference) if isinstance(reference, str) else self.plain(node)

    def _part(self, reference: str) -> Schema:
        """The model that `reference` names, in its place; some clients refuse references."""
        target = self.definitions[reference.removeprefix("#/$defs/")]
        assert isinstance(target, dict)
        return self.plain({key: value for key, value in target.items() if key not in _OF_A_MODEL})

    def _parts(self, properties: JsonValue) -> JsonValue:
        """Inside a part, a field that is spelt like an argument means the same."""
        assert isinstance(properties, dict)
        return {name: self._field(name, self.node(value)) for name, value in properties.items()}

    def _field(self, name: str, node: JsonValue) -> JsonValue:
        if name in self.arguments and isinstance(node, dict):
            node.pop("description", None)
        return node
