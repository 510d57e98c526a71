"""What the app asks of requests, the headers of its responses, and how it describes errors."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus

from fastapi.responses import JSONResponse

from selfreflect.app.words import in_app_words
from selfreflect.errors import SelfReflectError
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
    return JSONResponse({"error": {"kind": kind, "message": message}}, status, headers)


APP_POLICY = Policy(
    protects=lambda path: path.startswith("/api"),
    refuse=_refuse,
    headers=HEADERS,
    max_body=MAX_BODY,
    token_advice="The token is missing or wrong. Open the address that the app printed when it started.",
    log=log,
)


def problem(error: BaseException) -> dict[str, str]:
    """Describe an error by ``kind``, ``message`` and, if there are any, ``details``; an unexpected one by its
    kind alone."""
    if isinstance(error, SelfReflectError):
        kind = type(error).__name__.removesuffix("Error").lower()
        message, details = in_app_words(str(error))
        fields = {"kind": kind, "message": without_paths(message)}
        return {**fields, "details": without_paths(details)} if details else fields
    message = "Something went wrong. See the terminal in which the app was started."
    return {"kind": "internal", "message": message}
