"""Lines of a file as an error message shows them: short, in JSON quotes, with what looks alike spelt out.

So is what cannot be seen, in JSON's own escapes: the quotes can be copied into a call as they are.
"""

import json

from mcp_toolserver.text.lines.escape_invisible import is_hidden

LOOKALIKES = {
    **dict.fromkeys(map(ord, "‘’‚‛′ʼ"), "'"),
    **dict.fromkeys(map(ord, "“”„‟″"), '"'),
    **dict.fromkeys(map(ord, "‐‑‒–—―−"), "-"),
    **dict.fromkeys((0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000), " "),
    **dict.fromkeys((0xAD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF), ""),
    ord("…"): "...",
}
"""Characters that people and models take for ASCII, with what they take them for."""

_SPELT_OUT = {character: f"\\u{character:04x}" for character in LOOKALIKES}

_CHARACTERS = 200
_LEAD = 80


def quoted(line: str, place: int) -> str:
    """Quote at most 200 characters of `line` around `place`, as JSON."""
    start = max(0, min(place - _LEAD, len(line) - _CHARACTERS))
    end = start + _CHARACTERS
    text = json.dumps(line[start:end], ensure_ascii=False).translate(_SPELT_OUT)
    spelt = "".join(json.dumps(one)[1:-1] if is_hidden(one) else one for one in text)
    return f"{'…' * (start > 0)}{spelt}{'…' * (end < len(line))}"
