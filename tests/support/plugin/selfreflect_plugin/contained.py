"""The share of test answers that contain a summary: 100 % for "radish" if all answers name a radish."""

from typing import ClassVar

from selfreflect.metric.measure import Measure, MeasureItem
from selfreflect.records import Measurement


class Contained(Measure):
    unit = "%"
    title = "Test answers that contain the summary"
    heading = "contained"
    reasons: ClassVar = {"blank": "a blank summary is in every answer"}

    def score(self, item: MeasureItem) -> Measurement:
        text = item.summary.text.strip(" .").casefold()
        if not text:
            return Measurement(value=None, undefined="blank")
        answers = item.answers.masked_out
        count = sum(text in answer.casefold() for answer in answers)
        return Measurement(value=count / len(answers), parts={"answers": count, "of": len(answers)})
