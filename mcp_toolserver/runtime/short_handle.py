"""Handles that a model repeats in its calls: short, because every use of one checks its owner as well."""

import secrets
from collections.abc import Container


def short_handle(prefix: str, taken: Container[str]) -> str:
    """`prefix` with 6 random hexadecimal digits, and none of `taken`."""
    while (handle := prefix + secrets.token_hex(3)) in taken:
        pass
    return handle
