"""Records of a run, the basis of every report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace as replaced

from selfreflect.errors import DataError, excerpt, nearest
from selfreflect.metric.measure import DEFAULT_MEASURES, FAILED, Measure, measure_names, measures_of
from selfreflect.records import (
    RECORD_SETS,
    STAGES,
    UNNAMED_SUMMARY,
    AnswerSet,
    Controls,
    Failure,
    Information,
    Measurement,
    MergedAnswers,
    Question,
    R,
    Record,
    SamplingCheck,
    Scale,
    Score,
    Summary,
    latest_scale,
)

T = TypeVar("T")
Key = tuple[str, str]
"""(question id, strategy)"""

# Questions that an error message quotes.
_QUOTED = 5


def without_words(record: R) -> R:
    """Remove the values of single words from a record."""
    if isinstance(record, Information):
        return replaced(record, answers=())
    return replaced(record, words=()) if isinstance(record, Score) else record


class SummaryOutcome(NamedTuple):
    """The outcome of one strategy on one question."""

    strategy: str
    summary: Summary | None
    score: Score | None
    failure: Failure | None
    """Recorded reason for a missing score."""
    information: Information | None = None
    measurements: Sequence[Measurement] = ()
    """Measurements of plug-in measures."""


@dataclass(frozen=True)
class RunRecords:
    """A run's records for reports, limited to ``questions``."""

    label: str
    strategies: Sequence[str]
    questions: Mapping[str, Question]
    answers: Mapping[str, AnswerSet]
    summaries: Mapping[Key, Summary]
    scores: Mapping[Key, Score]
    failures: Sequence[Failure]
    """Unresolved failures; a failure without a name concerns every strategy."""
    information: Mapping[Key, Information] = field(default_factory=dict)
    controls: Mapping[str, Controls] = field(default_factory=dict)
    """Controls by question id."""
    merged: Mapping[str, MergedAnswers] = field(default_factory=dict)
    """Groups of answers that users merged by hand, by question id."""
    measurements: Mapping[tuple[str, str, str], Measurement] = field(default_factory=dict)
    """Measurements by measure, question id and strategy, for measures without their own file."""
    sampling: Sequence[SamplingCheck] = ()
    """Checks of the servers that gave answers and summaries."""
    judge: str = ""
    """Judge of these scores with non-default settings; empty if unknown."""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    """Settings and facts of the run, as plain values."""

    @property
    def is_imported(self) -> bool:
        """Whether all summaries come from a file, as responses of a system rather than of strategies."""
        config = self.manifest.get("config")
        if not config or {"answers", "summaries", "serve"} & config.keys():
            return False
        return bool(self.summaries) and not any(summary.model for summary in self.summaries.values())

    @property
    def noun(self) -> str:
        """Displayed noun for the source of summaries; keys on disk say ``strategy``."""
        return "system" if self.is_imported else "strategy"

    def display_name(self, strategy: str) -> str:
        """Name a strategy for readers; an unnamed system gets the file's name."""
        is_unnamed = self.is_imported and list(self.strategies) == [UNNAMED_SUMMARY] == [strategy]
        return self.label if is_unnamed and self.label else strategy

    @property
    def distinct_label(self) -> str:
        """The run's label; empty if its only system has the same name."""
        return "" if [self.label] == [*map(self.display_name, self.strategies)] else self.label

    @cached_property
    def measures(self) -> list[Measure]:
        """The installed measures with a result."""
        names = {name for name, _, _ in self.measurements} & {*measure_names()}
        return [measure for measure in measures_of({*DEFAULT_MEASURES} | names) if self.results(measure)]

    def results(self, measure: Measure) -> Mapping[Key, Any]:
        """Look up the records of a measure."""
        ours: dict[type[Any], Mapping[Key, Any]] = {Score: self.scores, Information: self.information}
        if measure.record in ours:
            return ours[measure.record]
        return self._by_measure.get(measure.name, {})

    @cached_property
    def _by_measure(self) -> dict[str, dict[Key, Measurement]]:
        """Measurements by measure, sorted once for all lookups."""
        by_measure: dict[str, dict[Key, Measurement]] = {}
        for record in self.measurements.values():
            by_measure.setdefault(record.measure, {})[record.question_id, record.summary] = record
        return by_measure

    @property
    def zero(self) -> str:
        """Zero of usable information. Different readers of one run may have different zeros."""
        return ", ".join(sorted({record.zero for record in self.information.values()})) or "empty"

    @property
    def scale(self) -> Scale:
        """The scale of shares, equal in all records."""
        return latest_scale(record.scale for record in self.information.values())

    def with_scale(self, scale: Scale) -> RunRecords:
        """Leave out bits on other scales, but keep the scores of controls."""
        information = {key: record for key, record in self.information.items() if record.scale == scale}
        controls = {}
        for id_, record in self.controls.items():
            if record.scale == scale or record.reader is None:
                controls[id_] = record
            elif record.temperature is not None:
                controls[id_] = record.without_bits()
        return replace(self, information=information, controls=controls)

    @property
    def awaits_scores(self) -> bool:
        """Whether every summary should have a score. Summaries of the endpoint should only after
        ``selfreflect score`` has begun."""
        config = self.manifest.get("config", {})
        return "serve" not in config or "scores" in config

    def question(self, query: str) -> Question:
        """Look up a question by id, text, or a unique part of its text.

        Raises:
            DataError: the run has no such question, or several.
        """
        if query in self.questions:
            return self.questions[query]
        part = " ".join(query.casefold().split())
        texts = {id_: " ".join(item.text.casefold().split()) for id_, item in self.questions.items()}
        # the whole text wins over a part of other texts
        ids = [id_ for id_, text in texts.items() if text == part]
        if not ids:
            ids = [id_ for id_, text in texts.items() if part and part in text]
        if len(ids) == 1:
            return self.questions[ids[0]]
        if not ids:
            names = [item.text for item in self.questions.values()]
            hint = nearest(query, [*self.questions, *names]) or f" It asks: {_some(names)}."
            raise DataError(
                f"run {excerpt(self.label)} has no question {excerpt(query)}.{hint}", code="question"
            )
        several = [f"{self.questions[id_].text} [{id_}]" for id_ in ids]
        raise DataError(
            f"{len(ids):,} questions of run {excerpt(self.label)} contain {excerpt(query)}: "
            f"{_some(several)}. "
            "Give more of the question's text, or its id.",
            code="question",
            questions=ids,
        )

    def only(self, query: str) -> RunRecords:
        """Copy the run with a single question; see :meth:`question`."""
        question = self.question(query)
        return replace(self, questions={question.id: question})

    def outcomes(self, question_id: str) -> list[SummaryOutcome]:
        """List each strategy's outcome on a question."""
        names = sorted({measure for measure, _, _ in self.measurements} & {*measure_names()})
        outcomes = []
        for name in self.strategies:
            key = (question_id, name)
            measurements = [self.measurements.get((measure, *key)) for measure in names]
            outcome = SummaryOutcome(
                name,
                self.summaries.get(key),
                self.scores.get(key),
                self.failures_by_score.get(key),
                self.information.get(key),
                list(filter(None, measurements)),
            )
            outcomes.append(outcome)
        return outcomes

    def merged_texts(self, question_id: str) -> tuple[tuple[str, ...], ...]:
        """List the texts of each group of answers that the user merged by hand."""
        by_hand = self.merged.get(question_id)
        return by_hand.merged if by_hand else ()

    @property
    def judges(self) -> list[str]:
        """Distinct judges of all results."""
        names = {record.judge for record in self.scores.values()}
        return sorted(names | {record.judge for record in self.information.values()})

    @property
    def models(self) -> list[str]:
        """Distinct models that answered."""
        return list(dict.fromkeys(record.model for record in self.answers.values() if record.model))

    def by_question(self, records: Mapping[Key, T], strategy: str) -> dict[str, T]:
        """Map question ids to a strategy's records of one kind."""
        return {id_: records[id_, strategy] for id_ in self.questions if (id_, strategy) in records}

    @cached_property
    def failures_by_score(self) -> dict[Key, Failure]:
        """The earliest recorded failure for each missing score."""
        # answers that failed prevent summaries and scores, so the earliest stage is the cause
        first: dict[Key, Failure] = {}
        for failure in sorted(self.failures, key=lambda failure: STAGES.index(failure.stage)):
            first.setdefault((failure.question_id, failure.name), failure)
        failures = {}
        for id_ in self.questions:
            for name in self.strategies:
                cause = first.get((id_, "")) or first.get((id_, name))
                if cause and (id_, name) not in self.scores:
                    failures[id_, name] = cause
        return failures

    @property
    def failed(self) -> int:
        """Number of failures and of summaries without any requested measure."""
        unmeasured = {key for key, record in self.information.items() if record.undefined == "unmeasured"}
        failures = sum(record.undefined == FAILED for record in self.measurements.values())
        missing = unmeasured - self.scores.keys() - self.failures_by_score.keys()
        return len(self.failures) + len(missing) + failures

    @property
    def guessed_words(self) -> int:
        """Number of words with guesses of the judge."""
        return sum(bool(word.guesses) for score in self.scores.values() for word in score.words)

    def without_guesses(self) -> RunRecords:
        """Copy the run without the judge's guesses."""
        scores = {}
        for key, score in self.scores.items():
            words = tuple(replaced(word, guesses=()) for word in score.words)
            scores[key] = replaced(score, words=words)
        return replace(self, scores=scores)


