"""Metrics that a judge computes: SelfReflect and its ablations, usable information, and likelihoods."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

import numpy as np

from selfreflect.metric import distance, information
from selfreflect.metric.distance import Formula
from selfreflect.metric.engine.engines import Engine, engine_for
from selfreflect.metric.engine.logits import Reference, log_probabilities
from selfreflect.metric.engine.tree import Prompt, build_tree
from selfreflect.metric.information import measure
from selfreflect.metric.prompts import (
    JUDGE_TEMPERATURE,
    SYSTEM,
    CannotScoreError,
    Context,
    QuestionPrompts,
    encode,
    encode_words,
    masked_words,
    prepare,
    reference_context,
    summary_context,
    summary_prompts,
)
from selfreflect.models.base import Message
from selfreflect.models.judge import Judge
from selfreflect.records import Information, Reader
from selfreflect.report.sentences import information_sentence
from selfreflect.sources.items import Item
from selfreflect.stats import Floats
from selfreflect.text import common_prefix, normalise_question
from selfreflect.validate.base import MetricInfo, Parts, Undefined
from selfreflect.validate.metrics.common import (
    Family,
    Parted,
    Result,
    Results,
    model_name,
    undefined,
)

GROUP = 6
"""Summaries whose prompts and states exist at once. A study may give thirty per item; each group projects the
reference again, so not fewer."""

T = TypeVar("T")


class JudgeMetrics(Family):
    """Metrics that a judge computes, and the engine that they share."""

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
    if math.isfinite(number):
        return number
    message = f"the predictions of judge {judge.name!r} give {number}, which is not a finite number"
    return Undefined(reason="backend", message=message)


def judge_name(judge: Judge) -> str:
    """Everything about a judge that moves its predictions, as values name it."""
    name = f"{model_name(judge.name, judge.lm.revision, judge.facts)}, {judge.lm.dtype}"
    return f"{name}, compat {judge.compat}" if judge.compat else name


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

    def measure(self, item: Item) -> dict[str, Results]:
        """The values of ``selfreflect`` have their parts."""
        task = prepare(self.judge, item.question_record, item.answer_set)
        by_text = self._distances(item, task, self._columns)
        stopwords = self._stopwords(item, task) if "all_words" in self._names else {}
        results: dict[str, Results] = {}
        for text, words in by_text.items():
            if isinstance(words, Undefined):
                results[text] = dict.fromkeys(self._names, words)
            else:
                results[text] = self._means(task, words, stopwords.get(text, []))
        return results

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

    def _means(self, task: QuestionPrompts, words: Words, stopwords: Words | Undefined) -> Results:
        """The metrics of one summary."""
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
        own = results.get("selfreflect")
        if isinstance(own, float):
            results["selfreflect"] = Parted(own, _parts(task, words))
        return results


def _parts(task: QuestionPrompts, words: Words) -> Parts:
    """The first distance of each word's tokens, by masked-out answer."""
    by_answer: list[list[tuple[float, ...]]] = [[] for _ in range(task.answer_count)]
    for masked, word in zip(task.words, words, strict=True):
        by_answer[masked.answer].append(tuple(word[:, 0].tolist()))
    return tuple(map(tuple, by_answer))


READERS: dict[str, Reader] = {"information": "informed", "information_blind": "blind"}
"""The reader of each metric."""


class UsableInformation(JudgeMetrics):
    """Bits per masked-out answer, see :mod:`selfreflect.metric.information`. Undefined where the conditioning
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
            message = information_sentence(information, None)
            return Undefined(reason=information.undefined or "unmeasured", message=message)
        return finite(self.judge, information.bits)


YES, NO = ("Yes", "yes", "YES"), ("No", "no", "NO")

Conversation = tuple[Message, ...]
Tokens = tuple[int, ...]


class Query(NamedTuple):
    """Events whose probabilities are read after one prompt: that one of some tokens stands at a position in
    the prompt's word."""

    prompt: Prompt
    events: Sequence[tuple[int, Tokens]]


class Likelihood(JudgeMetrics):
    """Metrics from a judge's probabilities of the masked-out answers, each counted as often as it was given.

    ``p_true`` is the mean of |p(yes) - p_reference(yes)|, where p(yes) is renormalised over the spellings of
    yes and no. ``pmi`` is the mean of log p(answer | summary, question) - log p(answer | question), where the
    logarithm is the sum over the answer's tokens, at temperature 1: long answers weigh more, and the end of
    an answer is no part of it.
    """

    def measure(self, item: Item) -> dict[str, Results]:
        by_metric = {info.name: self._measure(info.name, item) for info in self.metrics}
        results: dict[str, Results] = {}
        for text in item.summaries.values():
            results[text] = {metric: by_text[text] for metric, by_text in by_metric.items()}
        return results

    def _measure(self, metric: str, item: Item) -> dict[str, Result]:
        """Results by text of the summaries."""
        counts = Counter(answer.strip() for answer in item.masked_out if answer.strip())
        answers = list(counts)
        make_queries = _belief_queries if metric == "p_true" else _answer_queries
        try:
            if not answers:
                raise CannotScoreError("no_answers", "there are no masked-out answers with words in them")
            reference = make_queries(self.judge, item, answers, None)
        except CannotScoreError as error:
            return dict.fromkeys(item.summaries.values(), undefined(error))
        [reference_logs] = _log_probabilities(self.engine, [reference])
        results: dict[str, Result] = {}
        for group in in_groups(item, lambda text: make_queries(self.judge, item, answers, text), results):
            logs = _log_probabilities(self.engine, list(group.values()))
            for text, summary_logs in zip(group, logs, strict=True):
                total = 0.0
                for count, own, other in zip(counts.values(), summary_logs, reference_logs, strict=True):
                    if metric == "p_true":
                        total += count * abs(_p_yes(own) - _p_yes(other))
                    else:
                        total += count * (math.fsum(own) - math.fsum(other))
                results[text] = finite(self.judge, total / counts.total())
        return results


