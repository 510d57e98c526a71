"""Output of an assessment as JSON lines and as a page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from selfreflect.report.page.frame import uncertainty_page
from selfreflect.uncertainty.assess import Assessment, Prediction, right_counts
from selfreflect.uncertainty.estimators import ESTIMATORS
from selfreflect.uncertainty.page import (
    shaded_answers,
    uncertainty_part,
)
from selfreflect.uncertainty.question import NoValue, sample_sizes
from selfreflect.uncertainty.tables import RISK, conclude, sample_numbers

Results = Mapping[str, Sequence[Prediction]]
"""Predictions by kind of correctness."""


def json_lines(
    assessment: Assessment,
    results: Results,
    risk: float = RISK,
) -> Iterator[dict[str, Any]]:
    """Yield JSON lines of questions, then of estimators and kinds of correctness."""
    yield from _question_lines(assessment)
    if assessment.stated_faithfulness is not None:
        value, count = assessment.stated_faithfulness
        yield {"cmfg": value, "n": count}
    for name, right in right_counts(assessment).items():
        conclusion = conclude(assessment, name, risk)
        facts = None if conclusion is None else conclusion._asdict()
        yield {"correctness": name, "counts": right._asdict(), "conclusion": facts}
    yield from _prediction_lines(assessment, results)


def _question_lines(assessment: Assessment) -> Iterator[dict[str, Any]]:
    has_greedy = any(ESTIMATORS[name].of_greedy for name in assessment.values)
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
        line: dict[str, Any] = {
            "id": question.id,
            "answer": assessment.judged.texts[index],
            "samples": len(question.answers),
            "classes": assessment.method.rule.name,
            "values": values,
            "undefined": reasons,
            "correct": {name: labels[index] for name, labels in assessment.judged.labels.items()},
        }
        if question.greedy is not None and has_greedy:
            correct = {name: labels[index] for name, labels in assessment.greedy.labels.items()}
            line["greedy"] = {"answer": question.greedy, "correct": correct}
        hedge = assessment.samples[index].hedge
        if not isinstance(hedge, NoValue):
            line["hedge"] = {"phrase": hedge.phrase, **hedge.band._asdict()}
        yield line


def _prediction_lines(assessment: Assessment, results: Results) -> Iterator[dict[str, Any]]:
    sizes = sample_sizes(assessment.questions)
    for rows in results.values():
        for row in rows:
            line: dict[str, Any] = {
                "classes": assessment.method.rule.name,
                "samples": sizes,
                **asdict(row),
            }
            if row.audit is not None:
                line["audit"]["warning"] = row.audit.warning
            if assessment.model is not None:
                line["model"] = assessment.model
            info = ESTIMATORS.get(row.estimator)
            if info is not None:
                line |= {
                    "direction": info.direction,
                    "unit": info.unit,
                    "range": [end if math.isfinite(end) else None for end in (info.low, info.high)],
                    "variant": assessment.variant(row.estimator),
                    "source": info.source,
                    "needs": info.needs,
                }
            yield line


def page(title: str, assessment: Assessment, results: Results) -> str:
    """Render the page with figures. ``title`` may hold any text."""
    parts = []
    for number, (correctness, rows) in enumerate(results.items()):
        parts.append(uncertainty_part(assessment, correctness, rows, name=f"part-{number}"))
    for part in parts[:1]:  # words are as unsure under every kind of correctness
        part.shaded += shaded_answers(assessment)
    facts = [
        ("questions", f"{len(assessment.questions):,}"),
        ("samples of each", sample_numbers(assessment)),
        ("classes", assessment.method.rule.name),
    ]
    return uncertainty_page(title, parts, facts)
