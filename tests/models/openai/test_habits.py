"""What servers of many kinds do: each habit of the table is met over a socket, and costs what it must."""

from __future__ import annotations

import gzip
import json
from itertools import cycle
from pathlib import Path
from typing import Any

import fault_server as fault
import pytest
from command import run
from fault_server import FaultServer, answers, chat, choice, in_turn, status
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from msgspec.structs import replace
from served import ask, command, generator, only, questions
from server_habits import (
    ENDED,
    FILTERED,
    LASTING,
    REFUSALS,
    SERVERS,
    SYSTEM_REFUSALS,
    UNFINISHED,
    copying,
    dates,
    odd,
    said,
    strict,
)

from selfreflect.errors import BackendError
from selfreflect.logprobs import AnswerTokens
from selfreflect.models.backend import load_generator
from selfreflect.models.base import Message, ModelSpec, Refusal, Reply, Sample, Sampling
from selfreflect.models.openai.client import RetryPolicy, retry_after
from selfreflect.models.openai.refusals import THINKING_OFF
from selfreflect.store.run import Run


@pytest.mark.parametrize(
    ("layout", "field"),
    [
        (layout, field)
        for layout, pair in zip(REFUSALS, cycle(["seed min_p", "top_p top_k"]))
        for field in pair.split()
    ],
)
def test_a_field_that_is_refused_costs_one_call_of_many(layout: str, field: str) -> None:
    with FaultServer(strict(field, REFUSALS[layout])) as server:
        model = generator(server.url, max_connections=8)
        results = model.generate([ask(f"Number {number}?", n=2) for number in range(8)])
        refused = [call for call in server.calls if field in call.body]
    assert all(isinstance(result, Reply) for result in results)
    # top_k has two neutral values, so where the words leave it open, the second is tried as well
    assert len(refused) <= (2 if field == "top_k" else 1)
    assert model.facts["refused"] == {field: "left out"}


@pytest.mark.parametrize(
    ("layout", "name", "value"),
    [(layout, *fields) for layout, fields in zip(REFUSALS, cycle([("temperature", 0.7), ("top_p", 0.9)]))],
)
def test_no_layout_gets_a_field_dropped_that_changes_the_distribution(
    layout: str, name: str, value: float, tmp_path: Path
) -> None:
    with FaultServer(strict(name, REFUSALS[layout])) as server:
        flag = f"--{name.replace('_', '-')}"
        asked = questions(tmp_path / "q.txt", 3)
        done = run(*command(tmp_path / "r", server.url, asked, flag, value))
        given_values = [call.body.get(name) for call in server.calls]
    assert done.code == 2, done.said
    assert name in done.said
    assert given_values == [value]
    assert not (tmp_path / "r" / "answers.jsonl").exists()


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_as_its_users_report_it_answers_all_questions(name: str) -> None:
    habit = SERVERS[name]
    turns = (Message(role="system", content="Be brief."), Message(role="user", content="Who?"))
    notes: list[str] = []
    with FaultServer(habit) as server:
        model = generator(server.url, max_connections=8, progress=notes.append)
        results = model.generate([replace(ask(seed=9 * n, n=2), messages=turns) for n in range(8)])
    assert all(isinstance(result, Reply) and len(result.completions) == 2 for result in results), results
    assert all({*habit.left.split()} <= call.body.keys() for call in server.calls), "the server takes these"
    assert sum(bool(habit.refused(call)) for call in server.calls) <= habit.most_refused
    assert len(notes) <= 1, notes


@pytest.mark.parametrize("name", LASTING)
def test_what_every_call_would_meet_ends_a_run_behind_any_status(name: str) -> None:
    http_status, body, code = LASTING[name]
    with FaultServer(lambda call: said(http_status, body)) as server, pytest.raises(BackendError) as ended:
        generator(server.url, max_connections=1).generate([ask(str(n)) for n in range(5)])
    assert ended.value.code == code
    assert server.url in ended.value.message
    assert len(server.calls) == 1
    assert ended.value.remedy or code == "credit"


@pytest.mark.parametrize(
    "action",
    [
        status(429, {"error": {"message": "quota", "details": [{"@type": "RetryInfo", "retryDelay": "7s"}]}}),
        status(429, "slow down", Retry_After_Ms="7000"),
        status(503, "overloaded", Retry_After="7"),
        status(429, "slow down", Retry_After="7s"),
    ],
)
def test_a_time_to_come_back_is_read_wherever_it_stands(action: fault.Action) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    with FaultServer(in_turn(action, answers())) as server:
        assert isinstance(only(server.url, retries=RetryPolicy(sleep=sleep), timeout=60.0), Reply)
    [wait] = waits
    assert 7 < wait < 9


