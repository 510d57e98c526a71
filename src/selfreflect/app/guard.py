"""What the app asks of requests, the headers of its responses, and how it describes errors."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus

from fastapi.responses import JSONResponse

from selfreflect.errors import SelfReflectError, names_in, worded
from selfreflect.records import Failure
from selfreflect.web.guard import Policy
from selfreflect.web.paths import without_paths

MAX_BODY = 1_000_000
"""Bytes of a request's body."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

log = logging.getLogger("selfreflect.app")


def _refuse(status: HTTPStatus, kind: str, message: str, headers: Mapping[str, str]) -> JSONResponse:
    return JSONResponse({"error": {"code": kind, "message": message, "remedy": ""}}, status, headers)


APP_POLICY = Policy(
    protects=lambda path: path.startswith("/api"),
    refuse=_refuse,
    headers=HEADERS,
    max_body=MAX_BODY,
    token_advice="The token is missing or wrong. Open the address that the app printed when it started.",
    log=log,
)


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
        ("answers.base_url", "summaries.base_url", "base_url"), "--base-url at the start of the app"
    ),
    **dict.fromkeys(("execution.device", "device"), "--device at the start of the app"),
}
"""Where the page, or the command that starts the app, has a setting that a remedy names."""

_AFTER_FAILURES: Mapping[str, str] = {
    "too_long": "Shorten the question or its context.",
    "cut_off": "Ask again with more summary tokens.",
    "unclosed_reasoning": "Ask again with more answer and summary tokens.",
}
"""What to do on the page after a failure of a kind."""

CUT_OFF = "The limit of tokens cut this summary off. Ask again with more summary tokens."


def problem(error: BaseException) -> dict[str, str]:
    """Describe an error by ``code``, ``message`` and ``remedy``; an unexpected one by its code alone."""
    if not isinstance(error, SelfReflectError):
        message = "Something went wrong. See the terminal in which the app was started."
        return {"code": "internal", "message": message, "remedy": ""}
    remedy = error.remedy if _ON_PAGE.keys() >= set(names_in(error.remedy)) else ""
    return {
        "code": error.code,
        "message": without_paths(error.message),
        "remedy": without_paths(worded(remedy, _ON_PAGE.__getitem__)),
    }


def failure_problem(failure: Failure) -> dict[str, str]:
    """Describe a failure of a run as an error."""
    remedy = _AFTER_FAILURES.get(failure.kind, "")
    return {"code": failure.kind, "message": without_paths(failure.message), "remedy": remedy}


def problem_text(described: Mapping[str, str]) -> str:
    """Join the message and the remedy of a problem."""
    message, remedy = described["message"], described["remedy"]
    if not remedy:
        return message
    return f"{message}{'' if message.endswith(('.', '!', '?', '…')) else '.'} {remedy}"
