"""``selfreflect app``: a local page that asks a question and shows answers, summaries and scores as they
come."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from selfreflect.cli.settings import takes
from selfreflect.pipeline.options import ExecutionOptions

TOKEN = "SELFREFLECT_APP_TOKEN"

Root = Annotated[Path, typer.Option("--root", metavar="DIR", help="Where runs are stored, and looked for.")]
Host = Annotated[
    str, typer.Option("--host", help="Address to listen on; any but this machine's own needs --allow-remote.")
]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 takes a free one.")]
AllowRemote = Annotated[
    bool,
    typer.Option(
        "--allow-remote",
        help=f"Let other machines in, with a token: that of ${TOKEN}, else a new one that is printed.",
    ),
]
Offered = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="Model to offer beside smollm2: a hub name or a local directory. May be repeated.",
    ),
]
Browser = Annotated[bool, typer.Option("--open/--no-browser", help="Open the page in a browser.")]


@takes(execution=("--device",))
def command(
    *,
    root: Root = Path("runs"),
    model: Offered = None,
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
    bound = listen(host, port)
    address = url(host, bound.getsockname()[1], token)

    def ready() -> None:
        say(f"selfreflect is at {address}\nRuns are kept in {where(root)}. Stop with Ctrl-C.")
        if browser:
            import webbrowser

            webbrowser.open(address)

    try:
        serve(
            bound,
            root,
            models=ModelChoices(model or []),
            options=options,
            allowed=access(host, token),
            ready=ready,
        )
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    finally:
        say(f"stopped. What was finished is in {where(root)}.")


def _token(host: str, allow_remote: bool) -> str | None:
    """The token that requests need, if they need one."""
    import secrets

    from selfreflect.app.guard import LOCAL
    from selfreflect.errors import ConfigError

    given = os.environ.get(TOKEN, "")
    if given and (len(given) < 16 or not given.isascii() or not given.isprintable() or " " in given):
        raise ConfigError(
            f"${TOKEN} must have 16 or more ASCII characters without blanks. Unset it, and the app makes one."
        )
    if host in LOCAL:
        return given or None
    if not allow_remote:
        raise ConfigError(
            f"--host {host} lets other machines use this one. If that is what you want, add --allow-remote."
        )
    return given or secrets.token_urlsafe(32)