def test_a_value_for_every_token_is_said_in_another_way_before_it_is_dropped() -> None:
    refusal = {"detail": [{"type": "greater_than_equal", "loc": ["body", "top_k"], "msg": "at least 0"}]}
    with FaultServer(lambda call: status(422, refusal) if call.body["top_k"] < 0 else answers()) as server:
        model = generator(server.url)
        model.generate([ask(), ask("Why?")])
    assert [call.body["top_k"] for call in server.calls] == [-1, 0, 0]
    assert model.facts["refused"] == {"top_k": "0 for every token"}


@pytest.mark.parametrize("name", SYSTEM_REFUSALS)
def test_a_server_without_system_turns_is_asked_without_them(name: str) -> None:
    def script(call: fault.Call) -> fault.Action:
        has_system = any(turn["role"] != "user" for turn in call.body["messages"])
        return SYSTEM_REFUSALS[name] if has_system else chat(choice("Oz"))

    turns = (Message(role="system", content="Be brief."), Message(role="user", content="Who?"))
    with FaultServer(script) as server:
        model = generator(server.url)
        results = model.generate([replace(ask(f"{n}"), messages=turns) for n in range(4)])
        later = generator(server.url)
        later.learned = model.learned
        assert isinstance(later.generate([replace(ask(), messages=turns)])[0], Reply)
    assert all(isinstance(result, Reply) for result in results), results
    assert server.calls[-1].body["messages"] == [{"role": "user", "content": "Be brief.\n\nWho?"}]
    assert "system role" in model.facts["refused"]


@pytest.mark.parametrize("name", FILTERED)
def test_a_filtered_question_is_one_failure_and_asked_once(name: str) -> None:
    with FaultServer(lambda call: FILTERED[name]) as server:
        results = generator(server.url, max_connections=1).generate([ask(f"{n}") for n in range(4)])
    kinds = {
        result.kind if isinstance(result, Refusal) else result.completions[0].finish for result in results
    }
    assert kinds == {"content_filter"}
    assert len(server.calls) == 4


def test_a_server_that_repeats_one_text_in_a_call_is_asked_for_one_at_a_time(tmp_path: Path) -> None:
    with FaultServer(copying) as server:
        done = run(*command(tmp_path / "r", server.url, questions(tmp_path / "q.txt", 3)))
    assert done.code == 0, done.said
    stored = Run.load(tmp_path / "r")
    assert [len({*answer_set.answers}) for answer_set in stored.answers.values()] == [4] * 3
    assert stored.manifest.models["answers"]["refused"] == {"n": "one completion per call"}
    assert stored.manifest.checks["answers"]["replies"] == "differ"
    assert sum(call.n > 1 for call in server.calls) == 3  # the last one decides


def test_texts_that_are_equal_by_chance_are_no_copies() -> None:
    def script(call: fault.Call) -> fault.Action:
        texts = ["Emerald City"] * 2 if call.n == 2 else [f"text {call.number} {n}" for n in range(call.n)]
        return chat(*map(choice, texts))

    with FaultServer(script) as server:
        model = generator(server.url, max_connections=1)
        model.generate([ask(f"{n}", n=2) for n in range(6)])
    assert "refused" not in model.facts


def test_a_sure_model_goes_on_with_several_texts_a_call() -> None:
    with FaultServer(lambda call: chat(*[choice("Paris")] * call.n)) as server:
        results = generator(server.url, max_connections=1).generate([ask(f"{n}", n=4) for n in range(9)])
    assert all(isinstance(result, Reply) and set(result.texts) == {"Paris"} for result in results)
    assert sum(call.n == 4 for call in server.calls) == 9
    assert len(server.calls) <= 9 + 3


@pytest.mark.parametrize("way", range(len(THINKING_OFF)))
def test_each_way_to_switch_thinking_off_is_found(way: int) -> None:
    def script(call: fault.Call) -> fault.Action:
        unknown = [name for each in THINKING_OFF[:way] for name in each if name in call.body]
        if unknown:
            return status(400, f"unknown field {unknown[0]}")
        if THINKING_OFF[way].items() <= call.body.items():
            return answers()
        return chat(*[choice("", "length", thinking="Let me see")] * call.n)

    with FaultServer(script) as server:
        model = generator(server.url, max_connections=1)
        results = model.generate([ask(f"{n}", n=2) for n in range(3)])
    assert [result.ends for result in results if isinstance(result, Reply)] == [{"stop": 2}] * 3
    assert model.facts["refused"] == THINKING_OFF[way]


