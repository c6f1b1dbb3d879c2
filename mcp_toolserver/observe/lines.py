"""Log lines as JSON, one object a line: `--log-format json`."""

import json
import logging
import sys
import time


class JsonLines(logging.Formatter):
    """Everything that is logged, as JSON in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record; what is known of a call has names of its own."""
        facts: dict[str, object] | None = getattr(record, "facts", None)
        told: dict[str, object] = {
            "time": _time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage() if facts is None else "call",
            **(facts or {}),
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


def say(text: str, *, as_json: bool) -> None:
    """Tell the operator on standard error, whatever the log level."""
    if as_json:
        told = {"time": _time(time.time()), "level": "info", "logger": "mcp_toolserver", "message": text}
        text = json.dumps(told)
    sys.stderr.write(f"{text}\n")


def _time(seconds: float) -> str:
    milliseconds = int(seconds * 1000)
    return (
        f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(milliseconds // 1000))}.{milliseconds % 1000:03}Z"
    )
