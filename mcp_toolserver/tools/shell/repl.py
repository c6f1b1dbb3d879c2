"""Run Python, JavaScript or shell code in the first root and return what it prints; of Python and JavaScript
also the value of the last expression, of Python the figures of matplotlib. Python is that of .venv or venv in
this root, else python3 on the PATH; % and ! commands of notebooks do not work. To keep variables between
calls, start with session "new" and pass the returned handle in later calls.
"""

from collections.abc import Mapping
from typing import Annotated, Self

from mcp_toolserver import tool as t
from mcp_toolserver.text.documents.file_type import viewable
from mcp_toolserver.text.shell.command_output import command_text, noted, printed
from mcp_toolserver.text.shell.words import argument
from mcp_toolserver.tools.shell.bash import bounded

_LANGUAGES: Mapping[str, t.Language] = {
    "python": "python",
    "py": "python",
    "javascript": "javascript",
    "js": "javascript",
    "node": "javascript",
    "shell": "shell",
    "sh": "shell",
    "bash": "shell",
}


def named_language(name: object) -> t.Language:
    """Return the language that goes by `name`. Raises: ValueError: there is none."""
    found = _LANGUAGES.get(name.strip().lower()) if isinstance(name, str) else None
    if found is None:
        raise ValueError("unsupported language; use python, javascript or shell")
    return found


NamedLanguage = Annotated[t.Language, t.BeforeValidator(named_language)]


class Repl(t.Args):
    code: Annotated[str, t.AfterValidator(argument)] = t.Field(
        max_length=100_000, description="Source code to run"
    )
    language: NamedLanguage = t.Field(description="Language of the code")
    timeout_ms: int = t.Field(
        default=45_000, ge=1, description="Milliseconds until the code is stopped; at most 600000"
    )
    session: str = t.Field(
        default="", max_length=100, description='"new", or the handle of a session; empty keeps no variables'
    )
    end_session: bool = t.Field(
        default=False, description="End the session after the code, which may be empty"
    )

    @t.model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.end_session and not self.session:
            raise ValueError("end_session needs the handle of a session")
        if not self.code.strip() and not self.end_session:
            raise ValueError("code must not be empty")
        return self


async def run(args: Repl, rt: t.Runtime) -> t.Output:
    timeout, notes = bounded(args.timeout_ms)
    if args.language == "shell" and not args.session:
        command = t.Command(script=args.code, cwd=t.ROOT, timeout=timeout)
        state = await rt.processes.run(command, rt.report)
        return t.Output.of_job(command_text(state, notes), state)
    snippet = t.Snippet(
        language=args.language,
        code=args.code,
        timeout=timeout,
        session=args.session,
        last=args.end_session,
    )
    came = await rt.sessions.run(snippet, rt.report)
    types = [(picture, viewable(picture)) for picture in came.pictures]
    images = tuple(t.Image(data=picture, mime_type=mime_type) for picture, mime_type in types if mime_type)
    hidden = came.dropped + len(types) - len(images)
    text = evaluated(came, args.language, asked=args.session, hidden=hidden)
    return t.Output.of_job(noted(text, notes), came.state, images)


def evaluated(came: t.Evaluation, spoken: t.Language, *, asked: str, hidden: int) -> str:
    """Return the output, followed by notes, one per line.

    `asked` is the session that was asked for, `hidden` how many pictures could not be shown.
    """
    state = came.state
    notes = [_ending(came, spoken, asked), *state.notes]
    if hidden:
        notes.append(f"pictures left out, as too many, too large or damaged: {hidden}")
    is_new = came.session not in ("", asked)
    if came.interpreter and (is_new or (not asked and state.exit_status)):
        notes.append(f"interpreter: {came.interpreter}")
    if is_new:
        notes.append(f"session {came.session}")
    nothing = "" if came.pictures else "(no output)"
    return noted(printed(state) or nothing, [note for note in notes if note])


def _ending(came: t.Evaluation, spoken: t.Language, asked: str) -> str:
    state = came.state
    after = f"timeout after {state.seconds:.1f} s"
    if came.gone:
        gone = f"the {'session' if asked else 'interpreter'} {came.gone}"
        return f"{after}; {gone}" if came.timed_out else gone
    said: list[str] = []
    if came.timed_out:
        said.append(f"{after}: interrupted{', and the session goes on' if came.session else ''}")
    elif state.exit_status and (spoken == "shell" or not asked):
        said.append(f"exit status {state.exit_status}")
    if asked and not came.session:
        said.append("the session has ended")
    return "; ".join(said)


TOOL = t.ToolSpec(
    name="REPL",
    title="Run code",
    args=Repl,
    run=run,
    needs=frozenset({t.Capability.PROCESS, t.Capability.SESSIONS}),
    kind="execute",
    subjects=lambda args: (args.code,),
    script=lambda args: args.code if args.language == "shell" else "",
    destructive=True,
    may_be_long=True,
    # As for bash: the timeout is kept elsewhere, and the bytes leave room for notes.
    limits=t.Limits(deadline=660.0, output_bytes=30_000),
    profile=t.Profile.DEFAULT,
)
