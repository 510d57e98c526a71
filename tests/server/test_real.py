"""The app in chromium as a client of the endpoint; ``test_openai_sdk.py`` proves the protocol, quickly."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import browser
import pytest
import tiny
from app_page import clean, opened, start
from app_server import serving
from endpoint import endpoint_server

from selfreflect.models.base import Request

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_our_app_in_a_browser_as_the_client(tmp_path: Path) -> None:
    """Its strategies are run on summaries, which differ: it refuses servers that do not sample."""
    number = count(1)

    def script(request: Request) -> Any:
        if "thoughts about a question" in request.messages[-1].content:
            return f"Most likely radishes, perhaps lettuce: {next(number)} to 1."
        return ["Radishes.", "Radishes", "Lettuce"]

    judge = tiny.save(tmp_path / "judge", "llama")
    with (
        endpoint_server(script) as served,
        serving(tmp_path / "runs", model=judge, base_url=served.url) as client,
        browser.chromium() as chromium,
        browser.watched(chromium, client.url) as watched,
    ):
        opened(watched, client)
        shown = watched.page
        shown.fill("#model", "openai:selfreflect/m")
        start(shown, "What should I plant first?")
        shown.wait_for_selector("button.word")
        groups = shown.inner_text(".groups")
        assert groups.count("Most likely radishes, perhaps lettuce") == 4
        clean(watched)
