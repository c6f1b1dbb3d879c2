"""Validates the request headers that a caller may send."""

import re
from collections.abc import Mapping

_MOST = 32
_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,128}")
_VALUE = re.compile(r"[!-~](?:[ -~\t]*[!-~])?|")
_VALUE_LIMIT = 8_192

_OWN = frozenset(
    {
        *("accept-encoding", "connection", "content-length", "expect", "host", "keep-alive", "te", "trailer"),
        *("transfer-encoding", "upgrade"),
    }
)
"""They belong to the connection, or say where the request goes, which only the address may."""


def sendable(headers: Mapping[str, str]) -> dict[str, str]:
    """Check headers and return them with their names in lower case.

    Raises:
        ValueError: one cannot be sent, or is not for a caller to decide; the text never repeats a value.
    """
    if len(headers) > _MOST:
        raise ValueError(f"at most {_MOST} headers can be sent; leave some out")
    found: dict[str, str] = {}
    for given, value in headers.items():
        name = given.lower()
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{given[:128]!r} is not the name of a header; use ASCII letters, digits and hyphens"
            )
        if name in _OWN or name.startswith("proxy-"):
            raise ValueError(f"the header {name} is set by the server itself; leave it out")
        if name in found:
            raise ValueError(f"the header {name} is given twice; send it once")
        if len(value) > _VALUE_LIMIT or not _VALUE.fullmatch(value):
            raise ValueError(
                f"the value of {name} is too long, or holds what a header cannot: send plain ASCII"
            )
        found[name] = value
    return found


def readable_with(headers: Mapping[str, str]) -> dict[str, str]:
    """Check headers as `sendable` does, for a request that only reads.

    Raises:
        ValueError: as for `sendable`, or a header would turn reading into something else.
    """
    found = sendable(headers)
    for name in found:
        if "method" in name:
            raise ValueError(f"the header {name} could change what the request does; leave it out")
    return found
