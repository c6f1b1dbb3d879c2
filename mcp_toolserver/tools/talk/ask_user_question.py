"""Ask the user one or more questions that you need answered to continue, each with options or a free-text
answer, and return the answers. Needs a client that can ask its user. Do not ask for passwords or other
secrets.
"""

from collections.abc import Sequence

from mcp_toolserver import tool as t
from mcp_toolserver.text.question_formats import folded

_LONGEST_WAIT = 3_600.0
"""Seconds; how long an answer may really take is the operator's to say, up to this."""


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
    return t.Output(_text(args.questions, answers), data=Answered(answers=answers))


def _text(questions: Sequence[QuestionItem], answers: t.Answers) -> str:
    pairs = zip(questions, answers, strict=True)
    return "\n".join(f"Q: {item.question}\nA: {', '.join(said) or '(no answer)'}" for item, said in pairs)


TOOL = t.ToolSpec(
    name="AskUserQuestion",
    title="Ask the user",
    description=__doc__ or "",
    permission=t.Permission.READ_ONLY,
    needs=frozenset({t.Capability.ASK}),
    args=AskUserQuestion,
    run=run,
    kind="other",
    subjects=lambda args: tuple(item.question for item in args.questions),
    output=Answered,
    limits=t.Limits(deadline=_LONGEST_WAIT + 60),
    aliases=(t.Alias("AskUser"), t.Alias("ask_user"), t.Alias("question")),
)
