"""Where the files of clients are on this machine, and on Windows for a server in WSL.

The places on macOS are from the documentation or the source of the clients; none was tried on a Mac.

* Claude Desktop: https://modelcontextprotocol.io/docs/develop/connect-local-servers
* VS Code, and Cline in its `globalStorage`: https://code.visualstudio.com/docs/configure/settings
* Zed, whatever XDG_CONFIG_HOME says: `config_dir` in crates/paths/src/paths.rs of zed-industries/zed
* goose: https://block.github.io/goose/docs/guides/config-files
* opencode: https://opencode.ai/docs/config
* The same on every system: Claude Code (https://code.claude.com/docs/en/mcp), Cursor
  (https://cursor.com/docs/context/mcp), Windsurf (https://docs.windsurf.com/windsurf/cascade/mcp), Codex
  (https://github.com/openai/codex), Gemini CLI (https://github.com/google-gemini/gemini-cli), Qwen Code
  (https://github.com/QwenLM/qwen-code), Cline CLI, Junie.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from mcp_toolserver.commands.setup.clients import Client, Scope
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.runtime.which import find_program
from mcp_toolserver.runtime.windows_paths import find_windows_paths

_SECONDS = 30
"""For Windows to answer; the first program after its start takes some seconds."""
_PRIVATE = ("Desktop", "Documents", "Downloads", "Library/Mobile Documents")
"""What macOS asks for in the home folder; the last is iCloud Drive."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """The folders that the paths in the table of clients are relative to."""

    home: Path
    config: Path
    application: Path
    project: Path
    environ: Mapping[str, str]
    wsl: str = ""
    """The WSL distribution in which a client of Windows starts the server; empty for other clients."""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "Places":
        """Those of this user, in the current folder. Raises: SettingsError: the home folder is unknown."""
        home = Path(environ.get("HOME", ""))
        if not home.is_absolute():
            raise SettingsError("the home folder is unknown: HOME must be an absolute path")
        given = Path(environ.get("XDG_CONFIG_HOME", ""))
        config = given if given.is_absolute() else home / ".config"
        application = home / "Library/Application Support" if sys.platform == "darwin" else config
        return cls(home=home, config=config, application=application, project=Path.cwd(), environ=environ)

    @classmethod
    def of_windows(cls, environ: Mapping[str, str]) -> "Places":
        """Those of the user of Windows, as this distribution of WSL sees them.

        Raises:
            SettingsError: this is not WSL, or Windows does not name its folders.
        """
        windows = find_windows_paths(environ)
        if windows is None:
            raise SettingsError("--windows configures a client of Windows from WSL, and this is not WSL")
        answer = _windows_folders(windows.drives.get("c", "/"), environ)
        found = [Path(folder) for path in answer if (folder := windows.local(path)) is not None]
        if len(found) != 2:
            raise SettingsError(
                f"the folders of the user of Windows are not on a mounted drive: {', '.join(answer)}"
            )
        return replace(cls.of(environ), home=found[0], application=found[1], wsl=windows.distribution)

    @property
    def launcher(self) -> tuple[str, ...]:
        """What comes before the command of the server; nothing for a client on this system."""
        return ("wsl.exe", "--distribution", self.wsl, "--exec") if self.wsl else ()

    def file(self, client: Client, scope: Scope, user: str = "", project: str | None = None) -> Path:
        """The client's file in a scope; `user` and `project` name another one than that of the servers.

        Raises:
            SettingsError: the client has no configuration per project.
        """
        if scope == "project":
            relative = project or client.project
            if relative is None:
                raise SettingsError(f"{client.title} has no configuration per project; use --scope user")
            return self.project / relative
        own = client.macos if sys.platform == "darwin" else None
        pattern, (variable, folder) = user or own or client.user, client.home
        if moved := self.environ.get(variable):
            # Claude Code keeps both ~/.claude.json and ~/.claude/ in the folder of its variable.
            return Path(moved, pattern.removeprefix(folder).lstrip("/").removeprefix(".claude/"))
        text = pattern.format(config=self.config, application=self.application)
        return self.home / text.removeprefix("~/")

    def is_installed(self, client: Client) -> bool:
        """Whether a program of the client is on the PATH, or its folder of configuration exists."""
        path = self.environ.get("PATH", "").split(os.pathsep)
        if find_program(client.programs, path) is not None:
            return True
        folder = self.file(client, "user").parent
        return folder not in (self.home, self.config, self.application) and folder.is_dir()


def _windows_folders(drive: str, environ: Mapping[str, str]) -> list[str]:
    """The home folder of the user of Windows, and that of applications in it."""
    path = [*environ.get("PATH", "").split(os.pathsep), f"{drive}/Windows/System32"]
    program = find_program(("cmd.exe",), path)
    if program is None:
        raise SettingsError("cmd.exe is not on the PATH; it names the folders of the user of Windows")
    command = [program, "/d", "/u", "/c", "echo %USERPROFILE%&echo %APPDATA%"]
    try:
        # In a folder of Linux cmd.exe prints a warning. With /u it answers in UTF-16 for any code page.
        ended = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, cwd=drive, timeout=_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SettingsError(f"Windows did not name the folders of its user: {error}") from None
    return ended.stdout.decode("utf-16-le", errors="replace").split("\r\n")[:2]


def contains(folder: str, path: str) -> bool:
    """Whether `path` or one of its parents is `folder`, by identity.

    On most volumes of macOS, names in other letters or another Unicode form are the same name, so comparing
    the texts is not enough. What does not exist is nowhere.
    """
    resolved = Path(os.path.abspath(path))
    for parent in (resolved, *resolved.parents):
        with suppress(OSError):
            if os.path.samefile(folder, parent):
                return True
    return False


def privacy_notes(title: str, roots: Sequence[str], home: Path) -> Iterator[str]:
    """What to tell the user of the client `title` about the `roots`; nothing on other systems than macOS.

    Since macOS 10.15, a program needs the user's consent for some folders, iCloud Drive, and network and
    removable volumes (https://support.apple.com/guide/security/secddd1d86a6/web). The system asks for the
    application that started it and stores the answer for that
    (https://www.qt.io/blog/the-curious-case-of-the-responsible-process): the client, or the terminal of
    `setup`. A refused operation fails with EPERM (https://developer.apple.com/forums/thread/678819).
    """
    guarded = [
        root
        for root in roots
        # The disk that the system starts from is in /Volumes too, as a link.
        if os.path.realpath(root).startswith("/Volumes/")
        or any(contains(str(home / folder), root) for folder in _PRIVATE)
    ]
    if guarded and sys.platform == "darwin":
        yield (
            f"macOS asks once whether {title} may use {', '.join(guarded)}. After No, the tools get "
            f'"Operation not permitted"; the answer is in System Settings → Privacy & Security → Files and '
            f"Folders → {title}. Now macOS may ask the same for this terminal."
        )
