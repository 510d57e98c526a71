"""What every request passes first: whose page it comes from, who may ask, and how much it may send. And what
every answer carries.

Pure ASGI. A page on another site can make a browser send requests here, and can point a name of its own at
127.0.0.1 (DNS rebinding): the first is refused by ``Origin`` and ``Sec-Fetch-Site``, the second by ``Host``.
"""

from __future__ import annotations

import ipaddress
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from http import HTTPStatus
from secrets import compare_digest
from typing import Any, NamedTuple

from selfreflect.render.text import one_line

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

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

LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})

log = logging.getLogger("selfreflect.app")


class Rejection(NamedTuple):
    status: HTTPStatus
    kind: str
    message: str


@dataclass(frozen=True)
class Access:
    """Who may ask. ``names`` are the host names by which the server may be called; None beside a token lets
    any address be one."""

    names: frozenset[str] = LOCAL
    any_address: bool = False
    """Whether any literal IP address will do: rebinding needs a name."""
    token: str | None = None

    def knows(self, host: str) -> bool:
        name = host_name(host)
        return name in self.names or (self.any_address and _is_address(name))


def host_name(host: str) -> str:
    """The name in a ``Host`` header, without its port and the brackets of an IPv6 address."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """ASGI middleware."""

    def __init__(self, app: App, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"only HTTP is served, not {scope['type']}")
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        answer = _Answer(scope, send)
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await answer.refuse(refusal)
            return
        body = _LimitedBody(receive)
        try:
            await body.read()
        except _TooLargeError:
            limit = f"the body of a request may have {MAX_BODY:,} bytes at most"
            await answer.refuse(Rejection(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large", limit))
            return
        await self._app(scope, body, answer)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> Rejection | None:
        if not self._access.knows(headers.get("host", "")):
            return Rejection(
                HTTPStatus.MISDIRECTED_REQUEST,
                "host",
                "this server is not known by that name; use the address it printed",
            )
        if not scope["path"].startswith("/api"):
            return None
        if _foreign(headers):
            return Rejection(HTTPStatus.FORBIDDEN, "origin", "requests from pages of other sites are refused")
        if not self._authorised(headers.get("authorization", "")):
            return Rejection(
                HTTPStatus.UNAUTHORIZED,
                "token",
                "the token is missing or wrong; open the address that the app printed",
            )
        if scope["method"] not in ("GET", "HEAD") and _not_json(headers):
            return Rejection(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "media_type", "send the body as application/json"
            )
        return None

    def _authorised(self, header: str) -> bool:
        if self._access.token is None:
            return True
        scheme, _, given = header.partition(" ")
        return scheme.lower() == "bearer" and compare_digest(
            given.strip().encode("latin-1", "replace"), self._access.token.encode()
        )


def _foreign(headers: dict[str, str]) -> bool:
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    return origin is not None and origin.lower() not in {
        f"{scheme}://{headers['host'].lower()}" for scheme in ("http", "https")
    }


def _not_json(headers: dict[str, str]) -> bool:
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    return (
        has_body and headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json"
    )


class _TooLargeError(Exception):
    pass


class _LimitedBody:
    """The whole body, read before the application sees any of it; after it, whatever the connection says."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._body: bytes | None = b""

    async def read(self) -> None:
        parts, size = [], 0
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                return
            part = message.get("body", b"")
            size += len(part)
            if size > MAX_BODY:
                raise _TooLargeError
            parts.append(part)
            if not message.get("more_body"):
                break
        self._body = b"".join(parts)

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


class _Answer:
    """Sends with the headers of every answer, and writes the line of the access log: method, path without its
    query, status."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            own = {name.lower().encode(): value.encode() for name, value in HEADERS.items()}
            given = [(name, value) for name, value in message.get("headers", []) if name.lower() not in own]
            message = {**message, "headers": [*given, *own.items()]}
            log.info(
                "%s %s %d", self._scope["method"], one_line(self._scope["path"])[:200], message["status"]
            )
        await self._send(message)

    async def refuse(self, refusal: Rejection) -> None:
        body = json.dumps({"error": {"kind": refusal.kind, "message": refusal.message}}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        if refusal.status == HTTPStatus.UNAUTHORIZED:
            headers.append((b"www-authenticate", b"Bearer"))
        await self({"type": "http.response.start", "status": int(refusal.status), "headers": headers})
        await self._send(
            {"type": "http.response.body", "body": body if self._scope["method"] != "HEAD" else b""}
        )
