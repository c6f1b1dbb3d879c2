"""Where the files of clients are on this machine."""

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
            return self._user(client, user or client.user)
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
