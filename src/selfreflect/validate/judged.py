"""Metrics that a judge computes: SelfReflect, also at temperature 1, and usable information."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from selfreflect.metric import distance
from selfreflect.metric.distance import Formula
from selfreflect.metric.engine.engines import engine_for
from selfreflect.metric.engine.logits import Reference
from selfreflect.metric.engine.tree import build_tree
from selfreflect.metric.information import measure
from selfreflect.metric.prompts import (
    JUDGE_TEMPERATURE,
    CannotScoreError,
    prepare,
    summary_prompts,
)
from selfreflect.models.judge import Judge
from selfreflect.records import Information, Reader
from selfreflect.report.findings import value_sentence
from selfreflect.sources.items import Item
from selfreflect.validate.base import (
    Family,
    MetricInfo,
    Result,
    Results,
    Undefined,
    model_name,
    undefined,
)

# Summaries whose prompts and states exist at once. A study may give thirty per item; each group
# projects the reference again, so not fewer.
GROUP = 6


class JudgeMetrics(Family):
    """Base of metrics that a judge computes, with the engine that they share."""

    def __init__(self, judge: Judge, metrics: Sequence[MetricInfo]) -> None:
        super().__init__(metrics)
        self.by = judge_name(judge)
        self.judge = judge
        self.engine = engine_for(judge)

    def finite(self, number: float) -> Result:
        """Return a number, or record that a damaged judge gave none that is finite."""
        if math.isfinite(number):
            return number
        message = f"the predictions of judge {self.judge.name!r} give {number}, which is not a finite number"
        return Undefined(reason="backend", message=message)


def judge_name(judge: Judge) -> str:
    """Name a judge with everything that moves its predictions."""
    name = f"{model_name(judge.name, judge.lm.revision, judge.facts)}, {judge.lm.dtype}"
    return f"{name}, compat {judge.compat}" if judge.compat else name


# Each metric is the mean of a distance over all token tasks
FORMULAS: Mapping[str, Formula] = {
    "selfreflect": distance.total_variation,
    "tv_t1": lambda logits, reference, _: distance.total_variation(logits, reference, 1.0),
}


class Masked(JudgeMetrics):
    """Distances of what a judge fills in for masked words, after a summary and after the answers.

    The metrics share one trip of each summary through the judge.
    """

    def measure(self, item: Item) -> dict[str, Results]:
        """Compute the metrics."""
        names = [info.name for info in self.metrics]
        formulas = [FORMULAS[name] for name in names]
        task = prepare(self.judge, item.question_record, item.answer_set)
        reference = Reference(self.engine, build_tree(task.reference))
        texts = list(dict.fromkeys(item.summaries.values()))
        results: dict[str, Results] = {}
        for start in range(0, len(texts), GROUP):
            trees = {}
            for text in texts[start : start + GROUP]:
                try:
                    trees[text] = build_tree(summary_prompts(self.judge, task, text))
                except CannotScoreError as error:
                    results[text] = dict.fromkeys(names, undefined(error))
            if not trees:
                continue
            states = reference.compare(list(trees.values()))
            distances = states.distances(JUDGE_TEMPERATURE, formulas)
            for text, numbers, words in zip(trees, distances, states.tasks, strict=True):
                means = numbers[np.concatenate(words)].mean(axis=0).tolist()
                results[text] = dict(zip(names, map(self.finite, means), strict=True))
        return results


# The reader of each metric
READERS: dict[str, Reader] = {"information": "informed", "information_blind": "blind"}


class InformationMetrics(JudgeMetrics):
    """Bits per test answer, see :mod:`selfreflect.metric.information`. Undefined where the reference
    answers tell the judge nothing, since no summary could tell it anything either."""

    def __init__(self, judge: Judge, metrics: Sequence[MetricInfo]) -> None:
        super().__init__(judge, metrics)
        # stored values of earlier versions are on another scale
        self.by += ", against an empty summary or the repeated question, of distinct answers"

    def measure(self, item: Item) -> dict[str, Results]:
        texts = list(dict.fromkeys(item.summaries.values()))
        results: dict[str, dict[str, Result]] = {text: {} for text in texts}
        for info in self.metrics:
            texts_measured = item.question_record, item.answer_set, texts
            by_text = measure(self.judge, self.engine, *texts_measured, READERS[info.name])
            for text in texts:
                results[text][info.name] = self._result(by_text[text])
        return {**results}

    def _result(self, information: Information) -> Result:
        has_bits = information.undefined is None or information.cause == "out_of_range"
        if information.bits is None or not has_bits:
            message = value_sentence(information)
            return Undefined(reason=information.undefined or "unmeasured", message=message)
        return self.finite(information.bits)
