"""The generator behind OpenAI-compatible servers, over a real socket, against everything that servers do
wrong."""

from __future__ import annotations

import re
import sys
import threading
import time
from itertools import islice
from pathlib import Path
from typing import Any

import fault_server as fault
import pytest
from command import run
from fault_server import FaultServer, answers, chat, choice, in_turn, status
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from served import ask, command, generator, only, questions

from selfreflect.errors import BackendError, SelfReflectError
from selfreflect.logprobs import AnswerTokens
from selfreflect.models.base import Completion, Message, ModelSpec, Refusal, Reply, Request, Sampling, as_done
from selfreflect.models.openai.client import LARGEST_RESPONSE, RetryPolicy
from selfreflect.models.openai.generator import OpenAIGenerator
from selfreflect.models.openai.refusals import THINKING_OFF


def reply(script: Any, request: Request | None = None) -> Reply:
    with FaultServer(script) as server:
        result = only(server.url, request)
    assert isinstance(result, Reply), result
    return result


def refusal(script: Any, request: Request | None = None, **options: Any) -> tuple[Refusal, FaultServer]:
    with FaultServer(script) as server:
        result = only(server.url, request, **options)
    assert isinstance(result, Refusal), result
    assert result.message.startswith(server.url)
    return result, server


# What is asked


def test_a_call_says_everything_that_shapes_the_distribution() -> None:
    with FaultServer() as server:
        sampling = Sampling(temperature=0.7, top_p=0.9, top_k=20, min_p=0.1, max_new_tokens=33)
        request = Request(
            messages=(Message(role="system", content="Be brief."), Message(role="user", content="Hi")),
            sampling=sampling,
            n=3,
        )
        assert isinstance(only(server.url, request), Reply)
        [call] = server.calls
    assert call.path == "/v1/chat/completions"
    assert call.body == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 20,
        "min_p": 0.1,
        "repetition_penalty": 1.0,
        "max_tokens": 33,
        "n": 3,
        "seed": 0,
        "stream": False,
        "chat_template_kwargs": {"enable_thinking": False},
    }


def test_results_come_in_the_order_of_the_requests() -> None:
    with FaultServer() as server:
        requests = [ask(f"Who is {number}?", seed=100 * number) for number in range(40)]
        results = generator(server.url).generate(requests)
    assert [result.text for result in results if isinstance(result, Reply)] == [
        f"answer {request.seed}" for request in requests
    ]


def test_tokens_are_counted_and_shared_out_or_zero_where_a_server_counts_none() -> None:
    counted = reply(lambda call: answers(2), ask(n=5))
    assert ([one.tokens for one in counted.completions], counted.tokens, counted.prompt_tokens) == (
        [3] * 5,
        15,
        21,
    )
    uneven = reply(
        lambda call: chat(choice("a"), choice("b"), usage={"prompt_tokens": 4, "completion_tokens": 7}),
        ask(n=2),
    )
    assert [one.tokens for one in uneven.completions] == [4, 3]
    for usage in (
        None,
        {},
        {"completion_tokens": None},
        {"completion_tokens": "many"},
        {"completion_tokens": -3},
        12,
    ):
        silent = reply(lambda call, usage=usage: chat(choice("a"), usage=usage))
        assert (silent.tokens, silent.prompt_tokens) == (0, 0)


@settings(deadline=None, max_examples=15)
@given(n=st.integers(1, 30), most=st.integers(1, 12))
def test_what_a_server_gives_too_few_of_is_topped_up_with_seeds_of_their_own(n: int, most: int) -> None:
    with FaultServer(lambda call: answers(most)) as server:
        result = only(server.url, ask(n=n, seed=1000))
    assert isinstance(result, Reply)
    assert [one.text for one in result.completions] == [f"answer {1000 + place}" for place in range(n)]
    assert max(call.n for call in server.calls[1:]) <= most if n > most else len(server.calls) == 1


