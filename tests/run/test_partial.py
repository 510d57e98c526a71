"""A question that is interrupted goes on where it stood: what had ended is not drawn again, and the answers
are those of a run that nobody disturbed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from contextlib import chdir
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from command import COMMAND, environment, run, written
from fault_server import FaultServer, answers
from msgspec.structs import replace

from selfreflect.answers import draw_answers
from selfreflect.logprobs import AnswerTokens
from selfreflect.models.base import Generator, Sampling
from selfreflect.models.function import FunctionGenerator
from selfreflect.models.local.generator import HFGenerator
from selfreflect.models.openai.endpoint import endpoint
from selfreflect.models.openai.generator import OpenAIGenerator
from selfreflect.prompts import load_prompts
from selfreflect.records import AnswerSample, AnswerSet, Failure, Question, Summary, from_plain
from selfreflect.run.stages import StageTask, without_results
from selfreflect.store.run import Run

QUESTION = Question(id="q", text="What grows in a garden?")
COUNT = 6

MODEL = """
import os, signal
from pathlib import Path

CALLS = Path(__file__).with_name("calls")

def generate(messages, seed):
    with CALLS.open("a") as calls:
        calls.write("x")
    if CALLS.stat().st_size == 60:
        os.kill(os.getpid(), signal.{signal})
    return f"answer {{seed % 1000}}"
