"""What crosses the boundary to another process, and the worker behind it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Literal

import pytest
import tiny
from fault_server import Action, Call, FaultServer, answers, status
from hypothesis import given
from hypothesis import strategies as st
from scripted import Scripted

from selfreflect.errors import BackendError, MissingExtraError
from selfreflect.models.judge import Judge
from selfreflect.prompts import load_prompts
from selfreflect.records import AnswerSet, Question, Summary
from selfreflect.run.models import Quiet, WorkDone
from selfreflect.run.stages import Outcome, StageSpec, StageTask, StageWorker, split_into_batches, stage_fn
from selfreflect.settings import ExecutionOptions, load_config

# lone surrogates too: files may hold them


@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 9))
def test_batches_hold_every_task_once_and_go_round_all_workers(
    count: int, workers: int, at_most: int
) -> None:
    tasks = [StageTask(question=Question(id=f"{number}", text="")) for number in range(count)]
    found = split_into_batches(tasks, workers, at_most)
    assert [task for batch in found for task in batch] == tasks
    assert max(map(len, found)) <= at_most
    assert len(found) >= min(workers, count)
    assert max(map(len, found)) - min(map(len, found)) <= 1


def test_an_error_of_a_worker_keeps_its_class_its_message_and_what_was_done_before(tmp_path: Path) -> None:
    missing = pickle.loads(pickle.dumps(Outcome(error=MissingExtraError("A model", "openai"))))
    with pytest.raises(MissingExtraError, match="openai"):
        missing.raise_error()
    Outcome().raise_error()
    config = load_config(None, {"answers": {"model": str(tmp_path / "none")}})
    worker = StageWorker(StageSpec("answers", config, load_prompts(), ExecutionOptions(device="cpu")))
    [failed] = worker.outcomes([StageTask(question=Question(id="q", text="?"))])
    assert (failed.results, failed.facts) == ((), None)
    with pytest.raises(BackendError, match="none"):
        failed.raise_error()


def test_a_server_that_gives_up_halfway_costs_no_answer_that_was_there(tmp_path: Path) -> None:
    def script(call: Call) -> Action:
        return answers() if call.number < 2 else status(401, "no such key")

    with FaultServer(script) as server:
        config = load_config(
            None, {"answers": {"model": "openai:m", "base_url": server.url, "num_answers": 1}}
        )
        worker = StageWorker(
            StageSpec("answers", config, load_prompts(), ExecutionOptions(max_connections=1))
        )
        tasks = tuple(StageTask(question=Question(id=f"{number}", text=f"{number}?")) for number in range(4))
        *done, last = worker.outcomes(tasks)
    assert [result.question_id for outcome in done for result in outcome.results] == ["0", "1"]
    with pytest.raises(BackendError, match="401"):
        last.raise_error()


class Recorded(Quiet):
    """A progress that keeps each report."""

    def __init__(self) -> None:
        self.reports: list[WorkDone] = []

    def add(self, work: WorkDone) -> None:
        self.reports.append(work)


def test_scoring_says_how_many_tokens_a_question_takes_before_it_reads_them(tmp_path: Path) -> None:
    model = tiny.save(tmp_path / "m", "llama")
    sections = {"scores": {"judge": str(model), "measures": "selfreflect", "controls": False}}
    spec = StageSpec("scores", load_config(None, sections), load_prompts(), ExecutionOptions(device="cpu"))
    progress = Recorded()
    work = stage_fn(spec, Judge.load(str(model), device="cpu"), progress)
    answers = AnswerSet(question_id="q", masked_out=("Radishes grow fast.",), conditioning=("Radishes.",))
    summary = Summary(question_id="q", name="s", text="Radishes.")
    list(work([StageTask(question=Question(id="q", text="What?"), answers=answers, summaries=(summary,))]))
    first = next(index for index, report in enumerate(progress.reports) if report.tokens)
    total = sum(report.tokens for report in progress.reports)
    assert sum(report.planned for report in progress.reports[:first]) == total > 0


@pytest.mark.parametrize("stage", ["answers", "summaries"])
def test_questions_go_to_the_model_in_batches_and_results_come_one_by_one(
    stage: Literal["answers", "summaries"],
) -> None:
    config = load_config(None, {"answers": {"num_answers": 1}, "summaries": {"num_samples": 2}})
    spec = StageSpec(stage, config, load_prompts(), ExecutionOptions(batch_questions=2), ("twostep_cot",))
    generator, progress = Scripted("yes"), Recorded()
    answers = AnswerSet(question_id="q0", masked_out=("Yes.",), conditioning=("No.",))
    tasks = [
        StageTask(question=Question(id=f"q{n}", text=f"{n}?"), answers=answers, strategies=("twostep_cot",))
        for n in range(5)
    ]
    outcomes = stage_fn(spec, generator, progress)(tasks)
    assert next(outcomes).results == ()  # the facts of the model come first
    [first] = next(outcomes).results
    rounds = 1 if stage == "answers" else 2  # of the strategy
    assert (first.question_id, [len(batch) for batch in generator.batches]) == ("q0", [2] * rounds)
    assert [result.question_id for outcome in outcomes for result in outcome.results] == [
        "q1",
        "q2",
        "q3",
        "q4",
    ]
    assert [len(batch) for batch in generator.batches] == [*[2] * rounds, *[2] * rounds, *[1] * rounds]
    assert sum(report.units for report in progress.reports) == 5
