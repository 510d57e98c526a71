"""Address and credentials of an OpenAI-compatible server, with all secrets hidden."""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import ip_address, ip_network
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from selfreflect.errors import ConfigError
from selfreflect.text import common_prefix, without_credentials

DEFAULT_URL = "https://api.openai.com/v1"
KEYS = ("SELFREFLECT_API_KEY", "OPENAI_API_KEY")
"""Environment variables that may hold the key; the first one set is sent. The second holds OpenAI's key,
which is sent to no other server."""

# Characters from which on a part of a secret tells something, and is recognised.
_LONG = 12

# Characters of a part that is recognised without a mark beside it.
_PART = 8

# The words with which keys of one provider begin, and the further characters from which on a part tells.
_PUBLIC = re.compile(rb"(?:[A-Za-z0-9]{1,8}[-_]){0,3}")
_PRIVATE = 6

# What servers write in place of the rest of a secret.
_MARKS = re.compile(r"(\*{2,}|\.{2,}|…+|•+)")

_OPENAI_HOST = "api.openai.com"
_HOST_NAME = re.compile(r"[a-z0-9_.-]+")

# A last part that makes a name an address, which libraries read in several ways.
_NUMBER = re.compile(r"[0-9]*|0x[0-9a-f]*")

# First parts of internal names under which clouds give out credentials.
_CLOUD_SERVICES = frozenset(("metadata", "instance-data"))

# This machine and private networks. Many more addresses are not public: for documentation, for
# tests, of providers and of the services of clouds that give out credentials.
_OWN_NETWORKS = [
    ip_network(network)
    for network in "127.0.0.0/8 0.0.0.0/32 ::/128 10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 ::1/128 fc00::/7 "
    "fe80::/10".split()
]