def answer_halves_p_value(answers: AnswerSet) -> float:
    """Test whether a question's halves of answers are a random split of spelling classes."""
    from selfreflect.grouping import normal_form
    from selfreflect.stats import halves_p_value

    first, second = (Counter(map(normal_form, half)) for half in (answers.masked_out, answers.conditioning))
    return halves_p_value((first[form], second[form]) for form in first.keys() | second.keys())


RECORD_FIELDS = tuple(name for kind, (name, _) in RECORD_SETS.items() if kind is not Failure)
"""Fields of a run with records by key."""


def records_in_memory(label: str, records: Iterable[Record]) -> RunRecords:
    """Collect records without a run directory or settings.

    Strategies are in the order in which they were made.
    """
    fields: dict[str, Any] = {name: {} for name in RECORD_FIELDS}
    failures: list[Failure] = []
    for record in records:
        if isinstance(record, Failure):
            failures.append(record)
        elif type(record) in RECORD_SETS:
            name, key_of = RECORD_SETS[type(record)]
            fields[name][key_of(record)] = record
    results = (fields[name] for name in ("summaries", "scores", "information", "measurements"))
    names = dict.fromkeys(name for *_, name in chain.from_iterable(results))
    names |= dict.fromkeys(failure.name for failure in failures if failure.name)
    return RunRecords(label=label, strategies=list(names), failures=failures, **fields)


def _some(texts: Sequence[str]) -> str:
    """Quote the first few texts."""
    rest = f" and {len(texts) - _QUOTED} more" if len(texts) > _QUOTED else ""
    return ", ".join(excerpt(text, 80) for text in texts[:_QUOTED]) + rest
