"""Overrides the configuration of a repository, which anyone may have written.

A repository can name programs in its configuration that everyday commands run. Settings with fixed names are
overridden by `FIXED`. Settings with names that the repository chooses, such as `filter.<any>.clean`, are
looked up first. The configuration can change afterwards; the sandbox around git is the second line of
defence.

This module is imported before the broker forks, so its imports are few.
"""

from collections.abc import Iterator, Mapping, Sequence

from mcp_toolserver.errors import Denied
from mcp_toolserver.runtime.sandbox.broker.policy import Helper

GIT_FOLDER = ".git"

MAX_NAMED = 500
"""Largest number of repository settings that are overridden one by one; real repositories have far fewer."""

FIXED: Mapping[str, str] = {
    # Programs that git would run.
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.pager": "cat",
    "core.editor": "false",
    "sequence.editor": "false",
    "core.askPass": "",
    "core.sshCommand": "false",
    "core.gitProxy": "",
    "core.alternateRefsCommand": "false",
    "credential.helper": "",
    "diff.external": "",
    "interactive.diffFilter": "cat",
    "gpg.program": "false",
    "gpg.openpgp.program": "false",
    "gpg.ssh.program": "false",
    "gpg.ssh.defaultKeyCommand": "",
    "gpg.x509.program": "false",
    "log.showSignature": "false",
    "commit.gpgSign": "false",
    "tag.gpgSign": "false",
    # Access to other repositories.
    "protocol.allow": "never",
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
    "status.submoduleSummary": "false",
    "diff.submodule": "short",
    "diff.ignoreSubmodules": "dirty",
    "safe.bareRepository": "explicit",
    # Copies of what objects say; who can write them decides what git reads, such as the parents of a commit.
    "core.commitGraph": "false",
    "core.multiPackIndex": "false",
    # Files chosen by the repository that git would quote in messages.
    "core.attributesFile": "/dev/null",
    "mailmap.file": "/dev/null",
    # Writing.
    "diff.autoRefreshIndex": "false",
    "rerere.enabled": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    # Output format.
    "color.ui": "false",
    "color.diff": "false",
    "color.status": "false",
    "column.ui": "never",
    "core.quotePath": "true",
}

_ANY_NAME = frozenset({"alias", "pager"})
"""Sections whose every setting is a program."""

_PROGRAMS = frozenset(
    {
        *("clean", "smudge", "process", "textconv", "command", "cmd", "driver", "helper", "program"),
        *("uploadpack", "receivepack"),
    }
)
"""The last part of setting names whose value is a program, in any section."""

_REPLACED = {("merge", "driver"): "false", ("submodule", "update"): "none"}
"""Settings for which an empty value is an error or means the default."""

_SWITCHES = {"required": "false", "cachetextconv": "false"}
"""Flags that make a filter mandatory or write conversion results into the repository."""


NO_SETTINGS: Mapping[str, str] = {}


def parse_config(config: bytes) -> Iterator[tuple[str, str]]:
    """Parse the output of `git config --list -z`."""
    for item in config.decode("utf-8", "surrogateescape").split("\0"):
        if item:
            name, _, value = item.partition("\n")
            yield name, value


def environment(config: bytes = b"", own: Mapping[str, str] = NO_SETTINGS) -> Sequence[tuple[str, str]]:
    """Return environment variables that override the settings in `config` and all others, and set `own`.

    Unlike arguments, variables can name any setting, whatever characters its name contains.

    Raises:
        Denied: the configuration moves the work tree, or names too many programs.
    """
    overriding = {**_overrides(config), **FIXED, **own}
    variables = [("GIT_CONFIG_COUNT", str(len(overriding)))]
    for index, (name, value) in enumerate(overriding.items()):
        variables += [(f"GIT_CONFIG_KEY_{index}", name), (f"GIT_CONFIG_VALUE_{index}", value)]
    return variables


def _overrides(config: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, _ in parse_config(config):
        if name == "core.worktree":
            raise Denied(
                "The configuration of this repository puts its files in another folder (core.worktree), so "
                "git is not run in it. Submodules are set up that way; use the repository that contains it."
            )
        value = _override_for(name)
        if value is not None:
            found[name] = value
    if len(found) > MAX_NAMED:
        raise Denied(
            f"The configuration of this repository names more than {MAX_NAMED} programs, so git is not run "
            "in it. Ask the user to look at it."
        )
    return found


def _override_for(name: str) -> str | None:
    """Return the value that replaces the setting `name`; None to keep it."""
    section, _, rest = name.partition(".")
    last = rest.rpartition(".")[2]
    if (section, last) in _REPLACED:
        return _REPLACED[section, last]
    if section in _ANY_NAME:
        return "cat" if section == "pager" else ""
    return "" if last in _PROGRAMS and "." in rest else _SWITCHES.get(last)


def argv_prefix(git: str) -> tuple[str, ...]:
    """Return the first arguments of every git command; the broker accepts no others."""
    return (git, "--no-pager", "--literal-pathspecs", "--no-optional-locks", "--no-replace-objects")


def helper(git: str) -> Helper:
    """Return the broker rule for git, which may read what a read-only command may read.

    Where the mode permits it, a request can let it write in the `.git` folder of a repository.
    """
    return Helper(argv=argv_prefix(git), reach="system", writes=GIT_FOLDER)
