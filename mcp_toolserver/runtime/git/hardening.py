"""What git is told to take in place of a repository's configuration, which anybody may have written.

A repository can name programs in its configuration, and have them run by everyday commands. What has a
fixed name is switched off by name. What a repository names itself, such as `filter.<any>.clean`, has to be
looked up first. A configuration can change after that; the walls around the program are the second line.
"""

from collections.abc import Iterator, Mapping, Sequence

from mcp_toolserver.errors import Denied

MAX_NAMED = 500
"""Settings of a repository that are overridden one by one; nobody has that many."""

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
    # Other repositories, near and far.
    "protocol.allow": "never",
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
    "status.submoduleSummary": "false",
    "diff.submodule": "short",
    "diff.ignoreSubmodules": "dirty",
    "safe.bareRepository": "explicit",
    # Files of the repository's choice that git would quote in its complaints.
    "core.attributesFile": "/dev/null",
    "mailmap.file": "/dev/null",
    # Writing.
    "diff.autoRefreshIndex": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    # Looks.
    "color.ui": "false",
    "color.diff": "false",
    "color.status": "false",
    "column.ui": "never",
    "core.quotePath": "true",
}

_ANY_NAME = frozenset({"alias", "pager"})
"""Sections in which every setting is a program."""

_PROGRAMS = frozenset(
    {
        *("clean", "smudge", "process", "textconv", "command", "cmd", "driver", "helper", "program"),
        *("uploadpack", "receivepack"),
    }
)
"""What a setting that names a program is called, in whatever section."""

_REPLACED = {("merge", "driver"): "false", ("submodule", "update"): "none"}
"""Where nothing is an error, or the default."""

_SWITCHES = {"required": "false", "cachetextconv": "false"}
"""A filter that must run, and a conversion that writes its result into the repository."""


def settings(listing: bytes) -> Iterator[tuple[str, str]]:
    """The settings that `git config --list -z` printed."""
    for item in listing.decode("utf-8", "surrogateescape").split("\0"):
        if item:
            name, _, value = item.partition("\n")
            yield name, value


def environment(listing: bytes = b"") -> Sequence[tuple[str, str]]:
    """The variables that make git take our settings before those in `listing`, and before any other.

    Unlike arguments they can name any setting, whatever signs are in its name.

    Raises:
        Denied: the configuration moves the work tree, or is built to overwhelm.
    """
    overriding = {**_named(listing), **FIXED}
    variables = [("GIT_CONFIG_COUNT", str(len(overriding)))]
    for index, (name, value) in enumerate(overriding.items()):
        variables += [(f"GIT_CONFIG_KEY_{index}", name), (f"GIT_CONFIG_VALUE_{index}", value)]
    return variables


def _named(listing: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, _ in settings(listing):
        if name == "core.worktree":
            raise Denied(
                "The configuration of this repository puts its files in another folder (core.worktree), so "
                "git is not run in it. Submodules are made that way; use the repository that holds it."
            )
        value = _harmless(name)
        if value is not None:
            found[name] = value
    if len(found) > MAX_NAMED:
        raise Denied(
            f"The configuration of this repository names more than {MAX_NAMED} programs, so git is not run "
            "in it. Ask the user to look at it."
        )
    return found


def _harmless(name: str) -> str | None:
    """What the setting `name` is replaced by; None lets it be."""
    section, _, rest = name.partition(".")
    last = rest.rpartition(".")[2]
    if (section, last) in _REPLACED:
        return _REPLACED[section, last]
    if section in _ANY_NAME:
        return "cat" if section == "pager" else ""
    return "" if last in _PROGRAMS and "." in rest else _SWITCHES.get(last)
