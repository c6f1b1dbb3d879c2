"""Blanks secrets in values before they are logged, and recognises files that hold credentials. Every pattern
takes time linear in the text.

It matches names that secrets commonly have and the formats of common keys; other secrets stay. The result is
safe to store for its owner, not to publish.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache

from pydantic import JsonValue

REDACTED = "[redacted]"

_CHARACTERS = 2_000
"""Most secrets blanked in one text; the rest are counted."""

_NAMES = (
    r"pass(?:word|wd|phrase|code)|secret|token|credentials?|authorization|cookie|api[_-]?key|access[_-]?key"
    r"|private[_-]?key|signing[_-]?key|encryption[_-]?key|session[_-]?key|connection[_-]?string"
)

_SECRETS: Mapping[str, Sequence[str]] = {
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|\Z)": [
        "-----B"
    ],
    r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}": ["AKIA", "ASIA"],
    r"(?<![A-Za-z0-9])gh[pousr]_[A-Za-z0-9]{16,}": ["ghp_", "gho_", "ghu_", "ghs_", "ghr_"],
    r"(?<![A-Za-z0-9])github_pat_[A-Za-z0-9_]{16,}": ["github_pat_"],
    r"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{16,}": ["glpat-"],
    r"(?<![A-Za-z0-9])[srp]k[-_][A-Za-z0-9_-]{16,}": ["k-", "k_"],
    r"(?<![A-Za-z0-9])xox[a-z]-[A-Za-z0-9-]{10,}": ["xox"],
    r"(?<![A-Za-z0-9])xapp-[A-Za-z0-9-]{10,}": ["xapp-"],
    r"(?<![A-Za-z0-9])npm_[A-Za-z0-9]{16,}": ["npm_"],
    r"(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{30,}": ["AIza"],
    r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?": ["eyJ"],
}
"""Pattern of a secret → texts of which every match contains one. They are found faster than the pattern."""

_MARKS = (
    r"((?i:\b(?:bearer|basic)[ \t]{1,8}))[A-Za-z0-9._~+/=-]{6,}",
    r"(://[^\s/:@]{0,128}:)[^\s/@]{1,256}(?=@)",
    rf"((?i:(?:{_NAMES})[\"']?[ \t]{{0,8}}[:=][ \t]{{0,8}}(?:bearer |basic )?[\"']?))[^\s\"'&;,]+",
    rf"((?i:--?(?:[a-z0-9]{{1,20}}-){{0,3}}(?:{_NAMES})[ \t]{{1,8}}[\"']?))[^\s\"'&;,]+",
)
"""A secret after a mark, which is the group."""


_SECRET_FILES = re.compile(
    r"\.env(?:\.(?!example$|sample$|template$|dist$).*)?|.*\.env|id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?"
    r"|.*\.(?:pem|key|p12|pfx|jks|keystore|kdbx|ppk)|[._]netrc|\.npmrc|\.yarnrc\.yml|\.pypirc|\.pgpass"
    r"|\.my\.cnf|\.htpasswd|\.git-credentials|credentials(?:\.(?:json|toml|ya?ml|db))?"
    r"|(?:client_)?secrets?\.(?:json|toml|ya?ml)|service[_-]account.*\.json",
    re.IGNORECASE,
)

_FILE_BYTES = 64 * 1024
"""How much of a content is searched for keys: files that hold credentials are small."""


def redacted(value: JsonValue) -> JsonValue:
    """Blank what looks like a secret in `value`, and cut long texts."""
    match value:
        case str():
            text = _without_secrets(value)
            left = len(text) - _CHARACTERS
            return f"{text[:_CHARACTERS]}[{left} more characters]" if left > 0 else text
        case list():
            return [redacted(item) for item in value]
        case dict():
            secret = _pattern(f"(?i){_NAMES}").search
            return {name: REDACTED if secret(name) else redacted(item) for name, item in value.items()}
        case _:
            return value


def is_secret_file(name: str, content: bytes) -> bool:
    """Whether a file called `name` seems to hold credentials, by its name or by the format of a key."""
    if _SECRET_FILES.fullmatch(name):
        return True
    text = content[:_FILE_BYTES].decode("latin-1")
    for source, literals in _SECRETS.items():
        for literal in literals:
            if literal in text and _pattern(source).search(text):
                return True
    return False


def _without_secrets(text: str) -> str:
    for source in _SECRETS:
        text = _pattern(source).sub(REDACTED, text)
    for source in _MARKS:
        text = _pattern(source).sub(rf"\1{REDACTED}", text)
    return text


@cache
def _pattern(source: str) -> re.Pattern[str]:
    return re.compile(source, re.DOTALL)
