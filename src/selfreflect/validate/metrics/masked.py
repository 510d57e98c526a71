"""SelfReflect and the ablations that read the same predictions of masked words: other distances, other means,
all words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from selfreflect.errors import ConfigError
from selfreflect.metric.tasks import JUDGE_TEMPERATURE, masked_words, reference_context
from selfreflect.records import Summary
from selfreflect.sources.items import Item
from selfreflect.validate.base import MetricInfo, Parts, Undefined, Value, make_value
from selfreflect.validate.metrics.naming import chosen, judged_by

if TYPE_CHECKING:
    from selfreflect.metric.distance import Formula
    from selfreflect.metric.engine.tree import Prompt
    from selfreflect.metric.prompts import QuestionPrompts
    from selfreflect.models.judge import Judge
    from selfreflect.stats import Floats


def _ablation(name: str, about: str) -> MetricInfo:
    return MetricInfo(name=name, better="lower", group="ablation", about=about, needs=("judge",))


METRICS: tuple[MetricInfo, ...] = (
    MetricInfo(
        name="selfreflect",
        better="lower",
        group="selfreflect",
        about="Total variation between the judge's predictions of masked words after the summary and after the answers, at temperature 5.",
        needs=("judge",),
    ),
    _ablation("tv_t1", "SelfReflect at judge temperature 1, where synonyms of a masked word hardly count."),
    _ablation(
        "kl", "SelfReflect with the Kullback-Leibler divergence of the summary from the answers, in nats."
    ),
    _ablation("jensen_shannon", "SelfReflect with the Jensen-Shannon divergence, in bits."),
    _ablation("hellinger", "SelfReflect with the Hellinger distance."),
    _ablation("top1", "SelfReflect with the share of tokens whose likeliest prediction differs."),
    _ablation("per_word", "SelfReflect as a mean over words, not over their tokens."),
    _ablation("all_words", "SelfReflect with stopwords masked as well."),
)


@dataclass(frozen=True)
class _Prompts:
    """The masked words of one context."""

    content: list[Prompt]
    """Those of the metric."""
    stopwords: list[Prompt] | Undefined
    """Those that ``all_words`` adds. What keeps them from being asked is no failure of the other metrics."""

    @property
    def all(self) -> list[Prompt]:
        return self.content if isinstance(self.stopwords, Undefined) else self.content + self.stopwords


@dataclass(frozen=True)
class _Found:
    """What is known of one text: a number or the reason for none, by metric."""

    numbers: Mapping[str, float | Undefined]
    parts: Parts = ()


class Masked:
    """Metrics that compare what a judge fills in for masked words after a summary and after the conditioning
    answers.

    The metrics share one trip of each summary through the judge. Stopwords are masked only if ``all_words``
    is asked for.

    Args:
        names: which of :data:`METRICS`; all unless given.
        temperature: of the judge, for all but ``tv_t1``.

    Raises:
        ConfigError: an unknown name, or a temperature that is not above 0.
    """

    def __init__(
        self, judge: Judge, names: Sequence[str] | None = None, *, temperature: float = JUDGE_TEMPERATURE
    ) -> None:
        from selfreflect.metric.engine.choose import engine_for

        if not temperature > 0:
            raise ConfigError(
                f"the judge's temperature must be above 0, not {temperature}; the metric's own is {JUDGE_TEMPERATURE}"
            )
        self.metrics = chosen(METRICS, names)
        self.by = judged_by(judge) + (
            "" if temperature == JUDGE_TEMPERATURE else f", temperature {temperature:g}"
        )
        self.judge = judge
        self.temperature = temperature
        self.engine = engine_for(judge)
        self._names = [info.name for info in self.metrics]

    def score(self, item: Item) -> list[Value]:
        """One value for each summary and metric; those of ``selfreflect`` have their parts."""
        from selfreflect.metric.prompts import CannotScoreError, prepare
        from selfreflect.validate.metrics.judged import undefined

        try:
            found = self._found(item, prepare(self.judge, item.question_record, item.answer_set))
        except CannotScoreError as error:
            found = dict.fromkeys(item.summaries.values(), self._nothing(undefined(error)))
        return [
            self._value(info.name, item, name, found[text])
            for name, text in item.summaries.items()
            for info in self.metrics
        ]

    def _value(self, metric: str, item: Item, name: str, found: _Found) -> Value:
        value = make_value(self, metric, item, name, found.numbers[metric])
        return (
            msgspec.structs.replace(value, parts=found.parts)
            if metric == "selfreflect" and value.value is not None
            else value
        )

    def _nothing(self, why: Undefined) -> _Found:
        return _Found(dict.fromkeys(self._names, why))

    def _found(self, item: Item, task: QuestionPrompts) -> dict[str, _Found]:
        """By text of the summaries."""
        from selfreflect.metric.engine.reference import Reference
        from selfreflect.metric.engine.tree import build_tree
        from selfreflect.validate.metrics.judged import grouped

        stopwords = self._stopwords(item, task)
        reference = Reference(self.engine, build_tree(_Prompts(task.reference, _reference(stopwords)).all))
        formulas = self._formulas()
        found: dict[str, _Found] = {}
        for group in grouped(item.summaries, lambda name, text: self._prompts(name, text, task, stopwords)):
            found |= {text: self._nothing(why) for text, why in group.items() if isinstance(why, Undefined)}
            asked = {text: prompts for text, prompts in group.items() if not isinstance(prompts, Undefined)}
            if not asked:
                continue
            compared = reference.compare([build_tree(prompts.all) for prompts in asked.values()])
            distances = compared.distances(self.temperature, list(formulas.values()))
            for (text, prompts), values, tasks in zip(asked.items(), distances, compared.tasks, strict=True):
                found[text] = self._numbers(task, prompts, [values[word] for word in tasks], list(formulas))
        return found

    def _stopwords(self, item: Item, task: QuestionPrompts) -> QuestionPrompts | Undefined:
        """What ``all_words`` masks beyond the words of the metric."""
        from selfreflect.metric.prompts import CannotScoreError, encode
        from selfreflect.validate.metrics.judged import undefined

        held = set(task.words)
        words = (
            [word for word in masked_words(item.masked_out, every=True) if word not in held]
            if "all_words" in self._names
            else []
        )
        context = reference_context(item.question, item.conditioning)
        conversations = [context.conversation(word.masked) for word in words]
        texts, what = [word.text for word in words], "the conditioning answers with a masked-out task"
        try:
            prompts = encode(self.judge, conversations, texts, what) if words else []
        except CannotScoreError as error:
            return undefined(error)
        return replace(task, words=words, reference=prompts)

    def _prompts(
        self, name: str, text: str, task: QuestionPrompts, stopwords: QuestionPrompts | Undefined
    ) -> _Prompts:
        from selfreflect.metric.prompts import CannotScoreError, summary_prompts
        from selfreflect.validate.metrics.judged import undefined

        summary = Summary(question_id=task.question.id, name=name, text=text)
        content = summary_prompts(self.judge, task, summary)
        if isinstance(stopwords, Undefined):
            return _Prompts(content, stopwords)
        try:
            return _Prompts(
                content, summary_prompts(self.judge, stopwords, summary) if stopwords.words else []
            )
        except CannotScoreError as error:
            return _Prompts(content, undefined(error))

    def _formulas(self) -> dict[str, Formula]:
        """The distances that the metrics need, by the metric that is their plain mean."""
        from selfreflect.metric import distance

        known: dict[str, Formula] = {
            "selfreflect": distance.total_variation,
            "tv_t1": lambda logits, reference, _: distance.total_variation(logits, reference, 1.0),
            "kl": distance.kl_divergence,
            "jensen_shannon": distance.jensen_shannon,
            "hellinger": distance.hellinger,
            "top1": distance.top1_disagreement,
        }
        needed = {name if name in known else "selfreflect" for name in self._names}
        return {name: formula for name, formula in known.items() if name in needed}

    def _numbers(
        self, task: QuestionPrompts, prompts: _Prompts, words: list[Floats], columns: list[str]
    ) -> _Found:
        """The metrics from the distances of each word, shape (tokens, columns)."""
        from selfreflect.validate.metrics.judged import finite

        content = words[: len(task.words)]
        numbers: dict[str, float | Undefined] = {}
        for name in self._names:
            column = columns.index(name if name in columns else "selfreflect")
            if name == "all_words" and isinstance(prompts.stopwords, Undefined):
                numbers[name] = prompts.stopwords
                continue
            distances = [word[:, column].tolist() for word in (words if name == "all_words" else content)]
            values = (
                [_mean(word) for word in distances]
                if name == "per_word"
                else [value for word in distances for value in word]
            )
            numbers[name] = finite(self.judge, _mean(values))
        if "selfreflect" not in columns:
            return _Found(numbers)
        return _Found(
            numbers, _parts(task, [tuple(word[:, columns.index("selfreflect")].tolist()) for word in content])
        )


def _reference(stopwords: QuestionPrompts | Undefined) -> list[Prompt] | Undefined:
    return stopwords if isinstance(stopwords, Undefined) else stopwords.reference


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _parts(task: QuestionPrompts, distances: Sequence[tuple[float, ...]]) -> Parts:
    answers = groupby(zip(task.words, distances, strict=True), key=lambda pair: pair[0].answer)
    held = {answer: tuple(distance for _, distance in words) for answer, words in answers}
    return tuple(held.get(answer, ()) for answer in range(task.answers))
