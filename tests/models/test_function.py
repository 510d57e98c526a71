"""A user's own function as a model."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from command import run
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.errors import ConfigError
from selfreflect.models.backend import load_generator
from selfreflect.models.base import Message, ModelSpec, Refusal, Reply, Request, Sampling
from selfreflect.models.function import FunctionGenerator
from selfreflect.store.run import Run

SAMPLING = Sampling(temperature=0.5, top_p=0.75, max_new_tokens=7)
CONVERSATION = (Message(role="system", content="Be brief."), Message(role="user", content="Why?"))


def request(n: int = 1, seed: int = 3) -> Request:
    return Request(messages=CONVERSATION, sampling=SAMPLING, n=n, seed=seed)


def reply(function: Any, n: int = 1) -> Reply | Refusal:
    [result] = FunctionGenerator(function, "mine:f").generate([request(n)])
    return result


def texts(function: Any, n: int = 1) -> list[str]:
    result = reply(function, n)
    assert isinstance(result, Reply), result
    return [completion.text for completion in result.completions]


def test_the_function_gets_the_conversation_and_all_options() -> None:
    calls = []

    def generate(messages: list[dict[str, str]], **options: Any) -> str:
        calls.append((messages, options))
        return " Because. "

    assert texts(generate, 2) == ["Because.", "Because."]
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    common = {"temperature": 0.5, "top_p": 0.75, "max_tokens": 7}
    assert calls == [(messages, {**common, "n": 2, "seed": 3}), (messages, {**common, "n": 1, "seed": 4})]


def test_it_may_return_fewer_texts_than_wanted_or_more() -> None:
    calls = []

    def two(messages: Any, n: int) -> Sequence[str]:
        calls.append(n)
        return ("a", "b")

    assert texts(two, 3) == ["a", "b", "a"]
    assert calls == [3, 1]


def test_a_reasoning_trace_is_taken_off() -> None:
    assert texts(lambda messages: "<think>Hm.</think> Yes.") == ["Yes."]
    result = reply(lambda messages: "<think>Hm.")
    assert isinstance(result, Reply)
    assert result.completions[0].finish == "unclosed_reasoning"


def test_an_exception_costs_one_question() -> None:
    def generate(messages: Any, seed: int) -> str:
        if seed == 1:
            raise ValueError("no \x1b[31mquota")
        return "Yes."

    first, second, third = FunctionGenerator(generate, "mine:f").generate([request(seed=s) for s in range(3)])
    assert isinstance(first, Reply)
    assert isinstance(third, Reply)
    assert isinstance(second, Refusal)
    assert second.kind == "backend"
    assert second.message.startswith("mine:f raised ValueError: 'no \\x1b[31mquota' (line ")
    assert second.message.endswith(" of test_function.py)")


@given(
    st.none() | st.integers() | st.binary() | st.lists(st.none() | st.integers(), min_size=1) | st.just([])
)
def test_what_is_no_text_is_a_refusal(value: object) -> None:
    result = reply(lambda messages: value)
    assert isinstance(result, Refusal)
    assert result.message.startswith("mine:f returned ")


@pytest.mark.parametrize("function", [lambda: "x", lambda messages, model: "x", "mine:f", None])
def test_a_function_that_cannot_be_called_is_refused_at_once(function: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        FunctionGenerator(function)
    assert raised.value.code == "function"


MINE = """
def generate(messages, seed):
    question = messages[-1]["content"]
    if "broken" in question:
        raise RuntimeError("not today")
    return f"Canberra {seed % 3}."
"""


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("selfreflect_gen.py").write_text(MINE)
    return tmp_path


def test_a_run_draws_from_a_function_and_records_it(workdir: Path) -> None:
    Path("questions.txt").write_text("Which city?\nWhich broken city?\n")
    done = run(
        *("run", "--questions", "questions.txt", "--model", "selfreflect_gen:generate", "--out", "run"),
        *("--strategies", "greedy", "--num-answers", "2", "--measures", "information", "--no-controls"),
    )
    assert done.code == 1, done.stderr
    records = Run.load(Path("run"))
    [answers] = records.answers.values()
    assert set(answers.answers) <= {"Canberra 0.", "Canberra 1.", "Canberra 2."}
    assert len(records.summaries) == 1
    assert {failure.kind for failure in records.failures} == {"backend"}
    assert "RuntimeError: 'not today' (line 5 of selfreflect_gen.py)" in records.failures[0].message
    facts = json.loads(Path("run/manifest.json").read_text())["models"]["answers"]
    digest = hashlib.sha256(MINE.encode()).hexdigest()
    assert facts == {"name": "selfreflect_gen:generate", "revision": "", "source_sha256": digest}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("selfreflect_nothing:f", "'selfreflect_nothing'"),
        ("opnai:gpt", "'openai'"),
        ("selfreflect_gen:f", "'f'"),
        ("selfreflect_gen:__name__", "'__name__'"),
    ],
)
def test_a_missing_module_or_function_is_said(workdir: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_generator(ModelSpec(name))


def slow(active: list[int], most: list[int], workers: int) -> Any:
    lock = threading.Lock()
    together = threading.Barrier(workers, timeout=200)

    def generate(messages: Any, seed: int) -> str:
        with lock:
            active[0] += 1
            most[0] = max(most[0], active[0])
        together.wait()
        with lock:
            active[0] -= 1
        if seed == 5:
            raise OSError("no service")
        return f"answer {seed}"

    return generate


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_call_the_function_at_once_and_keep_the_order(workers: int) -> None:
    active, most = [0], [0]
    generator = FunctionGenerator(slow(active, most, workers), "mine:f", workers=workers)
    results = generator.generate([request(n=2, seed=2 * number) for number in range(6)])
    texts = [
        [one.text for one in result.completions] if isinstance(result, Reply) else result
        for result in results
    ]
    assert texts[:2] + texts[3:] == [
        [f"answer {2 * number}", f"answer {2 * number + 1}"] for number in (0, 1, 3, 4, 5)
    ]
    assert texts[2] == Refusal(kind="backend", message=texts[2].message)
    assert "no service" in texts[2].message
    assert most == [workers]


def test_an_async_function_answers_many_requests_at_once_in_one_loop() -> None:
    loops, active, most = set(), [0], [0]

    async def generate(messages: Any, seed: int) -> str:
        loops.add(asyncio.get_running_loop())
        active[0] += 1
        most[0] = max(most[0], active[0])
        await asyncio.sleep(0.1)
        active[0] -= 1
        return f"answer {seed}"

    results = FunctionGenerator(generate).generate([request(seed=number) for number in range(8)])
    assert [result.text for result in results if isinstance(result, Reply)] == [
        f"answer {n}" for n in range(8)
    ]
    assert len(loops) == 1
    assert most[0] > 4


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("code", [0, 3])
def test_an_exit_in_a_function_is_a_failure_of_its_question(workers: int, is_async: bool, code: int) -> None:
    def generate(messages: Any) -> str:
        raise SystemExit(code)

    async def generate_async(messages: Any) -> str:
        raise SystemExit(code)

    function: Any = generate_async if is_async else generate
    results = FunctionGenerator(function, workers=workers).generate([request(), request()])
    assert [result.kind for result in results if isinstance(result, Refusal)] == ["backend"] * 2
