"""The scores stage: a question, its answers and its summaries in, one :class:`Score` or :class:`Failure` per summary out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from selfreflect.errors import ConfigError, DataError, JudgeError
from selfreflect.metric.engine import choose_engine, distances
from selfreflect.metric.plan import Ints, Plan, Prompt, build_plan
from selfreflect.metric.tasks import (
    JUDGE_TEMPERATURE,
    Context,
    MaskedWord,
    listing_breaks,
    masked_words,
    reference_context,
    summary_context,
)
from selfreflect.records import AnswerSet, Failure, FailureKind, Question, Score, Summary, WordDistance, halves, question_id
from selfreflect.stats import clustered_mean

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge


class SelfReflect:
    """The SelfReflect metric with one judge.

    >>> metric = SelfReflect(Judge.load("smollm2"))
    >>> scores = metric.score("What should I plant first?", answers=samples, summaries={"mine": "Most likely radishes, or lettuce."})
    >>> scores["mine"].value, scores["mine"].words
    """

    def __init__(self, judge: Judge, *, temperature: float = JUDGE_TEMPERATURE) -> None:
        if not temperature > 0:
            raise ConfigError(f"the judge's temperature must be above 0, not {temperature}; the metric's own is {JUDGE_TEMPERATURE}")
        self.judge = judge
        self.temperature = temperature
        self.engine = choose_engine(judge.lm.model, judge.decoder, judge.head)

    def score(
        self,
        question: str,
        *,
        summaries: Mapping[str, str],
        answers: Sequence[str] | None = None,
        masked_out: Sequence[str] | None = None,
        conditioning: Sequence[str] | None = None,
    ) -> dict[str, Score]:
        """Score summaries of one answer distribution: name -> :class:`Score`, 0 is perfect, 1 is worst.

        Args:
            answers: all samples; the first half is masked, the second half conditions.
            masked_out, conditioning: the two halves, instead of ``answers``.

        Raises:
            DataError: there is nothing to mask or to condition on, or a text does not fit the judge's window.
        """
        masked, told = _two_halves(answers, masked_out, conditioning)
        asked = Question(id=question_id(question), text=question)
        drawn = AnswerSet(question_id=asked.id, masked_out=masked, conditioning=told)
        named = [Summary(question_id=asked.id, name=name, text=text) for name, text in summaries.items()]
        scores = {}
        for result in self.score_records(asked, drawn, named):
            if isinstance(result, Failure):
                raise DataError(f"summary {result.name!r} cannot be scored: {result.message}")
            scores[result.summary] = result
        return scores

    def score_records(self, question: Question, answers: AnswerSet, summaries: Sequence[Summary]) -> list[Score | Failure]:
        """Score every summary of one question; the reference context is computed once for all of them.

        A question that cannot be scored gives one Failure per summary, a summary that cannot be scored gives one of its own.
        """
        try:
            task = self._prepare(question, answers)
        except _CannotScoreError as error:
            return [error.record(question, summary) for summary in summaries]
        planned: dict[int, tuple[Plan, Pairs]] = {}
        failed: dict[int, Failure] = {}
        for index, summary in enumerate(summaries):
            try:
                planned[index] = self._pair(task, summary)
            except _CannotScoreError as error:
                failed[index] = error.record(question, summary)
        measured = dict(zip(planned, self._measure(task, list(planned.values())), strict=True))
        results: list[Score | Failure] = []
        for index, summary in enumerate(summaries):
            try:
                results.append(failed[index] if index in failed else self._record(question, summary, task, measured[index]))
            except _CannotScoreError as error:
                results.append(error.record(question, summary))
        return results

    def _prepare(self, question: Question, answers: AnswerSet) -> _Task:
        if not answers.conditioning:
            raise _CannotScoreError("no_answers", "there are no conditioning answers")
        words = masked_words(answers.masked_out)
        if not words:
            raise _CannotScoreError("no_answers", "there are no masked-out answers with words in them")
        plan = self._plan(reference_context(question.text, answers.conditioning), words, "the conditioning answers")
        breaks = listing_breaks(answers.conditioning)
        warning = f"{breaks} of {len(answers.conditioning)} conditioning answers hold a quote or line end that breaks the judge's list"
        return _Task(
            question=question.text,
            words=words,
            answers=len(answers.masked_out),
            plan=plan,
            states=self._reference_states(plan),
            warnings=(warning,) if breaks else (),
        )

    def _reference_states(self, plan: Plan) -> Any:
        """What the judge knows after the conditioning answers, one row per wanted node."""
        [states] = self.engine.states([plan])
        return states

    def _pair(self, task: _Task, summary: Summary) -> tuple[Plan, Pairs]:
        """The plan of a summary's context, and for each token task its row there and in the reference."""
        plan = self._plan(summary_context(task.question, summary.text), task.words, f"summary {summary.name!r}")
        if [len(rows) for rows in plan.rows] != [len(rows) for rows in task.plan.rows]:
            raise _CannotScoreError(
                "backend",
                f"judge {self.judge.name!r} splits the same word differently in two contexts, so its predictions cannot be compared",
            )
        return plan, np.array([pair for both in zip(plan.rows, task.plan.rows, strict=True) for pair in zip(*both, strict=True)])

    def _measure(self, task: _Task, planned: list[tuple[Plan, Pairs]]) -> list[tuple[WordDistance, ...]]:
        """Distances of every word under every planned summary. Equal token tasks are computed once."""
        states = self.engine.states([plan for plan, _ in planned])
        distinct = [np.unique(pairs, axis=0, return_inverse=True) for _, pairs in planned]
        others = [(rows, pairs) for rows, (pairs, _) in zip(states, distinct, strict=True)]
        found = distances(self.engine.head, task.states, others, self.temperature)
        measured = []
        for values, (_, back), (plan, _) in zip(found, distinct, planned, strict=True):
            flat = iter(values[back.reshape(-1)].tolist())
            measured.append(
                tuple(
                    WordDistance(answer=w.answer, word=w.word, text=w.text, distances=tuple(next(flat) for _ in rows))
                    for w, rows in zip(task.words, plan.rows, strict=True)
                )
            )
        return measured

    def _record(self, question: Question, summary: Summary, task: _Task, words: tuple[WordDistance, ...]) -> Score:
        if not all(math.isfinite(distance) for word in words for distance in word.distances):
            advice = "load it in another dtype" if self.judge.lm.dtype == "float16" else "its weights may be damaged"
            raise _CannotScoreError("backend", f"the predictions of judge {self.judge.name!r} are not finite numbers; {advice}")
        by_answer = {index: [d for word in group for d in word.distances] for index, group in groupby(words, key=lambda word: word.answer)}
        value, stderr = clustered_mean(list(by_answer.values()))
        means = tuple(sum(by_answer[i]) / len(by_answer[i]) if i in by_answer else None for i in range(task.answers))
        return Score(
            question_id=question.id,
            summary=summary.name,
            value=value,
            stderr=stderr,
            token_tasks=sum(len(word.distances) for word in words),
            judge=self.judge.name,
            judge_revision=self.judge.lm.revision,
            judge_dtype=self.judge.lm.dtype,
            temperature=self.temperature,
            compat=self.judge.compat,
            answer_means=means,
            words=words,
            warnings=task.warnings,
        )

    def _plan(self, context: Context, words: Sequence[MaskedWord], what: str) -> Plan:
        self._encode(context, [max(words, key=lambda word: len(word.masked))], what)  # far too long texts are refused at once
        return build_plan(self._encode(context, words, what))

    def _encode(self, context: Context, words: Sequence[MaskedWord], what: str) -> list[Prompt]:
        try:
            tasks = self.judge.encode_tasks([context.conversation(word.masked) for word in words], [word.text for word in words])
        except JudgeError as error:
            raise _CannotScoreError("backend", str(error)) from error
        longest, window = max(len(ids) for ids, _ in tasks), self.judge.lm.window
        if window is not None and longest > window:
            raise _CannotScoreError(
                "too_long",
                f"{what} with a masked-out task needs {longest} tokens, but the window of judge {self.judge.name!r} holds {window}",
            )
        return [Prompt(ids=ids, first=first) for ids, first in tasks]


