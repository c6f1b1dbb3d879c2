"""Converts questions from other tools' formats into ours."""

from collections.abc import Mapping
from typing import TypeGuard

from mcp_toolserver.text.json_values import is_list

Given = Mapping[str, object]

_SEVERAL = "multi_select"
_RENAMED = {"choices": "options", "multiSelect": _SEVERAL}


def folded(given: Given) -> Given:
    """Turn one question given by itself into a list of one; leave everything else for validation."""
    if "question" in given and "questions" not in given:
        alone = {name: value for name, value in given.items() if value is not None}
        return {"questions": [_question(alone)]}
    questions = given.get("questions")
    if not is_list(questions):
        return given
    return {**given, "questions": [_question(item) if _is_object(item) else item for item in questions]}


def _question(given: Given) -> Given:
    renamed = {_RENAMED.get(name, name): value for name, value in given.items()}
    match renamed.get("type"):
        case "multi_select":
            renamed = {**renamed, _SEVERAL: True}
        case "text" | "multiple_choice":
            pass
        case _:
            return _with_options(renamed)
    return _with_options({name: value for name, value in renamed.items() if name != "type"})


def _with_options(question: Given) -> Given:
    options = question.get("options")
    return {**question, "options": list(map(_option, options))} if is_list(options) else question


def _option(option: object) -> object:
    if isinstance(option, str):
        return {"label": option}
    if _is_object(option) and "value" in option and "label" not in option:
        return {"label" if name == "value" else name: value for name, value in option.items()}
    return option


def _is_object(value: object) -> TypeGuard[Given]:
    return isinstance(value, dict)
