"""Refuses allowed calls that run a command which is catastrophic in any workspace.

This is a safety net against accidents, not a security boundary: a command can hide what it does from any
check of its text. The boundary is the permission mode. `sudo`, `su` and `doas` are judged by what they run:
the sandbox takes their effect away, and in danger-full-access the operator granted it.
"""

import posixpath
import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from itertools import pairwise

from mcp_toolserver.text.shell.script import FIND_ACTIONS, SHELLS, SimpleCommand, simple_commands

_HOME = re.compile(r"(?:~[\w-]*|\$HOME|\$\{HOME[^}]*\})(?=/|$)")
_SYSTEM = (
    *("Applications", "Library", "System", "Users", "Volumes", "bin", "boot", "dev", "etc", "home", "lib"),
    *("lib32", "lib64", "opt", "private", "proc", "root", "run", "sbin", "srv", "sys", "usr", "var"),
)
_DISK = re.compile(r"/dev/(r?disk\d|[shv]d[a-z]|xvd|nvme|mmcblk|mapper/|dm-|md\d|loop\d|k?mem$|port$|\*)")
_PARTITIONS = re.compile(
    r"mkfs(\..+)?|newfs(_.+)?|mke2fs|mkswap|wipefs|[cs]?fdisk|s?gdisk|parted|gpt|diskutil"
)
_LISTS = {"-l", "--list", "-n", "--no-act", "-V", "--version", "--help", "print", "show"}
_ERASES = re.compile(r"erase|partitionDisk|reformat|secureErase|zeroDisk|randomDisk|delete", re.IGNORECASE)
_STOPPING = re.compile(r"systemctl|init|telinit|(?i:shutdown|reboot|halt|poweroff|(?:stop|restart)-computer)")
_STATES = {"poweroff", "reboot", "halt", "kexec", "emergency", "rescue", "0", "6"}
_ANY = re.compile(r"(?s:.*)")
_ASKS = {"-c", "--help", "--version"}
_SELECTS = re.compile(r"-(i?(name|path|wholename|regex|lname)|empty|inum|samefile)")
_INTERPRETERS = re.compile(rf"\.|source|node|perl|php|python[\d.]*|ruby|{'|'.join(SHELLS)}")
_TAKES_PROGRAM = re.compile(r"-\w*[cen]\w*|-m\S*|-p\w*|--eval")
"""Options with which an interpreter takes its program from its arguments, and its input as data."""


def _covers(path: str, *, homes: bool = True) -> bool:
    """Whether the path is the root, a folder of the system or a home folder, or everything in one of them."""
    absolute = _HOME.sub("/root", path)
    if not absolute.startswith("/") or (absolute != path and not homes):
        return False
    parts = [part for part in posixpath.normpath(absolute).split("/") if part]
    while parts and not re.search(r"\w", parts[-1]):
        # `*`, `.*` and the like.
        parts.pop()
    if len(parts) == 2 and parts[0] in ("home", "Users"):
        return homes
    pattern = re.sub(r"\{.*", "*", parts[0]) if parts else ""
    return not parts or (len(parts) == 1 and any(fnmatchcase(name, pattern) for name in _SYSTEM))


def _is_recursive(words: Iterable[str]) -> bool:
    return any(re.match(r"-[a-zA-Z]*[rR]|--r", word) for word in words)


def _removes(command: SimpleCommand) -> bool:
    words = command.arguments
    if command.name != "find":
        return "--no-preserve-root" in words or (_is_recursive(words) and any(map(_covers, words)))
    programs = {program.rpartition("/")[2] for action, program in pairwise(words) if action in FIND_ACTIONS}
    removes = "-delete" in words or bool(programs & {"rm", "shred", "unlink"})
    starts = next((at for at, word in enumerate(words) if word[:1] in ("-", "(", "!")), len(words))
    homes = not any(map(_SELECTS.fullmatch, words))
    return removes and any(_covers(word, homes=homes) for word in words[:starts])


def _changes_rights(command: SimpleCommand) -> bool:
    words = command.arguments
    return _is_recursive(words) and any(_covers(word, homes=False) for word in words)


def _formats(command: SimpleCommand) -> bool:
    words = command.arguments
    if command.name == "gpt":
        return command.operand in ("add", "create", "destroy", "migrate", "remove")
    if command.name == "diskutil":
        return any(map(_ERASES.match, words[:2]))
    return bool(words) and not _LISTS & {*words}


def _overwrites(command: SimpleCommand) -> bool:
    words, written = command.arguments, command.targets
    if command.name in ("cp", "dd", "mv", "shred", "tee"):
        written = (*written, *(words[-1:] if command.name in ("cp", "mv") else words))
    paths = [path.removeprefix("of=") for path in written if not path.startswith("if=")] if written else []
    return any(map(_DISK.match, map(posixpath.normpath, paths)))


def _stops(command: SimpleCommand) -> bool:
    if command.name in ("systemctl", "init", "telinit"):
        return command.operand in _STATES
    return not _ASKS & {*command.arguments}


def _kills(command: SimpleCommand) -> bool:
    return command.arguments == ("-1",) or "-1" in command.arguments[1:]


def _runs_downloads(command: SimpleCommand) -> bool:
    words, operand = command.words, command.operand
    if words and words[0].startswith(("$(", "`")):
        return _downloads(command.substituted)
    if not _INTERPRETERS.fullmatch(command.name):
        return False
    if (not operand or operand.startswith(("<(", "$(", "`"))) and _downloads(command.substituted):
        return True
    reads_input = operand in ("", "/dev/stdin") or {"-", "-s"} & {*words}
    return bool(reads_input) and not any(map(_TAKES_PROGRAM.fullmatch, words)) and _downloads(command.feeding)


def _downloads(commands: Iterable[SimpleCommand]) -> bool:
    return any(one.name in ("curl", "wget", "fetch", "aria2c") for one in commands)


def _multiplies(command: SimpleCommand) -> bool:
    return command.is_function and any(one.words == command.words for one in command.feeding)


_CATASTROPHES: tuple[tuple[re.Pattern[str], Callable[[SimpleCommand], bool], str], ...] = (
    (re.compile(r"find|(?i:rm|remove-item)"), _removes, "removes a whole system or home folder"),
    (re.compile(r"chmod|chown|chgrp"), _changes_rights, "changes the rights to whole folders of the system"),
    (_PARTITIONS, _formats, "erases or partitions a disk"),
    (_ANY, _overwrites, "writes straight to a disk"),
    (_STOPPING, _stops, "stops the machine"),
    (re.compile("kill"), _kills, "kills every process"),
    (_ANY, _runs_downloads, "runs what it downloads, which nobody has seen"),
    (_ANY, _multiplies, "starts itself without end"),
)
"""The names of the commands that may be catastrophic, which of them are, and why."""


def objection(script: str) -> str | None:
    """Why the script of a call must not run, or None."""
    for command in simple_commands(script):
        for names, applies, what in _CATASTROPHES:
            if names.fullmatch(command.name) and applies(command):
                return (
                    f"`{' '.join(command.words)[:80]}` {what}; the safety check stopped the call, nothing "
                    "was run. Do not retry it; take a narrower step."
                )
    return None
