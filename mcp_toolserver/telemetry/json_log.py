"""Formats log records as JSON, one object per line, for `--log-format json`."""

import json
import logging
import sys

from mcp_toolserver.text.timestamps import utc


class JsonLines(logging.Formatter):
    """Formats records as JSON in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record; the fields of a call become top-level keys."""
        call_fields: dict[str, object] | None = getattr(record, "facts", None)
        fields: dict[str, object] = {
            "time": utc(int(record.created * 1000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage() if call_fields is None else "call",
            **(call_fields or {}),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def say(text: str, *, as_json: bool) -> None:
    """Print a message to the operator on standard error, whatever the log level."""
    if as_json:
        record = {"name": "mcp_toolserver", "levelname": "INFO", "msg": text}
        text = JsonLines().format(logging.makeLogRecord(record))
    sys.stderr.write(f"{text}\n")
