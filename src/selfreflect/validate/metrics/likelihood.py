"""Ablations that read a judge's probabilities of whole answers: whether it believes them, and how much a
summary helps to guess them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from selfreflect.metric.tasks import SYSTEM, Context, reference_context, summary_context
from selfreflect.models.base import Message
from selfreflect.sources.items import Item
from selfreflect.text import normalise_question
from selfreflect.validate.base import MetricInfo, Undefined, Value, make_value
from selfreflect.validate.metrics.naming import chosen, judged_by

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge
    from selfreflect.validate.metrics.judged import Query

METRICS: tuple[MetricInfo, ...] = (
    MetricInfo(
        name="p_true",
        better="lower",
        group="ablation",
        about="How far the judge's belief that a masked-out answer is possible, after the summary, is from that after the answers.",
        needs=("judge",),
    ),
    MetricInfo(
        name="pmi",
        better="higher",
        group="ablation",
        about="Pointwise mutual information of summary and masked-out answer: log p(a | s, q) - log p(a | q), in nats per answer.",
        needs=("judge",),
    ),
)

GIVE_ONE = "Give one answer to this question."
YES, NO = ("Yes", "yes", "YES"), ("No", "no", "NO")

Conversation = tuple[Message, ...]


def belief(context: Context, answer: str) -> Conversation:
    """The turns after which the judge says yes or no to an answer."""
    task = (
        f"Here is a possible answer to the question: {answer}\n"
        f'Only based on the {context.source} you gave above, could this be the answer? Please reply with "Yes" or "No" only.'
    )
    return (
        Message(role="system", content=SYSTEM),
        Message(role="user", content=context.question),
        Message(role="assistant", content=context.said),
        Message(role="user", content=task),
    )


def answering(question: str, summary: str | None) -> Conversation:
    """The turns after which the judge gives an answer: with a summary said before, or with the question
    alone. Both end in one request."""
    asked = normalise_question(question)
    if summary is None:
        return (Message(role="system", content=SYSTEM), Message(role="user", content=f"{asked}\n{GIVE_ONE}"))
    return (
        Message(role="system", content=SYSTEM),
        Message(role="user", content=asked),
        Message(role="assistant", content=summary),
        Message(role="user", content=GIVE_ONE),
    )


@dataclass(frozen=True)
class _Ablation:
    """How a metric reads the judge: a number for each distinct answer, after the summary and without it."""

    queries: Callable[[Judge, Item, str | None, Sequence[str], str], list[Query]]
    """Of the judge, the item, a summary (None: what it is compared with), the answers, and what the text is
    called in messages."""
    read: Callable[[Sequence[float]], float]
    """The number, from the log-probabilities of a query's events."""
    compare: Callable[[float, float], float]
    """From the numbers with the summary and without it."""
    conditions: bool
    """Whether the conditioning answers are needed."""


class Likelihood:
    """Metrics from a judge's probabilities of the masked-out answers, each counted as often as it was given.

    ``p_true`` is the mean of |p(yes) - p_reference(yes)|, where p(yes) is renormalised over the spellings of
    yes and no. ``pmi`` is the mean of log p(answer | summary, question) - log p(answer | question), where the
    logarithm is the sum over the answer's tokens, at temperature 1: long answers weigh more, and that an
    answer ends is no part of it.

    Args:
        names: which of :data:`METRICS`; all unless given.

    Raises:
        ConfigError: an unknown name.
    """

    def __init__(self, judge: Judge, names: Sequence[str] | None = None) -> None:
        from selfreflect.metric.engine.choose import engine_for

        self.metrics = chosen(METRICS, names)
        self.by = judged_by(judge)
        self.judge = judge
        self.engine = engine_for(judge)

    def score(self, item: Item) -> list[Value]:
        """One value for each metric and summary."""
        answers = Counter(answer.strip() for answer in item.masked_out if answer.strip())
        found = {info.name: self._found(_ABLATIONS[info.name], item, answers) for info in self.metrics}
        return [
            make_value(self, info.name, item, name, found[info.name][text])
            for name, text in item.summaries.items()
            for info in self.metrics
        ]

    def _found(
        self, ablation: _Ablation, item: Item, answers: Mapping[str, int]
    ) -> dict[str, float | Undefined]:
        """By text of the summaries."""
        from selfreflect.metric.prompts import CannotScoreError
        from selfreflect.validate.metrics.judged import finite, grouped, log_probabilities, undefined

        def queries(name: str, text: str) -> list[Query]:
            return ablation.queries(self.judge, item, text, list(answers), f"summary {name!r}")

        found: dict[str, float | Undefined] = {}
        try:
            _refuse_nothing(item, answers, ablation)
            reference = ablation.queries(self.judge, item, None, list(answers), "the conditioning answers")
        except CannotScoreError as error:
            return dict.fromkeys(item.summaries.values(), undefined(error))
        [known] = log_probabilities(self.engine, [reference])
        for group in grouped(item.summaries, queries):
            found |= {text: why for text, why in group.items() if isinstance(why, Undefined)}
            asked = {text: each for text, each in group.items() if not isinstance(each, Undefined)}
            for text, told in zip(asked, log_probabilities(self.engine, list(asked.values())), strict=True):
                gaps = [
                    ablation.compare(ablation.read(a), ablation.read(b))
                    for a, b in zip(told, known, strict=True)
                ]
                total = math.fsum(gap * count for gap, count in zip(gaps, answers.values(), strict=True))
                found[text] = finite(self.judge, total / sum(answers.values()))
        return found


