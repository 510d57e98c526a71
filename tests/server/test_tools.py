"""Tools: which is called is a distribution, and so is each of its arguments."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from endpoint import EndpointClient, claude, endpoint_server, sdk
from fault_server import FaultServer, chat, choice, status

from selfreflect.models.base import Sampling

MODEL = "selfreflect/m"
QUESTION: Any = [{"role": "user", "content": "What is the weather in the capital of Turkey?"}]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
CLOCK: Any = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}


def calling(*calls: tuple[str, str]) -> dict[str, Any]:
    """An answer that calls tools with arguments."""
    entries = [
        {"id": f"call{place}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for place, (name, arguments) in enumerate(calls)
    ]
    return choice(None, "tool_calls", tool_calls=entries)


ANKARA = calling(("weather", '{"city": "Ankara"}'))
SAMPLES = [
    calling(("clock", "{}")),
    ANKARA,
    calling(("weather", '{"city":"ankara", "days": 2}')),
    ANKARA,
    calling(("weather", '{"city": "Istanbul"}')),
    choice("It rains."),
    calling(("weather", '{"days": 1}')),
    calling(("weather", '{"city": "Ank')),
    ANKARA,
    ANKARA,
]


@contextmanager
def served(samples: list[dict[str, Any]], **settings: Any) -> Iterator[tuple[EndpointClient, FaultServer]]:
    """An endpoint in front of a server that gives these answers in turn."""
    answers = itertools.cycle(samples)
    usage = {"prompt_tokens": 5, "completion_tokens": 40}

    def script(call: Any) -> Any:
        return chat(*itertools.islice(answers, call.n), usage=usage, id="c", created=1, model="m")

    with (
        FaultServer(script) as upstream,
        endpoint_server(
            upstream=upstream.url, names=["m"], **{"num_answers": len(samples), **settings}
        ) as client,
    ):
        yield client, upstream


def test_the_most_common_call_comes_back_with_the_distribution_of_each_argument() -> None:
    with served(SAMPLES) as (client, upstream):
        response = sdk(client).chat.completions.create(model=MODEL, messages=QUESTION, tools=[WEATHER, CLOCK])
        assert [call.body["tools"] for call in upstream.calls] == [[WEATHER, CLOCK]]
    [said] = response.choices
    assert (said.finish_reason, said.message.content) == ("tool_calls", None)
    [call] = said.message.tool_calls or []
    assert (call.id, call.type) == ("call0", "function")
    assert (call.function.name, call.function.arguments) == ("weather", '{"city": "Ankara"}')  # type: ignore[union-attr]
    belief = (response.model_extra or {})["selfreflect"]
    assert (belief["strategy"], belief["num_answers"]) == ("modal_call", 10)
    fields = belief["fields"]["fields"]
    assert belief["fields"]["invalid"] == {"schema": 1, "not_json": 1}
    assert {entry["value"]: entry["answers"] for entry in fields["/name"]["classes"]} == {
        "weather": 6,
        "clock": 1,
        "null": 1,
    }
    cities = {entry["value"]: entry["answers"] for entry in fields["/arguments/city"]["classes"]}
    assert cities == {"Ankara": 5, "Istanbul": 1, "(missing)": 2}
    assert fields["/arguments/days"]["missing"] == 7
    # half of the answers agree on the required argument; more on the tool
    assert (belief["confidence"], belief["confidence_kind"]) == (0.5, "least_field_share")
    assert belief["classes"][0] == {"text": 'weather({"city": "Ankara"})', "share": 0.4}


@pytest.mark.parametrize(
    ("asked", "limit"), [({"max_tokens": 2000}, 2000), ({"max_tokens": 9}, 9), ({}, 300)]
)
@pytest.mark.parametrize("structure", [{"tools": [WEATHER]}, {"response_format": {"type": "json_object"}}])
def test_a_structured_answer_has_room_for_the_whole_of_it(
    asked: dict[str, Any], limit: int, structure: dict[str, Any]
) -> None:
    summary, sampling = Sampling(max_new_tokens=300), Sampling(max_new_tokens=16)
    with served([ANKARA], sampling=sampling, summary=summary) as (client, upstream):
        client.chat(**asked, **structure)
    tokens = {call.body.get("max_tokens", call.body.get("max_completion_tokens")) for call in upstream.calls}
    assert tokens == {limit}


@pytest.mark.parametrize("choose", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_a_forced_tool_is_parsed_by_pydantic_unchanged(choose: Any) -> None:
    import openai
    from pydantic import BaseModel

    class Weather(BaseModel):
        city: str

    tool = openai.pydantic_function_tool(Weather, name="weather")
    with served([calling(("weather", '{"city": "Oslo"}')), ANKARA, ANKARA]) as (client, upstream):
        parsed = sdk(client).chat.completions.parse(
            # an order is no question, but a forced tool asks for one
            model=MODEL,
            messages=[{"role": "user", "content": "Write a poem."}],
            tools=[tool],
            tool_choice=choose,
        )
        assert upstream.calls[-1].body["tool_choice"] == choose
    [call] = parsed.choices[0].message.tool_calls or []
    assert call.function.parsed_arguments == Weather(city="Ankara")
    assert (parsed.model_extra or {})["selfreflect"]["confidence"] == pytest.approx(2 / 3)


def test_a_stream_has_the_call_and_the_distribution() -> None:
    with served(SAMPLES) as (client, _):
        with sdk(client).chat.completions.stream(model=MODEL, messages=QUESTION, tools=[WEATHER]) as stream:
            kinds = {event.type for event in stream}
            [said] = stream.get_final_completion().choices
        last = client.events(messages=QUESTION, tools=[WEATHER])[-1]
    assert "tool_calls.function.arguments.done" in kinds
    assert said.finish_reason == "tool_calls"
    [call] = said.message.tool_calls or []
    assert json.loads(call.function.arguments) == {"city": "Ankara"}
    assert last["selfreflect"]["fields"]["fields"]["/name"]["value"] == "weather"


def test_responses_call_tools_in_their_own_form() -> None:
    flat: Any = {"type": "function", **WEATHER["function"], "strict": False}
    with served(SAMPLES) as (client, upstream):
        whole = sdk(client).responses.create(model=MODEL, input=QUESTION, tools=[flat])
        assert upstream.calls[-1].body["tools"][0]["function"]["name"] == "weather"
        with sdk(client).responses.stream(model=MODEL, input=QUESTION, tools=[flat]) as stream:
            kinds = [event.type for event in stream]
            streamed = stream.get_final_response()
    for response in (whole, streamed):
        [item] = response.output
        assert item.type == "function_call"
        assert (item.name, item.arguments, item.call_id) == ("weather", '{"city": "Ankara"}', "call0")
        assert [(tool.name, tool.description, tool.strict) for tool in response.tools] == [
            ("weather", None, False)
        ]
        assert (response.model_extra or {})["selfreflect"]["confidence"] == 0.5
    assert "response.function_call_arguments.done" in kinds
    assert not any("output_text" in kind for kind in kinds)


def test_json_that_was_asked_for_in_words_comes_back_as_an_answer_wrote_it() -> None:
    said = ['{"city": "Ankara"}', '```json\n{"city": "Ankara"}\n```', '{"city": "Izmir"}', "I do not know."]
    with served(list(map(choice, said))) as (client, _):
        body = client.chat("Which city? Answer in JSON.").json()
    assert json.loads(body["choices"][0]["message"]["content"]) == {"city": "Ankara"}
    assert (body["selfreflect"]["strategy"], body["selfreflect"]["reason"]) == ("modal_object", "question")
    assert body["selfreflect"]["fields"]["fields"]["/city"]["value"] == "Ankara"


def test_a_model_that_calls_no_tool_answers_with_its_most_common_text() -> None:
    texts = [choice("Rain."), choice("Sun."), choice("Rain."), ANKARA]
    with served(texts) as (client, _):
        body = client.chat(messages=QUESTION, tools=[WEATHER]).json()
    assert body["choices"][0]["message"]["content"] == "Rain."
    assert body["choices"][0]["finish_reason"] == "stop"
    belief = body["selfreflect"]
    assert belief["fields"]["fields"]["/name"]["value"] == "null"
    assert belief["fields"]["fields"]["/name"]["share"] == 0.75
    # three of four call nothing, and two of four say this
    assert (belief["confidence"], belief["classes"][0]) == (0.5, {"text": "Rain.", "share": 0.5})
    assert belief["classes_by"] == "exact"


def test_calls_that_run_at_once_are_one_answer_in_any_order() -> None:
    first, second = ("weather", '{"city": "Rome"}'), ("weather", '{"city":"Oslo"}')
    # white space decides nothing
    spaced = ("weather", '{"city": "Oslo"}')
    samples = [calling(first, second), calling(spaced, first), ANKARA]
    with served(samples) as (client, _):
        body = client.chat(messages=QUESTION, tools=[WEATHER]).json()
    calls = body["choices"][0]["message"]["tool_calls"]
    assert {json.loads(call["function"]["arguments"])["city"] for call in calls} == {"Oslo", "Rome"}
    assert body["selfreflect"]["classes"][0]["share"] == pytest.approx(2 / 3)
    assert body["selfreflect"]["fields"]["fields"]["/name"]["value"] == "weather, weather"


def test_the_confidence_is_that_of_the_call_that_comes_back() -> None:
    cities = [calling(("weather", json.dumps({"city": name}))) for name in ("Rome", "Oslo", "Bern")]
    other = [calling(("clock", "{}"))] * 2 + [choice("Rain."), choice("Sun.")]
    with served([*cities, *other]) as (client, _):
        body = client.chat(messages=QUESTION, tools=[WEATHER, CLOCK]).json()
    assert body["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "weather"
    # most answers have no city, since they call no weather; one of seven has this one
    assert body["selfreflect"]["confidence"] == pytest.approx(1 / 7)


def test_what_a_client_cannot_run_comes_back_only_where_there_is_nothing_else() -> None:
    strange = calling(("launch", "{}"))
    with served([strange, strange, choice("Rain."), ANKARA]) as (client, _):
        asked = {"messages": QUESTION, "tools": [WEATHER]}
        forced = client.chat(**asked, tool_choice="required").json()
    assert forced["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "weather"
    assert forced["selfreflect"]["confidence"] == 0.25
    assert any("not allow: 2 of 4" in note for note in forced["selfreflect"]["notes"])
    with served([strange, strange]) as (client, _):
        nothing_else = client.chat(**asked).json()
    assert nothing_else["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "launch"


HOSTILE = '{}, "name": "clock", "x": {}'


def test_arguments_of_a_model_cannot_change_the_tool() -> None:
    with served([calling(("weather", HOSTILE)), calling(("weather", HOSTILE))]) as (client, _):
        belief = client.chat(messages=QUESTION, tools=[WEATHER]).json()["selfreflect"]
    assert belief["fields"]["invalid"] == {"not_json": 2}
    assert belief["confidence"] is None


@pytest.mark.parametrize("text", ["List my open tickets.", "Create an event on Friday.", "Lights off."])
def test_an_order_that_tools_may_take_is_reflected(text: str) -> None:
    with served([ANKARA, ANKARA]) as (client, _):
        belief = client.chat(text, tools=[WEATHER, CLOCK]).json()["selfreflect"]
    assert (belief["reflected"], belief["strategy"]) == (True, "modal_call")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tools": [WEATHER], "n": 2}, "n"),
        ({"tools": [WEATHER], "messages": [{"role": "user", "content": "Hello!"}]}, "small_talk"),
        ({"tools": [WEATHER], "messages": [{"role": "user", "content": "Write a poem."}]}, "long_text"),
    ],
)
def test_what_cannot_or_need_not_be_reflected_passes_through(fields: dict[str, Any], reason: str) -> None:
    with served([ANKARA]) as (client, upstream):
        response = client.chat(**fields)
        assert upstream.calls[-1].body["tools"] == fields["tools"]
        assert len(upstream.calls) == 1
    assert response.headers["x-selfreflect-passthrough"] == reason
    assert response.json()["choices"][0]["message"]["tool_calls"]


def refuses_tools(call: Any) -> Any:
    return status(400, "this model takes no tools") if "tools" in call.body else chat(choice("Rain."))


def test_a_server_without_tools_is_an_error_and_no_text() -> None:
    with FaultServer(refuses_tools) as upstream, endpoint_server(upstream=upstream.url) as client:
        response = client.chat(messages=QUESTION, tools=[WEATHER], verbosity="low")
    assert response.status_code == 400
    assert "takes no tools" in response.json()["error"]["message"]


UNIT: Any = {
    "type": "function",
    "function": {
        "name": "unit",
        "parameters": {
            "type": "object",
            "properties": {"of": {"$ref": "#/$defs/unit"}},
            "required": ["of"],
            "$defs": {"unit": {"enum": ["celsius", "kelvin"]}},
        },
    },
}


def units(*names: str) -> dict[str, Any]:
    return calling(*(("unit", json.dumps({"of": name})) for name in names))


@pytest.mark.parametrize(
    ("samples", "arguments", "confidence"),
    [
        # one spelling is allowed, and the more common one is not
        ([units("Celsius")] * 3 + [units("celsius")] * 2 + [units("kelvin")], ["celsius"], 2 / 6),
        # each of several calls has to be allowed
        ([units("celsius", "?")] * 2 + [units("kelvin", "celsius")], ["kelvin", "celsius"], 1 / 3),
    ],
)
def test_calls_are_checked_against_the_schema_of_their_tool(
    samples: list[Any], arguments: list[str], confidence: float
) -> None:
    with served(samples) as (client, _):
        body = client.chat(messages=QUESTION, tools=[UNIT]).json()
    calls = body["choices"][0]["message"]["tool_calls"]
    assert [json.loads(call["function"]["arguments"])["of"] for call in calls] == arguments
    assert body["selfreflect"]["confidence"] == pytest.approx(confidence)


NAMED: Any = {"type": "function", "function": {"name": "weather"}}


def allowed(mode: str) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [NAMED]}}


@pytest.mark.parametrize(
    ("choose", "comes_back"),
    [(NAMED, "weather"), (allowed("required"), "weather"), (allowed("auto"), None), ("auto", "clock")],
)
def test_the_choice_of_tools_decides_what_may_come_back(choose: Any, comes_back: str | None) -> None:
    samples = [calling(("clock", "{}"))] * 3 + [choice("Rain.")] * 2 + [ANKARA]
    with served(samples) as (client, upstream):
        body = client.chat(messages=QUESTION, tools=[WEATHER, CLOCK], tool_choice=choose).json()
        assert upstream.calls[-1].body["tool_choice"] == choose
    calls = body["choices"][0]["message"].get("tool_calls") or [None]
    assert (calls[0] and calls[0]["function"]["name"]) == comes_back


def test_responses_allow_some_of_the_tools_in_their_own_form() -> None:
    flat = {"type": "function", **WEATHER["function"]}
    choose = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "weather"}]}
    body = {"model": MODEL, "input": QUESTION, "tools": [flat], "tool_choice": choose}
    with served([choice("Rain."), choice("Rain."), ANKARA]) as (client, upstream):
        response = client.http.post("/v1/responses", json=body).json()
        assert upstream.calls[-1].body["tool_choice"] == allowed("auto")
    assert response["output"][0]["content"][0]["text"] == "Rain."


def test_an_upstream_that_ignores_the_choice_is_told_of() -> None:
    with served([choice("Rain."), choice("Sun."), choice("Rain.")]) as (client, _):
        body = client.chat(messages=QUESTION, tools=[WEATHER], tool_choice="required").json()
    assert body["choices"][0]["message"]["content"] == "Rain."
    assert any(note.endswith("demands: 3 of 3") for note in body["selfreflect"]["notes"])
    with served([ANKARA]) as (client, _):
        # a call that nobody wants is no text, whatever it looks like
        refused = client.chat(messages=QUESTION, tools=[WEATHER], tool_choice="none")
    assert refused.status_code == 502


def test_a_call_without_arguments_is_one_with_none() -> None:
    with served([calling(("clock", "")), calling(("clock", "{}"))]) as (client, _):
        body = client.chat(messages=QUESTION, tools=[CLOCK]).json()
        detail = client.http.get(f"/v1/selfreflect/{body['id']}").json()
    [call] = body["choices"][0]["message"]["tool_calls"]
    assert call["function"]["arguments"] == "{}"
    assert body["selfreflect"]["confidence"] == 1
    assert [(entry["name"], entry["arguments"]) for entry in detail["tool_calls"]] == [("clock", "{}")]


JSON = {"type": "json_object"}


def test_the_confidence_is_that_of_the_object_that_comes_back() -> None:
    pairs = [(1, 1), (1, 1), (2, 3), (2, 4), (2, 5), (3, 2), (4, 2), (5, 2)]
    with served([choice(json.dumps({"x": x, "y": y})) for x, y in pairs]) as (client, _):
        body = client.chat(messages=QUESTION, response_format=JSON).json()
    assert json.loads(body["choices"][0]["message"]["content"]) == {"x": 1, "y": 1}
    # three of eight agree on another x, and two on this one
    assert body["selfreflect"]["confidence"] == 0.25
    notes = [{"city": name, "why": f"reason {place}"} for place, name in enumerate(["Oslo", *["Rome"] * 3])]
    with served([choice(json.dumps(note)) for note in notes]) as (client, _):
        body = client.chat(messages=QUESTION, response_format=JSON).json()
    # all are different, and most say Rome
    assert json.loads(body["choices"][0]["message"]["content"])["city"] == "Rome"


def test_what_comes_back_is_valid_as_it_is_written() -> None:
    """A number that is written as text counts as the number, and a strict client would refuse it."""
    schema = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}
    asked = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    texts = ['{"total": "3"}', '{"total": "3"}', '{"total": 3}', '{"total": 4}']
    with served([choice(text) for text in texts]) as (client, _):
        whole = client.chat(response_format=asked).json()
    assert whole["choices"][0]["message"]["content"] == '{"total": 3}'
    assert whole["selfreflect"]["fields"]["fields"]["/total"]["share"] == 0.75


THIRDS = ['{"a":1,"b":1,"c":2}', '{"a":1,"b":2,"c":1}', '{"a":2,"b":1,"c":1}']
"""None of which has the most common value of every field."""
ONES = {"not": {"properties": {name: {"const": 1} for name in "abc"}}}
EMPTY = [f'{text[:-1]},"m":{{}}}}' for text in THIRDS]
LONG = [f'{text[:-1]},"n":[{"1e300," * 3400}1]}}' for text in THIRDS]
"""Numbers that are longer than what is read, once they are written out."""
KEYS = ['{"a":[1,2],"x":1}', *['{"a":[1,2]}'] * 2, '{"a":[3,2],"b":{"~/":1}}']


@pytest.mark.parametrize(
    ("texts", "schema", "merged", "confidence"),
    [
        (THIRDS, {}, {"a": 1, "b": 1, "c": 1}, 2 / 3),
        (THIRDS, ONES, None, 1 / 3),
        # a key that most answers lack is left out
        ([*KEYS, '{"a":[1,2],"b":{"~/":1}}'], {"required": ["a"]}, {"a": [1, 2]}, 4 / 5),
        (["[1, 2]", "[2, 1]", "3"], {}, None, 2 / 3),
        # where no required field has a value, objects agree as a whole
        (EMPTY, {"required": ["m"]}, {"a": 1, "b": 1, "c": 1, "m": {}}, 0),
        (LONG, {}, None, 1 / 3),
    ],
)
def test_fields_are_merged_where_the_schema_allows_it(
    texts: list[str], schema: dict[str, Any], merged: Any, confidence: float
) -> None:
    asked = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    with served([choice(text) for text in texts], merge="field") as (client, _):
        whole = client.chat(response_format=asked).json()
    content = whole["choices"][0]["message"]["content"]
    belief = whole["selfreflect"]
    if merged is None:
        assert (content in texts, belief["strategy"]) == (True, "modal_object")
    else:
        assert json.loads(content) == merged
    assert belief["confidence"] == pytest.approx(confidence)


def test_objects_without_fields_agree_and_texts_that_are_none_give_the_most_common() -> None:
    with served([choice("{}"), choice("{}"), choice("no")]) as (client, _):
        belief = client.chat(messages=QUESTION, response_format=JSON).json()["selfreflect"]
    assert belief["confidence"] == pytest.approx(2 / 3)
    with served([choice("It is A."), choice("B."), choice("B.")]) as (client, _):
        body = client.chat(messages=QUESTION, response_format=JSON).json()
    assert body["choices"][0]["message"]["content"] == "B."
    assert body["selfreflect"]["confidence"] is None


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def doubled(levels: int) -> dict[str, Any]:
    """A schema each of whose parts refers to the next one twice."""
    parts: dict[str, Any] = {"p0": {"required": ["a"]}}
    for level in range(levels):
        parts[f"p{level + 1}"] = {"allOf": [{"$ref": f"#/$defs/p{level}"}] * 2}
    return {"$defs": parts, "$ref": f"#/$defs/p{levels}"}


@pytest.mark.parametrize(
    "schema",
    [
        nested(400),
        doubled(60),
        {"$schema": "http://json-schema.org/draft-03/schema#", "required": True},
        {
            "$schema": "http://json-schema.org/draft-03/schema#",
            "allOf": [{"required": True}, {"$ref": "#"}, {"required": True}],
        },
        {"properties": {f"key{number}": {"type": "string"} for number in range(20_000)}},
    ],
    ids=["deep", "without an end", "of an old draft", "that holds itself", "large"],
)
def test_no_schema_of_a_client_costs_its_answer(schema: dict[str, Any]) -> None:
    asked = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    with served([choice('{"a": 1}'), choice('{"a": 1}'), choice('{"a": 2}')]) as (client, _):
        response = client.chat(messages=QUESTION, response_format=asked)
    assert response.status_code == 200, response.text
    assert response.json()["selfreflect"]["confidence"] == pytest.approx(2 / 3)


def test_a_format_of_texts_is_none_however_it_is_written() -> None:
    with served([choice("Rain."), choice("Rain.")]) as (client, _):
        data = json.dumps(
            {"model": MODEL, "messages": QUESTION, "response_format": {"type": "text"}}, indent=4
        )
        headers = {"Content-Type": "application/json"}
        response = client.http.post("/v1/chat/completions", content=data, headers=headers)
    assert response.json()["selfreflect"]["reason"] == "question"


def test_arguments_with_any_number_of_keys_take_bounded_time() -> None:
    many = [calling(("weather", json.dumps({f"{n}-{key}": 0 for key in range(5000)}))) for n in range(10)]
    with served(many) as (client, _):
        belief = client.chat(messages=QUESTION, tools=[NAMED]).json()["selfreflect"]
    assert len(belief["fields"]["fields"]) <= 501
    assert belief["confidence"] == 0.1


@pytest.mark.parametrize(
    "asked", [{"tools": [WEATHER], "tool_choice": "required"}, {"response_format": JSON}]
)
def test_a_model_that_compares_answers_is_asked_in_words(asked: dict[str, Any]) -> None:
    cities = itertools.cycle(["the old town of Rome", "the city of Rome", "Oslo in the north"])

    def script(call: Any) -> Any:
        if not {"tools", "response_format"} & call.body.keys():
            return chat(*(choice("yes") for _ in range(call.n)))
        arguments = [json.dumps({"city": next(cities)}) for _ in range(call.n)]
        if "tools" in asked:
            return chat(*(calling(("weather", text)) for text in arguments))
        return chat(*map(choice, arguments))

    with FaultServer(script) as upstream, endpoint_server(upstream=upstream.url, rule="judge") as client:
        body = client.chat(messages=QUESTION, **asked, reasoning_effort="low").json()
    compared = [call.body for call in upstream.calls if not asked.keys() & call.body.keys()]
    assert compared
    assert all(call["reasoning_effort"] == "low" for call in compared)
    assert body["selfreflect"]["confidence"] == 1


def test_options_of_summaries_that_change_no_object_are_named() -> None:
    with served([ANKARA, ANKARA]) as (client, _):
        asked: dict[str, Any] = {"messages": QUESTION, "tools": [WEATHER]}
        other = client.chat(**asked, selfreflect={"strategy": "basic", "claims": None}).json()["selfreflect"]
        none = client.chat(**asked, selfreflect={"confidence": "none"}).json()["selfreflect"]
    assert (other["confidence"], other["strategy"]) == (1, "modal_call")
    assert any("strategy" in note for note in other["notes"])
    assert (none["confidence"], none["confidence_kind"]) == (None, None)


def test_tools_do_not_keep_a_model_from_saying_that_it_is_not_sure() -> None:
    texts = [choice("Rain."), choice("Sun."), choice("Snow."), ANKARA]
    settings: dict[str, Any] = {"when_unsure": "hedge", "below": 0.5, "footer": True}
    with served(texts, **settings) as (client, _):
        body = client.chat(messages=QUESTION, tools=[WEATHER]).json()
        content = body["choices"][0]["message"]["content"]
        assert body["selfreflect"]["action"] == "hedge"
        assert "Rain." in content
        assert content.endswith(f"id {body['id']}]")
    with served([ANKARA, calling(("clock", "{}"))], **settings) as (client, _):
        body = client.chat(messages=QUESTION, tools=[WEATHER], selfreflect={"num_answers": 4}).json()
        assert body["choices"][0]["message"]["tool_calls"]
        assert body["selfreflect"]["action"] is None


def test_fields_share_the_calls_that_compare_answers() -> None:
    count = itertools.count()

    def script(call: Any) -> Any:
        if "response_format" in call.body:
            objects = [
                {f"f{place}": f"word{next(count)} of {place}" for place in range(10)} for _ in range(call.n)
            ]
            return chat(*(choice(json.dumps(value)) for value in objects))
        # right about the controls, so that it is asked
        same = "My sister did" in call.body["messages"][-1]["content"]
        return chat(*(choice("Yes" if same else "No") for _ in range(call.n)))

    with FaultServer(script) as upstream, endpoint_server(upstream=upstream.url, rule="") as client:
        belief = client.chat(messages=QUESTION, response_format=JSON).json()["selfreflect"]
    # two for each of four answers, and two controls
    assert len(upstream.calls) == 1 + 2 * 4 + 2
    assert belief["cost"]["completions"] == 4 + 2 * 4 + 2


MESSAGES_TOOLS: Any = [
    {"name": name, "description": "Tell it.", "input_schema": tool["function"]["parameters"]}
    for name, tool in (("weather", WEATHER), ("clock", CLOCK))
]
MESSAGE: Any = {"model": MODEL, "max_tokens": 64, "messages": QUESTION, "tools": MESSAGES_TOOLS}


def test_messages_call_tools_in_their_own_form() -> None:
    with served(SAMPLES) as (client, upstream):
        message = claude(client).messages.create(**MESSAGE, tool_choice={"type": "any"})
        sent = upstream.calls[-1].body
        with claude(client).messages.stream(**MESSAGE) as stream:
            kinds = [event.type for event in stream]
            streamed = stream.get_final_message()
    assert (sent["tools"][0]["function"]["parameters"], sent["tool_choice"]) == (
        WEATHER["function"]["parameters"],
        "required",
    )
    for whole in (message, streamed):
        [block] = whole.content
        assert (block.type, whole.stop_reason) == ("tool_use", "tool_use")
        assert (block.name, block.input, block.id) == ("weather", {"city": "Ankara"}, "call0")
    belief = (message.model_extra or {})["selfreflect"]
    assert (belief["strategy"], belief["confidence"]) == ("modal_call", 0.5)
    assert belief["fields"]["fields"]["/arguments/city"]["value"] == "Ankara"
    assert {"content_block_start", "input_json", "content_block_stop"} <= set(kinds)


@pytest.mark.parametrize(
    ("choose", "sent"),
    [
        ({"type": "auto"}, ("auto", None)),
        ({"type": "tool", "name": "clock"}, ({"type": "function", "function": {"name": "clock"}}, None)),
        ({"type": "any", "disable_parallel_tool_use": True}, ("required", False)),
    ],
)
def test_messages_choose_tools_in_their_own_form(choose: Any, sent: Any) -> None:
    with served([calling(("clock", "{}"), ("weather", '{"city": "Oslo"}'))]) as (client, upstream):
        message = claude(client).messages.create(**MESSAGE, tool_choice=choose)
        body = upstream.calls[-1].body
    assert (body.get("tool_choice", "auto"), body.get("parallel_tool_calls")) == sent
    assert {block.name: block.input for block in message.content} == {
        "clock": {},
        "weather": {"city": "Oslo"},
    }  # type: ignore[union-attr]


def test_messages_say_which_arguments_are_no_object() -> None:
    with served([calling(("weather", '{"city": "Ank'))]) as (client, _):
        [block] = claude(client).messages.create(**MESSAGE).content
    assert block.input == {"INVALID_JSON": '{"city": "Ank'}  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["output_config", "output_format"])
def test_messages_ask_for_json_and_parse_it(name: str) -> None:
    schema = {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}
    form = {"type": "json_schema", "schema": schema}
    texts = ['{"total": 3}', '```json\n{"total": 3}\n```', '{"total": 4}', "three"]
    with served([choice(text) for text in texts]) as (client, upstream):
        extra = {name: {"format": form} if name == "output_config" else form}
        message = claude(client).messages.create(
            **{key: value for key, value in MESSAGE.items() if key != "tools"}, extra_body=extra
        )
        assert upstream.calls[-1].body["response_format"]["json_schema"]["schema"] == schema
    assert json.loads(message.content[0].text) == {"total": 3}  # type: ignore[union-attr]
    belief = (message.model_extra or {})["selfreflect"]
    assert (belief["confidence"], belief["fields"]["invalid"]) == (0.5, {"not_json": 1})
