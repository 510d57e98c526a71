"""Where an OpenAI-compatible server is and what it wants to see, with every secret kept out of sight."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit, urlunsplit

from selfreflect.errors import ConfigError
from selfreflect.text import without_credentials

PREFIX = "openai:"
"""What a model of such a server is named with: ``openai:NAME``."""

VLLM = "vllm:"
"""What a model or judge is named with that runs in vLLM in this process: ``vllm:NAME``."""

POOLED = "vllm+http:"
"""What a judge is named with whose decoder runs on a server: ``vllm+http:NAME``."""

DEFAULT_URL = "https://api.openai.com/v1"
KEYS = ("SELFREFLECT_API_KEY", "OPENAI_API_KEY")
"""Environment variables that may hold the key; the first one set is sent."""


@dataclass(frozen=True)
class Endpoint:
    """A server. Neither its ``repr`` nor ``url`` holds a secret."""

    url: str
    """The base URL without credentials."""
    key: str = field(default="", repr=False)
    authorization: str = field(default="", repr=False)
    """The header of that name: the credentials of the base URL, else the key."""
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def redacted(self, text: str) -> str:
        """``text`` without key and credentials, which a server may send back in an error."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return without_credentials(text)


def endpoint(base_url: str | None, environment: Mapping[str, str] | None = None) -> Endpoint:
    """The server at ``base_url`` (default: OpenAI's own) with the key of the environment; servers without keys need none.

    Raises:
        ConfigError: the URL is no such address, or the key cannot be sent. The message repeats neither.
    """
    environment = os.environ if environment is None else environment
    name, key = next(((name, value.strip()) for name in KEYS if (value := environment.get(name, "")).strip()), ("", ""))
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ConfigError(f"the environment variable {name} holds characters that no key has")
    url, user, password = _parts(DEFAULT_URL if base_url is None else base_url)
    basic = b64encode(f"{user}:{password}".encode()).decode() if user or password else ""
    # Longest first, so that no part of one is left where another is found in it. A single letter is no secret and would spoil messages.
    secrets = {key, basic, password, user if not password else ""}
    authorization = f"Basic {basic}" if basic else f"Bearer {key}" if key else ""
    return Endpoint(url, key, authorization, tuple(sorted((one for one in secrets if len(one) > 1), key=len, reverse=True)))


def _parts(base_url: str) -> tuple[str, str, str]:
    """The URL without credentials, user and password."""
    try:
        parts = urlsplit(base_url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme not in ("http", "https") or not host or "@" in parts.path:
        raise ConfigError("--base-url must be an address such as http://localhost:8000/v1; special characters of a password need %-escapes")
    if parts.query or parts.fragment:
        raise ConfigError("--base-url must have neither a query (?...) nor a fragment (#...)")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if (user, password) == ("***", ""):
        raise ConfigError("a run directory does not keep the credentials of a base URL: give it again with --base-url")
    place = f"[{host}]" if ":" in host else host
    shown = urlunsplit((parts.scheme, place if port is None else f"{place}:{port}", parts.path.rstrip("/"), "", ""))
    return shown, user, password