@pytest.mark.parametrize("said", ["n must be at most 3", "'n': 8 is more than the maximum of 3"])
def test_a_server_that_gives_a_few_completions_per_call_is_asked_for_as_many(said: str) -> None:
    with FaultServer(lambda call: status(400, said) if call.n > 3 else answers()) as server:
        result = only(server.url, ask(n=8, seed=0))
    assert isinstance(result, Reply)
    assert result.texts == tuple(f"answer {number}" for number in range(8))
    assert sorted(call.n for call in server.calls) == [2, 3, 3, 8]


def test_no_more_calls_are_under_way_than_allowed() -> None:
    lock, under_way, seen = threading.Lock(), [0], [0]

    def give(handler: fault.Handler, call: fault.Call) -> None:
        with lock:
            under_way[0] += 1
            seen.append(under_way[0])
        time.sleep(0.05)
        with lock:  # before the client has its answer and may ask again
            under_way[0] -= 1
        answers(1)(handler, call)

    with FaultServer(lambda call: give) as server:
        generator(server.url, max_connections=3).generate([ask(n=4, seed=10 * number) for number in range(6)])
    assert len(server.calls) == 24
    assert max(seen) == 3


# What comes back


@pytest.mark.parametrize(
    ("given_choice", "text", "finish"),
    [
        (choice(" yes \n"), "yes", "stop"),
        (choice("Mars is", "length"), "Mars is", "length"),
        *[(choice(f"Mars {token}\n"), "Mars", "stop") for token in ("</s>", "<|im_end|>", "<eos></s>")],
        (choice("</s> ends it"), "</s> ends it", "stop"),
        (choice("<|im_end|>"), "", "stop"),
        (choice(["Ma", "rs"]), "Mars", "stop"),  # type: ignore[arg-type]
        ({"message": {}, "finish_reason": "PROHIBITED_CONTENT"}, "", "content_filter"),
        ({"message": {}, "finish_reason": "SAFETY"}, "", "content_filter"),
        (choice(None, "stop"), "", "stop"),
        (choice("half a", "content_filter"), "half a", "content_filter"),
        (choice(None, "content_filter"), "", "content_filter"),
        (choice(None, refusal="I cannot help."), "I cannot help.", "refused"),
        (choice("yes", reasoning_content="Hm"), "yes", "stop"),
        (choice(None, "length", reasoning_content="Hm"), "", "unclosed_reasoning"),
        (choice("", "length", reasoning="Hm"), "", "unclosed_reasoning"),
        (choice("<think>Hm</think>yes"), "yes", "stop"),
        (choice("Hm</think>yes"), "yes", "stop"),
        (choice("<think>Hm", "length"), "", "unclosed_reasoning"),
        (
            choice(
                [{"type": "thinking", "thinking": []}, {"type": "text", "text": "yes"}, "x", {"type": "text"}]
            ),
            "yes",
            "stop",
        ),  # type: ignore[arg-type]
    ],
)
def test_how_a_completion_ended_is_told_apart(given_choice: dict[str, Any], text: str, finish: str) -> None:
    [completion] = reply(lambda call: chat(given_choice)).completions
    assert (completion.text, completion.finish) == (text, finish)


# What goes wrong: each fault, once and for ever