def test_a_server_that_asks_for_a_way_not_to_think_gets_it(tmp_path: Path) -> None:
    """DashScope refuses calls of some models that hold no ``enable_thinking``."""
    said_so = "parameter.enable_thinking must be set to false for non-streaming calls"

    def script(call: fault.Call) -> fault.Action:
        texts = [choice(f"text {call.number} {place}") for place in range(call.n)]
        return chat(*texts) if call.body.get("enable_thinking") is False else status(400, said_so)

    with FaultServer(script) as server:
        done = run(*command(tmp_path / "r", server.url, questions(tmp_path / "q.txt", 3)))
        refused = [call.number for call in server.calls if "enable_thinking" not in call.body]
    assert done.code == 0, done.said
    assert refused == [0]
    assert Run.load(tmp_path / "r").manifest.models["answers"]["refused"] == {"enable_thinking": False}


def test_log_probabilities_that_need_likely_tokens_get_them(tmp_path: Path) -> None:
    def script(call: fault.Call) -> fault.Action:
        tokens = {"content": [{"token": "Oz", "logprob": -1.0}]} if call.body.get("top_logprobs") else None
        texts = [{**choice("Oz"), "logprobs": tokens}] * call.n
        return chat(*texts)

    with FaultServer(script) as server:
        model = generator(server.url)
        results = model.generate([ask(f"{n}", logprobs=True) for n in range(5)])
    given_tokens = {result.completions[0].logprobs for result in results if isinstance(result, Reply)}
    assert given_tokens == {AnswerTokens(("Oz",), (-1.0,))}


@pytest.mark.parametrize("form", range(4))
def test_a_date_to_come_back_is_read_in_each_form(form: int) -> None:
    seconds = retry_after(dates(60)[form])
    assert seconds is not None
    assert 50 < seconds <= 60


@pytest.mark.parametrize(
    ("header", "waits"),
    [
        ("86400", False),
        ("1e400", False),
        ("Fri, 31 Dec 9999 23:59:59 GMT", False),
        ("-5", True),
        ("nan", True),
        ("", True),
        ("soon", True),
        ("Thu, 01 Jan 1970 00:00:00 GMT", True),
        ("0", True),
        ("1" * 400, False),
    ],
)
def test_an_absurd_time_to_come_back_neither_hangs_nor_breaks_a_run(header: str, waits: bool) -> None:
    slow = status(429, "slow down", Retry_After=header)
    with FaultServer(in_turn(slow, answers())) as server:
        result = only(server.url, retries=RetryPolicy(tries=3, first=0.001, longest=0.002))
    assert isinstance(result, Reply if waits else Refusal)
    assert len(server.calls) == (2 if waits else 1)


WORDS = [(word, finish) for finish, words in ENDED.items() for word in words.split()]


@pytest.mark.parametrize(("word", "finish"), WORDS)
def test_a_word_for_the_end_of_a_text_is_known(word: str, finish: str) -> None:
    for ending in (word, {"type": word}):
        with FaultServer(lambda call, ending=ending: chat(choice("Oz", ending))) as server:
            result = only(server.url)
        assert isinstance(result, Reply)
        assert result.ends == {finish: 1}


_KNOWN = {word for word, _ in WORDS}
_FINISHES = some.one_of(
    some.sampled_from([*_KNOWN, *UNFINISHED]),
    some.none(),
    some.text(max_size=12),
    some.integers(),
    some.booleans(),
    some.lists(some.text(max_size=3), max_size=2),
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(finishes=some.lists(_FINISHES, min_size=1, max_size=4), faults=some.lists(some.booleans(), max_size=4))
def test_no_text_that_did_not_end_becomes_an_answer(finishes: list[Any], faults: list[bool]) -> None:
    """Texts of the first call are halves; whole ones say so. Plain calls, and the output of a batch."""
    choices = []
    for place, finish in enumerate(finishes):
        fault_here = place < len(faults) and faults[place]
        ended = isinstance(finish, str) and finish in _KNOWN and not fault_here
        given_choice = odd(finish) if not ended else choice("whole", finish)
        choices.append({**given_choice, **({"error": {"code": 502, "message": "x"}} if fault_here else {})})
    whole = [choice("whole")]
    with FaultServer(lambda call: chat(*choices) if call.n == len(choices) > 1 else chat(*whole)) as server:
        model = generator(server.url)
        events = list(model.stream_samples([ask(n=max(2, len(choices)))]))
    texts = [event.completion for _, event in events if isinstance(event, Sample)]
    texts += [each for _, event in events if isinstance(event, Reply) for each in event.completions]
    assert {completion.text for completion in texts if completion.finish in ("stop", "length")} <= {"whole"}


@pytest.mark.parametrize("word", ["error", "OTHER", None])
def test_a_model_of_litellm_gives_no_half_texts(word: str | None) -> None:
    """LiteLLM itself makes unknown words, and none, to "stop"."""
    with FaultServer(lambda call: chat(odd(word), id="x", model="m", created=1)) as server:
        model = load_generator(ModelSpec("litellm:openai/m", base_url=server.url))
        model._retries = RetryPolicy(tries=2, first=0.001, longest=0.002)  # type: ignore[attr-defined]
        [result] = model.generate([ask()])
    completions = result.completions if isinstance(result, Reply) else ()
    assert not [each for each in completions if each.text and each.finish in ("stop", "length")]


def test_a_content_of_parts_is_joined_without_its_reasoning() -> None:
    parts = [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "Emerald "}]
    parts += [{"type": "output_text", "text": "City"}, {"type": "image"}]
    for content in (parts, [{"text": "Emerald City"}], {"type": "text", "text": "Emerald City"}):
        with FaultServer(lambda call, content=content: chat(choice(content))) as server:
            result = only(server.url)
        assert isinstance(result, Reply)
        assert result.texts == ("Emerald City",)


