"""``selfreflect uncertainty``: estimators on stored answers, and how well they predict correctness."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfreflect.cli import settings as o
from selfreflect.cli.console import emit, print_table, say
from selfreflect.cli.settings import argument, option
from selfreflect.errors import ConfigError, DataError, excerpt
from selfreflect.text import counted

if TYPE_CHECKING:
    from selfreflect.uncertainty.assess import Assessment, Method, Prediction
    from selfreflect.uncertainty.question import AnsweredQuestion

ClassOrder = StrEnum("ClassOrder", ["first", "components"])
GOLD = "gold"
"""The field of a file with the right answer, unless --gold names another."""


def name_list(text: str) -> list[str]:
    """The names of a list such as ``a,b``."""
    return [name.strip() for name in text.split(",") if name.strip()]


def uncertainty_command(
    source: str = argument(
        "RUN|FILE",
        "Run directory, or JSON, JSONL, CSV or parquet file of questions with answers; - for stdin.",
        ...,
    ),
    estimators: str | None = option("--estimators A,B", "Estimators. [default: all that the data allow]"),
    gold: str = option("--gold FIELD", "Field with the right answer or its spellings.", GOLD),
    classes: str = option(
        "--classes RULE",
        "What makes two answers the same: exact (but for case, punctuation and articles), numeric, jaccard, "
        "rouge or embedding; the last three take a threshold, as in jaccard:0.6.",
        "exact",
    ),
    class_order: ClassOrder = option(
        "--class-order",
        "Where pairs match in a chain: an answer joins the first class whose first answer it matches, or "
        "chains become one class (components).",
        "first",
    ),
    similarity: str = option(
        "--similarity NAME", "Of eigv, deg, ecc and SAR: jaccard, rouge or embedding.", "jaccard"
    ),
    correctness: str | None = option(
        "--correctness A,B",
        "What counts as correct: human (the field 'correct'), exact, numeric, squad_f1, rouge or embedding; "
        "the last three take a threshold, as in rouge:0.5. [default: human where labelled, else exact]",
    ),
    measures: str | None = option(
        "--measures A,B",
        "Measures of prediction, or all. [default: auroc, aurc, prr, ece_10_left, smooth_ece, brier]",
    ),
    num_answers: int | None = option("--num-answers N", "Use N of each question's answers, drawn at random."),
    sizes: str | None = option(
        "--sizes M,M", "Also show how well the modal share is calibrated with M of the answers."
    ),
    json: o.Json = False,
) -> None:
    """Estimate uncertainty from stored answers, with every method on the same answers.

    Where right answers or labels are known, shows how well each estimator predicts correctness, with 95 %
    intervals, beside three baselines: always the accuracy, the length of the answer, and the estimator after
    cross-fitted isotonic calibration (needs the calibrate extra). The answer that is judged is the record's
    'response', else the most common spelling of the largest class. Needs no model, except for embedding.

    A record of a file has "answers", or a "confidence", and may have "id", "question", "gold", "logprobs"
    (of each answer's tokens), "tokens", "aliases", "length" and "correct".
    """
    from selfreflect.uncertainty import tables
    from selfreflect.uncertainty.assess import (
        MEASURED,
        Assessment,
        calibration_by_size,
        predictions,
        subsample,
    )
    from selfreflect.uncertainty.measures import MEASURES

    measure_names = list(MEASURED)
    if measures is not None:
        measure_names = list(MEASURES) if measures == "all" else name_list(measures)
    questions = read_questions(source, gold)
    if num_answers is not None:
        questions = _with_answers(questions, num_answers)
        questions = [subsample(question, num_answers) for question in questions]
    method = make_method(questions, classes, class_order, similarity, correctness)
    names = name_list(estimators) if estimators else _available(questions)
    assessment = Assessment(questions, names, method)
    results = {name: predictions(assessment, name, measure_names) for name in labelled(assessment)}
    sized = {}
    if sizes is not None:
        numbers = [_number(text) for text in name_list(sizes)]
        for name in results:
            if name != "human":  # a person judged one answer, not that of every subset
                sized[name] = calibration_by_size(questions, numbers, method, name)
    if json:
        _emit(assessment, results)
        for name, rows in sized.items():
            for row in rows:
                emit({"correctness": name, "classes": method.rule.name, **asdict(row)})
        return
    print_table(tables.value_table(assessment))
    for name, rows_of_name in results.items():
        labels = [label for label in assessment.labels[name] if label is not None]
        print_table(tables.prediction_table(rows_of_name, sum(labels) / len(labels)))
    for name, rows in sized.items():
        print_table(tables.size_table(rows, name))
    if results and source != "-" and gold == GOLD:
        say(f"Calibrate one: selfreflect calibrate {shlex.quote(source)} --estimator {names[0]}")


def read_questions(source: str, gold: str = "gold") -> list[AnsweredQuestion]:
    """Read the answered questions of a run directory or a file."""
    from selfreflect.uncertainty.question import AnsweredQuestion
    from selfreflect.uncertainty.reading import read_answered_questions

    if source == "-" or not Path(source).is_dir():
        questions = read_answered_questions(source, gold)
    else:
        from selfreflect.store.run import Run

        questions = []
        run = Run.load(Path(source))
        for answers in run.answers.values():
            question = run.questions.get(answers.question_id)
            if question is None or not answers.answers:
                continue
            right = question.metadata.get(gold, question.gold if gold == GOLD else ())
            texts = tuple(right) if isinstance(right, tuple) else (str(right),)
            questions.append(AnsweredQuestion(question.id, question.text, answers.answers, texts))
        if not questions:
            raise DataError(
                f"{source} holds no answers yet. Make some with: selfreflect answers --out {source}"
            )
    if gold != GOLD and not any(question.gold for question in questions):
        raise DataError(f"{excerpt(source)}: nothing has a right answer in a field {excerpt(gold)}")
    return questions


def make_method(
    questions: Sequence[AnsweredQuestion],
    classes: str,
    class_order: ClassOrder,
    similarity: str,
    correctness: str | None,
) -> Method:
    """What classes, similarities and labels are made with. Without ``correctness`` people's labels count, or
    else exact matches with right answers."""
    from selfreflect.uncertainty.assess import Method
    from selfreflect.uncertainty.classes import ClassRule

    names = name_list(correctness) if correctness else []
    if correctness is None:
        if any(question.correct is not None for question in questions):
            names.append("human")
        elif any(question.gold for question in questions):
            names.append("exact")
    return Method(
        ClassRule(classes, "first" if class_order is ClassOrder.first else "components"),
        similarity,
        tuple(names),
    )


def labelled(assessment: Assessment) -> list[str]:
    """The correctness functions that have labels. Says which lack them."""
    names = []
    for name, labels in assessment.labels.items():
        count = sum(label is not None for label in labels)
        if count:
            names.append(name)
        if count < len(labels):
            what = "label" if name == "human" else "right answer"
            say(f"{name}: {len(labels) - count} of {len(labels)} questions have no {what} and are left out.")
    if not assessment.labels:
        say(
            "No right answers and no labels of correctness, so there is nothing to predict. If the right "
            "answers are in another field, name it with --gold."
        )
    return names


def _available(questions: Sequence[AnsweredQuestion]) -> list[str]:
    from selfreflect.uncertainty.estimators import ESTIMATORS

    present = set()
    for question in questions:
        present |= {"samples"} if question.answers else set()
        present |= {"logprobs"} if question.logprobs is not None else set()
        present |= {"tokens"} if question.tokens is not None and question.logprobs is not None else set()
        present |= {"confidence"} if question.confidence is not None else set()
    if "logprobs" not in present and "samples" in present:
        say("No log-probabilities are stored, so estimators that need them are left out.")
    return [name for name, estimator in ESTIMATORS.items() if estimator.needs in present]


def _with_answers(questions: Sequence[AnsweredQuestion], number: int) -> list[AnsweredQuestion]:
    if number < 1:
        raise ConfigError(f"--num-answers must be at least 1, not {number}")
    enough = [question for question in questions if len(question.answers) >= number]
    if not enough:
        raise DataError(f"no question has {number} answers")
    if len(enough) < len(questions):
        few = counted(len(questions) - len(enough), "question")
        say(f"{few} with fewer than {counted(number, 'answer')} left out.")
    return enough


def _number(text: str) -> int:
    if not (text.isdecimal() and len(text) < 10) or int(text) < 1:
        raise ConfigError(f"--sizes: {text!r} is not a number of answers, such as 5,10,20")
    return int(text)


def _emit(assessment: Assessment, results: dict[str, list[Prediction]]) -> None:
    """A JSON line for each question, then one for each estimator and kind of correctness."""
    from selfreflect.uncertainty.estimators import ESTIMATORS, NoValue

    for index, question in enumerate(assessment.questions):
        values: dict[str, float | None] = {}
        reasons = {}
        for name, column in assessment.values.items():
            value = column[index]
            if isinstance(value, NoValue):
                values[name] = None
                reasons[name] = asdict(value)
            else:
                values[name] = value
        emit(
            {
                "id": question.id,
                "answer": assessment.answers[index],
                "samples": len(question.answers),
                "classes": assessment.method.rule.name,
                "values": values,
                "undefined": reasons,
                "correct": {name: labels[index] for name, labels in assessment.labels.items()},
            }
        )
    if assessment.stated_faithfulness is not None:
        value, count = assessment.stated_faithfulness
        emit({"cmfg": value, "n": count})
    for rows in results.values():
        for row in rows:
            line: dict[str, Any] = {"classes": assessment.method.rule.name, **asdict(row)}
            if row.audit is not None:
                line["audit"]["warning"] = row.audit.warning
            info = ESTIMATORS.get(row.estimator)
            if info is not None:
                line["direction"] = "confidence" if info.confidence else "uncertainty"
                line |= {
                    "unit": info.unit,
                    "variant": info.variant,
                    "source": info.source,
                    "needs": info.needs,
                }
            emit(line)
