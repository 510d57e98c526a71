"""What may go wrong between us and a server: what it means, whether to ask again, and what to do about it."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator

from selfreflect.errors import excerpt
from selfreflect.models.openai.endpoint import KEYS
from selfreflect.records import FailureKind

_TOO_LONG = re.compile(
    r"context[ _](?:length|window|size|limit)|maximum context|too many (?:input )?tokens|prompt is too long"
    r"|`inputs` (?:tokens \+ `max_new_tokens` )?must (?:be <=|have less than)",  # text-generation-inference
    re.IGNORECASE,
)
_FILTERED = re.compile(r"content[_ ](?:filter|policy)|responsible ?ai", re.IGNORECASE)


class APIError(Exception):
    """A call that gave nothing usable."""

    def __init__(
        self,
        message: str,
        *,
        kind: FailureKind = "backend",
        said: str = "",
        refused: bool = False,
        retry: bool = False,
        wait: float | None = None,
        ends: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind
        self.said = said
        """The server's own words, which may hold anything."""
        self.refused = refused
        """Whether the server found fault with the request itself; another one may do."""
        self.retry = retry
        self.wait = wait
        """Seconds that the server asks to wait."""
        self.ends = ends
        """Whether every other call would end in the same way."""


def status_fault(status: int, said: str, wait: float | None = None) -> APIError:
    """What an HTTP status means; ``said`` is the server's own text."""
    http = f"HTTP {status}"
    if status == 401:
        return APIError(
            f"the server does not accept the key; set {' or '.join(KEYS)} in the environment ({http})",
            said=said,
            ends=True,
        )
    if status == 402 or (status == 429 and "insufficient_quota" in said):
        return APIError(f"the account has no credit left ({http})", said=said, ends=True)
    if status == 404:
        advice = "look at --base-url, which mostly ends in /v1, and at the names that its /models lists"
        return APIError(f"the server knows no such model or path; {advice} ({http})", said=said, ends=True)
    if status in (408, 409, 425, 429) or status >= 500:
        return APIError(http, said=said, retry=True, wait=wait)
    if _TOO_LONG.search(said):
        return APIError(http, said=said, kind="too_long")
    if _FILTERED.search(said):
        return APIError(http, said=said, kind="content_filter")
    return APIError(http, said=said, refused=status in (400, 422))


def transport_fault(error: BaseException) -> APIError:
    """What an exception of the client means: the fault inside it, or that no whole response came."""
    chain = list(_chain(error))
    for one in chain:
        if isinstance(one, APIError):
            return one
    if any(isinstance(one, TimeoutError) or "Timeout" in type(one).__name__ for one in chain):
        return APIError("no complete response came in time (see --timeout)", retry=True)
    for one in chain:
        if isinstance(one, ssl.SSLError):
            reason = getattr(one, "verify_message", "") or one.reason or "the connection broke off"
            if isinstance(one, ssl.SSLEOFError):  # a server that is overloaded or restarts hangs up like that
                return APIError(f"no secure connection: {excerpt(reason, 200)}", retry=True)
            return APIError(
                f"no secure connection: {excerpt(reason, 200)}. For a certificate of your own set SSL_CERT_FILE"
            )
    last = chain[-1]
    reason = getattr(last, "strerror", None) or str(last) or type(last).__name__
    return APIError(f"the connection failed: {excerpt(reason, 200)}", retry=True)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and those behind it, the outermost first."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
