"""What the commands share that serve HTTP: who may come in."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from selfreflect.cli.options import option
from selfreflect.errors import ConfigError, MissingExtraError

HOST = option(
    "--host ADDRESS", "Listen on this address; others than localhost need --allow-remote.", "127.0.0.1"
)


_WEB_STACK = ("fastapi", "prometheus_client", "pydantic", "starlette", "uvicorn")


def port(default: int) -> Any:
    """The option --port."""
    help = "Listen on this port; 0 takes a free one."
    return typer.Option(default, "--port", min=0, max=65535, help=help)


def allow_remote(variable: str) -> Any:
    """The option --allow-remote; ``variable`` is that of the environment which sets the token."""
    help = f"Let other machines in, with the token in ${variable} or a new one that is printed."
    return option("--allow-remote", help, False)


@contextmanager
def web_stack(feature: str, extra: str) -> Iterator[None]:
    """Import what serves HTTP. Raises MissingExtraError if a package of it is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _WEB_STACK:
            raise
        raise MissingExtraError(feature, extra) from None


def token_of(variable: str, host: str, allow_remote: bool) -> str | None:
    """The token that the environment sets; None if it sets none.

    Raises:
        ConfigError: other machines would be let in without being allowed, or the token is too weak.
    """
    from selfreflect.web.access import LOCAL

    if host not in LOCAL and not allow_remote:
        raise ConfigError(
            f"--host {host} lets other machines use this one. Add --allow-remote to allow that."
        )
    token = os.environ.get(variable, "")
    if token and (len(token) < 16 or not token.isascii() or not token.isprintable() or " " in token):
        raise ConfigError(
            f"${variable} must have 16 or more ASCII characters and no blanks. Unset it to get a new one."
        )
    return token or None


def new_token() -> str:
    """A token that nobody guesses."""
    return secrets.token_urlsafe(32)
