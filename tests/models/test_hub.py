"""Whether the hub can be reached: asked once, and never waited for long."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
from huggingface_hub import constants

from selfreflect.models.local import machine as hub


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_asked", {})


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a hub that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(hub, "SECONDS_TO_ANSWER", 0.5)
        yield address


@pytest.mark.usefixtures("silent")
def test_a_silent_hub_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not hub.hub_answers()
    monkeypatch.setattr(hub, "SECONDS_TO_ANSWER", 60)
    started = time.monotonic()
    assert not hub.hub_answers(), "remembered, not asked again"
    assert time.monotonic() - started < 30
    later = started + 1000
    monkeypatch.setattr(hub.time, "monotonic", lambda: later)
    monkeypatch.setattr(hub, "_answers", lambda address: True)
    assert hub.hub_answers(), "it may be back"


def test_another_hub_is_asked_and_none_where_that_is_forbidden(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not hub.hub_answers()
    calls = []

    def head(address: str, **_: object) -> None:
        calls.append(address)

    monkeypatch.setattr(
        "huggingface_hub.get_session", lambda: type("Session", (), {"head": staticmethod(head)})
    )
    monkeypatch.setattr(constants, "ENDPOINT", "http://other")
    assert hub.hub_answers()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert not hub.hub_answers()
    assert calls == ["http://other"]
    assert silent not in calls
