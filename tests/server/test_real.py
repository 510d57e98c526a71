"""The endpoint between real programs: ``transformers serve`` behind it, and the app in chromium before it.
``test_upstream.py`` and ``test_openai_sdk.py`` prove the protocol with scripted servers, quickly."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import browser
import pytest
import tiny
from app_page import clean, opened, start
from app_server import serving
from endpoint import endpoint_server
from real_server import address, sampling_model, transformers_serve
from serving import Server

from selfreflect.models.base import Request, Sampling

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

QUESTION: Any = [{"role": "user", "content": "Name a planet of the solar system, in one word."}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sampling_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with transformers_serve(model, tmp_path_factory.mktemp("log") / "serve.log") as started:
        yield started


def test_transformers_serve_as_the_upstream(model: Path, server: Server) -> None:
    import openai

    short = Sampling(max_new_tokens=12)
    with server.explaining():
        upstream = address(server)
        with endpoint_server(
            upstream=upstream, names=[str(model)], sampling=short, summary=Sampling(max_new_tokens=24)
        ) as served:
            client = openai.OpenAI(base_url=served.url, api_key="none", max_retries=0, timeout=300)
            response = client.chat.completions.create(model=f"selfreflect/{model}", messages=QUESTION)
            belief = (response.model_extra or {})["selfreflect"]
            assert response.choices[0].message.content
            assert belief["num_answers"] == 4
            assert sum(one["share"] for one in belief["classes"]) == pytest.approx(1)
            assert len(belief["classes"]) > 1  # it samples
            stream = client.chat.completions.create(
                model=str(model), messages=QUESTION, stream=True, max_tokens=8
            )
            assert "".join(part.choices[0].delta.content or "" for part in stream if part.choices)
    assert response.usage is not None
    assert response.usage.completion_tokens >= 5


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
