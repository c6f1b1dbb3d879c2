"""How much of a text stays when another one replaces it."""

from collections import Counter


def drops_most(before: bytes, after: bytes) -> bool:
    """Whether `after` lacks more than half of `before`, measured in bytes of whole lines.

    The order of lines, their line endings and the whitespace around them do not count.
    """
    half = (len(before) + 1) // 2
    if after.startswith(before[:half]) or after.endswith(before[-half:]):
        # The usual case, found without splitting a large file.
        return False
    old, new = _lines(before), _lines(after)
    total = sum(len(line) * count for line, count in old.items())
    kept = sum(len(line) * min(count, new[line]) for line, count in old.items())
    return kept * 2 < total


def _lines(content: bytes) -> Counter[bytes]:
    return Counter(map(bytes.strip, content.split(b"\n")))
