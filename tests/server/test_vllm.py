"""The endpoint in front of a real ``vllm serve``: ``make test-vllm VLLM_PYTHON=/path/to/python``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from endpoint import endpoint_server
from serving import vllm_server

from selfreflect.models.base import Sampling

if TYPE_CHECKING:
    import openai

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

QUESTION: Any = [{"role": "user", "content": "Name a planet of the solar system, in one word."}]
SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
"""One thread and a small cache."""


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    environment = {**os.environ, **SETTINGS}
    options = ("--max-model-len", "2048", "--served-model-name", "m")
    with vllm_server(environment, tmp_path_factory.mktemp("log") / "vllm.log", *options) as url:
        yield url


@pytest.fixture(scope="module")
def client(upstream: str) -> Iterator[openai.OpenAI]:
    import openai

    short = Sampling(max_new_tokens=6)
    with endpoint_server(upstream=upstream, sampling=short, summary=short, timeout=300) as served:
        yield openai.OpenAI(base_url=served.url, api_key="none", max_retries=0, timeout=600)


def test_a_question_takes_two_calls_and_has_the_distribution_beside_it(client: openai.OpenAI) -> None:
    response = client.chat.completions.create(model="selfreflect/m", messages=QUESTION)
    belief = (response.model_extra or {})["selfreflect"]
    assert response.choices[0].message.content
    assert belief["num_answers"] == 4
    assert belief["cost"]["completions"] == 5
    assert len(belief["classes"]) > 1  # it samples
    assert sum(one["share"] for one in belief["classes"]) == pytest.approx(1)
    assert response.usage is not None
    assert response.usage.completion_tokens >= 5


def test_a_stream_ends_with_the_distribution(client: openai.OpenAI) -> None:
    *chunks, last = client.chat.completions.create(model="selfreflect/m", messages=QUESTION, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert (last.model_extra or {})["selfreflect"]["confidence_kind"] == "modal_share"


@pytest.mark.parametrize("model", ["m", "selfreflect/m"])
def test_log_probabilities_pass_through(client: openai.OpenAI, model: str) -> None:
    response = client.chat.completions.with_raw_response.create(
        model=model, messages=QUESTION, max_tokens=6, logprobs=True, top_logprobs=3
    )
    tokens = response.parse().choices[0].logprobs
    assert response.headers["x-selfreflect-passthrough"] == ("model" if model == "m" else "logprobs")
    assert tokens is not None
    assert tokens.content is not None
    assert all(token.logprob <= 0 and len(token.top_logprobs) == 3 for token in tokens.content)
    assert (response.parse().model_extra or {}).get("selfreflect") is None
