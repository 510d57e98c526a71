"""What the failure of a call to a server means, whether to call again, and how long to wait before."""

from __future__ import annotations

import asyncio
import math
import re
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass

from selfreflect.errors import excerpt
from selfreflect.records import FailureKind

_TOO_LONG = re.compile(
    r"context[ _](?:length|window|size|limit)|maximum context|too many (?:input )?tokens|prompt is too long"
    r"|`inputs` (?:tokens \+ `max_new_tokens` )?must (?:be <=|have less than)",  # text-generation-inference
    re.IGNORECASE,
)
_FILTERED = re.compile(r"content[_ ](?:filter|policy)|responsible ?ai", re.IGNORECASE)


@dataclass(eq=False)
class APIError(Exception):
    """A call that gave nothing usable."""

    message: str
    _: KW_ONLY
    kind: FailureKind = "backend"
    server_text: str = ""
    """The server's own words: untrusted."""
    rejected: bool = False
    """The server found fault with the request itself; another request may succeed."""
    retryable: bool = False
    """The same request may succeed later."""
    wait: float | None = None
    """Seconds that the server asks to wait."""
    fatal: bool = False
    """Every other call would fail in the same way."""

    def __str__(self) -> str:
        return self.message


def status_error(status: int, server_text: str, wait: float | None = None) -> APIError:
    """What an HTTP status means."""
    http = f"HTTP {status}"
    fatal = ""
    if status == 401:
        fatal = "the server does not accept the key"
    elif status == 402 or (status == 429 and "insufficient_quota" in server_text):
        fatal = "the account has no credit left"
    elif status == 404:
        fatal = (
            "the server knows no such model or path; look at --base-url, which mostly ends in /v1, and at "
            "the names that its /models lists"
        )
    if fatal:
        return APIError(f"{fatal} ({http})", server_text=server_text, fatal=True)
    if status in (408, 409, 425, 429) or status >= 500:
        return APIError(http, server_text=server_text, retryable=True, wait=wait)
    if _TOO_LONG.search(server_text):
        return APIError(http, server_text=server_text, kind="too_long")
    if _FILTERED.search(server_text):
        return APIError(http, server_text=server_text, kind="content_filter")
    return APIError(http, server_text=server_text, rejected=status in (400, 422))


def transport_error(exception: BaseException) -> APIError:
    """What an exception of the client means: the APIError inside it, or that no whole response came."""
    chain: list[BaseException] = []
    link: BaseException | None = exception
    while link is not None:
        chain.append(link)
        link = link.__cause__ or link.__context__
    for error in chain:
        if isinstance(error, APIError):
            return error
    if any(isinstance(error, TimeoutError) or "Timeout" in type(error).__name__ for error in chain):
        return APIError("no complete response came in time (see --timeout)", retryable=True)
    for error in chain:
        if isinstance(error, ssl.SSLError):
            reason = getattr(error, "verify_message", "") or error.reason or "the connection broke off"
            message = f"no secure connection: {excerpt(reason, 200)}"
            if isinstance(error, ssl.SSLEOFError):  # an overloaded or restarting server hangs up like that
                return APIError(message, retryable=True)
            return APIError(f"{message}. For a certificate of your own set SSL_CERT_FILE")
    last = chain[-1]
    reason = getattr(last, "strerror", None) or str(last) or type(last).__name__
    return APIError(f"the connection failed: {excerpt(reason, 200)}", retryable=True)


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Exponential backoff with jitter. All times in seconds."""

    tries: int = 10
    first: float = 0.5
    longest: float = 60.0
    longest_asked: float = 300.0
    """Longest wait that a server may ask for; with a longer one the call is given up."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def wait(self, tries: int, minimum: float | None, jitter: float) -> float | None:
        """Seconds before the next try, after ``tries`` that failed; None to give up.

        This is the ``minimum`` that the server asks for, plus between half and all of the doubled wait.
        ``jitter``, in [0, 1), says how much, so that requests refused together do not come back together.
        """
        if tries >= self.tries or (minimum is not None and minimum > self.longest_asked):
            return None
        doubled = min(self.longest, self.first * 2.0 ** min(tries - 1, 60))
        return (minimum or 0.0) + doubled * (0.5 + 0.5 * jitter)


def retry_after(value: str | None) -> float | None:
    """Seconds that a Retry-After header asks to wait; None without it, or if it is no number."""
    try:
        seconds = float(value or "")
    except ValueError:
        return None
    return None if math.isnan(seconds) else max(0.0, seconds)
