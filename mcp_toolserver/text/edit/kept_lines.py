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
    old, new = (Counter(map(bytes.strip, content.split(b"\n"))) for content in (before, after))
    return 2 * sum(map(len, (old & new).elements())) < sum(map(len, old.elements()))
