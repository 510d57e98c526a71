"""Errors of the endpoint, as clients of OpenAI's API read them."""

from __future__ import annotations

import math
from typing import Any, Literal

from selfreflect.errors import SelfReflectError
from selfreflect.models.base import Refusal
from selfreflect.records import FailureKind
from selfreflect.web.paths import without_paths

ErrorType = Literal[
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "not_found_error",
    "rate_limit_error",
    "upstream_error",
    "server_error",
]


class ChatError(SelfReflectError):
    """A request that gets no completion.

    Args:
        param: the field of the request that is wrong.
        code: what clients tell errors of one type apart by.
        retry_after: seconds until another try makes sense.
    """

    code = ""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: ErrorType = "invalid_request_error",
        param: str | None = None,
        code: str = "",
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.status = status
        self.type = type
        self.param = param
        self.retry_after = retry_after

    @property
    def body(self) -> dict[str, Any]:
        """The JSON that OpenAI's clients expect."""
        fields = {"message": str(self), "type": self.type, "param": self.param, "code": self.code or None}
        return {"error": fields}


_LONGEST_WAIT = 7 * 86_400

RETRY_SECONDS = 5
"""What clients are asked to wait where the server, or the upstream, has too much to do."""

_OF_REQUEST: dict[FailureKind, str] = {
    "too_long": "context_length_exceeded",
    "content_filter": "content_filter",
    "cut_off": "max_tokens_too_small",
    "unclosed_reasoning": "max_tokens_too_small",
}
"""Failures that the same request would meet again, with the code of their error."""


def failed(kind: FailureKind, message: str, refusal: Refusal | None = None) -> ChatError:
    """The error of a question whose answers or summary failed. The others are faults of the upstream.

    Args:
        refusal: what the upstream said, if it was that.
    """
    if kind in _OF_REQUEST:
        return ChatError(400, message, code=_OF_REQUEST[kind])
    if refusal is not None and refusal.status == 429:
        return upstream_busy(message, refusal.wait)
    return ChatError(502, message, type="upstream_error", code=kind)


def upstream_busy(message: str, wait: float | None) -> ChatError:
    """The error of an upstream that has too much to do, and asks to wait so many seconds."""
    seconds = RETRY_SECONDS if wait is None else math.ceil(min(wait, _LONGEST_WAIT))
    return ChatError(429, message, type="rate_limit_error", code="upstream_busy", retry_after=seconds)


def as_chat_error(error: BaseException) -> ChatError:
    """Describe any error to a client: an unexpected one by nothing but its status."""
    if isinstance(error, ChatError):
        return error
    if isinstance(error, SelfReflectError):
        return ChatError(500, without_paths(str(error)), type="server_error")
    return ChatError(500, "something went wrong; see the server's log", type="server_error", code="internal")
