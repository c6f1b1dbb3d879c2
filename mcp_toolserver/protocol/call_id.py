"""The correlation id of a call: the trace context that the client sends, if any."""

import re
from collections.abc import Mapping
from typing import Any

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


def correlation(meta: Mapping[str, Any] | None) -> str:
    """Trace and span of the `traceparent` in a request's `_meta`, in W3C's form; empty if none."""
    given = (meta or {}).get("traceparent")
    found = _TRACEPARENT.fullmatch(given) if isinstance(given, str) else None
    if found is None or any(set(part) == {"0"} for part in found.groups()):
        return ""
    return "-".join(found.groups())