"""


def draw(generator: Generator, earlier: Any = (), *, logprobs: bool = False, **settings: Any) -> Any:
    return draw_answers(
        [QUESTION],
        generator,
        num_answers=COUNT // 2,
        prompts=load_prompts(),
        sampling=Sampling(max_new_tokens=9, **settings),
        logprobs=logprobs,
        stored_samples={"q": tuple(earlier)},
    )


@pytest.fixture
def local(tmp_path: Path) -> HFGenerator:
    import tiny

    model = tiny.save(tmp_path / "model", "llama", max_position_embeddings=2000)
    return HFGenerator.load(str(model), device="cpu", batch_size=2)


def assert_continued(generator: Generator, drawn: Callable[[], int]) -> None:
    """What was drawn before is in the answers and is not drawn again.

    Args:
        drawn: how many completions the model has made so far.
    """
    *_, whole = draw(generator)
    assert isinstance(whole, AnswerSet)
    stream = draw(generator)
    samples = list(islice(stream, 4))
    stream.close()
    assert all(isinstance(sample, AnswerSample) for sample in samples)
    assert sorted(whole.answers[sample.index] for sample in samples) == sorted(one.text for one in samples)
    before = drawn()
    *_, resumed = draw(generator, samples)
    assert resumed == whole
    assert drawn() - before == COUNT - 4


def test_answers_go_on_with_their_log_probabilities(local: HFGenerator) -> None:
    *_, whole = draw(local, logprobs=True)
    assert all(isinstance(tokens, AnswerTokens) for tokens in whole.logprobs)
    stream = draw(local, logprobs=True)
    samples = [from_plain(AnswerSample, one.to_dict()) for one in islice(stream, 4)]
    stream.close()
    *_, resumed = draw(local, samples, logprobs=True)
    assert replace(resumed, logprobs=()) == replace(whole, logprobs=())
    for one, other in zip(resumed.logprobs, whole.logprobs, strict=True):
        # a prompt that was kept and one that is computed whole differ in their last bits
        assert one.texts == other.texts
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
        assert one.self_certainty == pytest.approx(other.self_certainty, abs=1e-4)
    *_, plain = draw(local, samples)
    assert plain.logprobs == ()


def test_a_local_model_draws_only_what_is_missing(local: HFGenerator) -> None:
    ended = 0

    def count(tokens: int, here: int) -> None:
        nonlocal ended
        ended += here

    local.on_step = count
    assert_continued(local, lambda: ended)


def test_a_server_is_asked_only_for_what_is_missing() -> None:
    with FaultServer(lambda call: answers(1)) as server:
        generator = OpenAIGenerator("m", endpoint(server.url), max_connections=1)
        *_, whole = draw(generator)
        samples = [sample for sample in draw(generator) if isinstance(sample, AnswerSample)]
        kept = [sample for sample in samples if sample.index in (0, 2, 5)]
        first = len(server.calls)
        *_, resumed = draw(generator, kept)
        seeds = sorted(call.seed - server.calls[0].seed for call in server.calls[first:])
        first = len(server.calls)
        assert list(draw(generator, samples)) == [whole]
    assert resumed == whole
    assert len(samples) == COUNT
    assert len(server.calls) == first, "nothing was missing but the answer set"
    assert seeds == [1, 3, 4]


def test_a_function_is_called_only_for_what_is_missing() -> None:
    calls = []

    def generate(messages: Any, seed: int) -> str:
        calls.append(seed)
        return f"answer {seed}"

    generator = FunctionGenerator(generate)
    assert_continued(generator, lambda: len(calls))
    *samples, whole = draw(generator)
    del samples[1]  # somebody deleted a damaged line
    assert list(draw(generator, samples))[-1] == whole


def test_answers_of_other_settings_or_another_model_are_not_used(local: HFGenerator) -> None:
    samples = [one for one in draw(local, temperature=0.5) if isinstance(one, AnswerSample)]
    *_, whole = draw(local)
    assert list(draw(local, samples))[-1] == whole
    local.revision = "other"
    *_, other = draw(local, [one for one in draw(local) if isinstance(one, AnswerSample)])
    local.revision = "third"
    *_, third = draw(local, samples)
    assert (other.answers, third.answers) == (whole.answers, whole.answers)


def test_a_dry_run_counts_only_what_is_missing(local: HFGenerator, tmp_path: Path) -> None:
    questions = written(tmp_path / "q.json", ["What grows?"])
    out = tmp_path / "r"
    command = f"answers --questions {questions} --num-answers 3 --max-new-tokens 9 --out {out}".split()
    command += ["--model", local.name, "--device", "cpu"]
    assert run(*command).code == 0
    [question] = Run.load(out).questions.values()
    settings = {"num_answers": 3, "prompts": load_prompts(), "sampling": Sampling(max_new_tokens=9)}
    *samples, _ = draw_answers([question], local, **settings)
    (out / "answers.jsonl").unlink()
    with Run.open(out, {}) as stored:
        stored.append_all(samples[:4])
    [line] = run(*command, "--dry-run", "--json").json
    assert line["dry_run"][0]["completions"]["most"] == 2


@pytest.mark.parametrize("end", ["SIGKILL", "SIGINT"])
def test_a_run_that_is_ended_in_a_question_keeps_all_that_was_returned(tmp_path: Path, end: str) -> None:
    """59 texts had been returned when the signal came, during the call for the sixtieth."""
    written(tmp_path / f"ended_by_{end}.py", MODEL.format(signal=end))  # each is imported here too
    questions = written(tmp_path / "q.json", ["What grows?"])
    model = f"ended_by_{end}:generate"
    command = f"answers --questions {questions} --num-answers 50 --model {model} --out r".split()
    killed = subprocess.run([*COMMAND, *command], cwd=tmp_path, env=environment(), capture_output=True)
    assert killed.returncode == {"SIGKILL": -9, "SIGINT": 130}[end], killed.stderr
    [file] = (tmp_path / "r" / "partial").iterdir()
    assert len(file.read_text().splitlines()) == 59
    with chdir(tmp_path):
        resumed = run(*command)
    assert resumed.code == 0, resumed.stderr
    assert len((tmp_path / "calls").read_text()) == 60 + 41, "the call that was interrupted, and the others"
    assert not (tmp_path / "r" / "partial").exists()
    [record] = map(json.loads, (tmp_path / "r" / "answers.jsonl").read_text().splitlines())
    texts = record["masked_out"] + record["conditioning"]
    first = int(texts[0].split()[1])
    # seeds are below 2**31, so only one of a hundred could begin again at 0
    assert [int(text.split()[1]) for text in texts] == [(first + place) % 1000 for place in range(100)]


def test_what_is_left_of_a_batch_leaves_out_what_has_come() -> None:
    questions = [Question(id=f"q{number}", text="?") for number in range(3)]
    sample = AnswerSample(question_id="q1", index=0, text="a", finish="stop", request="r")
    results = [
        AnswerSet(question_id="q0", masked_out=("a",), conditioning=("b",)),
        sample,
        Failure(question_id="q2", stage="answers", kind="backend", message="no"),
    ]
    tasks = [StageTask(question=question) for question in questions]
    assert without_results(tasks, results) == [StageTask(question=questions[1], samples=(sample,))]
    named = [StageTask(question=question, strategies=("one", "two")) for question in questions]
    written = [
        Summary(question_id="q0", name="one", text="t"),
        Summary(question_id="q0", name="two", text="t"),
    ]
    left = without_results(named, [*written, Summary(question_id="q1", name="two", text="t")])
    assert [(task.question.id, task.strategies) for task in left] == [
        ("q1", ("one",)),
        ("q2", ("one", "two")),
    ]


FULL = """
import resource
from selfreflect.errors import StoreError
from selfreflect.store.run import Run

CALLS = []

def generate(messages):
    CALLS.append(messages)
    if len(CALLS) == 3:
        try:
            Run.open("r", {})
        except StoreError as error:
            print(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    return "answer"
"""


def test_a_full_disk_is_the_error_that_is_told_and_the_lock_is_held_all_the_time(tmp_path: Path) -> None:
    """The manifest cannot be written either, which is no news. A limit on files stands for the disk."""
    written(tmp_path / "mine.py", FULL)
    questions = written(tmp_path / "q.json", ["What grows?", "And who?"])
    command = f"answers --questions {questions} --num-answers 5 --model mine:generate --out r".split()
    done = subprocess.run(
        [*COMMAND, *command], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "partial/" in done.stderr
    assert "File too large. What was written before is kept: free some disk space" in done.stderr
    assert "manifest" not in done.stderr
    assert "is writing" in done.stdout
