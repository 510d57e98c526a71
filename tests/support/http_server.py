"""A server of the package in a thread of the tests."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from starlette.types import ASGIApp

from selfreflect.server.connections import HttpServer
from selfreflect.server.guard import Access, Guard, Policy, listen


def guarded(app: ASGIApp) -> Guard:
    """An application behind a guard that lets every client of this machine in."""
    policy = Policy(
        protects=lambda path: False,
        refuse=lambda *_: pytest.fail("refused"),
        headers={},
        max_body=10,
        token_advice="",
        log=logging.getLogger("selfreflect.tests"),
    )
    return Guard(app, Access(), policy)


@contextmanager
def running(server: HttpServer, host: str = "127.0.0.1") -> Iterator[str]:
    """The address of the server, which must end when the block does."""
    bound = listen(host, 0)
    thread = threading.Thread(target=server.run, args=([bound],), daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://{host}:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(200)
        assert not thread.is_alive()
