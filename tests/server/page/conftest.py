"""A browser, and the app that it looks at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browser
import pytest
import tiny
from app_page import clean, opened
from app_server import Client, serving
from fault_server import FaultServer


@pytest.fixture(scope="module")
def api() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """So small that no question to it looks long, however busy the machine is."""
    return tiny.save(tmp_path_factory.mktemp("models") / "model", "llama")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, model: Path, api: FaultServer) -> Iterator[Client]:
    root = tmp_path_factory.mktemp("root")
    with serving(root, model=model, base_url=api.url) as served:
        yield served


@pytest.fixture
def page(chromium: Any, client: Client) -> Iterator[Any]:
    with browser.watched(chromium, client.url) as watched:
        opened(watched, client)
        yield watched
        clean(watched)
