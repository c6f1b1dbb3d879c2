"""Translates the `permissions` of a Claude Code settings file into rules, as its documentation explains them.

What has no counterpart here is an error that names the key: a rule without effect looks like protection.
"""

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.text.file_names import lies_in
from mcp_toolserver.text.json_values import is_list, is_object
from mcp_toolserver.text.search.glob import escaped, literal_prefix

_ALSO_DECIDES = re.compile(
    r"^(?!skip).*(hook|permission|sandbox|autoMode|managed)|^(allow|ask|deny|ignore|defaultMode|additionalDir)",
    re.I,
)
"""Keys outside `permissions` that are about what may happen."""

_KEPT: Mapping[str, tuple[object, ...]] = {
    "disableBypassPermissionsMode": ("disable",),
    "disableAutoMode": ("disable",),
    # Tools write in the roots only. They read there only, too, but commands do not.
    "blockWritesOutsideWorkingDirectories": (True, False),
    "blockReadsOutsideWorkingDirectories": (False,),
    "denyInsteadOfPrompting": (False,),
}
"""Keys with the values that this server keeps."""

_TRANSLATED = frozenset({"deny", "ask", "allow", "defaultMode", "additionalDirectories"})

_READ, _WRITE, _FULL = Permission
_BEYOND = ("capability:fetch", "capability:upstreams")
_MODES = {
    "default": (_READ, _FULL, _BEYOND, ()),
    "manual": (_READ, _FULL, _BEYOND, ()),
    "acceptEdits": (_WRITE, _FULL, _BEYOND, ("capability:fs_write",)),
    "plan": (_READ, _READ, _BEYOND, ()),
    "bypassPermissions": (_FULL, _FULL, (), ()),
}
"""By mode the permission modes of the server that it goes with, from and to; what it asks about besides what
changes something; and what it allows."""

_DOES: Mapping[str, tuple[str, ...]] = {
    "Read": ("capability:fs_read", "capability:search"),
    "Edit": ("edit_file", "write_file", "apply_patch", "NotebookEdit", "capability:fs_write"),
    "Bash": ("bash", "REPL", "PowerShell", "container_shell", "capability:process"),
    "WebFetch": ("WebFetch", "download", "curl", "capability:send"),
}
"""What a rule that denies or asks is about here: all that does the same. It names tools, so that it is more
specific than one that allows, as Claude Code puts asking first."""

_ALLOWED: Mapping[str, tuple[str, ...]] = {
    "Read": (),  # No read in the roots is asked about otherwise.
    "Edit": ("capability:fs_write",),
    "Bash": ("capability:process",),
    "WebFetch": ("capability:fetch",),
}

_ON_PATHS = {
    **dict.fromkeys(("Read", "Glob", "Grep", "LS", "NotebookRead"), "Read"),
    **dict.fromkeys(("Edit", "Write", "MultiEdit", "NotebookEdit"), "Edit"),
}
_NAMES, _SHELLS = ("Agent", "Task", "Skill"), ("Bash", "PowerShell")

