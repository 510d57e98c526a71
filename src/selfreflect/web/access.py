"""Who may call a server: by which name, from which page, with which token; and the socket it listens on."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from dataclasses import dataclass
from secrets import compare_digest

from starlette.datastructures import Headers

from selfreflect.errors import ConfigError

LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


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


def from_another_site(headers: Headers) -> bool:
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return True
    host = headers["host"].lower()
    return headers.get("origin", f"http://{host}").lower() not in (f"http://{host}", f"https://{host}")


def has_json_or_nothing(headers: Headers) -> bool:
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        return True
    media_type = headers.get("content-type", "").partition(";")[0]
    return media_type.strip().lower() == "application/json"


_PROBES = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""When a silent client is asked whether it is still there: after how long, how often and how many times."""


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
        raise ConfigError(f"--host {host}: {error}") from None
    family, *_, address = choices[0]
    try:
        bound = socket.create_server(address, family=family, dualstack_ipv6=family == socket.AF_INET6)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host}, port {port}: {os.strerror(error.errno or 0)}. Is it running "
            "already? Choose another port with --port, or a free one with --port 0."
        ) from None
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # else the system holds megabytes for a client that reads nothing, and nobody notices that it does not
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**16)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, seconds in _PROBES:
        if hasattr(socket, name):
            bound.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)
    return bound


def access(host: str, token: str | None) -> Access:
    """Decide who may use a server on ``host``. A server for other machines also answers to the machine's name
    and to any address."""
    if host in LOCAL:
        return Access(token=token)
    return Access(LOCAL | {host.lower(), socket.gethostname().lower()}, any_address=True, token=token)
