"""The judge's work in tokens: exact for texts that exist, estimated for those to come."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from selfreflect.pipeline.cost import Amount, add_up
from selfreflect.pipeline.counting import Kind, Placeholders
from selfreflect.pipeline.stages import StageTask
from selfreflect.records import AnswerSet, Question, Summary

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge

TYPICAL = (
    "Most people would say that it depends on the soil and on how much sun there is, but radishes or lettuce "
    "are a good first choice because they grow quickly and need little care."
)
"""An answer in ordinary English, to time the judge and to count masked words per token with."""


def tree_nodes(judge: Judge, question: Question, answers: AnswerSet, summaries: Sequence[str]) -> list[int]:
    """Nodes of the tree of the reference, then of each different summary that can be scored.

    Empty if the question cannot be scored.
    """
    from selfreflect.metric.engine.tree import build_tree
    from selfreflect.metric.prompts import CannotScoreError, prepare, summary_prompts

    try:
        task = prepare(judge, question, answers)
    except CannotScoreError:
        return []
    contexts = [task.reference]
    for text in summaries:
        try:
            prompts = summary_prompts(judge, task, text)
        except CannotScoreError:
            continue
        if prompts not in contexts:
            contexts.append(prompts)
    return [build_tree(prompts).computed_tokens for prompts in contexts]


class JudgeCost:
    """Counts judge tokens, which are nodes of prefix trees.

    Args:
        question: a typical one.
        length: tokens of a completion to come.
    """

    def __init__(
        self, judge: Judge, question: Question, placeholders: Placeholders, length: Callable[[Kind], Amount]
    ) -> None:
        self.estimated = False
        """Whether some texts were still to come."""
        self._judge = judge
        self._question = question
        self._placeholders = placeholders
        self._length = length

    def tokens(self, task: StageTask) -> Amount:
        """Judge tokens of one question."""
        answers = task.answers
        assert answers is not None  # a question without answers is not scored
        texts = [summary.text for summary in task.summaries]
        answer_kinds = self._placeholders.kinds(" ".join(answers.answers))
        if not answer_kinds and not any(map(self._placeholders.kinds, texts)):
            return Amount.exactly(sum(tree_nodes(self._judge, task.question, answers, texts)))
        self.estimated = True
        summaries = add_up(map(self._text_length, texts))
        if not answer_kinds:
            reference, summary = tree_nodes(self._judge, task.question, answers, ["x"]) or (0, 0)
            return Amount.exactly(reference + len(texts) * summary) + summaries
        length = self._length(answer_kinds[0])
        trees = self._trees(len(answers.masked_out), len(texts), length)
        return trees + summaries

    def _trees(self, answers: int, summaries: int, length: Amount) -> Amount:
        """Trees of answers to come, with blank summaries; at most, every token is a word to mask."""
        expected = None
        if length.expected is not None:
            masked = self._masked_per_token() * length.expected
            expected = self._sizes.nodes(answers, summaries, length.expected, masked)
        most = None
        if length.most is not None:
            most = self._sizes.nodes(answers, summaries, length.most, length.most)
        return Amount(expected=expected, most=most)

    def _masked_per_token(self) -> float:
        from selfreflect.metric.tasks import masked_words

        return len(masked_words([TYPICAL])) / self._count_tokens(TYPICAL)

    def _text_length(self, text: str) -> Amount:
        """Tokens of a text with placeholders."""
        kinds = self._placeholders.kinds(text)
        tokens = self._count_tokens(Placeholders.strip(text)) - len(kinds)
        return Amount.exactly(tokens) + add_up(map(self._length, kinds))

    def _count_tokens(self, text: str) -> int:
        return len(self._judge.chat.tokenizer(text, add_special_tokens=False).input_ids)

    @cached_property
    def _sizes(self) -> TreeSizes:
        return TreeSizes.measure(self._judge, self._question)

    def seconds_per_token(self) -> float | None:
        """Time a small made-up item."""
        from selfreflect.metric.scorer import SelfReflect

        key = self._question.id
        metric = SelfReflect(self._judge)
        first_words = " ".join(TYPICAL.split()[:12])
        answers = AnswerSet(question_id=key, masked_out=(first_words,), conditioning=(TYPICAL, TYPICAL))
        summary = Summary(question_id=key, name="trial", text=TYPICAL)
        nodes = sum(tree_nodes(self._judge, self._question, answers, [TYPICAL]))
        metric.score_records(self._question, answers, [summary])  # the first one is slower
        start = time.monotonic()
        metric.score_records(self._question, answers, [summary])
        return (time.monotonic() - start) / nodes if nodes else None


@dataclass(frozen=True)
class TreeSizes:
    """Sizes in nodes, from which the trees of answers to come are estimated."""

    reference: int
    """The reference with one word masked, without answers."""
    summary: int
    """A blank summary with one word masked."""
    listed_answer: int
    """One more conditioning answer, without its text."""
    masked_word: int
    """One more masked word, without the rest of its answer."""

    @classmethod
    def measure(cls, judge: Judge, question: Question) -> TreeSizes:
        """Build small trees, with answers of one letter."""

        def sizes(masked_out: str, *conditioning: str) -> list[int]:
            answers = AnswerSet(question_id=question.id, masked_out=(masked_out,), conditioning=conditioning)
            return tree_nodes(judge, question, answers, ["x"]) or [0, 0]

        reference, summary = sizes("b", "c")
        return cls(reference, summary, sizes("b", "c", "d")[0] - reference, sizes("b c", "c")[1] - summary)

    def nodes(self, answers: int, summaries: int, length: float, masked: float) -> float:
        """Nodes of one question.

        Args:
            answers: per half.
            summaries: how many, all blank.
            length: tokens per answer.
            masked: masked words per answer.
        """
        # behind each masked word the rest of its answer is computed again: half of it, on average
        masked_out = answers * (length + masked * (self.masked_word + length / 2))
        reference = self.reference + answers * (self.listed_answer + length) + masked_out
        return reference + summaries * (self.summary + masked_out)