_RULE = re.compile(r"(?P<tool>[\w*-]+)(?:\((?P<pattern>.*)\))?", re.DOTALL)
_SERVER = re.compile(r"^(mcp__[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*)__\*$")
_ARGUMENT = re.compile(
    r"\s*(\w+_(path|type|all|background)|description|isolation|limit|model|offset|timeout)\s*:[^*]"
)


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What the paths of a settings file start from: absolute paths without links."""

    file: str
    home: str
    roots: tuple[str, ...]
    """At least one: the first stands for the folder in which Claude Code starts."""
    ceiling: Permission
    resolve: Callable[[str], str]
    """Follows links."""

    def source(self) -> str:
        """The folder that `/path` starts from: the project of a file in `.claude`, or else that of the file.

        Raises:
            ValueError: nothing that tools reach lies there.
        """
        folder, name = posixpath.split(self.file)
        above, last = posixpath.split(folder)
        if last == ".claude" and above != self.home:
            folder = self.roots[0] if name == "settings.local.json" else above
        is_near = any(lies_in(root, folder) or lies_in(folder, root) for root in self.roots)
        if not is_near and folder != f"{self.home}/.claude":
            raise ValueError(f"/ is the folder of the file, {folder}, apart from the roots; write ./ or //")
        return folder


def translate(
    content: Mapping[str, object], around: Surroundings
) -> tuple[Mapping[str, Mapping[str, str]], Permission]:
    """The deny, ask and allow rules for a settings file, each with what it is for, and what runs unasked.

    Raises:
        SettingsError: something in the file cannot be kept.
    """
    permissions = content["permissions"]
    if not is_object(permissions):
        raise SettingsError("permissions must be an object")
    given = {key: value for key, value in permissions.items() if value is not None}
    _check(given, content, around)
    name = given.get("defaultMode", "default")
    low, high, asks, allows = _MODES.get(str(name), (_FULL, _READ, (), ()))
    if low > high or (low is _FULL and "disableBypassPermissionsMode" in given):
        raise _unkept("permissions.defaultMode", name)
    if not low <= around.ceiling <= high:
        wanted = low if around.ceiling < low else high
        raise _unkept("permissions.defaultMode", name, f"it goes with --permission-mode {wanted.flag}")
    rules = {key: _rules(given, key, around) for key in ("deny", "ask", "allow")}
    rules["ask"] |= dict.fromkeys(asks, f"defaultMode {name}")
    rules["allow"] |= dict.fromkeys(allows, f"defaultMode {name}")
    return rules, _FULL if low is _FULL else _READ


def _check(given: Mapping[str, object], content: Mapping[str, object], around: Surroundings) -> None:
    """Raises: SettingsError: a key cannot be kept, or a folder is in no root."""
    for key, value in given.items():
        if key not in _TRANSLATED and value not in _KEPT.get(key, ()):
            raise _unkept(f"permissions.{key}", value)
    for key, value in content.items():
        if value and key != "permissions" and _ALSO_DECIDES.search(key):
            raise _unkept(key, value)
    for folder in _texts(given, "additionalDirectories"):
        path = around.resolve(posixpath.join(around.roots[0], re.sub("^~(?=/|$)", around.home, folder)))
        if not any(lies_in(root, path) for root in around.roots):
            raise _unkept("permissions.additionalDirectories", folder, f"it is in no root; add --root {path}")


def _unkept(key: str, value: object, why: str = "this server cannot keep that") -> SettingsError:
    return SettingsError(f"{key}, {str(value)[:200]!r}: {why}")


def _texts(given: Mapping[str, object], key: str) -> list[str]:
    value = given.get(key, [])
    if not is_list(value) or not all(isinstance(one, str) for one in value):
        raise _unkept(f"permissions.{key}", value, "it must be a list of texts")
    return [str(one) for one in value]


def _rules(given: Mapping[str, object], key: str, around: Surroundings) -> dict[str, str]:
    """The rules for those of a list, each with the one that it is for."""
    rules: dict[str, str] = {}
    for text in _texts(given, key):
        try:
            found = _RULE.fullmatch(text.strip())
            if found is None:
                raise ValueError("it is not of the form Tool or Tool(pattern)")
            made = _translated(found["tool"], found["pattern"] or "*", around, allows=key == "allow")
        except ValueError as error:
            raise _unkept(f"permissions.{key}", text, str(error)) from None
        rules |= dict.fromkeys(made, text)
    return rules


def _translated(tool: str, pattern: str, around: Surroundings, *, allows: bool) -> Sequence[str]:
    """The rules for one of Claude Code's. Raises: ValueError: there are none."""
    tool = _SERVER.sub(r"\1", tool)
    is_path = pattern != "*" and tool in _ON_PATHS
    is_skipped = ("*" in tool and not re.match("mcp__[^*]+__", tool)) or (is_path and tool not in _DOES)
    if allows and is_skipped:
        # By Claude Code too, which looks at paths of Read and Edit only.
        return ()
    if "*" in tool and (tool, pattern) != ("*", "*"):
        raise ValueError("it names tools by a wildcard; name each of them")
    tool = _ON_PATHS[tool] if is_path else tool
    names = (_ALLOWED if allows else _DOES).get(tool, (tool,))
    if pattern == "*":
        # The mode asks about the capability.
        return (tool,) if allows and tool == "WebFetch" else names
    if _ARGUMENT.match(pattern):
        raise ValueError("rules here are about paths, commands and hosts, not about one argument")
    if is_path:
        patterns = _globs(pattern, around, allows=allows)
    elif tool in (*_NAMES, *_SHELLS):
        patterns = (re.sub(r"(?<=\S)[ :]\*$", ":*" if tool in _SHELLS else "", pattern),)
    elif tool == "WebFetch" and pattern.startswith("domain:"):
        patterns = (pattern,)
    else:
        raise ValueError("no such pattern is known for this tool")
    return [f"{name}({one})" for one in patterns for name in names]


def _globs(pattern: str, around: Surroundings, *, allows: bool) -> tuple[str, ...]:
    """The globs for a pattern as in `.gitignore`, with Claude Code's beginnings.

    Unless it allows, a folder stands for what lies in it, and a single name for all of that name.
    """
    if pattern.startswith("!"):
        raise ValueError("it begins with !, and no rule takes another back")
    begin = next((one for one in ("//", "~/", "/", "./") if pattern.startswith(one)), "")
    below = re.sub("([{}])", r"\\\1", pattern.removeprefix(begin))
    folder = {"//": "/", "~/": around.home}.get(begin) or (
        around.source() if begin == "/" else around.roots[0]
    )
    while below.startswith("../"):
        begin, folder, below = "./", posixpath.dirname(folder), below[3:]
    if not allows or below.endswith("/"):
        below = f"{below.removesuffix('/**').rstrip('/')}/**"
    if begin == "//" and below.startswith("**/"):
        # As in the roots, where commands can be kept from it.
        return (below,)
    name = pattern.rstrip("/") if allows else below.removesuffix("/**")
    if not begin and "/" not in name:
        below = f"**/{below}"
    literal = literal_prefix(below)
    start = posixpath.join(folder, literal).rstrip("/") or "/"
    rest = below[len(literal) :].lstrip("/")
    starts = dict.fromkeys((start, around.resolve(start)))
    return tuple(f"{escaped(one).rstrip('/')}/{rest}".rstrip("/") for one in starts)
