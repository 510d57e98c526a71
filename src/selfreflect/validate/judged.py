"""Metrics that are this package's measures, as in ``run`` and ``score``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from selfreflect.metric.measure import Measure, Measures
from selfreflect.records import Failure, Reader
from selfreflect.report.findings import value_sentence
from selfreflect.sources.items import Item
from selfreflect.validate.base import Family, MetricInfo, Result, Results, Undefined, model_name

if TYPE_CHECKING:
    from selfreflect.metric.scorer import SelfReflect
    from selfreflect.models.judge import Judge

# The measure behind a metric of another name, and its reader
_READ_BY: dict[str, tuple[str, Reader]] = {"information_blind": ("information", "blind")}


class Measured(Family):
    """Family of measures that need no judge."""

    def __init__(self, metrics: Sequence[MetricInfo], metric: SelfReflect | None = None) -> None:
        super().__init__(metrics)
        self._measures: dict[str, Measures] = {}
        for info in metrics:
            name, reader = _READ_BY.get(info.name, (info.name, "informed"))
            self._measures[info.name] = Measures(metric, wanted_names=[name], controls=False, reader=reader)

    def measure(self, item: Item) -> dict[str, Results]:
        """Compute each measure of an item's summaries."""
        summaries = item.summary_records
        results: dict[str, dict[str, Result]] = {summary.text: {} for summary in summaries}
        for name, measures in self._measures.items():
            records = measures.measure(item.question_record, item.answer_set, summaries)
            for summary, record in zip(summaries, records, strict=True):
                results[summary.text][name] = _result(measures.wanted[0], record)
        return {**results}


class JudgeMeasures(Measured):
    """Family of the SelfReflect score, computed by a judge."""

    def __init__(self, judge: Judge, metrics: Sequence[MetricInfo]) -> None:
        from selfreflect.metric.scorer import SelfReflect  # loads torch

        super().__init__(metrics, SelfReflect(judge))
        self.by = judge_name(judge)


class Informed(JudgeMeasures):
    """Family of bits per test answer, undefined if the reference answers convey nothing to the judge."""

    def __init__(self, judge: Judge, metrics: Sequence[MetricInfo]) -> None:
        super().__init__(judge, metrics)
        # stored values of earlier versions are on another scale
        self.by += ", against an empty summary or the repeated question, of distinct answers"


def judge_name(judge: Judge) -> str:
    """Name a judge with every setting that affects its predictions."""
    name = f"{model_name(judge.name, judge.lm.revision, judge.facts)}, {judge.lm.dtype}"
    return f"{name}, compat {judge.compat}" if judge.compat else name


def _result(measure: Measure, record: Any) -> Result:
    """Read a record's value, or a share's numerator, which controls have as well."""
    if isinstance(record, Failure):
        return Undefined(reason=record.kind, message=record.message)
    measurement = measure.measurement(record)
    value = measurement.parts[measure.ratio[0]] if measure.ratio else measurement.value
    # a share that is out of range has a numerator all the same
    if value is not None and measurement.undefined in ("", "out_of_range"):
        return value
    reason: Any = "undefined"  # words of other measures may be any
    if measure.is_bundled:
        reason = record.kind or record.undefined or "unmeasured"
    return Undefined(reason=reason, message=value_sentence(record))