@pytest.mark.parametrize(
    "given_choice",
    [
        choice(None, reasoning_content="Emerald City"),
        choice("", reasoning_details=[{"type": "reasoning.text", "text": "Emerald City"}]),
        choice("", thinking_blocks=[{"type": "thinking", "thinking": "Emerald City"}]),
        choice("", "length"),  # it hides what it thinks, as OpenAI's models do
    ],
)
def test_an_answer_that_stands_in_the_reasoning_is_none(given_choice: dict[str, Any]) -> None:
    """Some servers put all of it there, whatever was asked."""
    with FaultServer(lambda call: chat(given_choice)) as server:
        result = only(server.url)
    assert isinstance(result, Reply)
    assert result.ends == {"unclosed_reasoning": 1}


@pytest.mark.parametrize("kind", ["text/plain", "text/html; charset=utf-8", "application/octet-stream"])
def test_a_response_is_read_whatever_its_type_and_compression(kind: str) -> None:
    data = json.dumps({"choices": [choice("Oz")]}).encode()
    for encoding, packed in (("identity", data), ("gzip", gzip.compress(data))):
        headers = {"Content-Type": kind, "Content-Encoding": encoding}
        with FaultServer(
            lambda call, a=packed, h=headers: lambda handler, call: handler.send(200, a, h)
        ) as server:
            result = only(server.url)
        assert isinstance(result, Reply)
        assert result.texts == ("Oz",)


def test_a_question_about_fields_is_no_refusal_of_them() -> None:
    """A server may quote what it was asked, with line ends and quotes as JSON writes them."""
    text = 'Is "seed" a word?\nWhat of temperature 0.7?'
    warm = replace(ask(text), sampling=Sampling(temperature=0.7, max_new_tokens=9))
    with FaultServer(lambda call: status(400, f"cannot answer {json.dumps(text)}")) as server:
        model = generator(server.url)
        model.learned.accepted.add(("temperature", "0.7"))
        [result] = model.generate([warm])
    assert isinstance(result, Refusal)
    assert all("seed" in call.body for call in server.calls[:1])


@pytest.mark.parametrize(
    "said_so",
    [
        "The model is still loading.",
        "Server overloaded, try again later",
        "Too many concurrent requests.",
        "请稍后重试",
    ],
)
def test_a_busy_server_that_calls_itself_a_bad_request_teaches_nothing(said_so: str) -> None:
    with FaultServer(in_turn(status(400, said_so), status(400, said_so), answers())) as server:
        model = generator(server.url)
        assert all(isinstance(result, Reply) for result in model.generate([ask(), ask("Why?")]))
        assert "refused" not in model.facts
    with FaultServer(strict("seed", lambda field: status(400, f"{said_so} No {field} here."))) as server:
        model = generator(server.url)
        assert isinstance(model.generate([ask()])[0], Reply)
    assert model.facts["refused"] == {"seed": "left out"}


def test_a_compression_that_is_none_is_given_up_within_seconds() -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    with FaultServer(lambda call: lambda handler, call: handler.send(200, b"{}", headers)) as server:
        result = only(server.url, retries=RetryPolicy(tries=10, first=0.001, longest=0.002))
    assert isinstance(result, Refusal)
    assert len(server.calls) == 5


@pytest.mark.parametrize("given_choices", [[odd("whatever")], [odd(None)], []])
def test_a_server_that_ends_no_text_is_given_up_within_seconds(given_choices: list[dict[str, Any]]) -> None:
    with FaultServer(lambda call: chat(*given_choices)) as server:
        result = only(server.url, retries=RetryPolicy(tries=10, first=0.001, longest=0.002))
    assert isinstance(result, Refusal)
    assert len(server.calls) == 5
    assert not given_choices or not given_choices[0]["finish_reason"] or "whatever" in result.message