Answers = tuple[str, ...]

Pairs = Ints
"""Rows of a summary's wanted nodes beside those of the reference, one pair per token task: shape (tasks, 2)."""


def _two_halves(
    answers: Sequence[str] | None, masked_out: Sequence[str] | None, conditioning: Sequence[str] | None
) -> tuple[Answers, Answers]:
    given = [answers is not None, masked_out is not None, conditioning is not None]
    if given not in ([True, False, False], [False, True, True]):
        raise DataError("give either answers=..., or both masked_out=... and conditioning=...")
    if any(isinstance(value, str) for value in (answers, masked_out, conditioning)):
        raise DataError("answers are a list of texts, not one text: every letter of it would count as an answer")
    if answers is None:
        return tuple(masked_out or ()), tuple(conditioning or ())
    try:
        return halves(list(answers))
    except ValueError as error:
        raise DataError(str(error)) from None


@dataclass(frozen=True)
class _Task:
    """What all summaries of one question share."""

    question: str
    words: list[MaskedWord]
    answers: int
    plan: Plan
    states: Any
    warnings: tuple[str, ...]


class _CannotScoreError(Exception):
    """Undefined score: becomes a Failure at the one boundary above."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind

    def record(self, question: Question, summary: Summary) -> Failure:
        return Failure(question_id=question.id, stage="scores", kind=self.kind, message=str(self), name=summary.name)