def _log_probabilities(engine: Engine, contexts: Sequence[Sequence[Query]]) -> list[list[list[float]]]:
    """For each context, query and event the natural logarithm of its probability."""
    trees = []
    for queries in contexts:
        trees.append(build_tree([query.prompt for query in queries]))
    by_context = []
    for states, tree, queries in zip(engine.states(trees), trees, contexts, strict=True):
        pairs: list[tuple[int, int]] = []
        starts = []
        for rows, query in zip(tree.rows, queries, strict=True):
            for position, tokens in query.events:
                starts.append(len(pairs))
                pairs += [(rows[position], token) for token in tokens]
        logs = log_probabilities(engine.head, states, np.array(pairs))
        with np.errstate(invalid="ignore"):  # NaN stays NaN, and is found in the result
            of_events = np.logaddexp.reduceat(logs, starts)
        ends = np.cumsum([len(query.events) for query in queries])
        by_context.append([part.tolist() for part in np.split(of_events, ends[:-1])])
    return by_context


def belief(context: Context, answer: str) -> Conversation:
    """The turns after which the judge says yes or no to an answer."""
    task = (
        f"Here is a possible answer to the question: {answer}\n"
        f"Only based on the {context.source} you gave above, could this be the answer? "
        'Please reply with "Yes" or "No" only.'
    )
    return context.turns(task)


def _belief_queries(judge: Judge, item: Item, answers: Sequence[str], summary: str | None) -> list[Query]:
    """One query for each answer, after a summary or the conditioning answers: yes, and no."""
    if summary is not None:
        context, what = summary_context(item.question, summary), "the summary"
    elif item.conditioning:
        context, what = reference_context(item.question, item.conditioning), "the conditioning answers"
    else:
        raise CannotScoreError("no_answers", "there are no conditioning answers")
    spellings = YES + NO
    conversations = []
    for answer in answers:
        conversations += [belief(context, answer)] * len(spellings)
    prompts = encode(judge, conversations, spellings * len(answers), f"{what} with a masked-out answer")
    queries = []
    for start in range(0, len(prompts), len(spellings)):
        ids = [prompt.ids for prompt in prompts[start : start + len(spellings)]]
        queries.append(_yes_or_no(judge, ids[: len(YES)], ids[len(YES) :]))
    return queries


def _yes_or_no(judge: Judge, yes: Sequence[Tokens], no: Sequence[Tokens]) -> Query:
    """The prompt where yes and no part, and the tokens that begin either there. Spellings that part elsewhere
    are left out."""
    at = common_prefix(yes[0], no[0])
    stem = yes[0][:at]
    begins_yes = {ids[at] for ids in yes if ids[:at] == stem and len(ids) > at}
    begins_no = {ids[at] for ids in no if ids[:at] == stem and len(ids) > at}
    only_yes, only_no = sorted(begins_yes - begins_no), sorted(begins_no - begins_yes)
    if not (stem and only_yes and only_no):
        raise CannotScoreError(
            "backend", f"the tokenizer of judge {judge.name!r} does not tell yes from no by one token"
        )
    prompt = Prompt(ids=(*stem, only_yes[0]), first=at)
    return Query(prompt, [(0, tuple(only_yes)), (0, tuple(only_no))])


def _p_yes(logs: Sequence[float]) -> float:
    """p(yes) / (p(yes) + p(no)) from both logarithms."""
    yes, no = logs
    return 0.5 * (1 + math.tanh((yes - no) / 2))


def answering(question: str, summary: str | None) -> Conversation:
    """The turns after which the judge gives an answer, all in one request, or after a summary that it gave
    itself (in ``metric.information`` it is told)."""
    system = Message(role="system", content=SYSTEM)
    text = normalise_question(question)
    request = Message(role="user", content=information.GIVE_ONE)
    if summary is None:
        return (system, Message(role="user", content=f"{text}\n{request.content}"))
    told = Message(role="assistant", content=summary)
    return (system, Message(role="user", content=text), told, request)


def _answer_queries(judge: Judge, item: Item, answers: Sequence[str], summary: str | None) -> list[Query]:
    """One query for each answer, after a summary or the question alone: each of its tokens."""
    what = f"{'the question' if summary is None else 'the summary'} with a masked-out answer"
    prompts = encode(judge, [answering(item.question, summary)] * len(answers), answers, what)
    queries = []
    for prompt in prompts:
        tokens = prompt.ids[prompt.first :]
        queries.append(Query(prompt, [(position, (token,)) for position, token in enumerate(tokens)]))
    return queries
