"""The order of strategies in a run directory, and what equal texts cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from selfreflect.records import AnswerSet, Information, Question, Score, Summary
from selfreflect.report.compare import contenders
from selfreflect.run.records import run_records
from selfreflect.run.todo import copied_results, missing_scores
from selfreflect.settings import ScoresConfig
from selfreflect.store.run import Run


def stored(path: Path, names: list[str], *, model: str = "tiny", written: list[str] | None = None) -> Run:
    """A run whose summaries came in the order of ``names``."""
    with Run.open(path, {}) as run:
        run.append(Question(id="q", text="Why?"))
        run.append(AnswerSet(question_id="q", masked_out=("a",), conditioning=("b",)))
        run.append_all([Summary(question_id="q", name=name, text="Because.", model=model) for name in names])
        if written is not None:
            run.update_manifest(plan={"strategies": written})
    return Run.load(path)


@pytest.mark.parametrize("finished", [["cot", "basic", "greedy"], ["greedy", "basic", "cot"]])
@pytest.mark.parametrize(
    ("written", "order"),
    [
        (["basic", "greedy", "cot"], ["basic", "greedy", "cot"]),
        (["cot"], ["cot", "basic", "greedy"]),
        (None, ["greedy", "basic", "cot"]),
    ],
)
def test_the_baseline_is_the_first_that_was_written_whatever_finished_first(
    tmp_path, finished, written, order
):
    records = run_records(stored(tmp_path / "run", finished, written=written))
    assert records.strategies == order
    assert [one.strategy for one in contenders([records], None)] == order


def test_summaries_by_hand_keep_the_order_of_their_file(tmp_path):
    assert run_records(stored(tmp_path / "a", ["new", "mine"], model="")).strategies == ["new", "mine"]
    assert run_records(stored(tmp_path / "b", ["new", "greedy"], model="")).strategies == ["greedy", "new"]


def test_equal_texts_of_a_question_are_measured_once(tmp_path):
    path = tmp_path / "run"
    stored(path, ["cot", "mine"])
    score = Score(question_id="q", summary="cot", value=0.25, stderr=None, token_tasks=1, judge="tiny")
    told = Information(
        question_id="q",
        summary="cot",
        reader="informed",
        zero="empty",
        anchor="distinct",
        bits=1.0,
        bits_available=2.0,
        recovered=0.5,
    )
    settings = ScoresConfig(controls=False)
    with Run.open(path, {}) as run:
        assert copied_results(run, settings) == []
        run.append_all([score, told])
        run.append_all(copied_results(run, settings))
        assert missing_scores(run, settings) == []
        assert copied_results(run, settings) == []
        assert run.scores["q", "mine"].value == 0.25
        assert run.information["q", "mine"].recovered == 0.5
