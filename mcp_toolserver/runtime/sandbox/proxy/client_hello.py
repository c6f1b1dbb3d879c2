"""Reads the name of the server in the first message of a TLS client (RFC 8446, 4.1.2; RFC 6066, 3)."""

LONGEST = 1 << 16
"""Bytes of the message, with the headers of its records; post-quantum key shares take 2 KiB."""

ACCESS_DENIED = b"\x15\x03\x01\x00\x02\x02\x31"
"""The alert that ends the attempt of a client."""

_HANDSHAKE, _CLIENT_HELLO, _HOST_NAME = b"\x16", b"\x01", b"\x00"
_SERVER_NAME, _ENCRYPTED_HELLO = b"\x00\x00", b"\xfe\x0d"
_VERSION_AND_RANDOM = 2 + 32


def server_name(data: bytes) -> str | None:
    """The name in the ClientHello at the start of `data`, in lower case; empty if it names none; None if the
    message is incomplete.

    Raises:
        ValueError: it is another message, is too long, names several servers, or hides the name (Encrypted
            Client Hello).
    """
    if (message := _message(data)) is None:
        return None
    rest = _field(message[1:], 3)[0][_VERSION_AND_RANDOM:]
    for size in (1, 2, 1):  # session, cipher suites, compression methods
        _, rest = _field(rest, size)
    found: dict[bytes, bytes] = {}
    rest = _field(rest, 2)[0] if rest else b""
    while rest:
        kind = rest[:2]
        content, rest = _field(rest[2:], 2)
        if kind in found or kind == _ENCRYPTED_HELLO:
            raise ValueError("TLS names the server twice, or hides its name (Encrypted Client Hello)")
        found[kind] = content
    if _SERVER_NAME not in found:
        return ""
    names, _ = _field(found[_SERVER_NAME], 2)
    name, more = _field(names[1:], 2)
    if names[:1] != _HOST_NAME or more:
        raise ValueError("TLS names several servers")
    return name.decode("ascii", "replace").lower()


def _message(data: bytes) -> bytes | None:
    """The message in the records at the start of `data`; None if it is incomplete."""
    message, rest = b"", data
    while len(message) < 4 or len(message) < 4 + int.from_bytes(message[1:4], "big"):
        if rest[:1] not in (b"", _HANDSHAKE) or message[:1] not in (b"", _CLIENT_HELLO):
            raise ValueError("it is not TLS")
        if len(data) > LONGEST:
            raise ValueError("the first message of TLS is too long")
        if len(rest) < 5 or len(rest) < 5 + int.from_bytes(rest[3:5], "big"):
            return None
        record, rest = _field(rest[3:], 2)
        message += record
    return message


def _field(data: bytes, size: int) -> tuple[bytes, bytes]:
    """What follows its length, a number of `size` bytes, and what comes after it."""
    end = size + int.from_bytes(data[:size], "big")
    if len(data) < end:
        raise ValueError("the first message of TLS is malformed")
    return data[size:end], data[end:]
