"""Both measures of one question's summaries, SelfReflect and usable information, and of its controls."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import fmean

from msgspec.structs import replace

from selfreflect.metric.information import (
    choose_reader,
    control_texts,
    measure,
    pasted,
    unmeasured,
    within_budget,
)
from selfreflect.metric.prompts import CannotScoreError
from selfreflect.metric.scorer import SelfReflect
from selfreflect.records import (
    RETRIED,
    AnswerSet,
    Control,
    Controls,
    Failure,
    Information,
    Question,
    ReaderChoice,
    Score,
    Summary,
)
from selfreflect.stats import defined

INFORMATION_SHARE = 0.25
"""The part of a budget of tokens that usable information may take. It needs each answer once, scores need
each masked word."""

Measured = Score | Information | Controls | Failure


class Measures:
    """Measures the summaries of one question after the other.

    Args:
        metric: its limits hold for both measures together. Under limits, controls are not measured.
        scores, information: which measures are wanted.
        reader: who reads the summaries, see :func:`~selfreflect.metric.information.choose_reader`.
    """

    def __init__(
        self,
        metric: SelfReflect,
        *,
        scores: bool = True,
        information: bool = True,
        controls: bool = True,
        reader: ReaderChoice = "auto",
    ) -> None:
        self.metric = metric
        self.scores = scores
        self.information = information
        self.controls = controls and metric.limits is None
        self.reader: ReaderChoice = reader

    def measure(
        self,
        question: Question,
        answers: AnswerSet,
        summaries: Sequence[Summary],
        *,
        uninformed: Sequence[Summary] | None = None,
        earlier: Sequence[Score] = (),
        most_answers: int | None = None,
        controls: bool = True,
    ) -> list[Measured]:
        """Measure summaries of one question.

        Args:
            summaries: those to score.
            uninformed: those whose information to measure, if not the same.
            earlier: scores of other summaries; see :meth:`SelfReflect.score_records`.
            most_answers: under limits, how many held-out answers the information of other summaries rests on.
                No more are taken, so that all stay comparable.
            controls: measure them, if they are wanted at all.

        Returns:
            A score or failure for each of ``summaries``, an information for each of ``uninformed``, and the
            controls; only what is wanted.
        """
        texts = control_texts(question.text, answers.conditioning) if controls and self.controls else []
        limits = self.metric.limits
        results: list[Measured] = []
        of_controls: dict[str, Information] = {}
        if self.information:
            targets = summaries if uninformed is None else uninformed
            start = time.monotonic()
            all_texts = [*(summary.text for summary in targets), *(text for _, text in texts)]
            information, tokens = self._information(question, answers, all_texts, most_answers)
            if limits is not None:
                limits = limits.less(tokens, time.monotonic() - start)
            results += [replace(information[one.text], summary=one.name) for one in targets]
            of_controls = information
        scores: list[Score | Failure] = []
        if self.scores:
            both = ["", pasted(answers.conditioning)] if texts else []
            ends = [Summary(question_id=question.id, name=text, text=text) for text in both]
            scores = self.metric.score_records(
                question, answers, [*summaries, *ends], earlier=earlier, limits=limits
            )
            results[:0] = scores[: len(summaries)]
            scores = scores[len(summaries) :]
        if texts:
            results.append(self._controls(question, texts, of_controls, scores))
        return results

    def _information(
        self, question: Question, answers: AnswerSet, texts: Sequence[str], most_answers: int | None
    ) -> tuple[dict[str, Information], int]:
        """By text, and the judge tokens that a budget pays for."""
        judge = self.metric.judge
        reader = choose_reader(self.reader, judge, question, answers)
        limits = self.metric.limits
        tokens = 0
        try:
            if limits is not None and limits.tokens is not None:
                share = int(INFORMATION_SHARE * limits.tokens) if self.scores else limits.tokens
                some, tokens = within_budget(judge, question, answers, texts, reader, share, most_answers)
                if not tokens and any(map(str.strip, answers.masked_out)):
                    why = f"{share} judge tokens of the budget do not suffice for a single answer"
                    raise CannotScoreError("over_budget", why)
                answers = some
            return measure(judge, self.metric.engine, question, answers, texts, reader), tokens
        except CannotScoreError as error:
            return dict.fromkeys(texts, unmeasured(judge, question, reader, error)), 0

    def _controls(
        self,
        question: Question,
        texts: Sequence[tuple[Control, str]],
        information: dict[str, Information],
        scores: Sequence[Score | Failure],
    ) -> Controls:
        judge = self.metric.judge
        # of nothing, and of all answers, whose repetitions count for this measure
        ends = [score.value if isinstance(score, Score) else None for score in scores] or [None, None]
        bits: dict[Control, list[float | None]] = {}
        for control, text in texts:
            result = information.get(text)
            bits.setdefault(control, []).append(result.bits if result else None)
        most = max(control.answers for control in bits)
        records = []
        for control, of_subsets in bits.items():
            numbers = defined(of_subsets)
            mean = fmean(numbers) if len(numbers) == len(of_subsets) else None
            score = None
            if control.name == "empty":
                score = ends[0]
            elif control.answers == most > 0:
                score = ends[1]
            records.append(replace(control, bits=mean, score=score))
        any_told = next((one for one in information.values() if one.kind not in RETRIED), None)
        return Controls(
            question_id=question.id,
            controls=tuple(records),
            reader=any_told.reader if any_told else None,
            zero=any_told.zero if any_told else "empty",
            anchor="distinct",
            temperature=self.metric.temperature if self.scores else None,
            bits_available=any_told.bits_available if any_told else None,
            judge=judge.name,
            judge_revision=judge.lm.revision,
            judge_dtype=judge.lm.dtype,
        )
