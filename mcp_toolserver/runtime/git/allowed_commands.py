"""What may be asked of git: reading subcommands with the options named here, and no word taken for another.

A revision or a path that a model chose never stands where git would read an option, and an option that is not
on the list is refused, so that a tool which forgets a check gets an error and not a program run.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mcp_toolserver.errors import InvalidInput

MAX_REVISION = 256
_COUNT = r"\d{1,6}"

_DIFFERENCES = (
    r"-z|-w|-b|--(stat|numstat|shortstat|patch|no-patch|no-renames|find-renames|find-copies|minimal|patience"
    r"|histogram|full-index|ignore-all-space|ignore-space-change|ignore-blank-lines|word-diff=plain)"
    rf"|--(unified|inter-hunk-context)={_COUNT}|--diff-filter=[A-Za-z]+"
)
_NAMES = r"--(name-only|name-status|raw)"
_COMMITS = (
    r"--(oneline|graph|all|branches|tags|remotes|merges|no-merges|first-parent|reverse|abbrev-commit|follow"
    r"|parents|left-right|cherry-pick|topo-order|date-order|regexp-ignore-case|fixed-strings|no-decorate)"
    rf"|--(max-count|skip)={_COUNT}|--(format|date|author|committer|grep|since|until)=.*|--decorate=short"
)


@dataclass(frozen=True, kw_only=True)
class _Shape:
    """How a subcommand is called."""

    options: re.Pattern[str]
    """What a caller may give; no option that takes the next word as its value."""
    hardened: tuple[str, ...] = ()
    """Given always: what a repository's configuration could turn on is off."""
    layout: str
    """The words after the options: marks of git, REVISIONS and PATHS."""


def _shape(*options: str, hardened: str = "", layout: str) -> _Shape:
    return _Shape(
        options=re.compile("|".join(options), re.DOTALL), hardened=tuple(hardened.split()), layout=layout
    )


# Git has two readers of arguments. To one of them a `--` after `--end-of-options` is a path of that name.
_HISTORY = "--end-of-options REVISIONS -- PATHS"
_FILES = "-- PATHS"
_TREE = "--end-of-options REVISIONS PATHS"
_OBJECTS = "--end-of-options REVISIONS"
# To blame and rev-parse the mark is one more revision.
_BLAME = "REVISIONS -- PATHS"
_PARSE = "REVISIONS"


# A submodule is a repository of its own, whose configuration was not looked at: git must start nothing in it.
# The option is needed because `submodule.<name>.ignore` beats what the configuration says for all.
_ASIDE = "--ignore-submodules=dirty"
_PLAIN = "--no-ext-diff --no-textconv --submodule=short"

_SHAPES: Mapping[str, _Shape] = {
    "status": _shape(
        r"--(short|branch|porcelain|porcelain=v[12]|ahead-behind|no-ahead-behind|show-stash|no-renames)|-z",
        r"--untracked-files=(no|normal|all)|--ignored=(no|traditional|matching)",
        hardened=_ASIDE,
        layout=_FILES,
    ),
    # Without the index refreshed, which would be a write, only these tell a touched file from a changed one.
    "diff": _shape(
        _DIFFERENCES, _NAMES, r"--(cached|staged|merge-base)", hardened=f"{_PLAIN} {_ASIDE}", layout=_HISTORY
    ),
    "log": _shape(_DIFFERENCES, _NAMES, _COMMITS, hardened=f"{_PLAIN} --no-show-signature", layout=_HISTORY),
    "show": _shape(_DIFFERENCES, _NAMES, _COMMITS, hardened=f"{_PLAIN} --no-show-signature", layout=_HISTORY),
    "blame": _shape(
        rf"--(porcelain|line-porcelain)|-[wMC]|-L{_COUNT},\+?{_COUNT}|-L{_COUNT},?",
        # Git quotes the words of such a file, and an empty setting does not take it back.
        hardened="--no-textconv --no-ignore-revs-file",
        layout=_BLAME,
    ),
    "rev-parse": _shape(
        rf"--(verify|quiet|show-toplevel|show-prefix|is-bare-repository|abbrev-ref|symbolic-full-name)"
        rf"|--path-format=absolute|--git-dir|--git-common-dir|--short(={_COUNT})?",
        layout=_PARSE,
    ),
    "rev-list": _shape(
        rf"--(count|left-right|cherry-pick|no-merges|first-parent)|--max-count={_COUNT}", layout=_HISTORY
    ),
    "ls-files": _shape(
        r"--(cached|deleted|modified|others|stage|unmerged|exclude-standard|full-name)|-z", layout=_FILES
    ),
    "ls-tree": _shape(r"--(long|name-only|full-name)|-[rtdz]", layout=_TREE),
    "cat-file": _shape(r"-[petse]", layout=_OBJECTS),
    "for-each-ref": _shape(
        rf"--(count={_COUNT}|format=.*|sort=[-\w:*]+|points-at=\w+|merged=\w+|no-merged=\w+)",
        layout=_OBJECTS,
    ),
}

SUBCOMMANDS = frozenset(_SHAPES)

_REVISION = re.compile(r"(?![-:])[\w./@^~{}+=#,!%-]+(:(?!/)[^\x00-\x1f\x7f]*)?")
_SEARCHES = "{/"
"""`^{/words}` looks through all history for words that are a regular expression."""


@dataclass(frozen=True, kw_only=True)
class GitQuery:
    """One question to git."""

    subcommand: str
    options: tuple[str, ...] = ()
    """Each in one word, values after `=`."""
    revisions: tuple[str, ...] = ()
    """For `for-each-ref` the beginnings of reference names, for `cat-file` objects."""
    paths: tuple[str, ...] = ()
    """Relative to the folder git runs in, taken letter by letter: no pattern, no `..`."""


def arguments(query: GitQuery) -> tuple[str, ...]:
    """The words that follow `git` and the options of git itself.

    Raises:
        InvalidInput: a word that could do anything but read this repository.
    """
    shape = _SHAPES.get(query.subcommand)
    if shape is None:
        raise InvalidInput(
            f"git {query.subcommand} is not among what is asked of git here: {', '.join(sorted(_SHAPES))}."
        )
    for option in query.options:
        if not shape.options.fullmatch(option) or "\0" in option:
            raise InvalidInput(f"git {query.subcommand} is not run with the option {option!r} here.")
    given = {
        "REVISIONS": tuple(map(revision, query.revisions)),
        "PATHS": tuple(map(_path, query.paths)),
    }
    for kind, words in given.items():
        if words and kind not in shape.layout.split():
            raise InvalidInput(f"git {query.subcommand} takes no {kind.lower()} here.")
    rest = (word for part in shape.layout.split() for word in given.get(part, (part,)))
    return query.subcommand, *shape.hardened, *query.options, *rest


def revision(text: str) -> str:
    """Give `text` back if it can only name a revision, or a file in one.

    Raises:
        InvalidInput: git could take it for an option, or for a search through history.
    """
    name, colon, path = text.partition(":")
    if (
        len(name) > MAX_REVISION
        or not _REVISION.fullmatch(text)
        or _SEARCHES in name
        or (colon and ".." in path.split("/"))
    ):
        raise InvalidInput(
            f"{text!r} is not taken for a revision. Give a branch, a tag, a commit id, a range such as "
            "main..HEAD, or REVISION:PATH; it cannot start with '-' or ':'."
        )
    return text


def _path(path: str) -> str:
    # Given two paths outside of the repository, `git diff` compares any two files there are.
    if not path or path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise InvalidInput(
            f"{path!r} cannot be given to git. Give a path below the folder that git runs in, without '..'."
        )
    return path
