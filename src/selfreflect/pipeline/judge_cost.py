"""The judge's work in tree nodes, before it is done: exact where the texts are there, estimated where
stand-ins hold their places."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice
from typing import TYPE_CHECKING

from selfreflect.pipeline.cost import Amount, Nodes, extended
from selfreflect.pipeline.counting_generator import blanked, shown_kinds
from selfreflect.records import AnswerSet, Question, Summary

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge

TYPICAL = (
    "Most people would say that it depends on the soil and on how much sun there is, but radishes or lettuce are a good first choice "
    "because they grow quickly and need little care."
)
"""How many words an answer has for its tokens, and how many of them are masked, is taken from this where
there are no answers yet."""

LENGTHS = (12, 32, 64)
"""Tokens of the made-up answers whose trees are built; those of other lengths follow from them."""


class Trees:
    """The judge's work in tree nodes. ``lengths`` and ``limits`` are those of stand-ins, by their kind."""

    def __init__(self, judge: Judge, lengths: Mapping[int, float | None], limits: Sequence[int]) -> None:
        self.judge = judge
        self.estimated = False
        """Whether some texts were not there yet."""
        self._lengths, self._limits = lengths, limits
        self._units: dict[bool, list[tuple[float, Nodes]]] = {}

    def nodes(self, question: Question, answers: AnswerSet, summaries: Sequence[Summary]) -> Amount:
        """The nodes of one question's trees."""
        kinds = shown_kinds("".join(answers.answers))
        if not kinds and not any(shown_kinds(summary.text) for summary in summaries):
            exact = sum(tree_nodes(self.judge, question, answers, [summary.text for summary in summaries]))
            return Amount(expected=exact, most=exact)
        self.estimated = True
        said = [self._tokens(summary.text) for summary in summaries]
        if kinds:
            length, limit = self._lengths.get(kinds[0]), self._limits[kinds[0]]
            count = max(len(answers.masked_out), 1)
            expected = (
                None
                if length is None
                else self._given(said, lambda told: self._unit(question, length, False).question(count, told))
            )
            return Amount(
                expected=expected,
                most=self._unit(question, limit, True).question(count, [most for _, most in said]),
            )
        reference, *bare = tree_nodes(self.judge, question, answers, ["x"]) or (0,)
        one = bare[0] if bare else 0
        expected = self._given(said, lambda told: reference + sum(one + tokens for tokens in told))
        return Amount(expected=expected, most=reference + sum(one + most for _, most in said))

    def seconds(self, question: Question) -> float | None:
        """Seconds for each node, on a small made-up item."""
        from selfreflect.metric.scorer import SelfReflect

        metric = SelfReflect(self.judge)
        answers = AnswerSet(
            question_id=question.id,
            masked_out=(" ".join(TYPICAL.split()[:12]),),
            conditioning=(TYPICAL, TYPICAL),
        )
        summary = Summary(question_id=question.id, name="trial", text=TYPICAL)
        nodes = sum(tree_nodes(self.judge, question, answers, [summary.text]))
        metric.score_records(question, answers, [summary])
        began = time.monotonic()
        metric.score_records(question, answers, [summary])
        return (time.monotonic() - began) / nodes if nodes else None

    def _given(
        self, said: Sequence[tuple[float | None, float]], formula: Callable[[Sequence[float]], float]
    ) -> float | None:
        told = [expected for expected, _ in said if expected is not None]
        return formula(told) if len(told) == len(said) else None

    def _tokens(self, text: str) -> tuple[float | None, float]:
        """Tokens of a summary with stand-ins in it: expected, and at their limits."""
        kinds = shown_kinds(text)
        bare = self._count(blanked(text)) - len(kinds)
        known = [length for kind in kinds if (length := self._lengths.get(kind)) is not None]
        return bare + sum(known) if len(known) == len(kinds) else None, bare + sum(
            self._limits[kind] for kind in kinds
        )

    def _unit(self, question: Question, length: float, dense: bool) -> Nodes:
        """Nodes for answers of about so many tokens to a question like this one; ``dense``: every token is a
        word to mask."""
        if dense not in self._units:
            self._units[dense] = [self._measured(question, tokens, dense) for tokens in LENGTHS]
        return extended(self._units[dense], length)

    def _measured(self, question: Question, length: float, dense: bool) -> tuple[float, Nodes]:
        """Trees of made-up answers: their tokens, and the nodes."""
        texts = [self._filler(number, length, dense) for number in range(3)]

        def found(masked: Sequence[str], conditioning: Sequence[str]) -> list[int]:
            answers = AnswerSet(
                question_id=question.id, masked_out=tuple(masked), conditioning=tuple(conditioning)
            )
            return tree_nodes(self.judge, question, answers, ["x"]) or [0, 0]

        one, more, longer = (
            found(texts[:1], texts[2:]),
            found(texts[:2], texts[2:]),
            found(texts[:1], texts[1:]),
        )
        nodes = Nodes(
            reference=one[0], summary=one[1], masked=more[0] - one[0], conditioning=longer[0] - one[0]
        )
        return sum(map(self._count, texts)) / len(texts), nodes

    def _filler(self, number: int, length: float, dense: bool) -> str:
        """An answer of about ``length`` tokens, unlike those of other numbers from its first letter."""
        words = ["b", "c", "d", "f", "g"] if dense else TYPICAL.split()
        text = " ".join(islice(cycle(words), max(1, round(length))))
        count = max(1, round(len(text.split()) * length / max(1, self._count(text))))
        return " ".join(["pqr"[number], *islice(cycle(words), max(0, count - 1))])

    def _count(self, text: str) -> int:
        return len(self.judge.chat.tokenizer(text, add_special_tokens=False).input_ids)


def tree_nodes(judge: Judge, question: Question, answers: AnswerSet, summaries: Sequence[str]) -> list[int]:
    """Nodes of the reference's tree and of those of the summaries that can be scored, equal ones once; empty
    where none can be."""
    from selfreflect.metric.engine.tree import build_tree
    from selfreflect.metric.prompts import CannotScoreError, prepare, summary_prompts

    try:
        task = prepare(judge, question, answers)
    except CannotScoreError:
        return []
    contexts = []
    for text in summaries:
        try:
            prompts = summary_prompts(judge, task, Summary(question_id=question.id, name="", text=text))
        except CannotScoreError:
            continue
        if prompts not in contexts:
            contexts.append(prompts)
    return [build_tree(prompts).computed_tokens for prompts in (task.reference, *contexts)]
