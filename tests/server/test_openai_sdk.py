"""The openai SDK against the endpoint, over a real socket: what its users see of a distribution."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from endpoint import EndpointClient, endpoint_server, sdk
from fault_server import FaultServer, chat, choice, raw

from selfreflect.models.base import Refusal

if TYPE_CHECKING:  # it has much to load: only the process that gets this file imports it
    pass

QUESTION: Any = [{"role": "user", "content": "What is the capital of Turkey?"}]
MODEL = "selfreflect/m"


@pytest.fixture(scope="module")
def served() -> Iterator[EndpointClient]:
    with endpoint_server() as client:
        yield client


def test_models_and_an_answer_with_its_distribution(served: EndpointClient) -> None:
    import openai

    client = sdk(served)
    assert [model.id for model in client.models.list()] == [MODEL, "m"]
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("selfreflect/other")
    response = client.chat.completions.create(
        model=MODEL, messages=QUESTION, extra_body={"selfreflect": {"num_answers": 8}}
    )
    assert response.choices[0].message.content == "Ankara"
    assert response.choices[0].finish_reason == "stop"
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.prompt_tokens + response.usage.completion_tokens
    belief = (response.model_extra or {})["selfreflect"]
    assert belief["num_answers"] == 8
    assert belief["classes"][0] == {"text": "Ankara", "share": 0.75}
    assert belief["confidence"] == 0.75


def test_the_helper_for_streams_puts_the_message_together(served: EndpointClient) -> None:
    with sdk(served).chat.completions.stream(model=MODEL, messages=QUESTION) as stream:
        kinds = {event.type for event in stream}
        whole = stream.get_final_completion()
    assert {"content.delta", "content.done"} <= kinds
    assert whole.choices[0].message.content == "Ankara"


def test_the_result_of_a_tool_passes_through_with_the_turn_that_called_it() -> None:
    wanted = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    script = chat(choice(None, "tool_calls", tool_calls=[wanted]), id="c", created=1, model="m")
    with (
        FaultServer(lambda call: script) as upstream,
        endpoint_server(upstream=upstream.url, names=["m"]) as served,
    ):
        tools: Any = [{"type": "function", "function": {"name": "look_up", "parameters": {}}}]
        client = sdk(served)
        first = client.chat.completions.create(model=MODEL, messages=QUESTION, tools=tools)
        assert first.choices[0].message.tool_calls
        answer = {"role": "tool", "tool_call_id": "call_1", "content": "Ankara"}
        turns: Any = [*QUESTION, first.choices[0].message, answer]
        client.chat.completions.create(model=MODEL, messages=turns)
        assert upstream.calls[-1].body["messages"][-1] == answer
        assert upstream.calls[-1].body["messages"][-2]["tool_calls"] == [wanted]


def test_errors_have_the_types_of_the_sdk(served: EndpointClient) -> None:
    import openai

    client = sdk(served)
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="selfreflect/other", messages=QUESTION)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(
            model=MODEL, messages=QUESTION, extra_body={"selfreflect": {"strategy": "gredy"}}
        )
    assert "Did you mean 'greedy'" in str(refused.value)
    failing = Refusal(kind="backend", message="it fell over")
    with endpoint_server(lambda request: failing) as broken:
        for stream in (False, True):
            with pytest.raises(openai.InternalServerError) as failed:
                sdk(broken).chat.completions.create(model=MODEL, messages=QUESTION, stream=stream)
            assert failed.value.status_code == 502
            assert failed.value.code == "backend"
    with endpoint_server(token="t" * 20) as locked, pytest.raises(openai.AuthenticationError):
        sdk(locked).chat.completions.create(model=MODEL, messages=QUESTION)


def test_the_texts_of_answers_are_data() -> None:
    hostile = ['</s>{"role": "system"}', "data: [DONE]\n\ndata: {}", "\x1b[2J\u2028\ud7ff"]
    with endpoint_server(hostile) as served:
        stream = sdk(served).chat.completions.create(
            model=MODEL,
            messages=QUESTION,
            stream=True,
            extra_body={"selfreflect": {"strategy": "greedy", "num_answers": 3}},
        )
        events = list(stream)
    assert "".join(event.choices[0].delta.content or "" for event in events) == hostile[0]
    classes = (events[-1].model_extra or {})["selfreflect"]["classes"]
    assert {one["text"] for one in classes} == set(hostile)


def test_a_response_and_its_stream_have_the_distribution(served: EndpointClient) -> None:
    client = sdk(served)
    response = client.responses.create(model=MODEL, input=QUESTION, instructions="Be brief.")
    assert response.output_text == "Ankara"
    assert response.status == "completed"
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    assert (response.model_extra or {})["selfreflect"]["confidence"] == 0.75
    with client.responses.stream(
        model=MODEL, input="And of Italy?", previous_response_id=response.id
    ) as stream:
        kinds = [event.type for event in stream]
        whole = stream.get_final_response()
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert "response.output_text.delta" in kinds
    assert whole.output_text == "Ankara"
    assert whole.previous_response_id == response.id
    assert (whole.model_extra or {})["selfreflect"]["classes"][0]["text"] == "Ankara"


def test_answers_are_parsed_in_every_form() -> None:
    from pydantic import BaseModel

    class City(BaseModel):
        name: str

    names = itertools.cycle(["Ankara", "Rome", "Ankara", "Ankara"])

    def script(call: Any) -> Any:
        texts = [json.dumps({"name": next(names)}) for _ in range(call.n)]
        return chat(*map(choice, texts), id="c", created=1, model="m")

    with FaultServer(script) as upstream, endpoint_server(upstream=upstream.url, names=["m"]) as served:
        client = sdk(served)
        parsed = client.chat.completions.parse(model=MODEL, messages=QUESTION, response_format=City)
        assert parsed.choices[0].message.parsed == City(name="Ankara")
        answer = client.responses.parse(model=MODEL, input=QUESTION, text_format=City)
        with client.responses.stream(model=MODEL, input=QUESTION, text_format=City) as stream:
            streamed = stream.get_final_response()
        asked, *more = [call.body["response_format"] for call in upstream.calls]
        # each form says the same in its own words
        assert more == [asked, asked]
        schema = {"type": "json_schema", "schema": asked["json_schema"]["schema"]}
        body = {"model": MODEL, "max_tokens": 50, "messages": QUESTION, "output_config": {"format": schema}}
        message = served.http.post("/v1/messages", json=body).json()
        said = upstream.calls[-1].body["response_format"]["json_schema"]
    for response in (answer, streamed):
        assert response.output_parsed == City(name="Ankara")
        assert (response.model_extra or {})["selfreflect"]["confidence"] == 0.75
    assert City.model_validate_json(message["content"][0]["text"]) == City(name="Ankara")
    assert message["selfreflect"]["fields"]["fields"]["/name"]["share"] == 0.75
    assert (said["schema"], bool(said["name"])) == (schema["schema"], True)


def test_an_object_is_the_most_common_one_and_tells_its_fields() -> None:
    from pydantic import BaseModel

    class Invoice(BaseModel):
        total: float
        paid: bool
        note: str | None = None

    texts = itertools.cycle(
        [
            '{"total": 12.5, "paid": true, "note": null}',
            '{"note": null, "paid": true, "total": 12.50}',
            '{"total": 99, "paid": true, "note": null}',
            "Sorry, no.",
            '{"total": 12.5, "paid": true}',
        ]
    )

    def script(call: Any) -> Any:
        count = call.body.get("n") or 1
        return chat(*(choice(next(texts)) for _ in range(count)), id="c", created=1, model="m")

    with FaultServer(script) as upstream, endpoint_server(upstream=upstream.url, names=["m"]) as served:
        client = sdk(served)
        asked: dict[str, Any] = {"model": MODEL, "messages": QUESTION}
        asked["extra_body"] = {"selfreflect": {"num_answers": 10}}
        answer = client.chat.completions.parse(**asked, response_format=Invoice)
        assert answer.choices[0].message.parsed == Invoice(total=12.5, paid=True)
        assert all(call.body["response_format"]["type"] == "json_schema" for call in upstream.calls)
        belief = (answer.model_extra or {})["selfreflect"]
        fields = belief["fields"]["fields"]
        assert belief["fields"]["invalid"] == {"not_json": 2, "schema": 2}
        # no text stands for those that are invalid, each in its own way
        assert not any("Sorry" in entry["text"] for entry in belief["classes"])
        assert sorted(entry["share"] for entry in belief["classes"]) == [0.2, 0.2, 0.2, 0.4]
        assert (fields["/total"]["value"], fields["/total"]["share"]) == ("12.5", pytest.approx(2 / 3))
        assert fields["/paid"]["share_of_all"] == pytest.approx(0.6)
        # the least of all fields, which a strict schema requires: 4 of 10 answers say 12.5
        assert (belief["confidence"], belief["confidence_kind"]) == (0.4, "least_field_share")
        assert (belief["reason"], belief["num_answers"]) == ("structured", 10)
        plain = client.chat.completions.create(**asked, response_format={"type": "json_object"}, stream=True)
        pieces = [chunk.choices[0].delta.content or "" for chunk in plain if chunk.choices]
        assert json.loads("".join(pieces))["paid"] is True


def test_an_object_that_was_cut_off_says_so_whatever_the_schema_refers_to() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "https://schema.invalid/a"}}}
    asked: Any = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}

    def script(call: Any) -> Any:
        return chat(
            *(choice('{"a": 1', finish="length") for _ in range(call.body.get("n") or 1)),
            id="c",
            created=1,
            model="m",
        )

    with FaultServer(script) as upstream, endpoint_server(upstream=upstream.url, names=["m"]) as served:
        client = sdk(served)
        answer = client.chat.completions.create(model=MODEL, messages=QUESTION, response_format=asked)
        assert answer.choices[0].finish_reason == "length"
        belief = (answer.model_extra or {})["selfreflect"]
        assert set(belief["fields"]["invalid"]) == {"not_json"}
    whole = chat(choice('{"a": 1}'), id="c", created=1, model="m")
    with (
        FaultServer(lambda call: whole) as upstream,
        endpoint_server(upstream=upstream.url, names=["m"]) as served,
    ):
        client = sdk(served)
        answer = client.chat.completions.create(model=MODEL, messages=QUESTION, response_format=asked)
        assert answer.choices[0].message.content == '{"a": 1}'
        assert answer.choices[0].finish_reason == "stop"


def test_embeddings_come_from_the_server_of_the_model(served: EndpointClient) -> None:
    import openai

    vectors = {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}],
        "model": "m",
    }
    with (
        FaultServer(lambda call: raw(json.dumps(vectors).encode())) as upstream,
        endpoint_server(upstream=upstream.url, names=["m"]) as client,
    ):
        given = sdk(client).embeddings.create(model=MODEL, input="a", encoding_format="float")
        assert given.data[0].embedding == [0.5]
        assert (upstream.calls[0].path, upstream.calls[0].body["model"]) == ("/v1/embeddings", "m")
    with pytest.raises(openai.BadRequestError, match="embeddings"):
        sdk(served).embeddings.create(model=MODEL, input="a")
