"""Metrics that a judge computes: SelfReflect, also at temperature 1, and usable information."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from itertools import chain
from statistics import fmean
from typing import Any, TypeVar

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

T = TypeVar("T")


class JudgeMetrics(Family):
    """Base of metrics that a judge computes, with the engine that they share."""

    def __init__(self, judge: Judge, metrics: Sequence[MetricInfo]) -> None:
        super().__init__(metrics)
        self.by = judge_name(judge)
        self.judge = judge
        self.engine = engine_for(judge)


def in_groups(
    item: Item, encode: Callable[[str], T], failures: MutableMapping[str, Any]
) -> Iterator[dict[str, T]]:
    """Encode the distinct summaries, ``GROUP`` at a time, so that memory does not grow with their number.

    Args:
        failures: receives, by text, why a summary cannot be encoded.
    """
    texts = list(dict.fromkeys(item.summaries.values()))
    for start in range(0, len(texts), GROUP):
        group = {}
        for text in texts[start : start + GROUP]:
            try:
                group[text] = encode(text)
            except CannotScoreError as error:
                failures[text] = undefined(error)
        if group:
            yield group


def finite(judge: Judge, number: float) -> Result:
    """Return a number, or record that a damaged judge gave none that is finite."""
    if math.isfinite(number):
        return number
    message = f"the predictions of judge {judge.name!r} give {number}, which is not a finite number"
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
        task = prepare(self.judge, item.question_record, item.answer_set)
        reference = Reference(self.engine, build_tree(task.reference))
        results: dict[str, Results] = {}
        failures: dict[str, Undefined] = {}
        for group in in_groups(item, partial(summary_prompts, self.judge, task), failures):
            states = reference.compare(list(map(build_tree, group.values())))
            distances = states.distances(JUDGE_TEMPERATURE, [FORMULAS[name] for name in names])
            for text, numbers, words in zip(group, distances, states.tasks, strict=True):
                by_metric: dict[str, Result] = {}
                for column, name in enumerate(names):
                    by_word = [numbers[tasks, column].tolist() for tasks in words]
                    by_metric[name] = finite(self.judge, fmean(chain.from_iterable(by_word)))
                results[text] = by_metric
        return results | {text: dict.fromkeys(names, failure) for text, failure in failures.items()}


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
        return finite(self.judge, information.bits)