def _refuse_nothing(item: Item, answers: Mapping[str, int], ablation: _Ablation) -> None:
    from selfreflect.metric.prompts import CannotScoreError

    if not answers:
        raise CannotScoreError("no_answers", "there are no masked-out answers with words in them")
    if ablation.conditions and not item.conditioning:
        raise CannotScoreError("no_answers", "there are no conditioning answers")


def _yes_or_no(
    judge: Judge, item: Item, summary: str | None, answers: Sequence[str], what: str
) -> list[Query]:
    from selfreflect.metric.prompts import encode

    context = (
        reference_context(item.question, item.conditioning)
        if summary is None
        else summary_context(item.question, summary)
    )
    spelled = YES + NO
    conversations = [belief(context, answer) for answer in answers for _ in spelled]
    prompts = [
        prompt.ids
        for prompt in encode(judge, conversations, spelled * len(answers), f"{what} with a masked-out answer")
    ]
    step = len(spelled)
    return [
        _choice(judge, prompts[at : at + len(YES)], prompts[at + len(YES) : at + step])
        for at in range(0, len(prompts), step)
    ]


def _choice(judge: Judge, yes: Sequence[tuple[int, ...]], no: Sequence[tuple[int, ...]]) -> Query:
    """The prompt where yes and no part, and the tokens that begin either there. A spelling that parts
    elsewhere is left out."""
    from selfreflect.metric.engine.tree import Prompt
    from selfreflect.metric.prompts import CannotScoreError
    from selfreflect.validate.metrics.judged import Query

    at = next((i for i, (a, b) in enumerate(zip(yes[0], no[0], strict=False)) if a != b), 0)
    stem = yes[0][:at]
    begins_yes, begins_no = (
        {ids[at] for ids in spelled if ids[:at] == stem and len(ids) > at} for spelled in (yes, no)
    )
    only_yes, only_no = sorted(begins_yes - begins_no), sorted(begins_no - begins_yes)
    if not (stem and only_yes and only_no):
        raise CannotScoreError(
            "backend", f"the tokenizer of judge {judge.name!r} does not tell yes from no by one token"
        )
    return Query(Prompt(ids=(*stem, only_yes[0]), first=at), ((0, tuple(only_yes)), (0, tuple(only_no))))


def _whole_answers(
    judge: Judge, item: Item, summary: str | None, answers: Sequence[str], what: str
) -> list[Query]:
    from selfreflect.metric.prompts import encode
    from selfreflect.validate.metrics.judged import Query

    named = f"{'the question' if summary is None else what} with a masked-out answer"
    prompts = encode(judge, [answering(item.question, summary)] * len(answers), answers, named)
    return [
        Query(prompt, tuple(enumerate((token,) for token in prompt.ids[prompt.first :])))
        for prompt in prompts
    ]


def _p_yes(logs: Sequence[float]) -> float:
    """p(yes) / (p(yes) + p(no)) from both logarithms."""
    yes, no = logs
    return 0.5 * (1 + math.tanh((yes - no) / 2))


_ABLATIONS: dict[str, _Ablation] = {
    "p_true": _Ablation(_yes_or_no, _p_yes, lambda told, known: abs(told - known), conditions=True),
    "pmi": _Ablation(_whole_answers, math.fsum, lambda told, known: told - known, conditions=False),
}