FAULTS: dict[str, tuple[fault.Action, str]] = {
    "429": (status(429, "slow down"), "HTTP 429 (4 tries): 'slow down'"),
    "500": (status(500, "boom"), "HTTP 500 (4 tries): 'boom'"),
    "nothing": (fault.raw(b""), "not a chat completion"),
    "503": (status(503, {"detail": "loading"}), "HTTP 503"),
    "reset in the body": (fault.reset, "the connection failed"),
    "half a document": (fault.HALF, "not a chat completion"),
    "not an object": (fault.raw(b"[1]"), "not a chat completion"),
    "deep nesting": (fault.raw(b'{"usage": ' + b"[" * 100_000 + b"}"), "not a chat completion"),
    "not UTF-8": (fault.raw(b'{"choices": [{"message": {"content": "\xff"}}]}'), "not a chat completion"),
    "half a character": (
        fault.raw(rb'{"choices": [{"message": {"content": "x\ud83d'),
        "not a chat completion",
    ),
    "error object": (fault.ERROR_OBJECT, "HTTP 502 (4 tries): 'upstream is gone'"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_passing_fault_is_tried_again_and_a_lasting_one_is_told(name: str) -> None:
    action, message = FAULTS[name]
    assert reply(in_turn(action, action, answers())).text == "answer 5"
    refused, server = refusal(lambda call: action)
    assert refused.kind == "backend"
    assert message in refused.message
    assert "(4 tries)" in refused.message
    assert len(server.calls) == 4


@pytest.mark.parametrize(
    ("action", "kind", "message"),
    [
        (status(400, "This model's maximum context length is 4096 tokens"), "too_long", "4096"),
        (
            status(
                422,
                {"error": "Input validation error: `inputs` must have less than 1024 tokens. Given: 1168"},
            ),
            "too_long",
            "1168",
        ),
        (
            status(400, "However, the model is loaded with a context length of only 4096 tokens"),
            "too_long",
            "4096",
        ),
        (status(400, "the prompt has 900 tokens, with max_tokens more than 1024"), "too_long", "1024"),
        (
            status(422, "`inputs` tokens + `max_new_tokens` must be <= 2048. Given: 1244 and 1000"),
            "too_long",
            "1244",
        ),
        (
            status(400, {"error": {"code": "content_filter", "message": "The prompt was filtered"}}),
            "content_filter",
            "filtered",
        ),
        (status(403, "not for you"), "backend", "not for you"),
        (fault.huge, "backend", "larger than 32 MB"),
    ],
)
def test_what_another_try_would_only_repeat_is_not_tried_again(
    action: fault.Action, kind: str, message: str
) -> None:
    refused, server = refusal(lambda call: action)
    assert (refused.kind, len(server.calls)) == (kind, 1)
    assert message in refused.message


def test_half_of_a_character_costs_no_answer() -> None:
    body = rb'{"choices": [{"finish_reason": "stop", "message": {"content": "x\ud83d y \ud83d\ude00"}}]}'
    assert reply(lambda call: fault.raw(body)).text == "x\ufffd y \U0001f600"


@pytest.mark.parametrize("code", [200, 500])
def test_a_body_of_100_megabytes_is_not_read(code: int) -> None:
    with FaultServer(lambda call: fault.huge) as server:
        server.huge_status = code
        result = only(server.url)
    assert isinstance(result, Refusal)
    assert server.sent < LARGEST_RESPONSE + 20 * 2**20


@pytest.mark.parametrize(
    ("action", "word"),
    [
        (status(307, "moved", Location="http://127.0.0.1:1/elsewhere"), "redirect"),
        (fault.HTML, "not_json"),
    ],
)
def test_a_wrong_address_ends_a_run_at_its_first_call(action: fault.Action, word: str) -> None:
    with FaultServer(lambda call: action) as server:
        with pytest.raises(BackendError) as raised:
            generator(server.url, max_connections=1).generate([ask(), ask("Why?")])
        assert len(server.calls) == 1
        server.script = in_turn(answers(), answers(), action)
        model = generator(server.url, max_connections=1)
        results = model.generate([ask(f"{number}") for number in range(3)])
    assert (raised.value.code, "{answers.base_url}" in raised.value.remedy) == (word, True)
    assert sum(isinstance(result, Reply) for result in results) >= 1, "it was right before"


def test_a_response_that_never_ends_runs_out_of_time() -> None:
    for action in (fault.endless, fault.silent):
        refused, server = refusal(lambda call, action=action: action, timeout=0.3)
        assert "timeout" in refused.message, "the setting"
        assert len(server.calls) >= 2


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(BackendError) as raised:
        only(f"http://127.0.0.1:{fault.unused_port()}/v1")
    assert raised.value.code == "unreachable"
    assert "{answers.base_url}" in raised.value.remedy


def test_only_a_socks_proxy_that_calls_would_take_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOCKS_PROXY", "socks5://127.0.0.1:9")  # which HTTP clients do not read
    with FaultServer() as server:
        assert isinstance(only(server.url), Reply)
        monkeypatch.setenv("ALL_PROXY", "SOCKS5://127.0.0.1:9")
        with pytest.raises(BackendError) as raised:
            only(server.url)
    assert raised.value.code == "proxy"


def test_a_certificate_that_nobody_vouches_for_and_a_server_without_tls() -> None:
    with FaultServer(tls=True) as server, pytest.raises(BackendError) as distrusted:
        only(server.url)
    assert "self-signed" in distrusted.value.message
    assert "SSL_CERT_FILE" in distrusted.value.remedy
    assert server.calls == []
    with FaultServer() as server, pytest.raises(BackendError) as plain:
        only(server.url.replace("http:", "https:"))
    assert plain.value.code == "tls"


def test_a_certificate_of_ones_own_can_be_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(fault.CERTIFICATE))
    with FaultServer(tls=True) as server:
        assert isinstance(only(server.url), Reply)


# Waiting


@given(tries=st.integers(1, 9), asked=st.none() | st.floats(0, 300), chance=st.floats(0, 1, exclude_max=True))
def test_waits_double_up_to_a_limit_and_are_never_shorter_than_asked(
    tries: int, asked: float | None, chance: float
) -> None:
    wait = RetryPolicy().wait(tries, asked, chance)
    assert wait is not None
    doubled = min(60.0, 0.5 * 2 ** (tries - 1))
    assert doubled / 2 <= wait - (asked or 0) + 1e-9
    assert wait - (asked or 0) <= doubled + 1e-9


def test_a_call_that_only_waits_ends_within_three_times_its_timeout() -> None:
    """Many tries that each fail at once: what ends the call is its time alone."""
    started = time.monotonic()
    refused, server = refusal(
        lambda call: status(503, "busy"),
        timeout=0.5,
        retries=RetryPolicy(tries=10**6, first=0.1, longest=0.1),
    )
    assert 1 < time.monotonic() - started < 100
    assert 2 <= len(server.calls) <= 30
    tries = re.search(r"\((\d+) tries\)", refused.message)
    assert tries
    assert len(server.calls) in (int(tries[1]) - 1, int(tries[1])), (
        "the last one may run out of time on its way"
    )


# Many requests


def test_at_20_percent_faults_all_requests_are_answered() -> None:
    retries = RetryPolicy(tries=12, first=0.001, longest=0.002)
    requests = [ask(f"Who is {number}?", n=4, seed=1000 * number) for number in range(60)]
    with FaultServer(fault.faulty(0.2, fault.PASSING)) as server:
        results = generator(server.url, retries=retries).generate(requests)
    for request, result in zip(requests, results, strict=True):
        assert isinstance(result, Reply)
        assert [one.text for one in result.completions] == [
            f"answer {request.seed + place}" for place in range(4)
        ]
    assert len(server.calls) > 64


def test_a_server_that_stays_down_is_given_up_after_a_few_requests() -> None:
    with FaultServer(lambda call: answers() if call.number < 5 else status(503, "gone")) as server:
        stream = as_done(
            generator(server.url, max_connections=1), [ask(seed=number) for number in range(100)]
        )
        first = [isinstance(result, Reply) for _, result in islice(stream, 7)]
        with pytest.raises(BackendError) as raised:
            next(stream)
        assert raised.value.status == 503
    assert first == [True] * 5 + [False] * 2
    assert len(server.calls) == 5 + 3 * 4


def test_a_server_that_restarts_is_waited_for() -> None:
    """Its connections break, nobody is there for a while, and then it is back at the same address."""
    notes: list[str] = []
    retries = RetryPolicy(tries=10**6, first=0.01, longest=0.05)
    requests = [ask(seed=number) for number in range(40)]
    with FaultServer(lambda call: answers() if call.number < 5 else fault.silent) as server:
        model = generator(server.url, max_connections=2, retries=retries, progress=notes.append)
        stream = as_done(model, requests)
        first = dict(islice(stream, 5))
    deadline = time.monotonic() + 200
    while not any("connect call failed" in note.lower() for note in notes):
        assert time.monotonic() < deadline, notes
        time.sleep(0.01)
    with FaultServer(port=server.port) as again:
        rest = dict(stream)
    assert sorted(first | rest) == list(range(40))
    assert all(isinstance(result, Reply) for result in (first | rest).values())
    assert again.calls


def test_results_are_given_as_soon_as_they_are_there() -> None:
    release = threading.Event()

    def script(call: fault.Call) -> fault.Action:
        def late(handler: fault.Handler, call: fault.Call) -> None:
            release.wait(200)
            answers()(handler, call)

        return late if call.seed == 0 else answers()

    with FaultServer(script) as server:
        model = generator(server.url)
        model.generate([ask()])  # what the server takes is known then
        stream = as_done(model, [ask(seed=0), ask(seed=1), ask(seed=2)])
        assert {next(stream)[0], next(stream)[0]} == {1, 2}
        release.set()
        assert [index for index, _ in stream] == [0]


def test_a_stream_that_is_dropped_leaves_no_thread_and_no_call_behind() -> None:
    with FaultServer(lambda call: fault.silent if call.number else answers()) as server:
        stream = as_done(generator(server.url, max_connections=1), [ask(seed=number) for number in range(5)])
        next(stream)
        stream.close()  # type: ignore[attr-defined]
        deadline = time.monotonic() + 200
        while any(thread.name.startswith("asyncio-portal") for thread in threading.enumerate()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert len(server.calls) <= 2


def test_without_the_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(SelfReflectError, match=r"\.\[openai\]"):
        OpenAIGenerator.load(ModelSpec("openai:m"))


# Log-probabilities


def token(text: str, logprob: Any, **fields: Any) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "top_logprobs": [], **fields}


def with_tokens(text: str, *tokens: dict[str, Any]) -> dict[str, Any]:
    return {**choice(text), "logprobs": {"content": list(tokens)}}


def told(script: Any, request: Request) -> tuple[Reply, list[str], FaultServer]:
    """The reply, and what the user was told meanwhile."""
    lines: list[str] = []
    with FaultServer(script) as server:
        result = only(server.url, request, progress=lines.append)
    assert isinstance(result, Reply), result
    return result, lines, server


def test_log_probabilities_come_with_the_tokens_of_the_answer() -> None:
    given_ = with_tokens("Paris.", token("Paris", -0.5), token(".", -1), token("<|im_end|>", -0.1))
    emoji = with_tokens(
        "<think>x</think> é",
        *[token(text, -9) for text in ("<think>", "x", "</think>", " ")],
        token("\\xc3", -1.5, bytes=[0xC3]),
        token("\\xa9", -0.25, bytes=[0xA9]),
    )
    result, lines, server = told(lambda call: chat(given_, emoji), ask(n=2, logprobs=True))
    assert server.calls[0].body["logprobs"] is True
    assert [one.text for one in result.completions] == ["Paris.", "é"]
    assert [one.logprobs for one in result.completions] == [
        AnswerTokens(("Paris", "."), (-0.5, -1.0)),
        AnswerTokens(("", "é"), (-1.5, -0.25)),
    ]
    assert lines == []


def test_the_likely_tokens_of_each_token_are_kept_in_order_without_marks() -> None:
    lists = [
        [token("Lyon", -3.0), token("Paris", -0.5), token("?", -9999.0), token("Nice", -4.0), token("a", -7)],
        [token("!", -2.0), token(".", -0.2)],
    ]
    given_ = with_tokens(
        "Paris.", token("Paris", -0.5, top_logprobs=lists[0]), token(".", -0.2, top_logprobs=lists[1])
    )
    result, _, server = told(lambda call: chat(given_), ask(logprobs=True, top_logprobs=3))
    assert server.calls[0].body["top_logprobs"] == 3
    kept = result.completions[0].logprobs
    assert isinstance(kept, AnswerTokens)
    assert kept.top == ((-0.5, -3.0, -4.0), (-0.2, -2.0))


@pytest.mark.parametrize(
    ("likely", "kept"),
    [
        ([token("Paris", -2.5)], "other_text"),  # the lists are shifted by a place
        ([token("Paris", -0.5), token("Lyon", -0.1)], "out_of_range"),
        ("nonsense", ((),)),
        ([{"token": 3}], ((),)),
        ([token("Paris", -(10**400)), token("Lyon", -1.0)], ((-1.0,),)),  # an integer beyond all floats
        (None, ((),)),
    ],
)
def test_lists_that_cannot_be_right_are_no_lists(likely: Any, kept: Any) -> None:
    given_ = with_tokens("Paris", token("Paris", -0.5, top_logprobs=likely))
    result, _, _ = told(lambda call: chat(given_), ask(logprobs=True, top_logprobs=3))
    found = result.completions[0].logprobs
    assert (found.top if isinstance(found, AnswerTokens) else found) == kept


def test_likely_first_tokens_are_those_where_the_answer_begins() -> None:
    others = [
        token("True", -0.5),
        token(" False", -2),
        token("x", -9999),
        token("y", "?"),
        token("z", 3),
        token("over", -9),
    ]
    thought = [token(text, -1, top_logprobs=[token("no", -1)]) for text in ("<think>", "x", "</think>")]
    reply = with_tokens("<think>x</think>True", *thought, token("True", -0.5, top_logprobs=others))
    result, _, server = told(lambda call: chat(reply), ask(first_tokens=3))
    body = server.calls[0].body
    assert (body["logprobs"], body["top_logprobs"]) == (True, 3)
    assert result.completions[0].logprobs is None
    assert [token.text for token in result.completions[0].first_tokens] == ["True", " False", "x"]


@pytest.mark.parametrize(
    "refusal_text",
    [
        "Invalid value for 'top_logprobs': must be less than or equal to 5.",
        "Requested sample logprobs of 20, which is greater than max allowed: 5",
        {"detail": [{"loc": ["body", "top_logprobs"], "msg": "Input should be at most 5", "input": 20}]},
        "Invalid top_logprobs value, the valid range of top_logprobs is [0, 5]",
    ],
)
def test_a_server_with_fewer_likely_tokens_refuses_once(refusal_text: Any) -> None:
    likely = [token(text, -1) for text in ("True", "False", "Yes", "No", "Maybe")]
    given_ = with_tokens("True", token("True", -1, top_logprobs=likely))

    def script(call: fault.Call) -> fault.Action:
        return status(400, refusal_text) if call.body["top_logprobs"] > 5 else chat(given_)

    with FaultServer(script) as server:
        model = generator(server.url)
        results = model.generate([ask(str(number), first_tokens=20) for number in range(9)])
        results += model.generate([ask(str(number), first_tokens=20) for number in range(9)])
    assert {len(result.completions[0].first_tokens) for result in results} == {5}
    assert [call.body["top_logprobs"] for call in server.calls] == [20, *[5] * 18]


def test_a_refusal_that_repeats_its_request_changes_nothing_for_those_beside_it() -> None:
    def script(call: fault.Call) -> fault.Action:
        if "bad" in str(call.body):
            return status(400, {"detail": [{"msg": "not allowed", "input": call.body}]})
        likely = [token(f"t{number}", -1) for number in range(call.body["top_logprobs"])]
        return chat(with_tokens("a", token("a", -1, top_logprobs=likely)))

    texts = [str(number) for number in range(40)]
    texts.insert(3, "bad")
    sampling = Sampling(max_new_tokens=9, min_p=0.1)
    requests = [replace(ask(text, first_tokens=20), sampling=sampling) for text in texts]
    notes: list[str] = []
    with FaultServer(script) as server:
        model = generator(server.url, progress=notes.append, max_connections=16)
        results = model.generate(requests)
    assert isinstance(results.pop(3), Refusal)
    assert {len(result.completions[0].first_tokens) for result in results} == {20}
    assert all("min_p" in call.body for call in server.calls if "bad" not in str(call.body))
    assert notes == []


@pytest.mark.parametrize(
    "refuses",
    [
        status(400, "Unsupported parameter: 'logprobs'"),
        status(422, "Unused fields in the request: {'logprobs'}"),
        status(403, "You are not allowed to request logprobs from this model"),
    ],
)
def test_a_server_that_refuses_log_probabilities_gives_answers_without_them(refuses: Any) -> None:
    result, lines, server = told(
        lambda call: refuses if "logprobs" in call.body else answers(), ask(n=2, logprobs=True)
    )
    assert [one.text for one in result.completions] == ["answer 5", "answer 6"]
    assert {one.logprobs for one in result.completions} == {"not_returned"}
    assert len(server.calls) == 2
    [line] = lines
    assert "the server does not return log-probabilities; the answers are kept without" in line


@pytest.mark.parametrize("value", [None, {}, {"content": None}, {"content": []}, {"content": [{"token": 1}]}])
def test_a_server_that_ignores_log_probabilities_is_noticed_once(value: Any) -> None:
    lines: list[str] = []
    with FaultServer(lambda call: chat({**choice("yes"), "logprobs": value})) as server:
        model = generator(server.url, progress=lines.append)
        results = model.generate([ask(str(number), logprobs=True) for number in range(4)])
    for result in results:
        assert isinstance(result, Reply)
        assert (result.text, result.completions[0].logprobs) == ("yes", "not_returned")
    assert len(lines) == 1


def test_values_that_are_no_log_probabilities_cost_no_answers() -> None:
    """NaN and Infinity are no JSON, though many servers write them."""
    for value in ("NaN", "-Infinity", "0.7", '"high"', "true", "1e999", "null"):
        body = (
            '{"choices": [{"finish_reason": "stop", "message": {"content": "NaN yes"}, '
            '"logprobs": {"content": '
            '[{"token": "NaN", "logprob": -1}, {"token": " yes", "logprob": ' + value + "}]}}]}"
        )
        result, [line], _ = told(lambda call, body=body: fault.raw(body.encode()), ask(logprobs=True))
        assert (result.text, result.completions[0].logprobs) == ("NaN yes", "out_of_range"), value
        assert "not a number of at most 0; such an answer is kept" in line


CUT = choice("Let me think about", "length")
"""Nothing in its own text says whether this is an answer or a trace."""


def completions(*choices: dict[str, Any]) -> list[Completion]:
    with FaultServer(lambda call: chat(*choices)) as server:
        reply = only(server.url, ask(n=len(choices)))
    assert isinstance(reply, Reply)
    return list(reply.completions)


def test_what_is_cut_off_before_a_trace_of_the_prompt_ends_is_no_answer() -> None:
    found = completions(
        choice("Hm</think>yes"), CUT, choice("Hm</think>yes and", "length"), choice("Hm</think>no")
    )
    expected = [("yes", "stop"), ("", "unclosed_reasoning"), ("yes and", "length"), ("no", "stop")]
    assert [(one.text, one.finish) for one in found] == expected


@pytest.mark.parametrize(
    "ended", [[], [choice("yes")], [choice("no")] * 3 + [choice("Write </think> to stop it.")]]
)
def test_what_is_cut_off_where_no_trace_is_to_be_seen_is_a_cut_off_answer(
    ended: list[dict[str, Any]],
) -> None:
    last = completions(*ended, CUT)[-1]
    assert (last.text, last.finish) == ("Let me think about", "length")


def test_completions_of_several_calls_tell_of_each_other() -> None:
    with FaultServer(
        in_turn(chat(CUT), chat(choice("Hm</think>yes")), chat(choice("Hm</think>yes")))
    ) as server:
        reply = only(server.url, ask(n=3), max_connections=1)
    assert isinstance(reply, Reply)
    assert [one.finish for one in reply.completions] == ["unclosed_reasoning", "stop", "stop"]


def test_replies_before_tell_whether_the_prompt_begins_a_trace() -> None:
    with FaultServer(in_turn(chat(choice("Hm</think>yes")), chat(CUT), chat(CUT))) as server:
        asked = generator(server.url)
        replies = [asked.generate([ask(thinking=thinking)])[0] for thinking in (True, True, False)]
    assert [reply.completions[0].finish for reply in replies if isinstance(reply, Reply)] == [
        "stop",
        "unclosed_reasoning",
        "length",
    ]


def test_a_model_that_only_reasons_is_not_asked_all_questions(tmp_path: Path) -> None:
    thoughts = choice("", "length", reasoning="Let me see. " * 9)
    with FaultServer(lambda call: chat(*[thoughts] * call.n)) as server:
        out = run(*command(tmp_path / "run", server.url, questions(tmp_path / "asked.txt", 20)))
    assert out.code == 2
    assert "--max-new-tokens" in out.stderr
    # short calls, words, other ways not to think, and a whole text
    assert len(server.calls) <= 5 + len(THINKING_OFF)
