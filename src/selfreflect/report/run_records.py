"""The records of a run, which every report is made from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from selfreflect.records import STAGES, AnswerSet, Failure, Question, Sampled, Score, Summary
from selfreflect.store.trim import lean

Key = tuple[str, str]
"""(question id, strategy)"""


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

    def strategy_scores(self, strategy: str) -> dict[str, Score]:
        """Map question ids to the strategy's scores."""
        scores = {}
        for id_ in self.questions:
            score = self.scores.get((id_, strategy))
            if score is not None:
                scores[id_] = score
        return scores

    def values(self, strategy: str) -> dict[str, float]:
        """Map question ids to the values of the strategy's scores."""
        return {id_: score.value for id_, score in self.strategy_scores(strategy).items()}

    def estimates(self, strategy: str) -> list[Sampled]:
        """List how the strategy's estimated scores were sampled, leaving out exact scores."""
        scores = self.strategy_scores(strategy).values()
        return [score.estimate for score in scores if score.estimate]

    def failures_by_score(self) -> dict[Key, Failure]:
        """Map each missing score to the earliest failure that prevented it, if one is recorded."""
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
        """Copy the run without these :data:`~selfreflect.store.trim.PARTS` of its scores."""
        return replace(self, scores={key: lean(score, parts) for key, score in self.scores.items()})
