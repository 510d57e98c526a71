"""Sort the sampled answers of a question into clusters, and make a confidence of their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

from msgspec import Meta

from selfreflect.records import PositiveCount, Record
from selfreflect.sayself.statement import asked, parse_statement
from selfreflect.uncertainty.classes import ClassRule, members_of
from selfreflect.uncertainty.correctness import Correctness
from selfreflect.uncertainty.question import AnsweredQuestion

Choice = Literal["gold", "majority"]
"""Which cluster a model is trained to answer with: the one with the right answer, or the largest."""


class Cluster(Record, frozen=True, kw_only=True):
    """Answers that mean the same."""

    answer: str
    """Of the first response; it stands for all."""
    reasoning: str = ""
    """What the first response says before its answer."""
    size: PositiveCount
    correct: bool | None = None
    """None without a right answer to compare with."""


class ClusteredQuestion(Record, frozen=True, kw_only=True):
    """A question with its clusters, the largest first; of equal ones the one that came first."""

    id: str
    question: str
    context: str = ""
    gold: tuple[str, ...] = ()
    clusters: Annotated[tuple[Cluster, ...], Meta(min_length=1)]

    @property
    def asked(self) -> str:
        """The question as a trained model is asked it, after its context if it has one."""
        return asked(self.question, self.context)

    @property
    def num_answers(self) -> int:
        return sum(cluster.size for cluster in self.clusters)

    def choose(self, choice: Choice) -> Cluster | None:
        """The cluster to answer with. None for ``gold`` where no cluster is correct."""
        if choice == "majority":
            return self.clusters[0]
        return next((cluster for cluster in self.clusters if cluster.correct), None)

    def share(self, cluster: Cluster) -> float:
        """The cluster's share of the answers."""
        return cluster.size / self.num_answers


def tenths(share: float, least: int = 1) -> int:
    """A share in whole tenths, rounded half up, and never below ``least``: the published data have no 0."""
    return max(least, int(share * 10 + 0.5))


def answer_parts(question: AnsweredQuestion) -> AnsweredQuestion:
    """The same question with the answer part of each response only, without its reasoning."""
    answers = tuple(parse_statement(text).answer or text for text in question.answers)
    return replace(question, answers=answers)


def cluster_answers(
    questions: Sequence[AnsweredQuestion], rule: ClassRule, correctness: Correctness
) -> list[ClusteredQuestion]:
    """Cluster the answers of each question by ``rule``.

    The published code clusters greedily: the first response that is left leads a cluster of all whose
    embedding is close to its own. That is the rule ``embedding:0.9`` in the order ``first``.

    Raises:
        BackendError, MissingExtraError: as the rule does.
    """
    plain = list(map(answer_parts, questions))
    rule.prepare(plain)
    groups = [members_of(rule(parts)) for parts in plain]
    labelled, leaders = [], []
    for parts, members in zip(plain, groups, strict=True):
        labelled += [parts] * len(members)
        leaders += [parts.answers[group[0]] for group in members]
    labels = iter(correctness.label_all(labelled, leaders))
    clustered = []
    for question, parts, members in zip(questions, plain, groups, strict=True):
        clusters = []
        for group in members:
            cluster = Cluster(
                answer=parts.answers[group[0]],
                reasoning=parse_statement(question.answers[group[0]]).reasoning,
                size=len(group),
                correct=next(labels),
            )
            clusters.append(cluster)
        clusters.sort(key=lambda cluster: -cluster.size)  # stable: of equal ones the first
        clustered.append(
            ClusteredQuestion(
                id=question.id,
                question=question.text,
                context=question.context,
                gold=question.gold,
                clusters=tuple(clusters),
            )
        )
    return clustered
