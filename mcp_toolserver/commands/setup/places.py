"""Where the files of clients are on this machine.

The places on macOS are from the documentation or the source of the clients; none was tried on a Mac.

* Claude Desktop, `~/Library/Application Support/Claude`:
  https://modelcontextprotocol.io/docs/develop/connect-local-servers
* VS Code, `~/Library/Application Support/Code/User`: https://code.visualstudio.com/docs/configure/settings.
  The file of Cline lies there in `globalStorage/saoudrizwan.claude-dev/settings`.
* Zed, `~/.config/zed`, on macOS whatever XDG_CONFIG_HOME says: `config_dir` in crates/paths/src/paths.rs of
  zed-industries/zed.
* goose, `~/.config/goose`: https://block.github.io/goose/docs/guides/config-files
* opencode, `~/.config/opencode`: https://opencode.ai/docs/config
* The same on every system: Claude Code (`~/.claude.json`, https://code.claude.com/docs/en/mcp), Cursor
  (`~/.cursor`, https://cursor.com/docs/context/mcp), Windsurf (`~/.codeium/windsurf`,
  https://docs.windsurf.com/windsurf/cascade/mcp), Codex (`~/.codex`, https://github.com/openai/codex),
  Gemini CLI (`~/.gemini`, https://github.com/google-gemini/gemini-cli), Qwen Code (`~/.qwen`,
  https://github.com/QwenLM/qwen-code), Cline CLI (`~/.cline`), Junie (`~/.junie`).
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mcp_toolserver.commands.setup.clients import Client, Scope
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.runtime.which import find_program


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
        """Those of this user, in the current folder.

        Raises:
            SettingsError: the home folder is unknown.
        """
        home = Path(environ.get("HOME", ""))
        if not home.is_absolute():
            raise SettingsError("the home folder is unknown: HOME must be an absolute path")
        given = Path(environ.get("XDG_CONFIG_HOME", ""))
        config = given if given.is_absolute() else home / ".config"
        application = home / "Library/Application Support" if sys.platform == "darwin" else config
        return cls(home=home, config=config, application=application, project=Path.cwd(), environ=environ)

    def file(self, client: Client, scope: Scope, user: str | None = None, project: str | None = None) -> Path:
        """The client's file in a scope; `user` and `project` name another one than that of the servers.

        Raises:
            SettingsError: the client has no configuration per project.
        """
        if scope == "user":
            own = client.macos if sys.platform == "darwin" else None
            return self._user(client, user or own or client.user)
        relative = project or client.project
        if relative is None:
            raise SettingsError(f"{client.title} has no configuration per project; use --scope user")
        return self.project / relative

    def _user(self, client: Client, pattern: str) -> Path:
        if client.home is not None:
            variable, folder = client.home
            value = self.environ.get(variable)
            if value:
                moved = pattern.removeprefix(folder).lstrip("/")
                # Claude Code keeps both ~/.claude.json and ~/.claude/ in the folder of its variable.
                return Path(value) / moved.removeprefix(".claude/")
        text = pattern.format(config=self.config, application=self.application)
        return self.home / text.removeprefix("~/") if text.startswith("~/") else Path(text)

    def is_installed(self, client: Client) -> bool:
        """Whether a program of the client is on the PATH, or its folder of configuration exists."""
        path = self.environ.get("PATH", "").split(os.pathsep)
        if find_program(client.programs, path) is not None:
            return True
        folder = self.file(client, "user").parent
        return folder not in (self.home, self.config, self.application) and folder.is_dir()


def contains(folder: str, path: str) -> bool:
    """Whether `path` or one of its parents is `folder`, by identity.

    On most volumes of macOS, names in other letters or another Unicode form are the same name, so comparing
    the texts is not enough. What does not exist is nowhere.
    """
    resolved = Path(os.path.abspath(path))
    return any(_is_same(folder, str(parent)) for parent in (resolved, *resolved.parents))


def _is_same(folder: str, path: str) -> bool:
    try:
        return os.path.samefile(folder, path)
    except OSError:
        return False
