"""Runs the server: opens the socket, serves, and shuts down."""

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
from selfreflect.app.services import Services
from selfreflect.app.work import JobRunner, ModelChoices
from selfreflect.errors import ConfigError
from selfreflect.pipeline.options import ExecutionOptions

_CONNECTIONS = 200
_SHUTDOWN = 5.0
"""Seconds that the running job has to reach its next forward pass when the server stops."""


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket. Port 0 chooses a free one.

    Raises:
        ConfigError: the address does not belong to this machine, or the port is taken.
    """
    try:
        choices = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = choices[0]
        bound = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"--host {host}: {error}") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen()
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"cannot listen on {host}, port {port}: {error.strerror}. Is the app running already? Choose "
            "another port with --port, or a free one with --port 0."
        ) from None
    return bound


def access(host: str, token: str | None) -> Access:
    """Decide who may use a server on ``host``. A server for other machines also answers to the machine's name
    and to any address."""
    if host in LOCAL:
        return Access(token=token)
    return Access(LOCAL | {host.lower(), socket.gethostname().lower()}, any_address=True, token=token)


def url(host: str, port: int, token: str | None) -> str:
    """Write the address to open. The token is in the fragment, which browsers do not send."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host
    if ":" in name:
        name = f"[{name}]"
    fragment = f"#token={quote(token, safe='')}" if token else ""
    return f"http://{name}:{port}/{fragment}"


def serve(
    bound: socket.socket,
    root: Path,
    *,
    models: ModelChoices,
    options: ExecutionOptions,
    allowed: Access,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGINT or SIGTERM, which also stop the running job. ``ready`` is called when the server
    answers requests."""
    _log_to_stderr()
    library = Library(root)
    queue = JobQueue(JobRunner(library, models, options))
    app: Any = application(Services(queue, library, models, Meaning()), allowed)
    server = _Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,  # uvicorn's log contains queries
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
        queue.close(_SHUTDOWN)


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
        self._queue.close()  # also ends the event streams, which the shutdown would wait for


def _log_to_stderr() -> None:
    log = logging.getLogger("selfreflect.app")
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False
