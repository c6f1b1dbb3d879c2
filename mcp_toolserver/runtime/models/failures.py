"""Says why a provider did not answer, in its own words, without the address of the endpoint or a key."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import cast
from urllib.parse import urlsplit

import httpx2
from pydantic_ai import exceptions

from mcp_toolserver.capabilities.model import ConversationTooLong
from mcp_toolserver.errors import TimedOut, ToolError, Unavailable
from mcp_toolserver.runtime.models.model import OPERATOR, ModelOptions
from mcp_toolserver.runtime.web.client import causes
from mcp_toolserver.text.lines.escape_invisible import visible
from mcp_toolserver.text.redact_secrets import REDACTED, redacted

MAX_BYTES = 32 << 20
"""Maximum bytes of one response. A streamed token takes about 300 bytes."""

QUOTED = 300
"""Characters of the provider's reason that are shown."""

_PART_OF_KEY = 6
"""Characters of the key in a row that a shown word may not have."""


class OversizeResponse(httpx2.TransportError):
    """The response is longer than `MAX_BYTES`."""


class ForeignResponse(httpx2.TransportError):
    """The request leads elsewhere, or the response is compressed."""


class IncompleteAnswer(httpx2.TransportError):
    """The stream ended without the mark of its end."""


@dataclass(frozen=True)
class Failure:
    error: ToolError
    may_pass: bool
    """Whether the same request may succeed soon."""
    pause: float | None = None
    """Seconds that the provider asks to wait before."""


_CHECK_NETWORK = "check base-url of [agent] and the network."
_CHECK_URL = "check provider and base-url of [agent]."

_STATUS: Mapping[int, str] = {
    400: f"it does not accept the request. {OPERATOR} check provider, model and base-url of [agent].",
    401: f"check the key. {OPERATOR} look at key-file or key-variable of [agent].",
    403: f"the key may not use this model. {OPERATOR} check the key and model of [agent].",
    404: f"it does not have this model or address. {OPERATOR} check model and base-url of [agent].",
    429: "too many requests. Try again later, with fewer agents at once.",
}

_LATE = (exceptions.ModelTimeoutError, httpx2.TimeoutException)

_KINDS: Sequence[tuple[type[Exception] | tuple[type[Exception], ...], str]] = (
    (OversizeResponse, f"The model's provider answered with more than {MAX_BYTES >> 20} MiB."),
    (ForeignResponse, "The model's provider sent a compressed response, or one from another host."),
    (IncompleteAnswer, "The model's answer ended before it was complete. Try again."),
    (
        exceptions.ModelQuotaExceededError,
        f"The model's provider refuses because the account has no credit left. {OPERATOR} add some.",
    ),
    (_LATE, "The model's provider did not answer in time. Try again later."),
    (exceptions.ModelHTTPError, "The model's provider answered {}: {}"),
    (
        (exceptions.ModelConnectionError, httpx2.TransportError),
        f"The model's provider cannot be reached, or closed the connection. {OPERATOR} {_CHECK_NETWORK}",
    ),
    (
        Exception,
        f"The model's provider answered with something that is no valid response. {OPERATOR} {_CHECK_URL}",
    ),
)
"""What is said of each kind of failure; of several in a chain of causes, the first here counts."""

_TOO_LONG = re.compile(r"(context|prompt).{0,20}(window|length|size|too long)|too many tokens", re.IGNORECASE)
"""How providers word that a conversation is too long where they give no code for it."""


def failure(error: Exception, options: ModelOptions) -> Failure:
    """What `error`, which the libraries or the transport raised, means."""
    chain = tuple(islice(causes(error), 10))
    api = error if isinstance(error, exceptions.ModelAPIError) else None
    status = error.status_code if isinstance(error, exceptions.ModelHTTPError) else 0
    reason = _reason(api.body) if api else ""
    said = quoted(reason, options)
    if (
        isinstance(error, exceptions.ModelContextWindowExceededError)
        or status == 413
        or (status in (0, 400, 422) and _TOO_LONG.search(reason))
    ):
        text = "The conversation is longer than the model can read. Give the agent a smaller task."
        return Failure(ConversationTooLong(text + said), may_pass=False)
    kind, text = next((kind, text) for kind, text in _KINDS if any(isinstance(one, kind) for one in chain))
    if status:
        usual = "it failed. Try again later." if status >= 500 else _STATUS[400]
        text = text.format(status, _STATUS.get(status, usual))
    elif said and kind is Exception:
        text = "The model's provider reported an error while it answered. Try again later."
    pause = api.retry_after if api else None
    if pause and pause >= 1:
        text += f" The provider asks to wait {math.ceil(pause):.10g} s."
    made = (TimedOut if kind is _LATE else Unavailable)(text + said)
    return Failure(made, _may_pass(chain, kind), pause)


_PASSING = (
    *(exceptions.ModelConnectionError, httpx2.TransportError, httpx2.TimeoutException),
    *(exceptions.ModelUnavailableError, exceptions.ModelRateLimitError, exceptions.ModelServerError),
)


def _may_pass(chain: Sequence[BaseException], kind: object) -> bool:
    error = chain[0]
    if kind is OversizeResponse or kind is ForeignResponse or kind is exceptions.ModelQuotaExceededError:
        return False
    if isinstance(error, exceptions.ModelHTTPError):
        status, wanted = error.status_code, (error.headers or {}).get("x-should-retry")
        return wanted == "true" if wanted else status in (408, 409, 429) or status >= 500
    return any(isinstance(one, _PASSING) for one in chain)


def _reason(body: object) -> str:
    """What an error body says: its message, or the type of the error."""
    while isinstance(body, Mapping):
        fields = cast("Mapping[str, object]", body)
        body = next((fields[name] for name in ("error", "message", "detail", "type") if fields.get(name)), "")
    # A page is from something else than the API.
    return body if isinstance(body, str) and not body.lstrip().startswith("<") else ""


def quoted(reason: object, options: ModelOptions) -> str:
    """A sentence with the provider's reason, in which nothing hides; empty without one."""
    if not isinstance(reason, str):
        return ""
    words = _without_address(reason[: 10 * QUOTED], options).split()
    text = str(redacted(" ".join(_without_key(word, options.key) for word in words)))
    text = visible(text if len(text) <= QUOTED else f"{text[:QUOTED]}...")
    return f' It says: "{text}"' if text else ""


_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://\S+", re.IGNORECASE)
_IP = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?(?![\w.]*\d)|\[[0-9a-f:]*:[0-9a-f:]*\](?::\d+)?")
_ADDRESS = "[address]"
_KEY = re.compile(r"[*•]{3}|\w(?:\.{3}|…)\w|^\W*[srp]k[-_]|[A-Za-z0-9_]{32}|[A-Za-z0-9+/]{40}")
"""Words that look like a key, or like parts of one."""


def _without_address(text: str, options: ModelOptions) -> str:
    host, path = re.escape(options.endpoint.host), urlsplit(options.endpoint.url).path
    for pattern in (_URL, _IP, re.compile(rf"(?<![\w.-]){host}(?::\d+)?(?![\w-])", re.IGNORECASE)):
        text = pattern.sub(_ADDRESS, text)
    # That of the usual APIs says nothing.
    return text if path in ("", "/v1") else text.replace(path, _ADDRESS)


def _without_key(word: str, key: str) -> str:
    starts = range(max(len(key) - _PART_OF_KEY, 0) + 1)
    is_key = key and any(key[at : at + _PART_OF_KEY] in word for at in starts)
    return REDACTED if is_key or _KEY.search(word) else word
