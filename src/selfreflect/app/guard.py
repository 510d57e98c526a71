"""Checks every request before the application sees it: the host name, the site it comes from, the token and
the size of the body. Adds security headers to every response, and keeps this machine's paths out of what
clients are told of errors.

A page of another site can make a browser send requests here, and can point its own host name at 127.0.0.1
(DNS rebinding). ``Origin`` and ``Sec-Fetch-Site`` expose the first, ``Host`` the second.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
from dataclasses import dataclass
from http import HTTPStatus
from secrets import compare_digest

from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from selfreflect.app.words import in_app_words
from selfreflect.errors import SelfReflectError
from selfreflect.render.text import one_line, printable

MAX_BODY = 1_000_000
"""Bytes of a request's body."""

MAX_HEAD = 16_384
"""Bytes of a request's line and headers."""

BODY_SECONDS = 30.0
"""Seconds that the body of a request may take."""

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

LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})

log = logging.getLogger("selfreflect.app")


@dataclass(frozen=True)
class Access:
    """Who may send requests."""

    names: frozenset[str] = LOCAL
    """Host names by which clients may call the server."""
    any_address: bool = False
    """Whether they may also use any IP address. That is safe, because rebinding needs a name."""
    token: str | None = None

    def knows(self, host: str) -> bool:
        """Whether clients may call the server by this ``Host`` header."""
        name = host_name(host)
        return name in self.names or (self.any_address and _is_address(name))

    def authorises(self, header: str) -> bool:
        """Whether this ``Authorization`` header has the token, if one is needed."""
        if self.token is None:
            return True
        scheme, _, token = header.partition(" ")
        same = compare_digest(token.strip().encode("latin-1", "replace"), self.token.encode())
        return scheme.lower() == "bearer" and same


_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:\[\]]+))(?::[0-9]{0,5})?")
"""A name, an IPv4 address or an IPv6 address in brackets, and a port."""


def host_name(host: str) -> str:
    """The name in a ``Host`` header, without the port and the brackets of an IPv6 address; empty if the
    header is malformed."""
    match = _HOST.fullmatch(host)
    return (match[1] or match[2]).lower() if match else ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"only HTTP is served, not {scope['type']}")
        send = _finishing(scope, send)
        refusal = self._check(scope["method"], scope["path"], Headers(scope=scope))
        if _head_size(scope) > MAX_HEAD:
            message = f"the head of a request may have at most {MAX_HEAD:,} bytes"
            refusal = _refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "too_large", message)
        if refusal is not None:
            await refusal(scope, receive, send)
        else:
            await self._app(scope, _limited(receive), send)

    def _check(self, method: str, path: str, headers: Headers) -> JSONResponse | None:
        if not self._access.knows(headers.get("host", "")):
            message = "this server is not known by that name; use the address it printed"
            return _refuse(HTTPStatus.MISDIRECTED_REQUEST, "host", message)
        if not path.startswith("/api"):
            return None
        if _from_another_site(headers):
            return _refuse(HTTPStatus.FORBIDDEN, "origin", "requests from pages of other sites are refused")
        if not self._access.authorises(headers.get("authorization", "")):
            message = "The token is missing or wrong. Open the address that the app printed when it started."
            return _refuse(HTTPStatus.UNAUTHORIZED, "token", message)
        if method not in ("GET", "HEAD") and not _has_json_or_nothing(headers):
            message = "send the body as application/json"
            return _refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "media_type", message)
        return None


def _head_size(scope: Scope) -> int:
    """Bytes of the address and the headers. The server bounds them only while they are incomplete."""
    fields = sum(len(name) + len(value) for name, value in scope["headers"])
    return len(scope["raw_path"]) + len(scope["query_string"]) + fields


def _from_another_site(headers: Headers) -> bool:
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return True
    host = headers["host"].lower()
    return headers.get("origin", f"http://{host}").lower() not in (f"http://{host}", f"https://{host}")


def _has_json_or_nothing(headers: Headers) -> bool:
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        return True
    media_type = headers.get("content-type", "").partition(";")[0]
    return media_type.strip().lower() == "application/json"


def _refuse(status: HTTPStatus, kind: str, message: str) -> JSONResponse:
    headers = {"Connection": "close"}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse({"error": {"kind": kind, "message": message}}, status, headers)


def _limited(receive: Receive) -> Receive:
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
        if total > MAX_BODY:
            detail = f"the body of a request may have at most {MAX_BODY:,} bytes"
            raise HTTPException(413, detail, {"Connection": "close"})
        return message

    return receive_part


def _finishing(scope: Scope, send: Send) -> Send:
    """Set the security headers of every response and log the request: method, path without its query,
    status."""

    async def finish(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(HEADERS)
            path = one_line(scope["path"])[:200]
            # what the page fetches by itself would fill the terminal
            level = logging.DEBUG if scope["method"] == "GET" and message["status"] < 400 else logging.INFO
            log.log(level, "%s %s %d", scope["method"], path, message["status"])
        await send(message)

    return finish


_START = (
    r"(?:file:[/\\]+|~(?:[A-Za-z_][\w.-]{0,63})?[/\\]+|[A-Za-z]:[/\\]+"
    r"|\.{1,2}[/\\]+|/+|\\{2,}|\\(?=[\w.$-]+\\))"
)
"""Start of a path: a file URL, a home, a drive, a relative path with dots, the root, a Windows share, a
drive's root."""

_PART = r"[^\s/\\'\"`,:;()<>|]+"

_PATH = re.compile(
    rf"(?P<url>\b(?!file:)[A-Za-z][A-Za-z0-9+.-]{{1,15}}://\S*)"
    rf"|(?<=(?P<quote>['\"])){_START}[^'\"\n]+(?=(?P=quote))"
    rf"|(?<![\w.<…/\\]){_START}(?:{_PART}(?: {_PART})*[/\\]+)*{_PART}[/\\]*"
)
"""Matches a web address, which stays; a quoted path, whatever it contains; and a bare path. A path contains a
blank only where another of its parts follows."""

_LONGEST = 2000
"""Characters of a message."""


def without_paths(message: str) -> str:
    """Shorten paths in ``message`` to ``…/name``, escape control characters, and cut long messages.

    A relative path without dots, such as ``runs/mine``, stays: it looks like the name of a model, and does
    not tell where anything is.
    """
    shown = printable(_PATH.sub(_shorten, message))
    if len(shown) > _LONGEST:
        return shown[: _LONGEST - 1] + "…"
    return shown


def _shorten(match: re.Match[str]) -> str:
    if match["url"]:
        return match[0]
    name = re.split(r"[/\\]", match[0].rstrip("/\\"))[-1]
    return f"…/{name}"


def problem(error: BaseException) -> dict[str, str]:
    """Describe an error by ``kind``, ``message`` and, if there are any, ``details``; an unexpected one by its
    kind alone."""
    if isinstance(error, SelfReflectError):
        kind = type(error).__name__.removesuffix("Error").lower()
        message, details = in_app_words(str(error))
        described = {"kind": kind, "message": without_paths(message)}
        return {**described, "details": without_paths(details)} if details else described
    message = "Something went wrong. See the terminal in which the app was started."
    return {"kind": "internal", "message": message}
