"""langchain-openai against the endpoint: what of a distribution survives in it, and that nothing fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from endpoint import EndpointClient, endpoint_server

if TYPE_CHECKING:  # its libraries are many: only the process that gets this file imports them
    from langchain_openai import ChatOpenAI

QUESTION = "What is the capital of Turkey?"


@pytest.fixture(scope="module")
def served() -> Iterator[EndpointClient]:
    with endpoint_server() as client:
        yield client


def model(served: EndpointClient, **options: Any) -> ChatOpenAI:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model="selfreflect/m", base_url=served.url, api_key="none", max_retries=0, **options)  # type: ignore[call-arg]


def human(text: str) -> Any:
    from langchain_core.messages import HumanMessage

    return HumanMessage(text)


def looked_up(served: EndpointClient, message: Any) -> Any:
    """The distribution, by the id that survives in every message. A stream's id is replaced by LangChain."""
    id_ = message.response_metadata["system_fingerprint"]
    return served.http.get(f"/v1/selfreflect/{id_}").json()


def test_an_answer_leads_to_its_distribution(served: EndpointClient) -> None:
    message = model(served).invoke(QUESTION)
    assert message.content == "Ankara"
    assert message.usage_metadata is not None
    assert message.usage_metadata["total_tokens"] > 0
    assert looked_up(served, message)["confidence"] == 0.75


def test_a_stream_adds_up(served: EndpointClient) -> None:
    whole: Any = None
    for part in model(served, stream_usage=True).stream(QUESTION):
        whole = part if whole is None else whole + part
    assert whole.content == "Ankara"
    assert whole.usage_metadata["total_tokens"] > 0
    assert whole.response_metadata["finish_reason"] == "stop"
    assert looked_up(served, whole)["num_answers"] == 4


def test_usage_of_several_questions_adds_up(served: EndpointClient) -> None:
    """It adds all fields of the usage: floats would warn, and objects raise."""
    result = model(served).generate([[human(QUESTION)]] * 3)
    [single] = [model(served).generate([[human(QUESTION)]]).llm_output]
    assert result.llm_output is not None
    assert single is not None
    assert result.llm_output["token_usage"]["total_tokens"] == 3 * single["token_usage"]["total_tokens"]


def test_langchain_over_responses_leads_to_the_distribution(served: EndpointClient) -> None:
    chat = model(served, use_responses_api=True)
    message = chat.invoke(QUESTION)
    assert message.text == "Ankara"
    detail = served.http.get(f"/v1/selfreflect/{message.response_metadata['id']}").json()
    assert detail["confidence"] == 0.75
    whole: Any = None
    for part in chat.stream(QUESTION):
        whole = part if whole is None else whole + part
    assert whole.text == "Ankara"
