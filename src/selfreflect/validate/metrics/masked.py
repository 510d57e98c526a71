"""SelfReflect and the ablations that read the same predictions of masked words: other distances, other means,
all words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from statistics import fmean

import msgspec

from selfreflect.metric import distance
from selfreflect.metric.distance import Formula
from selfreflect.metric.engine.reference import Reference
from selfreflect.metric.engine.tree import build_tree
from selfreflect.metric.prompts import (
    CannotScoreError,
    QuestionPrompts,
    encode_words,
    prepare,
    summary_prompts,
)
from selfreflect.metric.tasks import JUDGE_TEMPERATURE, masked_words, reference_context
from selfreflect.models.judge import Judge
from selfreflect.sources.items import Item
from selfreflect.stats import Floats
from selfreflect.validate.base import MetricInfo, Parts, Undefined, Value
from selfreflect.validate.metrics.common import (
    JudgeMetrics,
    Result,
    finite,
    in_groups,
    make_values,
    no_values,
    undefined,
)

FORMULAS: Mapping[str, Formula] = {
    "selfreflect": distance.total_variation,
    "tv_t1": lambda logits, reference, _: distance.total_variation(logits, reference, 1.0),
    "kl": distance.kl_divergence,
    "jensen_shannon": distance.jensen_shannon,
    "hellinger": distance.hellinger,
    "top1": distance.top1_disagreement,
}
"""The metrics that are the mean of a distance over all token tasks. The others are means of the first one."""

Words = list[Floats]
"""For each masked word the distances of its tokens, shape (tokens, formulas)."""


class Masked(JudgeMetrics):
    """Compare what a judge fills in for masked words after a summary and after the conditioning answers.

    The metrics share one trip of each summary through the judge; ``all_words`` takes a second one, for the
    stopwords.
    """

    def __init__(self, judge: Judge, metrics: Sequence[MetricInfo]) -> None:
        super().__init__(judge, metrics)
        self._names = [info.name for info in metrics]
        formulas = {name if name in FORMULAS else "selfreflect" for name in self._names}
        self._columns = [name for name in FORMULAS if name in formulas]

    def score(self, item: Item) -> list[Value]:
        """One value for each summary and metric; those of ``selfreflect`` have their parts."""
        try:
            task = prepare(self.judge, item.question_record, item.answer_set)
        except CannotScoreError as error:
            return no_values(self, item, undefined(error))
        words = self._distances(item, task, self._columns)
        stopwords = self._stopwords(item, task) if "all_words" in self._names else {}
        results = {text: self._means(words[text], stopwords.get(text, [])) for text in words}
        values = []
        for value in make_values(self, item, results):
            own = words[item.summaries[value.summary]]
            if value.metric == "selfreflect" and value.value is not None and not isinstance(own, Undefined):
                value = msgspec.structs.replace(value, parts=_parts(task, own))
            values.append(value)
        return values

    def _distances(
        self, item: Item, task: QuestionPrompts, columns: Sequence[str]
    ) -> dict[str, Words | Undefined]:
        """By text of the summaries: the distances of all words of the task, or why there are none."""
        reference = Reference(self.engine, build_tree(task.reference))
        by_text: dict[str, Words | Undefined] = {}
        for group in in_groups(item, partial(summary_prompts, self.judge, task), by_text):
            states = reference.compare(list(map(build_tree, group.values())))
            distances = states.distances(JUDGE_TEMPERATURE, [FORMULAS[name] for name in columns])
            for text, numbers, words in zip(group, distances, states.tasks, strict=True):
                by_text[text] = [numbers[tasks] for tasks in words]
        return by_text

    def _stopwords(self, item: Item, task: QuestionPrompts) -> dict[str, Words | Undefined]:
        """The same for the words that only ``all_words`` masks."""
        content = set(task.words)
        words = [word for word in masked_words(item.masked_out, every=True) if word not in content]
        if not words:
            return {}
        context = reference_context(item.question, item.conditioning)
        try:
            reference = encode_words(self.judge, context, words, "the conditioning answers")
        except CannotScoreError as error:
            return dict.fromkeys(item.summaries.values(), undefined(error))
        return self._distances(item, replace(task, words=words, reference=reference), ["selfreflect"])

    def _means(self, words: Words | Undefined, stopwords: Words | Undefined) -> dict[str, Result]:
        """The metrics of one summary."""
        if isinstance(words, Undefined):
            return dict.fromkeys(self._names, words)
        results: dict[str, Result] = {}
        for name in self._names:
            column = self._columns.index(name if name in FORMULAS else "selfreflect")
            distances = [word[:, column].tolist() for word in words]
            if name == "all_words":
                if isinstance(stopwords, Undefined):
                    results[name] = stopwords
                    continue
                distances += [word[:, 0].tolist() for word in stopwords]
            if name == "per_word":
                distances = [[fmean(word)] for word in distances]
            results[name] = finite(self.judge, fmean(chain.from_iterable(distances)))
        return results


def _parts(task: QuestionPrompts, words: Words) -> Parts:
    """The first distance of each word's tokens, by masked-out answer."""
    by_answer: list[list[tuple[float, ...]]] = [[] for _ in range(task.answer_count)]
    for masked, word in zip(task.words, words, strict=True):
        by_answer[masked.answer].append(tuple(word[:, 0].tolist()))
    return tuple(map(tuple, by_answer))
