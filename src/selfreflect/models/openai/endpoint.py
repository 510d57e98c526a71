"""Where an OpenAI-compatible server is and what it wants to see, with every secret kept out of sight."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit, urlunsplit

from selfreflect.errors import ConfigError
from selfreflect.text import without_credentials

DEFAULT_URL = "https://api.openai.com/v1"
KEYS = ("SELFREFLECT_API_KEY", "OPENAI_API_KEY")
"""Environment variables that may hold the key; the first one set is sent. The second one's key is OpenAI's,
and goes nowhere else."""

_OPENAI_HOST = "api.openai.com"
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


@dataclass(frozen=True)
class Endpoint:
    """A server. Neither its ``repr`` nor ``url`` holds a secret."""

    url: str
    """The base URL without credentials."""
    key: str = field(default="", repr=False)
    authorization: str = field(default="", repr=False)
    """The header of that name: the credentials of the base URL, else the key."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    withheld: str = ""
    """What to say to people whose key was not sent, because it is for another server."""

    def advice(self, fault: str) -> str:
        """What to do about an HTTP fault that a key would have spared, where one was withheld; empty
        otherwise."""
        # which of the two depends on the server
        keyless = any(status in fault for status in ("HTTP 401", "HTTP 403"))
        return f". {self.withheld}" if self.withheld and keyless else ""

    def redacted(self, text: str) -> str:
        """``text`` without key and credentials, which a server may send back in an error."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return without_credentials(text)


def endpoint(base_url: str | None, environment: Mapping[str, str] | None = None) -> Endpoint:
    """The server at ``base_url`` (default: OpenAI's own) with the key of the environment; servers without
    keys need none.

    ``OPENAI_API_KEY`` is sent to OpenAI alone, not even to this machine, where a port may lead anywhere.

    Raises:
        ConfigError: the URL is no such address, or the key cannot be sent. The message repeats neither.
    """
    environment = os.environ if environment is None else environment
    url, user, password = _parts(DEFAULT_URL if base_url is None else base_url)
    own, openai = ((name, environment.get(name, "").strip()) for name in KEYS)
    name, key = own if own[1] or not _is_openai(url) else openai
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ConfigError(f"the environment variable {name} holds characters that no key has")
    basic = b64encode(f"{user}:{password}".encode()).decode() if user or password else ""
    # Longest first, so that no part of one is left where another is found in it. A single letter is no secret
    # and would spoil messages.
    secrets = {own[1], openai[1], basic, password, user if not password else "", *_of_proxies(environment)}
    authorization = f"Basic {basic}" if basic else f"Bearer {key}" if key else ""
    unsent = openai[1] and not authorization
    withheld = (
        f"{KEYS[1]} is sent to https://{_OPENAI_HOST} alone: put the key of this server into {KEYS[0]}"
        if unsent
        else ""
    )
    return Endpoint(
        url,
        key,
        authorization,
        tuple(sorted((one for one in secrets if len(one) > 1), key=len, reverse=True)),
        withheld,
    )


def _of_proxies(environment: Mapping[str, str]) -> Iterator[str]:
    """Passwords of the proxies that the environment names, and the headers they become: a proxy may send them
    back as well."""
    for value in (value for name, value in environment.items() if name.lower() in _PROXIES):
        try:
            parts = urlsplit(value)
        except ValueError:
            continue
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        if password:
            yield from (password, b64encode(f"{user}:{password}".encode()).decode())


def _is_openai(url: str) -> bool:
    """Whether this is OpenAI's own server, or its one of a region (``eu.api.openai.com``), with nobody in
    between."""
    parts = urlsplit(url)
    return parts.scheme == "https" and f".{parts.hostname}".endswith(f".{_OPENAI_HOST}")


def _parts(base_url: str) -> tuple[str, str, str]:
    """The URL without credentials, user and password."""
    try:
        parts = urlsplit(base_url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme not in ("http", "https") or not host or "@" in parts.path:
        raise ConfigError(
            "--base-url must be an address such as http://localhost:8000/v1; special characters of a password need %-escapes"
        )
    if parts.query or parts.fragment:
        raise ConfigError("--base-url must have neither a query (?...) nor a fragment (#...)")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if (user, password) == ("***", ""):
        raise ConfigError(
            "a run directory does not keep the credentials of a base URL: give it again with --base-url"
        )
    place = f"[{host}]" if ":" in host else host
    shown = urlunsplit(
        (parts.scheme, place if port is None else f"{place}:{port}", parts.path.rstrip("/"), "", "")
    )
    return shown, user, password
