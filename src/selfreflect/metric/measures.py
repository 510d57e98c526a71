"""All wanted measures of one question's summaries, and of its controls, within one budget."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from selfreflect.metric.information import control_texts
from selfreflect.metric.measure import MEASURES, Scored, Tools, Work, measures_of
from selfreflect.records import (
    AnswerSet,
    Control,
    Controls,
    Failure,
    Information,
    Measurement,
    Question,
    ReaderChoice,
    Score,
    Summary,
)

if TYPE_CHECKING:
    from selfreflect.metric.scorer import SelfReflect

Measured = Score | Information | Measurement | Controls | Failure


class Measures:
    """Measures the summaries of one question after the other.

    Args:
        metric: its limits hold for all measures together. Under limits, controls are not measured. None if no
            wanted measure needs a judge.
        wanted: names of measures, as in ``--measures``.
        reader: who reads the summaries, see :func:`~selfreflect.metric.information.choose_reader`.

    Raises:
        ConfigError: a measure does not exist, or its package fails.
    """

    def __init__(
        self,
        metric: SelfReflect | None,
        *,
        wanted: Collection[str] = tuple(MEASURES),
        controls: bool = True,
        reader: ReaderChoice = "auto",
    ) -> None:
        self.metric = metric
        self.wanted = measures_of(wanted)
        self.limits = None if metric is None else metric.limits
        self.controls = controls and self.limits is None
        tools = Tools(metric, reader)
        self._measure = {one.name: one.open(tools) for one in self.wanted}

    def measure(
        self,
        question: Question,
        answers: AnswerSet,
        summaries: Sequence[Summary],
        *,
        missing: Mapping[str, Sequence[Summary]] | None = None,
        earlier: Mapping[str, Sequence[Any]] | None = None,
        controls: bool = True,
    ) -> list[Measured]:
        """Measure summaries of one question.

        Args:
            missing: by measure, the summaries that lack it; by default ``summaries`` lack all.
            earlier: by measure, its records of other summaries of the question. Under limits no summary is
                measured by more words or answers than these, so that all stay comparable.
            controls: measure the controls, if they are wanted at all.

        Returns:
            By measure, a record for each of its summaries; then the controls.
        """
        texts = control_texts(question.text, answers.conditioning) if controls and self.controls else []
        limits = self.limits
        found: dict[str, Scored] = {}
        # the cheap ones go first, so that the rest of a budget is for the costly
        order = sorted(self.wanted, key=lambda measure: measure.budget_share)
        for place, measure in enumerate(order, start=1):
            targets = summaries if missing is None else missing.get(measure.name, ())
            of_controls = texts if measure.control else []
            if not targets and not of_controls:
                continue
            start = time.monotonic()
            work = Work(
                question,
                answers,
                targets,
                (earlier or {}).get(measure.name, ()),
                of_controls,
                limits,
                measure.budget_share if place < len(order) else 1.0,
            )
            found[measure.name] = self._measure[measure.name](work)
            if limits is not None:
                limits = limits.less(found[measure.name].tokens, time.monotonic() - start)
        results: list[Measured] = []
        for measure in self.wanted:
            results += found[measure.name].records if measure.name in found else ()
        if texts and any(measure.control for measure in self.wanted):
            results.append(self._controls(question, list(dict(texts)), found))
        return results

    def _controls(
        self, question: Question, controls: Sequence[Control], found: Mapping[str, Scored]
    ) -> Controls:
        assert self.metric is not None
        facts: dict[str, Any] = {"zero": "empty", "anchor": "distinct"}
        values: dict[Control, dict[str, float | None]] = {control: {} for control in controls}
        for measure in self.wanted:
            if measure.control:
                facts |= found[measure.name].facts
                for control, value in found[measure.name].controls.items():
                    values[control][measure.control] = value
        judge = self.metric.judge
        return Controls(
            question_id=question.id,
            controls=tuple(replace(control, **fields) for control, fields in values.items()),
            judge=judge.name,
            judge_revision=judge.lm.revision,
            judge_dtype=judge.lm.dtype,
            **facts,
        )
