"""The records of a run, which every report is made from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from selfreflect.errors import DataError, excerpt, nearest
from selfreflect.records import (
    STAGES,
    AnswerSet,
    Controls,
    Failure,
    Information,
    Question,
    Score,
    Summary,
)
from selfreflect.store.trim import lean

Key = tuple[str, str]
"""(question id, strategy)"""


class SummaryOutcome(NamedTuple):
    """The outcome of one strategy on one question."""

    strategy: str
    summary: Summary | None
    score: Score | None
    failure: Failure | None
    """Why the score is missing, if recorded."""
    information: Information | None = None


@dataclass(frozen=True)
class RunRecords:
    """Everything that a report needs of a run. Records of other questions than ``questions`` do not count."""

    label: str
    strategies: Sequence[str]
    questions: Mapping[str, Question]
    answers: Mapping[str, AnswerSet]
    summaries: Mapping[Key, Summary]
    scores: Mapping[Key, Score]
    failures: Sequence[Failure]
    """Unresolved failures; one without a name concerns every strategy."""
    information: Mapping[Key, Information] = field(default_factory=dict)
    controls: Mapping[str, Controls] = field(default_factory=dict)
    """By question id."""

    def question(self, question_id: str) -> Question:
        """Look up a question.

        Raises:
            DataError: the run has no such question.
        """
        if question_id not in self.questions:
            raise DataError(
                f"run {excerpt(self.label)} has no question {excerpt(question_id)}."
                f"{nearest(question_id, list(self.questions))}"
            )
        return self.questions[question_id]

    def outcomes(self, question_id: str) -> list[SummaryOutcome]:
        """List the outcome of every strategy on a question."""
        outcomes = []
        for name in self.strategies:
            key = (question_id, name)
            outcome = SummaryOutcome(
                name,
                self.summaries.get(key),
                self.scores.get(key),
                self.failures_by_score.get(key),
                self.information.get(key),
            )
            outcomes.append(outcome)
        return outcomes

    def strategy_scores(self, strategy: str) -> dict[str, Score]:
        """Map question ids to the strategy's scores."""
        keys = [(id_, strategy) for id_ in self.questions]
        return {key[0]: self.scores[key] for key in keys if key in self.scores}

    def strategy_information(self, strategy: str) -> dict[str, Information]:
        """Map question ids to what the strategy's summaries tell."""
        keys = [(id_, strategy) for id_ in self.questions]
        return {key[0]: self.information[key] for key in keys if key in self.information}

    @cached_property
    def failures_by_score(self) -> dict[Key, Failure]:
        """Each missing score with the earliest failure that prevented it, if one is recorded."""
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

    def without(self, parts: Collection[str]) -> RunRecords:
        """Copy the run without these :data:`~selfreflect.store.trim.PARTS` of its records."""
        scores = {key: lean(score, parts) for key, score in self.scores.items()}
        information = {key: lean(record, parts) for key, record in self.information.items()}
        return replace(self, scores=scores, information=information)
