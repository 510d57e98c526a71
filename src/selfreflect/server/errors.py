"""Errors for clients of the app and the endpoint, without local paths."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from selfreflect.errors import SelfReflectError, names_in, worded
from selfreflect.models.base import Refusal
from selfreflect.records import Failure, FailureKind
from selfreflect.text import printable, shorten_paths

# Characters of a message.
_LONGEST = 2000


def without_paths(message: str) -> str:
    """Shorten a message and its paths, and escape control characters."""
    text = printable(shorten_paths(message))
    if len(text) > _LONGEST:
        return text[: _LONGEST - 1] + "…"
    return text


# Where the page, or the command that starts the app, has a setting that a remedy names.
_ON_PAGE = {
    "answers.model": "Model",
    "summaries.model": "Model",
    "scores.judge": "Judge",
    "scores.reader": "“The judge sees the question”",
    "scores.measures": "Measure",
    "answers.num_answers": "Answers per half",
    "answers.temperature": "Temperature",
    "answers.top_p": "Top-p",
    "answers.max_new_tokens": "Answer tokens",
    "answers.seed": "Seed",
    "summaries.strategies": "Strategies",
    "summaries.max_new_tokens": "Summary tokens",
    **dict.fromkeys(
        ("answers.base_url", "summaries.base_url", "base_url"), "the server's address where the app starts"
    ),
    "model": "the model where the app starts",
    **dict.fromkeys(("execution.device", "device"), "the device where the app starts"),
}

# What to do on the page after a failure of a kind.
_AFTER_FAILURES: Mapping[str, str] = {
    "too_long": "Shorten the question or its context.",
    "cut_off": "Ask again with more summary tokens.",
    "unclosed_reasoning": "Ask again with more answer and summary tokens.",
}

CUT_OFF = "The limit of tokens cut this summary off. Ask again with more summary tokens."


def problem(error: BaseException) -> dict[str, str]:
    """Describe an error by ``code``, ``message`` and ``remedy``, or by code alone if unexpected."""
    if not isinstance(error, SelfReflectError):
        message = "Something went wrong. See the terminal in which the app was started."
        return {"code": "internal", "message": message, "remedy": ""}
    # one that names an option of another command helps nobody here
    remedy = error.remedy if _ON_PAGE.keys() >= set(names_in(error.remedy)) else ""
    return {
        "code": error.code,
        "message": without_paths(error.message),
        "remedy": without_paths(worded(remedy, _ON_PAGE.__getitem__)),
    }


def failure_problem(failure: Failure) -> dict[str, str]:
    """Describe a run's failure as an error."""
    remedy = _AFTER_FAILURES.get(failure.kind, "")
    return {"code": failure.kind, "message": without_paths(failure.message), "remedy": remedy}


def problem_text(entry: Mapping[str, str]) -> str:
    """Join a problem's message and remedy."""
    message, remedy = entry["message"], entry["remedy"]
    if not remedy:
        return message
    return f"{message}{'' if message.endswith(('.', '!', '?', '…')) else '.'} {remedy}"


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
    """A request without a completion.

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
        """The error as JSON for OpenAI's clients."""
        fields = {"message": str(self), "type": self.type, "param": self.param, "code": self.code or None}
        return {"error": fields}


_LONGEST_WAIT = 7 * 86_400

RETRY_SECONDS = 5
"""Seconds that clients are asked to wait if the server or upstream is overloaded."""

# Failures that the same request would meet again, with the code of their error.
_OF_REQUEST: dict[FailureKind, str] = {
    "too_long": "context_length_exceeded",
    "content_filter": "content_filter",
    "cut_off": "max_tokens_too_small",
    "unclosed_reasoning": "max_tokens_too_small",
}


REFUSED_FIELD = "unsupported_value"
"""Code for an upstream that refuses a setting that affects its texts."""


def failed(kind: FailureKind, message: str, refusal: Refusal | None = None) -> ChatError:
    """Make the error for a question with failed answers or a failed summary.

    Args:
        refusal: what the upstream said, if it was that.
    """
    # the same request would fail again, so clients must not retry it
    if kind in _OF_REQUEST:
        return ChatError(400, message, code=_OF_REQUEST[kind])
    if refusal is not None and refusal.status == 429:
        return upstream_busy(message, refusal.wait)
    if refusal is not None and refusal.code == "field":
        return ChatError(400, message, code=REFUSED_FIELD)
    return ChatError(502, message, type="upstream_error", code=kind)


def upstream_busy(message: str, wait: float | None) -> ChatError:
    """Make the error for an overloaded upstream."""
    seconds = RETRY_SECONDS if wait is None else math.ceil(min(wait, _LONGEST_WAIT))
    return ChatError(429, message, type="rate_limit_error", code="upstream_busy", retry_after=seconds)


def as_chat_error(error: BaseException) -> ChatError:
    """Describe any error to a client, with only the status if unexpected."""
    if isinstance(error, ChatError):
        return error
    if isinstance(error, SelfReflectError):
        return ChatError(500, without_paths(error.message), type="server_error")
    return ChatError(500, "something went wrong; see the server's log", type="server_error", code="internal")
