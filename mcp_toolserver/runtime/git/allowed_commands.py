"""The allow list of git commands: subcommands that read or change, each with a fixed set of options.

A revision or path chosen by a model never stands where git would read an option, and options that are not on
the list are refused. A tool that forgets a check gets an error instead of running a program.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mcp_toolserver.errors import InvalidInput

MAX_REVISION = 256
_COUNT = r"\d{1,6}"

_DIFFERENCES = (
    r"-z|-w|-b|--(stat|numstat|shortstat|patch|no-patch|no-renames|find-renames|find-copies|minimal|patience"
    r"|histogram|full-index|no-abbrev|ignore-all-space|ignore-space-change|ignore-blank-lines|word-diff=plain)"
    rf"|--(unified|inter-hunk-context)={_COUNT}|--diff-filter=[A-Za-z]+"
)
_NAMES = r"--(name-only|name-status|raw)"
_COMMITS = (
    r"--(oneline|graph|all|branches|tags|remotes|merges|no-merges|first-parent|reverse|abbrev-commit|follow"
    r"|parents|left-right|cherry-pick|topo-order|date-order|regexp-ignore-case|fixed-strings|no-decorate)"
    rf"|--(max-count|skip)={_COUNT}|--(format|date|author|committer|grep|since|until)=.*|--decorate=short"
)


class _Form:
    """The arguments that a subcommand accepts: allowed options, of which none takes the next argument as its
    value; options added to every call, which disable what a repository's configuration could enable; and the
    arguments after them: literal words, REVISIONS and PATHS."""

    def __init__(self, *options: str, hardened: str = "", layout: str) -> None:
        # Without options, a pattern that matches nothing.
        self.options = re.compile("|".join(options) or "(?!)", re.DOTALL)
        self.hardened = tuple(hardened.split())
        self.layout = layout.split()


# Git has two argument parsers. One of them reads a `--` after `--end-of-options` as a path.
_HISTORY = "--end-of-options REVISIONS -- PATHS"
_FILES = "-- PATHS"
_TREE = "--end-of-options REVISIONS PATHS"
_OBJECTS = "--end-of-options REVISIONS"
# For blame and rev-parse, `--end-of-options` would be one more revision.
_BLAME = "REVISIONS -- PATHS"
_PARSE = "REVISIONS"


# A submodule has its own configuration, which was not checked, so git must start nothing in it. The option is
# needed because `submodule.<name>.ignore` takes precedence over the general setting.
_ASIDE = "--ignore-submodules=dirty"
_PLAIN = "--no-ext-diff --no-textconv --submodule=short"

FORMS: Mapping[str, _Form] = {
    "status": _Form(
        r"--(short|branch|porcelain|porcelain=v[12]|ahead-behind|no-ahead-behind|show-stash|no-renames)|-z",
        r"--untracked-files=(no|normal|all)|--ignored=(no|traditional|matching)",
        hardened=_ASIDE,
        layout=_FILES,
    ),
    # Only these compare contents without refreshing the index, which would be a write.
    "diff": _Form(
        _DIFFERENCES, _NAMES, r"--(cached|staged|merge-base)", hardened=f"{_PLAIN} {_ASIDE}", layout=_HISTORY
    ),
    "log": _Form(_DIFFERENCES, _NAMES, _COMMITS, hardened=f"{_PLAIN} --no-show-signature", layout=_HISTORY),
    "show": _Form(_DIFFERENCES, _NAMES, _COMMITS, hardened=f"{_PLAIN} --no-show-signature", layout=_HISTORY),
    "blame": _Form(
        rf"--(porcelain|line-porcelain)|-[wMC]|-L{_COUNT},\+?{_COUNT}|-L{_COUNT},?",
        # Git quotes the contents of such a file, and an empty setting does not disable it.
        hardened="--no-textconv --no-ignore-revs-file",
        layout=_BLAME,
    ),
    "rev-parse": _Form(
        rf"--(verify|quiet|show-toplevel|show-prefix|is-bare-repository|abbrev-ref|symbolic-full-name)"
        rf"|--path-format=absolute|--git-dir|--git-common-dir|--short(={_COUNT})?",
        layout=_PARSE,
    ),
    "rev-list": _Form(
        rf"--(count|left-right|cherry-pick|no-merges|first-parent)|--max-count={_COUNT}", layout=_HISTORY
    ),
    "ls-files": _Form(
        r"--(cached|deleted|modified|others|stage|unmerged|exclude-standard|full-name)|-[tz]", layout=_FILES
    ),
    "ls-tree": _Form(r"--(long|name-only|full-name)|-[rtdz]", layout=_TREE),
    "cat-file": _Form(
        r"-[petse]|--batch|--filters|--path=.*|--(batch-all-objects|unordered|buffer)|--batch-check=.*",
        layout=_OBJECTS,
    ),
    # Of what its input names, and the index.
    "pack-objects": _Form(
        hardened="--revs --stdout --indexed-objects --window=0 --no-use-bitmap-index --delta-base-offset -q",
        layout="",
    ),
    # Of the commits in its input.
    "diff-tree": _Form(
        r"-[rcz]|--(root|raw|no-renames|no-abbrev|no-commit-id)", hardened=f"{_PLAIN} --stdin", layout=""
    ),
    "check-attr": _Form(r"-z|filter|crlf|eol|ident|working-tree-encoding", layout=_FILES),
    "for-each-ref": _Form(
        rf"--(count={_COUNT}|format=.*|sort=[-\w:*]+|(points-at|merged|no-merged|contains)=\w+)",
        layout=_OBJECTS,
    ),
}

_NO_PROGRAMS = "--no-verify --no-post-rewrite --no-gpg-sign"
_FROM_INPUT = "--pathspec-from-file=- --pathspec-file-nul"

CHANGES: Mapping[str, _Form] = {
    "add": _Form(hardened=f"--all {_FROM_INPUT}", layout=""),
    # `--only` leaves what is staged of other files out of the commit, and staged.
    "commit": _Form(
        r"--amend|--no-edit|--message=.+",
        hardened=f"--only --quiet --cleanup=whitespace --no-status {_NO_PROGRAMS} {_FROM_INPUT}",
        layout="",
    ),
    "branch": _Form(hardened="--no-track --quiet", layout=_OBJECTS),
    # `-i` leaves the files of the work tree out of consideration.
    "read-tree": _Form(hardened="-i -m --no-recurse-submodules", layout=_PARSE),
    "update-index": _Form(r"--(refresh|skip-worktree)", hardened="-q", layout=_FILES),
    "update-ref": _Form(r"-d|-m.+", layout=_PARSE),
    "symbolic-ref": _Form(r"-m.+", layout=_PARSE),
    # Without a checkout, it runs no hook. The branch is new, and the folder lies in the `.git` folder.
    "worktree": _Form(
        r"-b\w[\w.-]*",
        hardened="add --quiet --no-checkout --no-track --no-guess-remote",
        layout="-- PATHS REVISIONS",
    ),
    # It writes what is in the index, and nothing in the place of a file that is there.
    "checkout-index": _Form(hardened="--all --quiet", layout=""),
    "write-tree": _Form(layout=""),
    "commit-tree": _Form(r"-p[0-9a-f]+|-m.+", hardened="--no-gpg-sign", layout=_PARSE),
    # It writes objects only. Where a merge driver is configured there is a conflict: they are overridden.
    "merge-tree": _Form(hardened="--write-tree --name-only --no-messages -z", layout=_PARSE),
}

_REVISION = re.compile(r"(?![-:])[\w./@^~{}+=#,!%-]+(:(?!/)[^\x00-\x1f\x7f]*)?")
_HISTORY_SEARCH = "{/"
"""`^{/regex}` searches all history with a regular expression."""


@dataclass(frozen=True)
class GitInvocation:
    subcommand: str
    options: tuple[str, ...] = ()
    """One argument each, with values after `=`."""
    revisions: tuple[str, ...] = ()
    """For `for-each-ref` the prefixes of reference names, for `cat-file` objects."""
    paths: tuple[str, ...] = ()
    """Relative to git's working folder and taken literally: no pattern, no `..`."""
    stdin: bytes = b""


