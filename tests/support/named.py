"""A real server with named tokens."""

import os
import secrets
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit

from mcp_toolserver.protocol.http.tokens import make_token, token_hash
from tests.support.live import Setup, listening


@dataclass(frozen=True)
class Names:
    """A file of tokens, and the tokens."""

    file: Path
    tokens: dict[str, str]
    """By name."""
    tables: dict[str, dict[str, Any]]

    @contextmanager
    def serving(self, setup: Setup, transport: str = "http") -> Generator[str]:
        with listening(setup, transport, "--tokens", str(self.file)) as url:
            yield url

    def change(self, name: str, **terms: Any) -> None:
        """Change the terms of a name, or revoke it if there are none."""
        if terms:
            self.tables[name] = {**self.tables[name], **terms}
        else:
            del self.tables[name]
        self.save()

    def save(self) -> None:
        self.write(tomlkit.dumps(self.tables))

    def write(self, text: str) -> None:
        """Replace the file, as an editor does."""
        new = self.file.with_name(secrets.token_hex(4))
        new.touch(0o600)
        new.write_text(text, encoding="utf-8")
        owner = self.file.parent.stat()
        os.chown(new, owner.st_uid, owner.st_gid)
        new.replace(self.file)


def file_of_tokens(folder: Path, terms: Mapping[str, Mapping[str, Any]]) -> Names:
    """A file with a token for each name; all may write in the workspace unless `terms` say otherwise."""
    tokens = {name: make_token() for name in terms}
    tables = {
        name: {"sha256": token_hash(tokens[name].encode()), "permission-mode": "workspace-write", **given}
        for name, given in terms.items()
    }
    names = Names(folder / "tokens.toml", tokens, tables)
    names.save()
    return names
