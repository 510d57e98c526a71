"""The endpoint in front of a model of its own process. Over a real socket."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from endpoint import CITIES, EndpointClient, endpoint_server
from scripted import Scripted

from selfreflect.models.base import Completion, Refusal, Reply, Request, Sample

TOKEN = "a-token-that-nobody-guesses"


def by_step(request: Request) -> Any:
    """Fresh answers for the conversation, and a summary when a strategy asks for one."""
    if "thoughts about a question" in request.messages[-1].content:
        return "Most likely Ankara, perhaps Istanbul. [END] More."
    return CITIES


@pytest.fixture(scope="module")
def client() -> Iterator[EndpointClient]:
    with endpoint_server(by_step) as served:
        yield served


def error(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    body = response.json()
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"message", "type", "param", "code"}
    assert body["error"]["message"]
    assert "Traceback" not in body["error"]["message"]
    return dict(body["error"])


def test_the_answer_is_the_summary_with_the_distribution_beside_it(client: EndpointClient) -> None:
    response = client.chat(stop="[END]", user="somebody", seed=3)
    body = response.json()
    assert body["choices"][0]["message"]["content"] == "Most likely Ankara, perhaps Istanbul. "
    belief = body["selfreflect"]
    assert belief["classes"] == [{"text": "Ankara", "share": 0.75}, {"text": "Istanbul", "share": 0.25}]
    assert (belief["confidence"], belief["confidence_kind"], belief["calibrated"]) == (
        0.75,
        "modal_share",
        False,
    )
    assert belief["calibrator_id"] is None
    assert belief["num_answers"] == 4
    assert belief["cost"]["completions"] == 5
    assert body["usage"]["completion_tokens"] == belief["cost"]["completion_tokens"] == 4 + 7
    assert all(isinstance(count, int) for count in body["usage"].values())
    assert response.headers["x-selfreflect-id"] == body["id"] == belief["id"]
    assert response.headers["x-selfreflect-confidence"] == "0.7500"


def test_the_whole_distribution_can_be_read_later_by_id_alone(client: EndpointClient) -> None:
    id_ = client.chat(
        messages=[{"role": "system", "content": "A document."}, {"role": "user", "content": "Where?"}]
    )
    detail = client.http.get(f"/v1/selfreflect/{id_.json()['id']}").json()
    assert (detail["question"], detail["context"]) == ("Where?", "A document.")
    assert [one["text"] for one in detail["answers"]] == CITIES
    assert [one["class"] for one in detail["answers"]] == [0, 0, 1, 0]
    assert detail["summaries"][0]["name"] == "sample_and_summarize"
    assert error(client.http.get("/v1/selfreflect/sr-nothing"), 404)["code"] == "unknown_id"


def test_answers_are_drawn_from_the_conversation_as_it_is() -> None:
    requests: list[Request] = []

    def record(request: Request) -> Any:
        requests.append(request)
        return by_step(request)

    turns = [
        {"role": "system", "content": "Text: the capital moved."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi", "refusal": None, "selfreflect": {"confidence": 1}},
        {"role": "user", "content": [{"type": "text", "text": "Where to?"}]},
    ]
    with endpoint_server(record) as client:
        assert client.chat(messages=turns, temperature=0.3, max_tokens=50, seed=1).status_code == 200
    drawing, summarizing = requests
    assert [(one.role, one.content) for one in drawing.messages] == [
        ("system", "Text: the capital moved."),
        ("user", "Hello"),
        ("assistant", "Hi"),
        ("user", "Where to?"),
    ]
    assert (drawing.n, drawing.sampling.temperature, drawing.sampling.max_new_tokens) == (4, 1.0, 50)
    assert summarizing.messages[:3] == drawing.messages[:3]
    assert "Where to?" in summarizing.messages[3].content
    assert '3. "Istanbul"' in summarizing.messages[3].content
    assert (summarizing.n, summarizing.sampling.temperature) == (1, 0.3)


def test_options_of_a_request_change_strategy_number_and_confidence(client: EndpointClient) -> None:
    options = {"strategy": "greedy", "num_answers": 8, "confidence": "none"}
    body = client.chat(selfreflect=options).json()
    assert body["choices"][0]["message"]["content"] == "Ankara"
    belief = body["selfreflect"]
    assert (belief["strategy"], belief["num_answers"]) == ("greedy", 8)
    assert (belief["confidence"], belief["confidence_kind"]) == (None, None)


def test_claims_of_long_answers_are_listed_when_asked_for() -> None:
    told = "The \U0001f5fc tower was built in 1889. It was made of wood."
    answers = [
        "The tower was built in 1889. It weighs 7300 tonnes.",
        "The tower was built in 1898. Lightning strikes it often.",
        "The tower was built in 1889. It was not made of wood.",
        "I cannot say.",
    ]

    def reply(request: Request) -> Any:
        return told if "thoughts about a question" in request.messages[-1].content else answers

    with endpoint_server(reply) as client:
        body = client.chat("What about the tower?", selfreflect={"claims": True}).json()
        assert client.chat().json()["selfreflect"]["claims"] is None
    claims = {claim["text"]: claim for claim in body["selfreflect"]["claims"]}
    built, wood = claims["The tower was built in 1889."], claims["It was made of wood."]
    assert (built["support"], built["contradicted"], built["told"]) == (0.5, 0.25, True)
    assert told[built["start"] : built["end"]] == "The \U0001f5fc tower was built in 1889."
    assert (wood["support"], wood["contradicted"], wood["told"]) == (0, 0.25, True)
    assert told[wood["start"] : wood["end"]] == wood["text"]
    heavy = claims["It weighs 7300 tonnes."]
    assert (heavy["support"], heavy["start"], heavy["end"], heavy["told"]) == (0.25, None, None, False)


@pytest.mark.parametrize(
    "options",
    [
        *({"strategy": "os:system"}, {"strategy": "gredy"}, {"confidence": "p_true"}),
        *({"measures": ["information"]}, {"num_answers": 0}, {"x": 1}, {"claims": "yes"}),
    ],
)
def test_options_that_cannot_be_met_are_refused(client: EndpointClient, options: dict[str, Any]) -> None:
    assert error(client.chat(selfreflect=options), 400)["param"] == "selfreflect"


def test_other_addresses_name_those_that_exist(client: EndpointClient) -> None:
    for response in (client.http.get("/"), client.http.post("/v1/images", json={"prompt": "x"})):
        refused = error(response, 404)
        assert refused["code"] == "not_found"
        assert "POST /v1/chat/completions" in refused["message"]
    assert "is not offered" in error(client.http.get("/v1/chat/completions"), 405)["message"]


def test_answers_without_their_end_are_noted() -> None:
    cut = Completion(text="Ankara, which", finish="length", tokens=4)
    whole = Completion(text="Ankara", finish="stop", tokens=1)

    def script(request: Request) -> Any:
        return Reply(completions=(cut, whole, whole, cut)) if request.n > 1 else "Ankara."

    with endpoint_server(script) as client:
        note, spelling, _ = client.chat().json()["selfreflect"]["notes"]
    assert "2 classes by spelling are 1" in spelling
    assert note.startswith("2 of 4 answers reached the token limit")


def test_a_stream_has_the_same_text_and_belief(client: EndpointClient) -> None:
    events = client.events(stream_options={"include_usage": True})
    text = "".join(part["delta"].get("content", "") for one in events for part in one["choices"])
    assert text == "Most likely Ankara, perhaps Istanbul. [END] More."
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert [one["choices"][0]["finish_reason"] for one in events if one["choices"]][-1] == "stop"
    assert events[-1]["usage"]["completion_tokens"] == 11
    assert events[-1]["selfreflect"]["classes"][0] == {"text": "Ankara", "share": 0.75}
    assert len({(one["id"], one["created"], one["model"]) for one in events}) == 1


def test_several_choices_are_summaries_of_the_same_answers(client: EndpointClient) -> None:
    body = client.chat(n=3, temperature=1).json()
    assert [one["index"] for one in body["choices"]] == [0, 1, 2]
    assert body["selfreflect"]["cost"]["completions"] == 4 + 3
    detail = client.http.get(f"/v1/selfreflect/{body['id']}").json()
    assert [one["name"].rpartition("#")[2] for one in detail["summaries"]] == ["1", "2", "3"]


def test_the_model_itself_answers_by_its_own_name(client: EndpointClient) -> None:
    names = [one["id"] for one in client.http.get("/v1/models").json()["data"]]
    assert names == ["selfreflect/m", "m"]
    response = client.chat(model="m", n=2)
    assert [one["message"]["content"] for one in response.json()["choices"]] == ["Ankara", "Ankara."]
    assert "selfreflect" not in response.json()
    assert "x-selfreflect-id" not in response.headers
    assert "selfreflect" not in client.events(model="m")[-1]
    unknown = error(client.chat(model="selfreflect/other"), 404)
    assert unknown["code"] == "model_not_found"
    assert "selfreflect/m, m" in unknown["message"]


def test_what_a_local_model_cannot_do_is_said(client: EndpointClient) -> None:
    refused = error(client.chat(tools=[{"type": "function"}]), 400)
    assert (refused["code"], refused["param"]) == ("unsupported", "tools")
    assert error(client.chat(model="m", tools=[{"type": "function"}]), 400)["code"] == "unsupported"


def test_tools_can_be_ignored_for_pages_that_offer_some_with_every_question() -> None:
    tools = [{"type": "function", "function": {"name": "search"}}]
    with endpoint_server(by_step, ignore_tools=True) as client:
        belief = client.chat(tools=tools, tool_choice="auto").json()["selfreflect"]
        assert belief["notes"] == ["the tools that came with the question were ignored (--ignore-tools)"]
        assert client.chat().json()["selfreflect"]["notes"] == []
        assert error(client.chat(tools=tools, tool_choice="required"), 400)["param"] == "tool_choice"
        assert client.chat(model="m", tools=tools).status_code == 200


def test_a_footer_is_for_clients_that_show_only_text() -> None:
    with endpoint_server(by_step, footer=True) as client:
        body = client.chat().json()
    text, _, line = body["choices"][0]["message"]["content"].rpartition("\n\n")
    assert text == "Most likely Ankara, perhaps Istanbul. [END] More."
    # what agrees is not called a confidence
    assert "75" in line
    assert "confidence" not in line
    assert line.endswith(f"id {body['id']}]")


def test_sampling_stops_when_the_answer_is_certain() -> None:
    with endpoint_server(lambda request: "Ankara", num_answers=40, at_least=3) as client:
        assert 3 <= client.chat().json()["selfreflect"]["num_answers"] < 15
    with endpoint_server(["A", "B"], num_answers=8, at_least=3) as client:
        belief = client.chat().json()["selfreflect"]
    assert belief["num_answers"] == 8
    assert belief["cost"]["completions"] == 9


@pytest.mark.parametrize("action", ["abstain", "hedge"])
def test_an_unsure_model_says_so(action: Any) -> None:
    with endpoint_server(by_step, when_unsure=action, below=0.8) as client:
        body = client.chat().json()
    content = body["choices"][0]["message"]["content"]
    assert body["selfreflect"]["action"] == action
    assert ("Most likely Ankara" in content) is (action == "hedge")
    assert "75%" in content


def test_a_failing_model_is_a_typed_error_in_both_forms() -> None:
    failing = Refusal(kind="backend", message="it fell over")
    with endpoint_server(lambda request: failing) as client:
        assert error(client.chat(), 502)["type"] == "upstream_error"
        assert error(client.chat(stream=True), 502)["code"] == "backend"
    with endpoint_server(lambda request: Refusal(kind="too_long", message="long")) as client:
        assert error(client.chat(), 400)["code"] == "context_length_exceeded"
    with endpoint_server([" "]) as client:
        assert error(client.chat(), 502)["code"] == "no_answers"


def test_half_a_character_in_a_text_costs_nothing() -> None:
    with endpoint_server(["half \ud800", "whole"]) as client:
        response = client.chat(selfreflect={"strategy": "greedy"})
        assert response.json()["choices"][0]["message"]["content"] == "half \ud800"
        assert client.http.get(f"/v1/selfreflect/{response.json()['id']}").status_code == 200
        assert client.events()[-1]["selfreflect"]["num_answers"] == 4


class Slow:
    """A generator that draws an answer every now and then, and counts how many. The last one waits for
    ``go``."""

    name, revision = "slow", ""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.on_step = lambda tokens, ended: None
        self.drawn = 0
        self.stopped = threading.Event()

    def generate(self, requests: Sequence[Request]) -> list[Any]:
        raise AssertionError("it streams")

    def stream_samples(self, requests: Sequence[Request]) -> Iterator[tuple[int, Sample | Reply]]:
        [request] = requests
        answers = []
        try:
            for index in range(request.n):
                if index + 1 == request.n:
                    self.go.wait(200)
                time.sleep(0.02)
                self.drawn += 1
                self.on_step(1, 1)
                answers.append(Completion(text="Ankara", finish="stop", tokens=1))
                if index + 1 < request.n:
                    yield 0, Sample(index=index, completion=answers[-1])
            yield 0, Reply(completions=tuple(answers))
        finally:
            self.stopped.set()


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_stops_the_model(stream: bool) -> None:
    slow = Slow()
    with endpoint_server(generator=slow, num_answers=200) as client:
        host, port = client.address
        body = json.dumps(
            {"model": "selfreflect/m", "messages": [{"role": "user", "content": "?"}], "stream": stream}
        ).encode()
        with socket.create_connection((host, port)) as connection:
            connection.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                + f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            while slow.drawn < 3:
                time.sleep(0.01)
        slow.go.set()
        assert slow.stopped.wait(200)
        assert slow.drawn < 200
        assert client.chat(model="m", n=1).status_code == 200
        assert 'outcome="cancelled"} 1.0' in client.http.get("/metrics").text


def test_a_stream_stays_alive_while_answers_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selfreflect.server.endpoint.KEEP_ALIVE_SECONDS", 0.05)
    slow = Slow()
    with endpoint_server(generator=slow, num_answers=4) as client, client.stream() as response:
        lines = []
        for line in response.iter_lines():
            lines.append(line)
            if lines.count(": the answers are being drawn") == 3:
                slow.go.set()
    assert slow.go.is_set()
    assert lines[-2:] == ["data: [DONE]", ""]


def test_an_error_after_the_stream_has_begun_is_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selfreflect.server.endpoint.OPEN_SECONDS", 0.05)

    begun = threading.Event()

    def script(request: Request) -> Any:
        begun.wait(200)
        return Refusal(kind="backend", message="it fell over")

    with endpoint_server(script) as client, client.stream() as response:
        assert response.status_code == 200
        begun.set()
        event, done = [line[6:] for line in response.iter_lines() if line.startswith("data: ")]
    assert json.loads(event)["error"]["type"] == "upstream_error"
    assert done == "[DONE]"


@pytest.mark.parametrize(("limits", "code"), [((1, 1, 9), "queue_full"), ((1, 9, 2), "client_limit")])
def test_the_queue_is_bounded_for_all_and_for_each_client(limits: tuple[int, ...], code: str) -> None:
    release = threading.Event()
    statuses: list[int] = []

    def script(request: Request) -> Any:
        release.wait(200)
        return by_step(request)

    admission = dict(zip(("running", "waiting", "per_client"), limits, strict=True))
    with endpoint_server(script, admission=admission) as client:
        threads = [
            threading.Thread(target=lambda: statuses.append(client.chat().status_code)) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        while "selfreflect_waiting 1.0" not in client.http.get("/metrics").text:
            time.sleep(0.02)
        refused = client.chat()
        assert error(refused, 429)["code"] == code
        assert int(refused.headers["retry-after"]) > 0
        release.set()
        for thread in threads:
            thread.join()
    assert statuses == [200, 200]


@pytest.mark.parametrize(
    ("proxies", "expected"), [((), 429), (("127.0.0.1",), 200), (("127.0.0.0/8",), 200), (("10.0.0.1",), 429)]
)
def test_clients_of_a_proxy_that_is_named_have_a_limit_each(proxies: tuple[str, ...], expected: int) -> None:
    release, begun = threading.Event(), threading.Event()

    def script(request: Request) -> Any:
        if "slow" in request.messages[0].content:
            begun.set()
            release.wait(200)
        return by_step(request)

    with (
        endpoint_server(script, admission={"per_client": 1}, proxies=proxies) as client,
        ThreadPoolExecutor() as pool,
    ):

        def ask(address: str, text: str) -> int:
            body = {"model": "m", "messages": [{"role": "user", "content": text}]}
            headers = {"X-Forwarded-For": address}
            return client.http.post("/v1/chat/completions", json=body, headers=headers).status_code

        slow = pool.submit(ask, "192.0.2.1", "slow")
        begun.wait(200)
        try:
            assert ask("192.0.2.1", "quick") == 429
            other = pool.submit(ask, "192.0.2.2", "quick")
            if expected == 429:
                assert other.result(20) == expected
        finally:
            release.set()
        assert (other.result(20), slow.result(20)) == (expected, 200)


def test_a_token_is_needed_for_everything_but_health() -> None:
    with endpoint_server(by_step, token=TOKEN) as client:
        assert client.chat().status_code == 200
        for wrong in ("", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer"):
            headers = {"Authorization": wrong}
            for path in ("/v1/models", "/metrics", "/v1/selfreflect/x", "/openapi.json"):
                response = client.http.get(path, headers=headers)
                assert error(response, 401)["type"] == "authentication_error"
                assert TOKEN not in response.text
        assert client.http.get("/health", headers={"Authorization": ""}).json()["status"] == "ok"


def test_a_body_may_have_ten_megabytes(client: EndpointClient) -> None:
    assert client.chat("x" * 9_900_000).status_code == 200
    assert error(client.chat("x" * 10_000_001), 413)["type"] == "invalid_request_error"


def test_ids_cannot_smuggle_headers_or_paths(client: EndpointClient) -> None:
    for id_ in ("..%2f..%2fetc", "x%0d%0aset-cookie:%20a", "a" * 101):
        response = client.http.get(f"/v1/selfreflect/{id_}")
        assert response.status_code in (400, 404)
        assert "set-cookie" not in response.headers
    response = client.chat(model="selfreflect/m\r\nSet-Cookie: a=b")
    assert error(response, 404)
    assert "set-cookie" not in response.headers


@pytest.mark.parametrize("rule", ["judge", ""])
def test_a_served_model_is_asked_about_open_pairs_once_and_that_is_counted(rule: str) -> None:
    answers = ["the wind", "a gust", "the cat", "The wind."]
    asked = []

    def script(request: Request) -> Any:
        if request.n > 1:
            return Reply(completions=tuple(Completion(text=one, finish="stop", tokens=2) for one in answers))
        text = request.messages[-1].content
        if request.sampling.max_new_tokens == 16:
            asked.append(text)
            return "Yes" if '"a gust"' in text or "sister did" in text else "No"
        return "The wind."

    with endpoint_server(script, rule=rule) as client:
        first, second = (client.chat("What broke the vase?").json()["selfreflect"] for _ in range(2))
    assert [one["share"] for one in first["classes"]] == [0.75, 0.25]
    assert first["classes_by"].startswith("judge")
    # the wind with each of the others; a model that was not chosen as a judge gets two controls before
    assert len(asked) == (2 if rule else 4)
    assert first["cost"]["completions"] - second["cost"]["completions"] == len(asked)


def test_the_embedded_model_is_not_asked_which_answers_are_the_same() -> None:
    def script(request: Request) -> Any:
        assert request.sampling.max_new_tokens != 16
        texts = ["the wind", "a gust"] if request.n > 1 else ["The wind."]
        return Reply(completions=tuple(Completion(text=one, finish="stop", tokens=2) for one in texts))

    generator = Scripted(script)
    generator.name = "smollm2"
    with endpoint_server(generator=generator, rule="", num_answers=2) as client:
        assert client.chat("What broke the vase?").json()["selfreflect"]["classes_by"] == "same"
