"""Formats times."""

import time


def utc(milliseconds: int) -> str:
    """Format milliseconds since 1970 as ISO 8601, in UTC."""
    seconds, fraction = divmod(milliseconds, 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{fraction:03}Z"
