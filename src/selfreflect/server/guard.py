"""Server guard: allowed callers, origins and tokens, and limits on request sizes.

A page of another site can make a browser send requests here, and can point its own host name at 127.0.0.1
(DNS rebinding). ``Origin`` and ``Sec-Fetch-Site`` expose the first, ``Host`` the second.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from secrets import compare_digest

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from selfreflect.errors import ConfigError
from selfreflect.text import one_line

LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class Access:
    """Access rules for requests, with an optional token."""

    names: frozenset[str] = LOCAL
    """Host names by which clients may call the server."""
    any_address: bool = False
    """Whether clients may also use any IP address. That is safe, because rebinding needs a name."""
    token: str | None = None

    def knows(self, host: str) -> bool:
        """Check whether a ``Host`` header names this server."""
        name = host_name(host)
        return name in self.names or (self.any_address and _is_address(name))

    def authorises(self, headers: Headers) -> bool:
        """Check the token, if required, in ``Authorization`` or in Anthropic's ``x-api-key``."""
        if self.token is None:
            return True
        key = headers.get("x-api-key")
        scheme, _, token = headers.get("authorization", f"Bearer {key}").partition(" ")
        # an ordinary comparison would tell by its time how much of a guess is right
        is_equal = compare_digest(token.strip().encode("latin-1", "replace"), self.token.encode())
        return scheme.lower() == "bearer" and is_equal


# A name, an IPv4 address or an IPv6 address in brackets, and a port.
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:\[\]]+))(?::[0-9]{0,5})?")


def host_name(host: str) -> str:
    """Extract the name from a ``Host`` header; empty if malformed."""
    match = _HOST.fullmatch(host)
    return (match[1] or match[2]).lower() if match else ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def from_another_site(headers: Headers) -> bool:
    # browsers set this header themselves, and no page can change it
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return True
    host = headers["host"].lower()
    # older browsers send only Origin; programs send neither
    return headers.get("origin", f"http://{host}").lower() not in (f"http://{host}", f"https://{host}")


def has_json_or_nothing(headers: Headers) -> bool:
    # a request without a body needs no type
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        return True
    media_type = headers.get("content-type", "").partition(";")[0]
    return media_type.strip().lower() == "application/json"


# When a silent client is asked whether it is still there: after how long, how often and how many
# times.
_PROBES = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket. Port 0 chooses a free one.

    Its connections send small packets at once. asyncio would see to that itself, but not for the sockets of
    ``create_server``: then the body of each response waits 40 ms for an acknowledgement of its head. Clients
    whose machine or network is gone are noticed within a minute.

    Raises:
        ConfigError: the address does not belong to this machine, or the port is taken.
    """
    try:
        choices = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"{host} is not an address of this machine: {error}", code="address") from None
    family, *_, address = choices[0]
    try:
        # clients of IPv4 reach "::" too, whatever the system's default is
        bound = socket.create_server(address, family=family, dualstack_ipv6=family == socket.AF_INET6)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host}, port {port}: {os.strerror(error.errno or 0)}",
            code="port",
            remedy="Is it running already? Choose another {port}, or 0 for a free one.",
        ) from None
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # else the system holds megabytes for a client that reads nothing, and nobody notices that it does not
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**16)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, seconds in _PROBES:
        # not every system has all three
        if hasattr(socket, name):
            bound.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)
    return bound


def access(host: str, token: str | None) -> Access:
    """Build the access rules of a server on ``host``. A server for other machines also answers to the
    machine's name and to any address."""
    if host in LOCAL:
        return Access(token=token)
    return Access(LOCAL | {host.lower(), socket.gethostname().lower()}, any_address=True, token=token)


MAX_HEAD = 16_384
"""Maximum size of a request's line and headers in bytes."""

BODY_SECONDS = 30.0
"""Maximum number of seconds for receiving a request's body."""

MOST_DISCARDED = 100_000_000
"""Maximum number of bytes of an oversized body that are read and discarded before the request is refused."""

