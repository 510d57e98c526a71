"""``selfreflect app``: a page in the browser that asks questions and scores summaries."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from selfreflect.cli import settings as o
from selfreflect.cli.settings import takes
from selfreflect.pipeline.options import ExecutionOptions

TOKEN = "SELFREFLECT_APP_TOKEN"

Root = Annotated[
    Path, o.option("--root DIR", "Directory of runs: new ones are stored and earlier ones shown.")
]
Models = Annotated[
    list[str] | None,
    o.option("--model NAME", "Offer this model too: a hub name or a local directory. Can be repeated."),
]
Host = Annotated[
    str, o.option("--host ADDRESS", "Listen on this address; others than localhost need --allow-remote.")
]
Port = Annotated[
    int, typer.Option("--port", min=0, max=65535, help="Listen on this port; 0 takes a free one.")
]
AllowRemote = Annotated[
    bool,
    o.option(
        "--allow-remote", f"Let other machines in, with the token in ${TOKEN} or a new one that is printed."
    ),
]
Browser = Annotated[bool, o.option("--open/--no-browser", "Open the page in a browser.")]


@takes(execution=("--device",))
def command(
    *,
    root: Root = Path("runs"),
    model: Models = None,
    host: Host = "127.0.0.1",
    port: Port = 8765,
    allow_remote: AllowRemote = False,
    browser: Browser = False,
    options: ExecutionOptions,
) -> None:
    """Serve a page in the browser for asking and scoring.

    Type a question, watch answers, summaries and scores arrive, compare strategies, and look at earlier runs.
    """
    from selfreflect.cli.console import say, where
    from selfreflect.errors import MissingExtraError

    try:
        from selfreflect.app.serve import access, listen, serve, url
        from selfreflect.app.work import ModelChoices
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("fastapi", "pydantic", "starlette", "uvicorn"):
            raise
        raise MissingExtraError("The app", "app") from None
    token = _token(host, allow_remote)
    socket = listen(host, port)
    address = url(host, socket.getsockname()[1], token)

    def announce() -> None:
        say(f"selfreflect is at {address}\nRuns are kept in {where(root)}. Stop with Ctrl-C.")
        if browser:
            import webbrowser

            webbrowser.open(address)

    models = ModelChoices(model or [])
    try:
        serve(socket, root, models=models, options=options, allowed=access(host, token), ready=announce)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    finally:
        say(f"Stopped. Finished work is in {where(root)}.")


def _token(host: str, allow_remote: bool) -> str | None:
    """The token that requests need; None on this machine, unless the user sets one.

    Raises:
        ConfigError: the token is too weak, or other machines need --allow-remote.
    """
    import secrets

    from selfreflect.app.guard import LOCAL
    from selfreflect.errors import ConfigError

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
