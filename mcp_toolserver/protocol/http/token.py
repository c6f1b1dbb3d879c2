"""What the operator provides before HTTP is served: a token, and its file where others can connect."""

import ipaddress
import os
import secrets
import socket
import stat

from mcp_toolserver.errors import SettingsError

MIN_TOKEN = 16
"""Characters a token must have at least."""

_MAX_TOKEN = 4096


def make_token() -> str:
    """A token that nobody guesses: 256 random bits, fit for a header."""
    return secrets.token_urlsafe(32)


def read_token_file(path: str) -> str:
    """The token in a file, without the white space around it.

    Raises:
        SettingsError: the file is missing, open to others, or holds no usable token. The text never repeats
            its content.
    """
    # Without O_NONBLOCK, opening a FIFO would wait for a writer; Windows has neither.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        raise SettingsError(f"--token-file {path}: cannot be read ({error.strerror}).") from None
    try:
        # The checks are on what was opened; a name can be made to mean something else meanwhile.
        _check_file(path, os.fstat(descriptor).st_mode)
        token = os.read(descriptor, _MAX_TOKEN + 16).strip().decode("latin-1")
    finally:
        os.close(descriptor)
    if not MIN_TOKEN <= len(token) <= _MAX_TOKEN or not all("!" <= character <= "~" for character in token):
        raise SettingsError(
            f"--token-file {path}: must hold one token of at least {MIN_TOKEN} printable ASCII characters, "
            "without spaces."
        )
    return token


def _check_file(path: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise SettingsError(f"--token-file {path}: not a regular file.")
    # The bits mean nothing on Windows, where the folder's access list decides.
    if os.name == "posix" and mode & 0o077:
        raise SettingsError(f"--token-file {path}: other users may read or change it. Run: chmod 600 {path}")


def check_bind(host: str, has_token_file: bool) -> None:
    """Allow a host that other machines can reach only with a token that the operator chose.

    Raises:
        SettingsError: there is no token file, and the host is not a loopback address, or is a name that
            stands for others as well, or for nothing.
    """
    if has_token_file:
        return
    try:
        found = socket.getaddrinfo(host or "0.0.0.0", None, type=socket.SOCK_STREAM)  # noqa: S104  # refused below
    except (OSError, UnicodeError):
        raise SettingsError(f"--host {host}: no such host. Use an address of this machine.") from None
    if not all(ipaddress.ip_address(str(entry[4][0])).is_loopback for entry in found):
        raise SettingsError(
            f"--host {host}: other machines can reach this address, so it needs --token-file FILE or "
            "--tokens FILE. Or serve this machine only, with --host 127.0.0.1."
        )