_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible server. Neither its ``repr`` nor ``url`` holds a secret."""

    url: str
    """The base URL without credentials."""
    authorization: str = field(default="", repr=False)
    """Value of the Authorization header: credentials of the base URL, or else the key."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    setting: str = "answers.base_url"
    """Setting that holds the address."""
    key_advice: str = ""
    """Advice on where this server's key belongs, if it is missing or refused."""

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def is_openai(self) -> bool:
        """Whether the server is OpenAI's own."""
        return _is_openai(self.url)

    @property
    def is_own(self) -> bool:
        """Whether the server is in a private network."""
        return is_own(self.host)

    @property
    def lacks_key(self) -> bool:
        """Whether OpenAI's own server lacks its required key."""
        return not self.authorization and self.is_openai

    def redacted(self, text: str) -> str:
        """Remove keys and credentials, even truncated ones, from a server's error."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
            if len(secret) >= _LONG:
                text = _without_parts(text, secret)
        return without_credentials(text)

    @cached_property
    def hidden(self) -> tuple[bytes, ...]:
        """Encoded forms of the secrets in a successful response.

        Ordinary words and numbers stay there: many a key that a server does not check is ``EMPTY`` or
        ``none``.
        """
        forms: dict[bytes, None] = {}
        for secret in filter(_is_telling, self.secrets):
            plain = json.dumps(secret, ensure_ascii=False)[1:-1]
            escaped = json.dumps(secret)[1:-1]
            # JSON may escape a slash, and a URL any character
            for form in (secret, plain, escaped, plain.replace("/", r"\/"), quote(secret, safe="")):
                forms[form.encode("utf-8", "surrogateescape")] = None
        return tuple(sorted(forms, key=len, reverse=True))

    def without_secrets(self, data: bytes) -> bytes:
        """Remove keys and credentials, even truncated ones, from a successful response."""
        return self.without_parts(self.without_whole(data))

    def without_whole(self, data: bytes) -> bytes:
        """Remove complete keys and credentials from a successful response."""
        for form in self.hidden:
            data = data.replace(form, b"***")
        return data

    def without_parts(self, data: bytes) -> bytes:
        """Remove partial keys and credentials from a response that contains no complete ones."""
        for form in self.hidden:
            # the beginning of many keys is public: sk-ant-api03-
            least = max(_LONG, len(_PUBLIC.match(form)[0]) + _PRIVATE)  # type: ignore[index]
            if form[:least] in data or form[-_LONG:] in data:
                text, secret = data.decode("latin-1"), form.decode("latin-1")
                text = _without_beginning(text, secret, least)
                data = _without_beginning(text[::-1], secret[::-1], _LONG)[::-1].encode("latin-1")
        return data


def endpoint(
    base_url: str | None,
    environment: Mapping[str, str] | None = None,
    setting: str = Endpoint.setting,
) -> Endpoint:
    """Describe the server at ``base_url`` (default: OpenAI's own), with the environment's key if any.

    ``OPENAI_API_KEY`` is sent to OpenAI alone, not even to this machine, where a port may lead anywhere.

    Raises:
        ConfigError: the URL is no such address, or the key cannot be sent. The message repeats neither.
    """
    environment = os.environ if environment is None else environment
    url, user, password = _parts(DEFAULT_URL if base_url is None else base_url, setting)
    own_key, openai_key = (environment.get(name, "").strip() for name in KEYS)
    if own_key or not _is_openai(url):
        variable, key = KEYS[0], own_key
    else:
        variable, key = KEYS[1], openai_key
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ConfigError(
            f"the environment variable {variable} contains characters that cannot be part of a key",
            code="key",
            name=variable,
        )

    basic = _basic(user, password) if user or password else ""
    authorization = f"Bearer {key}" if key else ""
    if basic:
        authorization = f"Basic {basic}"
    if _is_openai(url):
        advice = f"Set {KEYS[0]} or {KEYS[1]} in the environment"
    elif openai_key and not authorization:
        advice = f"{KEYS[1]} is sent only to https://{_OPENAI_HOST}: set {KEYS[0]} to the key of this server"
    else:
        advice = f"Set {KEYS[0]} in the environment"
    # without a password the user's name may be the key
    secrets = {own_key, openai_key, basic, password or user, *_proxy_secrets(environment)}
    # Longest first: one may be part of another. A single letter is no secret and would spoil messages.
    redacted = sorted((secret for secret in secrets if len(secret) > 1), key=len, reverse=True)
    return Endpoint(url, authorization, tuple(redacted), setting, advice)


def is_own(host: str) -> bool:
    """Check whether a host is this machine or in a private network."""
    try:
        address = ip_address(host)
    except ValueError:
        # other alphabets have full stops of their own, and an escape may become one
        if not _HOST_NAME.fullmatch(host) or _NUMBER.fullmatch(host.rpartition(".")[2]):
            return False
        # metadata.google.internal gives out the machine's credentials
        if host.partition(".")[0] in _CLOUD_SERVICES:
            return False
        return "." not in host or host.endswith((".local", ".internal", ".lan"))
    return any(address in network for network in _OWN_NETWORKS)


def _is_telling(secret: str) -> bool:
    """Check whether a secret is distinctive enough to search for, unlike words and numbers."""
    is_mixed = any(map(str.isalpha, secret)) and any(map(str.isdigit, secret))
    return len(secret) >= 20 or (len(secret) >= _PART and is_mixed)


def _without_parts(text: str, secret: str) -> str:
    """Remove partial secrets: at least four characters next to a mask, or eight elsewhere."""
    # "sk-ab…yz": beside a mark even four characters of a key are telling.
    pieces = _MARKS.split(text)
    for index in range(1, len(pieces), 2):
        before, after = pieces[index - 1], pieces[index + 1]
        pieces[index - 1] = _without_end(before, secret)
        pieces[index + 1] = _without_end(after[::-1], secret[::-1])[::-1]
    text = _without_beginning("".join(pieces), secret)
    return _without_beginning(text[::-1], secret[::-1])[::-1]


def _without_end(text: str, secret: str) -> str:
    """Remove the longest prefix of the secret, at least four characters, at the end of the text."""
    if text[-4:] in secret:
        for size in range(len(secret), 3, -1):
            if text.endswith(secret[:size]):
                return text[:-size]
    return text


def _without_beginning(text: str, secret: str, least: int = _PART) -> str:
    """Mask every prefix of the secret that has at least ``least`` characters."""
    pieces, start = [], 0
    while (start_of_key := text.find(secret[:least], start)) >= 0:
        end = start_of_key + common_prefix(text[start_of_key : start_of_key + len(secret)], secret)
        pieces += [text[start:start_of_key], "***"]
        start = end
    return "".join([*pieces, text[start:]])


def _basic(user: str, password: str) -> str:
    return b64encode(f"{user}:{password}".encode()).decode()


def _proxy_secrets(environment: Mapping[str, str]) -> Iterator[str]:
    """Collect the passwords of the environment's proxies, and the headers made from them."""
    for name, value in environment.items():
        if name.lower() not in _PROXIES:
            continue
        try:
            parts = urlsplit(value)
        except ValueError:
            continue
        password = unquote(parts.password or "")
        if password:
            yield password
            yield _basic(unquote(parts.username or ""), password)


def _is_openai(url: str) -> bool:
    """Check whether a URL is OpenAI's own https server or a regional one (``eu.api.openai.com``)."""
    parts = urlsplit(url)
    # with the dot in front: "notapi.openai.com" is no host of OpenAI
    return parts.scheme == "https" and f".{parts.hostname}".endswith(f".{_OPENAI_HOST}")


def _parts(base_url: str, setting: str) -> tuple[str, str, str]:
    """Split an address into the URL without credentials, the user and the password."""
    try:
        parts = urlsplit(base_url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme not in ("http", "https") or not host or "@" in parts.path:
        raise ConfigError(
            "this is not the address of a server",
            code="address",
            remedy=f"Set {{{setting}}} to an address such as http://localhost:8000/v1; special "
            "characters in a password need %-escapes.",
        )
    if parts.query or parts.fragment:
        raise ConfigError(
            "the address of the server has a query (?...) or a fragment (#...)",
            code="address",
            remedy=f"Leave it out of {{{setting}}}.",
        )
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if (user, password) == ("***", ""):
        raise ConfigError(
            "the user name and password of this address were not stored in the run directory",
            code="address",
            remedy=f"Give the full address again with {{{setting}}}.",
        )
    address = f"[{host}]" if ":" in host else host
    if port is not None:
        address += f":{port}"
    return urlunsplit((parts.scheme, address, parts.path.rstrip("/"), "", "")), user, password
