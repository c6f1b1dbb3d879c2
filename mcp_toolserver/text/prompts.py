"""The MCP prompts, which users select by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

Offered = Callable[[str], bool]
"""Whether the server has a tool of this name."""

Values = Literal["path", "branch", "text"]


@dataclass(frozen=True, kw_only=True)
class Argument:
    """An argument of a prompt."""

    name: str
    description: str
    required: bool = False
    values: Values = "text"


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A prompt of the server."""

    name: str
    title: str
    description: str
    arguments: tuple[Argument, ...]
    words: Callable[[Mapping[str, str], Offered], str]
    """Builds the text from the given arguments."""


def _review(given: Mapping[str, str], offered: Offered) -> str:
    base = given.get("base", "")
    against = f" against {base}" if base else ""
    return f"""Review the changes{_within(given)}{against}. Change nothing.

1. {_changes(base, offered)}
2. Read each changed place with enough around it (read_file), and who uses what changed (grep_search).
3. Report what is wrong or risky, the worst first: file and line, what happens and when, how to mend it. \
Leave out matters of taste. Name what has no test.
4. End with one line: what you looked at, and what you did not."""


def _changes(base: str, offered: Offered) -> str:
    if offered("git_diff"):
        asked = f"git_diff with commit {base}" if base else "git_diff, with and without staged"
        return f"See what changed: git_status, then {asked}."
    if offered("bash"):
        return f"See what changed: git status and git diff {base or 'HEAD'}, with bash."
    return "See what changed: there is no tool for git here, so ask the user which files, and read those."


def _explain(given: Mapping[str, str], _: Offered) -> str:
    question = f"\n\nThe question is above all: {given['question']}" if given.get("question") else ""
    return f"""Explain the code in {given["path"]} to somebody who will work on it. Change nothing.{question}

1. Read it with read_file; if it is a folder, find what is in it with glob_search and start at its entrance.
2. Follow what it calls and who calls it with grep_search, as far as the explanation needs.
3. Say what it is for, then how it works along one typical run, then what is easy to get wrong. Name files \
and lines. Say so where you guess."""


def _plan(given: Mapping[str, str], offered: Offered) -> str:
    kept = " Keep the steps with TodoWrite." if offered("TodoWrite") else ""
    return f"""Plan this change{_within(given)}, and do not make it yet: {given["goal"]}

1. Find the places that it touches with grep_search and glob_search, and read them with read_file.
2. Look at how similar things are done and tested here; the change should look like its neighbours.
3. Give the smallest plan that reaches the goal: the steps in order, the files of each, how each is tested, \
and what could break.{kept}
4. Ask what you cannot find out; then wait for a yes."""


def _within(given: Mapping[str, str]) -> str:
    return f" in {given['path']}" if given.get("path") else ""


_WHERE = Argument(name="path", description="File or folder to keep to", values="path")

PROMPTS = (
    Prompt(
        name="review-changes",
        title="Review changes",
        description="Look for mistakes in what was changed.",
        arguments=(
            Argument(name="base", description="Branch or commit to compare with", values="branch"),
            _WHERE,
        ),
        words=_review,
    ),
    Prompt(
        name="explain-code",
        title="Explain code",
        description="Say what a file or folder does and how.",
        arguments=(
            Argument(name="path", description="File or folder", required=True, values="path"),
            Argument(name="question", description="What you want to know above all"),
        ),
        words=_explain,
    ),
    Prompt(
        name="plan-change",
        title="Plan a change",
        description="Work out the steps of a change without making it.",
        arguments=(Argument(name="goal", description="What is to be reached", required=True), _WHERE),
        words=_plan,
    ),
)
