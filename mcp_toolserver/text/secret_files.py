"""Recognises files that hold credentials, by name or by the formats of common keys."""

import re

from mcp_toolserver.text.redact_secrets import has_key

_NAMES = re.compile(
    r"\.env(?:\.(?!example$|sample$|template$|dist$).*)?|.*\.env|id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?"
    r"|.*\.(?:pem|key|p12|pfx|jks|keystore|kdbx|ppk)|[._]netrc|\.npmrc|\.yarnrc\.yml|\.pypirc|\.pgpass"
    r"|\.my\.cnf|\.htpasswd|\.git-credentials|credentials(?:\.(?:json|toml|ya?ml|db))?"
    r"|(?:client_)?secrets?\.(?:json|toml|ya?ml)|service[_-]account.*\.json",
    re.IGNORECASE,
)

_BYTES = 64 * 1024
"""How much of a content is searched for keys: files that hold credentials are small."""


def is_secret_file(name: str, content: bytes) -> bool:
    """Whether a file called `name` seems to hold credentials."""
    return _NAMES.fullmatch(name) is not None or has_key(content[:_BYTES].decode("latin-1"))
