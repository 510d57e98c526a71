"""Checks every request before the application sees it: the host name, the site it comes from, the token and
the size of the body. Adds security headers to every response.

A page of another site can make a browser send requests here, and can point its own host name at 127.0.0.1
(DNS rebinding). ``Origin`` and ``Sec-Fetch-Site`` expose the first, ``Host`` the second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from selfreflect.text import one_line
from selfreflect.web.access import Access, from_another_site, has_json_or_nothing

MAX_HEAD = 16_384
"""Bytes of a request's line and headers."""

BODY_SECONDS = 30.0
"""Seconds that the body of a request may take."""


CLIENT_CLOSED = 499
"""The status of a request whose client went away, as nginx calls it."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What one server asks of requests, and how it says no."""

    protects: Callable[[str], bool]
    """Whether a path needs the token and a request of no other site."""
    refuse: Callable[[HTTPStatus, str, str, Mapping[str, str]], Response]
    """Makes the response from the status, the kind of refusal, the message and headers."""
    headers: Mapping[str, str]
    """Of every response."""
    max_body: int
    """Bytes of a request's body."""
    token_advice: str
    """What a client reads whose token is missing or wrong."""
    log: logging.Logger


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, access: Access, policy: Policy) -> None:
        self._app = app
        self._access = access
        self._policy = policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"only HTTP is served, not {scope['type']}")
        send = self._finishing(scope, send)
        refusal = self._check(scope["method"], scope["path"], Headers(scope=scope))
        if _head_size(scope) > MAX_HEAD:
            message = f"the head of a request may have at most {MAX_HEAD:,} bytes"
            refusal = self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "too_large", message)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        try:
            await self._app(scope, _limited(receive, self._policy.max_body), send)
        except asyncio.CancelledError:
            self._note(scope, CLIENT_CLOSED)
            raise

    def _check(self, method: str, path: str, headers: Headers) -> Response | None:
        if not self._access.knows(headers.get("host", "")):
            message = "this server is not known by that name; use the address it printed"
            return self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "host", message)
        if not self._policy.protects(path):
            return None
        if from_another_site(headers):
            message = "requests from pages of other sites are refused"
            return self._refuse(HTTPStatus.FORBIDDEN, "origin", message)
        if not self._access.authorises(headers.get("authorization", "")):
            return self._refuse(HTTPStatus.UNAUTHORIZED, "token", self._policy.token_advice)
        if method not in ("GET", "HEAD") and not has_json_or_nothing(headers):
            message = "send the body as application/json"
            return self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "media_type", message)
        return None

    def _refuse(self, status: HTTPStatus, kind: str, message: str) -> Response:
        headers = {"Connection": "close"}
        if status == HTTPStatus.UNAUTHORIZED:
            headers["WWW-Authenticate"] = "Bearer"
        return self._policy.refuse(status, kind, message, headers)

    def _finishing(self, scope: Scope, send: Send) -> Send:
        """Set the headers of every response and log the request."""

        async def finish(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._policy.headers)
                self._note(scope, message["status"])
            await send(message)

        return finish

    def _note(self, scope: Scope, status: int) -> None:
        """Log a request: method, path without its query, status."""
        # what a page fetches by itself would fill the terminal
        is_quiet = scope["method"] == "GET" and (status < 400 or status == CLIENT_CLOSED)
        level = logging.DEBUG if is_quiet else logging.INFO
        self._policy.log.log(level, "%s %s %d", scope["method"], one_line(scope["path"])[:200], status)


def _head_size(scope: Scope) -> int:
    """Bytes of the address and the headers. The server bounds them only while they are incomplete."""
    fields = sum(len(name) + len(value) for name, value in scope["headers"])
    return len(scope["raw_path"]) + len(scope["query_string"]) + fields


def _limited(receive: Receive, max_body: int) -> Receive:
    """Stop reading a body that is too large, whatever length it claims, or that takes too long."""
    total = 0
    over = False
    until = asyncio.get_running_loop().time() + BODY_SECONDS

    async def receive_part() -> Message:
        nonlocal total, over
        if over:  # what is waited for now is the end of the connection
            return await receive()
        try:
            async with asyncio.timeout_at(until):
                message = await receive()
        except TimeoutError:
            detail = f"the body of a request may take at most {BODY_SECONDS:g} seconds"
            raise HTTPException(408, detail, {"Connection": "close"}) from None
        over = not message.get("more_body", False)
        total += len(message.get("body", b""))
        if total > max_body:
            detail = f"the body of a request may have at most {max_body:,} bytes"
            raise HTTPException(413, detail, {"Connection": "close"})
        return message

    return receive_part
