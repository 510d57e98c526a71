"""The two measures of summaries, with their records, keys and columns.

What computes them is imported on use, so that reports can read old files without a model.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from selfreflect.metric.measure import Doubtful, GreedyEstimator, Measure, Scored, TextLimits, Tools, Work
from selfreflect.records import (
    HIGHEST_SHARE,
    LOWEST_SHARE,
    RETRIED,
    TODAYS_SCALE,
    Controls,
    Information,
    Measurement,
    ReaderChoice,
    Sampled,
    Score,
    latest_scale,
)
from selfreflect.stats import TIE, share_interval
from selfreflect.table import Approximate
from selfreflect.text import percent

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge

# Reasons why bits do not speak of the answers, so that no share is shown.
_FOREIGN = ("worse", "format")

# Masked words per token of an answer: stopwords are not masked.
_MASKED = 0.6

# Tokens that tell the judge its task after an answer.
_TASK_TOKENS = 30


class PublishedScore(Measure):
    """The SelfReflect score as published."""

    name = "selfreflect"
    higher_is_better = False
    needs = ("judge",)
    title = "SelfReflect score: 0 is perfect, lower is better"
    heading = "mean score"
    short = "SelfReflect score"
    key = "score"
    figure = "means"
    rank = 1
    is_plain = True
    about = (
        "How faithfully does each summary describe what the model would answer? The score compares a judge’s "
        "predictions after reading the summary with its predictions after reading sampled answers."
    )
    reading = "0 is perfect, lower is better."
    estimators = (
        GreedyEstimator(
            "greedy_distance",
            "",
            "SelfReflect score of the greedy answer: how badly it represents the samples",
            "total variation at the judge's temperature, the run's first judge",
            "arXiv 2505.20295",
            "distance",
            high=1,
        ),
    )
    record = Score
    fails = True
    control = "score"
    columns = ("score", "stderr", "token_tasks", "judge")
    numbers = ("stderr",)

    def open(self, tools: Tools) -> Callable[[Work], Scored]:
        from selfreflect.metric.scorer import score_work

        assert tools.metric is not None
        return score_work(tools.metric)

    def measurement(self, record: Score) -> Measurement:
        return Measurement(
            value=record.value,
            parts={"stderr": record.stderr, "token_tasks": record.token_tasks},
            measure=self.name,
            question_id=record.question_id,
            summary=record.summary,
            judge=record.judge,
        )

    def settings_text(self, record: Score) -> str:
        compat = f", compat {record.compat}" if record.compat else ""
        return f"{_judge_text(record)}, temperature {record.temperature:g}{compat}"

    def sampled(self, record: Score) -> Sampled | None:
        return record.estimate

    def by_answer(self, record: Score) -> tuple[float | None, ...]:
        return tuple(None if mean is None else -mean for mean in record.answer_means)

    def beats_empty(self, record: Score, controls: Controls | None) -> bool:
        empty = controls.find("empty") if controls else None
        return empty is None or empty.score is None or record.value <= empty.score - TIE

    def is_current(self, record: Score, settings: Mapping[str, Any]) -> bool:
        return True

    def has_controls(self, controls: Controls, settings: Mapping[str, Any]) -> bool:
        return controls.temperature is not None

    def fields(self, record: Score) -> dict[str, Any]:
        fields = dict(zip(self.columns, self.cells(record), strict=True))
        if record.compat:
            fields["compat"] = record.compat
        if record.estimate is not None:
            fields["estimate"] = to_builtins(record.estimate)
        return fields

    def result_fields(self, numbers: Mapping[str, Any], records: Sequence[Score]) -> dict[str, Any]:
        fields = {"score" if key == "mean" else key: value for key, value in numbers.items()}
        estimated = sum(record.estimate is not None for record in records)
        return {**fields, "estimated": estimated} if estimated else fields

    def cells(self, record: Score) -> tuple[Any, ...]:
        return (record.value, record.stderr, record.token_tasks, record.judge)

    table_columns = MappingProxyType(
        {"score": ".4f", "stderr": ".4f", "token_tasks": "d", "estimated_from": ""}
    )

    def table_cells(self, record: Score) -> tuple[Any, ...]:
        value = record.value if record.estimate is None else Approximate(record.value)
        return (value, record.stderr, record.token_tasks, record.estimate and record.estimate.text)

    def judge_tokens(self, judge: Judge, work: Work, reader: ReaderChoice) -> int:
        from selfreflect.metric.scorer import nodes_of_work

        return nodes_of_work(judge, work)

    def most_judge_tokens(self, judge: Judge, limits: TextLimits) -> int:
        from selfreflect.metric.scorer import most_nodes

        return most_nodes(judge, limits)

    def typical_tokens(self, answers: Iterable[float], contexts: int) -> float:
        # tasks share what stands before the masked word; the rest, on average half, is read for each
        return sum(contexts * _MASKED * tokens * (tokens / 2 + _TASK_TOKENS) for tokens in answers)


class UsableInformation(Measure):
    """Usable information: a summary's bits as a share of the reference answers' bits."""

    name = "information"
    unit = "%"
    needs = ("judge",)
    title = "Information in the sampled answers that summaries recover"
    heading = "recovered"
    short = "recovered information"
    key = "recovered"
    figure = "tells"
    rank = 0
    sentence = "share"
    about = (
        "How much of the information in the sampled answers does each summary recover? A judge predicts test "
        "answers after reading it."
    )
    reading = (
        "0 % is {zero}, 100 % is all the information in the sampled answers. Above 100 % a summary "
        "helps the judge more than these answers themselves do; below 0 % it misleads the judge."
    )
    ratio = ("bits", "bits_available")
    reasons = MappingProxyType(
        {
            "known": (
                "the judge already knows the answers; use another judge, or a context that only the model "
                "reads"
            ),
            "worse": (
                "the reference answers make the judge predict the test answers worse; check whether "
                "both halves of the answers agree, and use another judge if this one gave the answers itself"
            ),
            "format": (
                "the answers are closed, such as yes or no, and their format alone gives this judge at "
                "least a fifth of the information; use a larger judge"
            ),
            "few_answers": "too few answers to say; 20 that vary as much would be enough",
            "different_answers": "the answers are too different to say; draw shorter ones",
            "out_of_range": ("the recovered share is below -100 % or above 200 %, so it is not counted"),
            "unclear": "too few answers, or too different ones, to say; draw more answers, or shorter ones",
            "unmeasured": "it could not be measured",
        }
    )
    estimators = (
        GreedyEstimator(
            "greedy_bits",
            "bits",
            "usable information of the greedy answer about test answers",
            "bits per sample, the run's first judge",
            "this project; arXiv 2002.10689",
            "bits",
            low=-math.inf,
        ),
        GreedyEstimator(
            "greedy_recovered",
            "",
            "share of the available information that the greedy answer recovers",
            "bits of the greedy answer / bits of the reference answers, the run's first judge",
            "this project; arXiv 2002.10689",
            "share",
            low=-math.inf,
        ),
    )
    record = Information
    control = "bits"
    budget_share = 0.25  # it needs each answer once; scores need each masked word
    columns = (
        *("bits", "bits_available", "recovered", "reader", "zero"),
        *("anchor", "undefined", "cause", "why"),
    )
    numbers = ("bits_available", "recovered")

    def open(self, tools: Tools) -> Callable[[Work], Scored]:
        from selfreflect.metric.information import information_of_work

        assert tools.metric is not None
        return information_of_work(tools.metric, tools.reader)

    def measurement(self, record: Information) -> Measurement:
        return Measurement(
            value=record.recovered,
            interval=record.interval,
            parts={"bits": record.bits, "bits_available": record.bits_available},
            undefined="" if record.recovered is not None else record.reason or "unmeasured",
            why=record.why,
            measure=self.name,
            question_id=record.question_id,
            summary=record.summary,
            judge=record.judge,
        )

    def settings_text(self, record: Information) -> str:
        scale = {
            "question": ", 0 % is the question alone",
            "pasted": ", 100 % is all answers with repetitions",
        }
        return f"{_judge_text(record)}, {record.reader} reader{scale.get(record.scale, '')}"

    def sentence_values(self, records: Sequence[Information]) -> dict[str, Any]:
        zeros = {record.zero for record in records}
        return {
            "blind": {record.reader for record in records} == {"blind"},
            "zero": "the repeated question" if zeros == {"repeated"} else "an empty one",
            "shared": records[0].shared_phrase if len(records) == 1 else None,
        }

    def doubtful(self, record: Information) -> Doubtful | None:
        """Compute the recovered share of a record without a valid value; None if it cannot be computed."""
        bits, available = record.bits, record.bits_available
        if record.reason in (None, *_FOREIGN) or bits is None or available is None or available <= 0:
            return None
        share = bits / available
        word = (record.reason or "").replace("_", " ")
        if not LOWEST_SHARE <= share <= HIGHEST_SHARE:
            numbers = f"({bits:.1f} of {available:.1f} bits)"
            is_range = record.cause == "out_of_range"
            return Doubtful(share, numbers if is_range else word, f"{numbers} {word}")
        answers = filter(None, record.answers)
        residuals = [math.fsum(word.told - share * word.available for word in words) for words in answers]
        interval = record.interval or share_interval(share, residuals, available)
        between = "" if interval is None else f", {100 * interval[0]:z.0f} to {percent(interval[1])}"
        return Doubtful(share, f"({percent(share)}) {word}", f"({percent(share)}{between}) {word}")

    def by_answer(self, record: Information) -> tuple[float | None, ...]:
        if not record.bits_available:
            return ()
        shares: list[float | None] = []
        for words in record.answers:
            bits = math.fsum(word.told for word in words)
            shares.append(bits / record.bits_available if words else None)
        return tuple(shares)

    def beats_empty(self, record: Information, controls: Controls | None) -> bool:
        return record.bits is None or record.bits >= TIE

    def counts_control(self, controls: Controls, name: str) -> bool:
        # in earlier versions a judge that does not see the question learned much from repeating it
        is_fair = controls.reader == "informed" or controls.scale == TODAYS_SCALE
        return super().counts_control(controls, name) and (name != "question" or is_fair)

    def is_current(self, record: Information | Controls, settings: Mapping[str, Any]) -> bool:
        """Check that bits were measured on today's scale and by the requested reader."""
        if record.reader is None or record.scale != TODAYS_SCALE:
            return False
        if isinstance(record, Information) and record.kind in RETRIED:
            return False
        return settings["reader"] in ("auto", record.reader)

    def has_controls(self, controls: Controls, settings: Mapping[str, Any]) -> bool:
        return self.is_current(controls, settings)

    def fields(self, record: Information) -> dict[str, Any]:
        low, high = record.interval or (None, None)
        fields = {name: getattr(record, name) for name in ("bits", "bits_available", "recovered")}
        fields |= {"recovered_low": low, "recovered_high": high}
        fields |= {name: getattr(record, name) for name in ("reader", "zero", "anchor", "undefined", "judge")}
        rare = {name: getattr(record, name) for name in ("cause", "shared_phrase", "why")}
        return fields | {name: value for name, value in rare.items() if value not in (None, "")}

    def result_fields(self, numbers: Mapping[str, Any], records: Sequence[Information]) -> dict[str, Any]:
        shares = [record for record in records if record.recovered is not None]
        fields: dict[str, Any] = {}
        for name in ("bits", "bits_available"):
            fields[name] = fmean(getattr(record, name) or 0.0 for record in shares) if shares else None
        fields |= {
            "recovered" if key == "mean" else f"recovered_{key}": value for key, value in numbers.items()
        }
        return fields | {
            "reader": ", ".join(sorted({record.reader for record in records})) or None,
            "zero": ", ".join(sorted({record.zero for record in records})) or "empty",
            "scale": latest_scale(record.scale for record in records),
            "undefined": dict(Counter(record.undefined for record in records if record.undefined)),
            "undefined_reasons": dict(Counter(record.reason for record in records if record.reason)),
        }

    table_columns = MappingProxyType(
        {
            **{"bits": ".1f", "bits_available": ".1f"},
            **dict.fromkeys(("recovered", "recovered_low", "recovered_high"), "z.0%"),
            **dict.fromkeys(("reader", "zero", "anchor", "undefined"), ""),
        }
    )

    def table_cells(self, record: Information) -> tuple[Any, ...]:
        fields = self.fields(record)
        if detail := record.cause or record.why:
            fields["undefined"] = f"{record.undefined}: {detail}"
        return tuple(map(fields.get, self.table_columns))

    def cells(self, record: Information) -> tuple[Any, ...]:
        return tuple(map(self.fields(record).get, self.columns))

    def judge_tokens(self, judge: Judge, work: Work, reader: ReaderChoice) -> int:
        from selfreflect.metric.information import nodes_of_work

        return nodes_of_work(judge, work, reader)

    def most_judge_tokens(self, judge: Judge, limits: TextLimits) -> int:
        from selfreflect.metric.information import most_nodes

        return most_nodes(judge, limits)

    def typical_tokens(self, answers: Iterable[float], contexts: int) -> float:
        return contexts * sum(answers)


def _judge_text(record: Score | Information) -> str:
    revision = f" at {record.judge_revision}" if record.judge_revision else ""
    return f"{record.judge}{revision}, {record.judge_dtype or 'dtype unknown'}"


def word_fields(records: Iterable[Any]) -> dict[str, Any]:
    """Build the JSON keys for the words of one summary from its records."""
    by_kind = {type(record): record for record in records}
    score, information = by_kind.get(Score), by_kind.get(Information)
    if score is not None:
        with_bits = score.with_information(information) if information else score
        words = [{**to_builtins(word), "mean": word.mean} for word in with_bits.words]
        return {"warnings": list(score.warnings), "answer_means": list(score.answer_means), "words": words}
    if information is None:
        return {}
    words = []
    for answer, of_answer in enumerate(information.answers):
        for word, bits in enumerate(of_answer):
            fields = {"bits": bits.told, "bits_available": bits.available}
            words.append({"answer": answer, "word": word, "text": bits.text, **fields})
    return {"words": words}
