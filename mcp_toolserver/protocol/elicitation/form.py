"""Translates questions to an elicitation form, and its content to answers.

A form is flat: one field for each question. For clients older than multi-select fields, each choice becomes a
field of its own. Content that does not match the form exactly is rejected.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pydantic import JsonValue

from mcp_toolserver.capabilities.user import Answers, Question
from mcp_toolserver.text.json_values import is_list

MAX_CHARACTERS = 4_000
"""Maximum characters of a free-text answer."""

Content = Mapping[str, str | int | float | bool | list[str] | None]


@dataclass(frozen=True, kw_only=True)
class Form:
    """Questions, and whether one field may have several answers."""

    questions: Sequence[Question]
    lists: bool

    @property
    def message(self) -> str:
        """The questions and choices as text, for clients that show little of the fields."""
        if len(self.questions) == 1:
            return _text(self.questions[0])
        return "\n\n".join(f"{n}. {_text(question)}" for n, question in enumerate(self.questions, start=1))

    @property
    def schema(self) -> dict[str, JsonValue]:
        """The fields, as JSON Schema."""
        properties = {name: shape for fields in self._fields for name, shape in fields.items()}
        required: list[JsonValue] = [
            name
            for question, fields in zip(self.questions, self._fields, strict=True)
            for name, shape in fields.items()
            if question.required and shape["type"] != "boolean"
        ]
        return {"type": "object", "properties": {**properties}, "required": required}

    def answers(self, content: Content) -> Answers | None:
        """The answers; None if the content does not match the form."""
        if content.keys() - {name for fields in self._fields for name in fields}:
            return None
        found = [
            _answer(question, [content.get(name) for name in fields])
            for question, fields in zip(self.questions, self._fields, strict=True)
        ]
        answers = tuple(answer for answer in found if answer is not None)
        return answers if len(answers) == len(found) else None

    @cached_property
    def _fields(self) -> list[dict[str, dict[str, JsonValue]]]:
        """The fields of each question."""
        return [
            self._fields_of(question, f"answer_{n}") for n, question in enumerate(self.questions, start=1)
        ]

    def _fields_of(self, question: Question, name: str) -> dict[str, dict[str, JsonValue]]:
        if question.several and not self.lists:
            choices = enumerate(question.choices, start=1)
            return {
                f"{name}_{n}": {"type": "boolean", "title": choice.label, "description": choice.description}
                for n, choice in choices
            }
        return {name: {**_named(question), **_shape(question)}}


def _named(question: Question) -> dict[str, JsonValue]:
    return {"title": question.header or question.text[:100], "description": question.text}


def _shape(question: Question) -> dict[str, JsonValue]:
    labels: list[JsonValue] = [choice.label for choice in question.choices]
    if question.several:
        return {"type": "array", "items": {"type": "string", "enum": labels}}
    return {"type": "string", "enum": labels} if labels else {"type": "string", "maxLength": MAX_CHARACTERS}


def _text(question: Question) -> str:
    choices = (f"\n- {choice.label}{_meaning(choice.description)}" for choice in question.choices)
    return f"{question.text}{''.join(choices)}"


def _meaning(description: str) -> str:
    return f": {description}" if description else ""


def _answer(question: Question, values: Sequence[object]) -> tuple[str, ...] | None:
    """The answer to one question; None if it is invalid."""
    if question.several:
        return _chosen(question, values)
    value = values[0]
    if value is None or value == "":
        return None if question.required else ()
    labels = [choice.label for choice in question.choices]
    fits = isinstance(value, str) and (value in labels if labels else len(value) <= MAX_CHARACTERS)
    return (str(value),) if fits else None


def _chosen(question: Question, values: Sequence[object]) -> tuple[str, ...] | None:
    """The chosen labels, in the order in which they were offered."""
    labels = [choice.label for choice in question.choices]
    if all(value is None or isinstance(value, bool) for value in values) and len(values) == len(labels):
        return tuple(label for label, value in zip(labels, values, strict=True) if value)
    chosen = values[0]
    if not is_list(chosen) or any(one not in labels for one in chosen):
        return None
    return tuple(label for label in labels if label in chosen)
