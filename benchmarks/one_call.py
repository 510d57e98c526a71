"""What one call loses against several samples, and how many labels weighted EPR needs.

    selfreflect answers --questions FILE --num-answers 5 --top-logprobs 20 --max-new-tokens 32 --out RUN
    python benchmarks/one_call.py RUN

For each estimator: AUROC with its 95 % interval, and the share of questions that could be answered in
hindsight with at most 20 or 50 % errors. One call judges each answer by its tokens alone, and intervals draw
the answers to a question together; the others judge the most common of all answers. Then, over random halves
of the questions: the Brier score of weighted EPR fitted on few answers, beside a logistic curve of plain EPR
and the accuracy of the test half.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from selfreflect.run.records import run_questions, run_records
from selfreflect.stats import Floats
from selfreflect.store.run import Run
from selfreflect.uncertainty.assess import Assessment, Method
from selfreflect.uncertainty.calibrators import fit
from selfreflect.uncertainty.classes import ClassRule
from selfreflect.uncertainty.correctness import Correctness
from selfreflect.uncertainty.features import rank_contributions
from selfreflect.uncertainty.measures import measure_all
from selfreflect.uncertainty.prediction import Tally
from selfreflect.uncertainty.question import AnsweredQuestion, with_answers
from selfreflect.uncertainty.relations import words
from selfreflect.uncertainty.tables import coverage_at

ONE_CALL = (
    "normalised_prob mean_prob min_prob token_entropy epr token_entropy_renormalised token_entropy_low "
    "token_entropy_high margin group_confidence"
).split()
SAMPLED = ("modal_share", "entropy", "semantic_entropy", "predictive_entropy_ln", "kle", "deg", "lexical")
LABELS = (50, 100, 200, 400)
REPEATS = 5


def show(name: str, calls: int, scores: Floats, right: Floats, groups: Sequence[str] = ()) -> None:
    """Print the row of one estimator."""
    auroc = measure_all(["auroc"], Tally.of(scores, right, groups))["auroc"]
    numbers = (auroc.value, auroc.low, auroc.high)
    area = "–" if None in numbers else "{:.3f} ({:.3f}–{:.3f})".format(*numbers)
    shares = [f"{coverage_at(Tally.of(scores, right), risk):.1%}" for risk in (0.2, 0.5)]
    print(f"| {name} | {calls} | {right.mean():.3f} | {area} | {' | '.join(shares)} |")


def compare(questions: list[AnsweredQuestion]) -> None:
    """Print a row for each estimator of one call and of all samples."""
    print("| estimator | calls | right | AUROC | 20 % errors | 50 % errors |\n|---|---|---|---|---|---|")
    single = [
        replace(with_answers(question, [index]), id=f"{question.id} {index}", group=question.id)
        for question in questions
        for index in range(len(question.answers))
    ]
    for names, asked in ((ONE_CALL, single), (SAMPLED, questions)):
        method = Method(ClassRule("same"), correctness=("contains",))
        assessment = Assessment(asked, names, method)
        for name in names:
            _, scores, right, _, groups = assessment.labelled_scores(name, "contains")
            show(name, len(asked[0].answers), scores, right, groups)
    is_right = Correctness("contains")
    lengths = np.array([float(len(words(question.answers[0]))) for question in single])
    labels = np.array([float(bool(is_right(question, question.answers[0]))) for question in single])
    show("length only", 1, -lengths, labels, [question.group for question in single])


def fit_on_few(questions: list[AnsweredQuestion]) -> None:
    """Print Brier scores of maps fitted on few answers, on questions that they were not fitted on."""
    is_right = Correctness("contains")
    columns: list[Floats] = []
    labels: list[float] = []
    names: list[int] = []
    for number, question in enumerate(questions):
        for index, answer in enumerate(question.answers):
            columns.append(rank_contributions(question.token_values.top_logprobs[index]))
            labels.append(float(bool(is_right(question, answer))))
            names.append(number)
    inputs, right, group = np.array(columns), np.array(labels), np.array(names)
    rates = -inputs[:, : inputs.shape[1] // 2].sum(axis=1)
    print("\n| labelled answers | wepr | epr | constant |\n|---|---|---|---|")
    generator = np.random.default_rng(0)
    for count in LABELS:
        rows = []
        for _ in range(REPEATS):
            first_half = generator.permutation(len(questions))[: len(questions) // 2]
            inside: NDArray[np.bool_] = np.isin(group, first_half)
            chosen = generator.permutation(np.flatnonzero(inside))[:count]
            tested = np.flatnonzero(~inside)
            if right[chosen].sum() < 2:
                continue
            weighted = fit("weights", inputs[chosen], right[chosen])(inputs[tested])
            plain = fit("platt", rates[chosen], right[chosen])(rates[tested])
            constant = np.full(len(tested), right[tested].mean())
            rows.append([((map_ - right[tested]) ** 2).mean() for map_ in (weighted, plain, constant)])
        print(f"| {count} | {' | '.join(f'{mean:.4f}' for mean in np.mean(rows, axis=0))} |")


def main(path: Path) -> None:
    """Print both tables for a run directory."""
    records = run_records(Run.load(path))
    questions = [
        question for question in run_questions(records, records, "gold") if question.token_values.top_logprobs
    ]
    compare(questions)
    fit_on_few(questions)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