def build_argv(query: GitInvocation, *, changing: bool = False) -> tuple[str, ...]:
    """Return the arguments after git's global options, of a command that reads or one that changes the
    `.git` folder.

    Raises:
        InvalidInput: it could do more than that, or reach out of this repository.
    """
    forms = CHANGES if changing else FORMS
    shape = forms.get(query.subcommand)
    if shape is None:
        raise InvalidInput(
            f"git {query.subcommand} is not one of the allowed subcommands: {', '.join(sorted(forms))}."
        )
    for option in query.options:
        if not shape.options.fullmatch(option) or "\0" in option:
            raise InvalidInput(f"git {query.subcommand} does not accept the option {option!r} here.")
    given = {
        "REVISIONS": tuple(map(check_revision, query.revisions)),
        "PATHS": tuple(map(_check_path, query.paths)),
    }
    for kind, words in given.items():
        if words and kind not in shape.layout:
            raise InvalidInput(f"git {query.subcommand} takes no {kind.lower()} here.")
    rest = (word for part in shape.layout for word in given.get(part, (part,)))
    return query.subcommand, *shape.hardened, *query.options, *rest


def pathspec_input(paths: Sequence[str]) -> bytes:
    """Return the standard input of `add` and `commit`: the paths, relative to git's working folder.

    Raises:
        InvalidInput: a path could lie outside of it.
    """
    return b"".join(os.fsencode(_check_path(path)) + b"\0" for path in paths)


def check_revision(text: str) -> str:
    """Return `text` if it can only name a revision, or a file in one. Git could read other texts as an option
    or as a history search.

    Raises:
        InvalidInput: git could read it as an option or as a history search.
    """
    name, colon, path = text.partition(":")
    if (
        len(name) > MAX_REVISION
        or not _REVISION.fullmatch(text)
        or _HISTORY_SEARCH in name
        or (colon and ".." in path.split("/"))
    ):
        raise InvalidInput(
            f"{text!r} is not accepted as a revision. Use a branch, a tag, a commit id, a range such as "
            "main..HEAD, or REVISION:PATH; it cannot start with '-' or ':'."
        )
    return text


def _check_path(path: str) -> str:
    # With two paths outside the repository, `git diff` compares any two files of the system.
    if not path or path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise InvalidInput(
            f"{path!r} is not accepted as a path. Use a path below git's working folder, without '..'."
        )
    return path