CLIENT_CLOSED = 499
"""Status of a request whose client went away, as in nginx."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A server's requirements on requests, and its refusals."""

    protects: Callable[[str], bool]
    """Whether a path needs the token and rejects requests of other sites."""
    refuse: Callable[[str, HTTPStatus, str, str, Mapping[str, str]], Response]
    """Function that builds a refusal from path, status, kind, message and headers."""
    headers: Mapping[str, str]
    """Headers of every response."""
    max_body: int
    """Maximum size of a request body in bytes."""
    token_advice: str
    """Advice to a client with a missing or wrong token."""
    log: logging.Logger


class Guard:
    """ASGI middleware that enforces a policy."""

    def __init__(self, app: ASGIApp, access: Access, policy: Policy) -> None:
        self._app = app
        self._access = access
        self._policy = policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"only HTTP is served, not {scope['type']}")
        send = self._finishing(scope, send)
        # every refusal comes before a byte of the body is read
        refusal = self._check(scope["method"], scope["path"], Headers(scope=scope))
        if _head_size(scope) > MAX_HEAD:
            message = f"the head of a request may have at most {MAX_HEAD:,} bytes"
            refusal = self._refuse(
                scope["path"], HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "too_large", message
            )
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        try:
            await self._app(scope, _limited(receive, self._policy.max_body), send)
        except asyncio.CancelledError:
            self._note(scope, CLIENT_CLOSED)
            raise

    def _check(self, method: str, path: str, headers: Headers) -> Response | None:
        # a name that points here by DNS rebinding is in Host, and is not ours
        if not self._access.knows(headers.get("host", "")):
            message = "this server is not known by that name; use the address it printed"
            return self._refuse(path, HTTPStatus.MISDIRECTED_REQUEST, "host", message)
        # what a browser fetches before it has the token: the page and its files
        if not self._policy.protects(path):
            return None
        if from_another_site(headers):
            message = "requests from pages of other sites are refused"
            return self._refuse(path, HTTPStatus.FORBIDDEN, "origin", message)
        if not self._access.authorises(headers):
            return self._refuse(path, HTTPStatus.UNAUTHORIZED, "token", self._policy.token_advice)
        # a form of another site can send text/plain, but no JSON
        if method not in ("GET", "HEAD") and not has_json_or_nothing(headers):
            message = "send the body as application/json"
            return self._refuse(path, HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "media_type", message)
        return None

    def _refuse(self, path: str, status: HTTPStatus, kind: str, message: str) -> Response:
        # the body was not read, and its bytes would be taken for the next request
        headers = {"Connection": "close"}
        if status == HTTPStatus.UNAUTHORIZED:
            headers["WWW-Authenticate"] = "Bearer"
        return self._policy.refuse(path, status, kind, message, headers)

    def _finishing(self, scope: Scope, send: Send) -> Send:
        """Set headers on every response, and log the request."""

        async def finish(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._policy.headers)
                self._note(scope, message["status"])
            await send(message)

        return finish

    def _note(self, scope: Scope, status: int) -> None:
        """Log a request's method, path without query, and status."""
        # what a page fetches by itself would fill the terminal
        is_quiet = scope["method"] == "GET" and (status < 400 or status == CLIENT_CLOSED)
        level = logging.DEBUG if is_quiet else logging.INFO
        self._policy.log.log(level, "%s %s %d", scope["method"], one_line(scope["path"])[:200], status)


def _head_size(scope: Scope) -> int:
    """Count the bytes of address and headers, which the server limits only while they are incomplete."""
    fields = sum(len(name) + len(value) for name, value in scope["headers"])
    return len(scope["raw_path"]) + len(scope["query_string"]) + fields


def _limited(receive: Receive, max_body: int) -> Receive:
    """Stop reading a body that is too large or slow."""
    total = 0
    over = False
    until = asyncio.get_running_loop().time() + BODY_SECONDS

    async def receive_part() -> Message:
        nonlocal total, over
        if over:  # what is waited for now is the end of the connection
            return await receive()
        while True:
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                detail = f"the body of a request must arrive within {BODY_SECONDS:g} seconds"
                raise HTTPException(408, detail, {"Connection": "close"}) from None
            over = not message.get("more_body", False)
            # counted, because Content-Length may lie or be missing
            total += len(message.get("body", b""))
            if total <= max_body:
                return message
            # a client that still sends would see a reset in place of this
            if over or total > MOST_DISCARDED:
                detail = f"the body of a request may have at most {max_body:,} bytes"
                raise HTTPException(413, detail, {"Connection": "close"})

    return receive_part
