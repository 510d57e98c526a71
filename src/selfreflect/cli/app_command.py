"""``selfreflect app``: a page in the browser that asks questions and scores summaries."""

from __future__ import annotations

import os
import secrets
import webbrowser
from pathlib import Path

import typer

from selfreflect.cli.console import make_folder, say
from selfreflect.cli.settings import Overrides, option, takes
from selfreflect.errors import ConfigError, MissingExtraError

TOKEN = "SELFREFLECT_APP_TOKEN"


@takes(execution=("--device",))
def app_command(
    *,
    root: Path = option(
        "--root DIR", "Directory of runs: new ones are stored and earlier ones shown.", Path("runs")
    ),
    model: list[str] = option(
        "--model NAME",
        "Offer this model too: a hub name, a local directory, or a model of a server as openai:NAME, with "
        "the key in the environment. Can be repeated.",
        [],
    ),
    base_url: str | None = option(
        "--base-url URL", "Let people use any model of this server, as openai:NAME. [default: none]"
    ),
    host: str = option(
        "--host ADDRESS", "Listen on this address; others than localhost need --allow-remote.", "127.0.0.1"
    ),
    port: int = typer.Option(
        8765, "--port", min=0, max=65535, help="Listen on this port; 0 takes a free one."
    ),
    allow_remote: bool = option(
        "--allow-remote",
        f"Let other machines in, with the token in ${TOKEN} or a new one that is printed.",
        False,
    ),
    browser: bool = option("--open/--no-browser", "Open the page in a browser.", False),
    overrides: Overrides,
) -> None:
    """Serve a page in the browser for asking and scoring.

    Type a question, watch answers, summaries and scores arrive, compare strategies, and look at earlier runs.
    """
    try:
        from selfreflect.app.server import access, listen, serve, url
        from selfreflect.app.work import ModelChoices
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("fastapi", "pydantic", "starlette", "uvicorn"):
            raise
        raise MissingExtraError("The app", "app") from None
    token = _token(host, allow_remote)
    make_folder(root)
    socket = listen(host, port)
    address = url(host, socket.getsockname()[1], token)
    models, options = ModelChoices(model, base_url), overrides.execution
    try:
        # the socket listens already, so that the page can be opened before the server answers
        say(f"selfreflect is at {address}\nRuns are kept in {root}. Stop with Ctrl-C.")
        if browser:
            webbrowser.open(address)
        serve(socket, root, models=models, options=options, allowed=access(host, token))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    finally:
        say(f"Stopped. Finished work is in {root}.")


def _token(host: str, allow_remote: bool) -> str | None:
    """The token that requests need; None on this machine, unless the user sets one."""
    from selfreflect.app.guard import LOCAL

    token = os.environ.get(TOKEN, "")
    if token and (len(token) < 16 or not token.isascii() or not token.isprintable() or " " in token):
        raise ConfigError(
            f"${TOKEN} must have 16 or more ASCII characters and no blanks. Unset it to get a new one."
        )
    if host in LOCAL:
        return token or None
    if not allow_remote:
        raise ConfigError(
            f"--host {host} lets other machines use this one. Add --allow-remote to allow that."
        )
    return token or secrets.token_urlsafe(32)
