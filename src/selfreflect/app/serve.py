"""The process: a socket, the server on it, and a clean end."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import quote

import uvicorn

from selfreflect.app.grouping import Meaning
from selfreflect.app.guard import LOCAL, Access
from selfreflect.app.jobs import JobQueue
from selfreflect.app.library import Library
from selfreflect.app.server import application
from selfreflect.app.work import JobRunner, ModelChoices
from selfreflect.errors import ConfigError
from selfreflect.pipeline.experiment import Options

_CONNECTIONS = 200
_PATIENCE = 5.0
"""Seconds that the running job has to reach its next forward pass when the server stops."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Raises:
        ConfigError: the address is not one of this machine, or the port is taken.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"--host {host}: {error}") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen()
    except OSError as error:
        bound.close()
        advice = "Is the app running already? Choose another port with --port, or --port 0 for a free one."
        raise ConfigError(f"cannot listen on {host}, port {port}: {error.strerror}. {advice}") from None
    return bound


def access(host: str, token: str | None) -> Access:
    """Who may ask a server on ``host``: on this machine its own names, elsewhere also the host's name and
    every address."""
    if host in LOCAL:
        return Access(token=token)
    return Access(LOCAL | {host.lower(), socket.gethostname().lower()}, any_address=True, token=token)


def url(host: str, port: int, token: str | None) -> str:
    """The address to open. A token is in its fragment, which browsers send to nobody."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host
    shown = f"[{name}]" if ":" in name else name
    return f"http://{shown}:{port}/" + (f"#token={quote(token, safe='')}" if token else "")


def serve(
    bound: socket.socket,
    root: Path,
    *,
    models: ModelChoices,
    options: Options,
    allowed: Access,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGINT or SIGTERM, which stop the running job as well. ``ready`` is called once requests
    are answered."""
    _log_to_stderr()
    library = Library(root)
    queue = JobQueue(JobRunner(library, models, options))
    app: Any = application(queue, library, models, allowed, Meaning())
    server = _Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,  # it would write queries
            lifespan="off",
            ws="none",
            proxy_headers=False,
            server_header=False,
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=1,
        ),
        queue,
        ready,
    )
    try:
        server.run([bound])
    finally:
        queue.close(_PATIENCE)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, queue: JobQueue, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._queue = queue
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._queue.close()  # which also ends the streams of events that the shutdown would wait for


def _log_to_stderr() -> None:
    log = logging.getLogger("selfreflect.app")
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False
