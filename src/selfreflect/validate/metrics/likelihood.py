"""Ablations that read a judge's probabilities of whole answers: whether it believes them, and how much a
summary helps to guess them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from selfreflect.metric import information
from selfreflect.metric.engine.engines import Engine
from selfreflect.metric.engine.logits import log_probabilities
from selfreflect.metric.engine.tree import Prompt, build_tree
from selfreflect.metric.prompts import CannotScoreError, encode
from selfreflect.metric.tasks import Context, reference_context, summary_context
from selfreflect.models.base import Message
from selfreflect.models.judge import Judge
from selfreflect.sources.items import Item
from selfreflect.text import common_prefix, normalise_question
from selfreflect.validate.base import Value
from selfreflect.validate.metrics.common import (
    JudgeMetrics,
    Result,
    finite,
    in_groups,
    make_values,
    undefined,
)

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

    def score(self, item: Item) -> list[Value]:
        """One value for each metric and summary."""
        by_metric = {info.name: self._measure(info.name, item) for info in self.metrics}
        results = {}
        for text in item.summaries.values():
            results[text] = {metric: by_text[text] for metric, by_text in by_metric.items()}
        return make_values(self, item, results)

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
    trees = [build_tree([query.prompt for query in queries]) for queries in contexts]
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
    conversations = [belief(context, answer) for answer in answers for _ in spellings]
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
    system, request = information.answering(question, None, "informed")
    if summary is None:
        return (system, request)
    return (
        system,
        Message(role="user", content=normalise_question(question)),
        Message(role="assistant", content=summary),
        Message(role="user", content=information.GIVE_ONE),
    )


def _answer_queries(judge: Judge, item: Item, answers: Sequence[str], summary: str | None) -> list[Query]:
    """One query for each answer, after a summary or the question alone: each of its tokens."""
    what = f"{'the question' if summary is None else 'the summary'} with a masked-out answer"
    prompts = encode(judge, [answering(item.question, summary)] * len(answers), answers, what)
    queries = []
    for prompt in prompts:
        tokens = prompt.ids[prompt.first :]
        queries.append(Query(prompt, [(position, (token,)) for position, token in enumerate(tokens)]))
    return queries
