"""Usable information as metrics: what a summary tells a judge that sees the question, and one that does
not."""

from __future__ import annotations

from selfreflect.metric.information import measure
from selfreflect.metric.prompts import CannotScoreError
from selfreflect.records import Information, NothingToTell, Reader
from selfreflect.sources.items import Item
from selfreflect.validate.base import Undefined, Value
from selfreflect.validate.metrics.common import (
    JudgeMetrics,
    Result,
    finite,
    make_values,
    no_values,
    undefined,
)

READERS: dict[str, Reader] = {"information": "informed", "information_blind": "blind"}
"""The reader of each metric."""
_WHY: dict[NothingToTell, str] = {
    "known": "the judge already knows these answers: the conditioning answers do not help it to expect the "
    "masked-out ones",
    "unclear": "too few answers to say whether the conditioning answers help the judge to expect the "
    "masked-out ones",
}


class UsableInformation(JudgeMetrics):
    """Bits per masked-out answer, see :mod:`selfreflect.metric.information`. Undefined where the conditioning
    answers tell the judge nothing, since no summary could tell it anything either."""

    def score(self, item: Item) -> list[Value]:
        """One value for each metric and summary."""
        texts = list(dict.fromkeys(item.summaries.values()))
        results: dict[str, dict[str, Result]] = {text: {} for text in texts}
        for info in self.metrics:
            texts_measured = item.question_record, item.answer_set, texts
            try:
                by_text = measure(self.judge, self.engine, *texts_measured, READERS[info.name])
            except CannotScoreError as error:
                return no_values(self, item, undefined(error))
            for text in texts:
                results[text][info.name] = self._result(by_text[text])
        return make_values(self, item, results)

    def _result(self, information: Information) -> Result:
        if information.bits is None or information.undefined is not None:
            reason = information.undefined or "unmeasured"
            return Undefined(reason=reason, message=_WHY.get(reason, information.why))
        return finite(self.judge, information.bits)
