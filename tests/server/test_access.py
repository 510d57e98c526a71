"""The socket that servers listen at."""

from __future__ import annotations

import socket

from selfreflect.server.guard import listen


def test_small_packets_do_not_wait_for_acknowledgements() -> None:
    """Else each response on a connection that is kept open takes 40 ms more."""
    with listen("127.0.0.1", 0) as bound, socket.create_connection(bound.getsockname()):
        accepted, _ = bound.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
