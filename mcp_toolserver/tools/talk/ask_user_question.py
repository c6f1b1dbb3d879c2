"""Ask the user one or more questions that you need answered to continue, each with options or a free-text
answer, and return the answers. Needs a client that can ask its user. Do not ask for passwords or other
secrets.
"""

from collections.abc import Mapping

from mcp_toolserver import tool as t
from mcp_toolserver.text.json_values import is_list, is_object


class OptionItem(t.Args):
    label: str = t.Field(min_length=1, max_length=200, description="Text of the option")
    description: str = t.Field(default="", max_length=1_000, description="What choosing it means")


class QuestionItem(t.Args):
    question: str = t.Field(min_length=1, max_length=4_000, description="The full question")
    header: str = t.Field(default="", max_length=100, description="Short topic of the question")
    options: tuple[OptionItem, ...] = t.Field(
        default=(),
        strict=False,
        max_length=20,
        description="Answers to choose from; without options the user answers in free text",
    )
    multi_select: bool = t.Field(default=False, description="The user may choose several options")
    required: bool = t.Field(default=True, description="The user has to answer it")

    @t.model_validator(mode="after")
    def _distinct(self) -> "QuestionItem":
        labels = [option.label for option in self.options]
        if len(set(labels)) < len(labels):
            raise ValueError("two options have the same label")
        if self.multi_select and not labels:
            raise ValueError("multi_select needs options")
        return self

    def plain(self) -> t.Question:
        """The question as the user sees it."""
        return t.Question(
            text=self.question,
            header=self.header,
            choices=tuple(t.Choice(label=one.label, description=one.description) for one in self.options),
            several=self.multi_select,
            required=self.required,
        )


class AskUserQuestion(t.Args):
    questions: tuple[QuestionItem, ...] = t.Field(
        strict=False, min_length=1, max_length=10, description="Questions to ask together"
    )

    @t.model_validator(mode="before")
    @classmethod
    def _in_other_shapes(cls, given: dict[str, object]) -> object:
        return folded(given)


class Answered(t.Record):
    answers: tuple[tuple[str, ...], ...]


async def run(args: AskUserQuestion, rt: t.Runtime) -> t.Output:
    answers = await rt.ask([item.plain() for item in args.questions])
    pairs = zip(args.questions, answers, strict=True)
    lines = (f"Q: {item.question}\nA: {', '.join(said) or '(no answer)'}" for item, said in pairs)
    return t.Output("\n".join(lines), data=Answered(answers=answers))


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
    return {**given, "questions": [_question(item) if is_object(item) else item for item in questions]}


def _question(given: Given) -> Given:
    question = {_RENAMED.get(name, name): value for name, value in given.items()}
    kind = question.get("type")
    if kind in ("multi_select", "text", "multiple_choice"):
        del question["type"]
    if kind == "multi_select":
        question[_SEVERAL] = True
    options = question.get("options")
    if is_list(options):
        question["options"] = list(map(_option, options))
    return question


def _option(option: object) -> object:
    if isinstance(option, str):
        return {"label": option}
    if is_object(option) and "value" in option and "label" not in option:
        return {"label" if name == "value" else name: value for name, value in option.items()}
    return option


TOOL = t.ToolSpec(
    name="AskUserQuestion",
    title="Ask the user",
    needs=frozenset({t.Capability.ASK}),
    args=AskUserQuestion,
    run=run,
    subjects=lambda args: tuple(item.question for item in args.questions),
    output=Answered,
    limits=t.UNTIL_ANSWERED,
    aliases=(t.Alias("AskUser"), t.Alias("ask_user"), t.Alias("question")),
    deferred=True,
)
