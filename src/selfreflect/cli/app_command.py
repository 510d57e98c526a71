"""``selfreflect app``: a page in the browser that asks questions and scores summaries."""

from __future__ import annotations

import webbrowser
from html import escape
from pathlib import Path

import typer

from selfreflect.atomic import write_bytes
from selfreflect.cli import hosting
from selfreflect.cli.console import make_folder, say
from selfreflect.cli.options import Overrides, option, takes
from selfreflect.errors import ConfigError
from selfreflect.settings import load_config

TOKEN = "SELFREFLECT_APP_TOKEN"

_STARTER = "open-app.html"
"""A file in the directory of runs, which every browser can read: packaged ones see neither temporary nor
hidden directories."""


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
    config: Path | None = option(
        "--config FILE", "Show what questions cost, by [prices.MODEL] in this TOML file. [default: none]"
    ),
    host: str = hosting.HOST,
    port: int = hosting.port(8765),
    allow_remote: bool = hosting.allow_remote(TOKEN),
    no_token: bool = option(
        "--no-token", "Let every user and program of this machine in, without a token.", False
    ),
    browser: bool = option("--open/--no-browser", "Open the page in a browser.", False),
    overrides: Overrides,
) -> None:
    """Serve a page in the browser for asking and scoring.

    Open the address that is printed: it holds the token that the page needs. $SELFREFLECT_APP_TOKEN sets one
    that stays the same.

    Type a question, watch answers, summaries and scores arrive, compare strategies, and look at earlier runs.
    """
    with hosting.web_stack("The app", "app"):
        from selfreflect.app.choices import ModelChoices
        from selfreflect.app.server import serve, url
        from selfreflect.web.access import access, listen
    prices = load_config(config, {}).prices
    token = _token(host, allow_remote, no_token)
    make_folder(root)
    socket = listen(host, port)
    address = url(host, socket.getsockname()[1], token)
    models, options = ModelChoices(model, base_url, prices), overrides.execution
    try:
        # the socket listens already, so that the page can be opened before the server answers
        say(f"selfreflect is at {address}\nRuns are kept in {root}. Stop with Ctrl-C.")
        if browser:
            _open_browser(address, root / _STARTER)
        serve(socket, root, models=models, options=options, allowed=access(host, token))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    finally:
        if browser:
            (root / _STARTER).unlink(missing_ok=True)
        say(f"Stopped. Finished work is in {root}.")


def _open_browser(address: str, starter: Path) -> None:
    """Open a private file that leads to the address. Every user of the machine can read the arguments of the
    browser's process, and the address holds the token."""
    page = f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(address)}">\n'
    try:
        write_bytes(starter, page.encode(), private=True, durable=False)
    except OSError as error:
        say(f"The browser is not opened, because {starter} cannot be written: {error.strerror}.")
        return
    webbrowser.open(starter.resolve().as_uri())


def _token(host: str, allow_remote: bool, no_token: bool) -> str | None:
    """The token that requests need; None only if the user does without, on this machine."""
    from selfreflect.web.access import LOCAL

    token = hosting.token_of(TOKEN, host, allow_remote)
    if host not in LOCAL and no_token:
        raise ConfigError(f"--host {host} needs a token. Leave out --no-token.")
    return None if no_token else token or hosting.new_token()
