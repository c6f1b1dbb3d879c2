"""An error of this program as a report shows it: type, message, and the places in our code that it passed."""

import json
import os
import traceback
from dataclasses import asdict, dataclass
from typing import Self

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@dataclass(frozen=True, kw_only=True)
class Failure:
    """What is known of an error."""

    error: str
    """The name of its type."""
    message: str
    at: tuple[str, ...]
    """`FILE:LINE FUNCTION`, relative to the package, the outermost first."""

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """Describe `error`, without the code of others and without values."""
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if frame.filename.startswith(f"{_PACKAGE}{os.sep}")]
        places = (f"{os.path.relpath(one.filename, _PACKAGE)}:{one.lineno} {one.name}" for one in own)
        return cls(error=type(error).__name__, message=str(error), at=tuple(places))

    def encode(self) -> bytes:
        """For a pipe; see `decode`."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, packet: bytes) -> Self:
        """The failure that `encode` wrote."""
        found = json.loads(packet)
        return cls(error=found["error"], message=found["message"], at=tuple(found["at"]))
