"""The questions and tables of the training experiment in ``benchmarks/``."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from learnable_run import information

from selfreflect.pipeline.records import run_records
from selfreflect.records import AnswerSet, Question, Summary
from selfreflect.store.run import Run

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def _on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])


def test_the_evidence_says_each_value_as_often_as_its_weight() -> None:
    from training_questions import SHAPES, make_questions

    rows = make_questions(210, seed=0)
    assert len({row["question"] for row in rows}) == len({row["id"] for row in rows}) == 210
    assert rows[:50] == make_questions(50, seed=0)
    assert rows != make_questions(210, seed=1)
    for row in rows:
        sentences = str(row["context"]).split(". ")
        values = str(row["values"]).split("|")
        witnesses = Counter(value for sentence in sentences for value in values if f" {value}" in sentence)
        weights = list(map(int, str(row["weights"]).split("|")))
        assert [witnesses[value] for value in values] == weights, row
        assert not any(value in str(row["question"]) for value in values)
    kinds = Counter(str(row["kind"]).partition(", ")[2] for row in rows)
    assert kinds.keys() == SHAPES.keys()
    assert max(kinds.values()) - min(kinds.values()) <= 1
    with pytest.raises(ValueError, match="there are 210 different questions"):
        make_questions(211, seed=0)


def test_tables_average_seeds_and_pair_by_question(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from training_tables import (
        arm_names,
        comparison_table,
        drift_table,
        mean_values,
        results_table,
        training_table,
    )

    told = {"basic": 5.0, "sft_best@0": 7.0, "sft_best@1": 8.0, "dpo@0": 4.0}
    with Run.open(tmp_path / "test", {}) as run:
        for number in range(12):
            id_ = f"q{number}"
            run.append(Question(id=id_, text=f"What colour {number}?", metadata={"values": "red|blue"}))
            answers = ("It was red.", "It was blue.", "Red.")
            run.append(AnswerSet(question_id=id_, masked_out=answers, conditioning=answers))
            for name, bits in told.items():
                run.append(Summary(question_id=id_, name=name, text="It was red."))
                run.append(information(id_, name, [bits + number % 3, bits, bits]))
    (tmp_path / "arms").mkdir()
    record = {"rows": 3, "seconds": 60.0, "log": [{"loss": 2.0}, {"loss": 1.0}], "answers": {"q0": ["Red."]}}
    (tmp_path / "arms" / "sft_best@0.json").write_text(json.dumps(record))
    records = run_records(Run.load(tmp_path / "test"))
    arms = arm_names(records)
    by_arm = {arm: mean_values(records, names) for arm, names in arms.items()}
    results_table(records, arms, by_arm)
    comparison_table(by_arm, 12)
    training_table(tmp_path)
    drift_table(tmp_path, records)
    lines = capsys.readouterr().out.splitlines()
    assert "| `sft_best` | 78 [77, 80] | 73, 83 | 12 | 0 | 0 |" in lines
    assert "| `sft_best` − `basic` | +25.0 [+25.0, +25.0] | 0.000 | 12 / 0 / 0 | above |" in lines
    assert "| `dpo` − `basic` | -10.0 [-10.0, -10.0] | 0.000 | 0 / 0 / 12 | below |" in lines
    assert "| `sft_best@0` | 3 | 1 | 2.000 → 1.000 |  |  |  |  |" in lines
    assert "| `sft_best@0` | 0.33 | 1 |" in lines


def test_coverage_is_the_share_of_answers_whose_value_is_named() -> None:
    from training_tables import distinct, values_in

    assert values_in("The Red car, or a bluebird", ["red", "blue"]) == ["red"]
    assert distinct(["a b a b", "a b"]) == 0.5
