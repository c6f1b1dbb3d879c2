"""Builds ripgrep's arguments and translates its error messages.

No option here runs a program, follows a link, opens an archive or reads a configuration, and a pattern is
never where an option could be.
"""

import re
from collections.abc import Sequence

from mcp_toolserver.capabilities.search import FileQuery, LineQuery
from mcp_toolserver.errors import InvalidInput, ToolError, Unavailable
from mcp_toolserver.runtime.search.ignore_rules import NEVER_WANTED

HERE = "./"
STDIN = "-"

MAX_PATTERN = 10_000
FAILED = 2
"""The exit status when some or all files could not be searched."""
MAX_COLUMNS = 500
"""Bytes of a line; ripgrep shows the start of a longer one."""
_EXCERPT = 40
"""Characters shown on each side of the place where a pattern fails."""

_WANTED = "toolserverwanted"
_COMMON_TYPES = (
    "c cpp cs css dart docker go graphql html java js json kotlin lua make md php proto py ruby rust scala "
    "sh sql svelte swift tf toml ts txt vue xml yaml"
)
_TYPE = re.compile(r"[A-Za-z0-9][\w+-]*", re.ASCII)

# Ignore files count without a repository, because their authors expect that. Those above the root are not
# read, because they lie outside the workspace. Those between the root and the searched folder come through
# standard input, see `ignore_rules`.
_ALWAYS = (
    "--color=never",
    "--null",
    "--no-follow",
    "--no-require-git",
    "--no-ignore-parent",
    "--no-ignore-global",
    "--no-ignore-messages",
)
_LINES = (
    "--with-filename",
    "--line-number",
    "--crlf",
    "--regex-size-limit=10M",
    "--dfa-size-limit=64M",
    f"--max-columns={MAX_COLUMNS}",
    "--max-columns-preview",
)
_MODES = {
    "files_with_matches": ("--files-with-matches",),
    "count": ("--count",),
    "content": ("--heading", "--byte-offset", "--column", "--no-context-separator"),
}


def list_files(query: FileQuery, *, names: Sequence[str] | None, rules: bool) -> list[str]:
    """Arguments that list files; `names` as for `find_lines`."""
    return [*_walk(query, rules=rules), *_only(names), "--files", HERE]


def find_lines(
    query: LineQuery, *, names: Sequence[str] | None, rules: bool, single: bool, ordered: bool
) -> list[str]:
    """Arguments that find lines.

    `names` are patterns one of which the name of every file wanted matches, or None for any. `rules` says
    that standard input holds ignore rules; `single` that it is the one file to search; `ordered` that the
    results must come in path order, which takes longer.
    """
    if query.type is not None and not single and not _TYPE.fullmatch(query.type):
        raise _unknown_type(query.type)
    flags = (
        ("--ignore-case", query.ignore_case),
        ("--multiline", query.multiline),
        ("--multiline-dotall", query.multiline),
        (f"--before-context={query.before}", query.before > 0 and query.mode == "content"),
        (f"--after-context={query.after}", query.after > 0 and query.mode == "content"),
        ("--sort=path", ordered),
    )
    return [
        *_walk(query, rules=rules),
        *_LINES,
        *_MODES[query.mode],
        *(flag for flag, wanted in flags if wanted),
        *([] if single else _only(names) if query.type is None else [f"--type={query.type}"]),
        *("-e", query.pattern),
        *("--", STDIN if single else HERE),
    ]


def _walk(query: FileQuery | LineQuery, *, rules: bool) -> list[str]:
    flags = (
        ("--hidden", query.hidden),
        # Hidden itself, so it need not be looked for as long as nothing hidden is.
        *((f"--glob=!{name}", query.hidden) for name in NEVER_WANTED),
        ("--no-ignore", query.ignored),
        ("--ignore-file=/dev/stdin", rules),
    )
    return [*_ALWAYS, *(flag for flag, wanted in flags if wanted)]


def _only(names: Sequence[str] | None) -> list[str]:
    """A custom file type restricts the names. Unlike a glob, it does not override ignore rules."""
    if names is None:
        return []
    return [*(f"--type-add={_WANTED}:{name}" for name in names), f"--type={_WANTED}"]


def _unknown_type(type_: str) -> InvalidInput:
    return InvalidInput(
        f"'{type_[:40]}' is not a known file type. Some that are: {_COMMON_TYPES}. Or use `glob`, such as "
        "'*.ext'."
    )


def refusal(complaints: bytes, query: LineQuery | FileQuery) -> ToolError:
    """The error for a search that ripgrep did not run."""
    text = complaints.decode("utf-8", "replace")
    if not isinstance(query, LineQuery):
        return Unavailable("ripgrep failed to list files.")
    if "unrecognized file type" in text:
        return _unknown_type(query.type or "")
    if "regex parse error" in text:
        return InvalidInput(
            f"The pattern is not a valid regular expression: {_regex_error(text)}.{_hint(query)}"
        )
    for sign, what in _PATTERN_ERRORS:
        if sign in text:
            return InvalidInput(what)
    return Unavailable("ripgrep failed. Try a simpler search.")


_PATTERN_ERRORS = (
    (
        'literal "\\n" is not allowed',
        "The pattern contains a line end, but lines are searched one by one. Set `multiline`.",
    ),
    (
        "exceeds size limit",
        "The pattern is too large once its repetitions are written out. Use smaller ones.",
    ),
    ('contains "\\0"', "A pattern cannot contain a NUL character."),
)


def _regex_error(text: str) -> str:
    """The reason, and where, from a message of this form:

    regex parse error:
        (?:a[b)
            ^
    error: unclosed character class
    """
    reason = re.search(r"^error: (.*)$", text, re.MULTILINE)
    shown = re.search(r"^    \(\?:(.*)\)\n    ( *)\^", text, re.MULTILINE)
    what = reason[1] if reason else "it cannot be parsed"
    if shown is None:
        return what
    # ripgrep adds the `(?:` to the caller's pattern.
    at = max(0, len(shown[2]) - len("(?:"))
    excerpt = shown[1][max(0, at - _EXCERPT) : at + _EXCERPT]
    return f"{what}, at character {at + 1}, near `{excerpt}`"


def _hint(query: LineQuery) -> str:
    if re.search(r"\(\?<?[=!]|\\[1-9]", query.pattern):
        return " Look-around and back-references do not exist here; search for less and read the lines."
    if re.search(r"[{}()\[\]*+?]", query.pattern):
        return " Put a backslash before characters that are meant as they are, such as \\{ \\( \\[ \\*."
    return ""


_FILE_ERROR = re.compile(r"rg: (?:\./)?(.+?): (.*?) \(os error \d+\)")


def file_errors(complaints: bytes) -> list[tuple[str, str]]:
    """Paths that could not be searched, each with the reason."""
    found = map(_FILE_ERROR.fullmatch, complaints.decode("utf-8", "surrogateescape").splitlines())
    return [(match[1], match[2].rpartition(": ")[2]) for match in found if match]
