"""How much a self-reflection tells of the sampled answers, measured without labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from selfreflect.grouping import group_indices
from selfreflect.metric.measure import Measures
from selfreflect.records import AnswerSet, Information, Question, Score, Summary, halves
from selfreflect.sayself.clusters import Cluster, ClusteredQuestion
from selfreflect.stats import mean_interval
from selfreflect.table import Cell, Column, Table, interval_text
from selfreflect.train.parsing import StatedBelief
from selfreflect.uncertainty.question import AnsweredQuestion

TEXTS = ("answer", "answer and reflection", "reflection")


@dataclass(frozen=True)
class BitsAndDistances:
    """Bits told of a held-out answer and distances, by text, over the questions where each is defined."""

    bits: Mapping[str, Sequence[float]]
    distances: Mapping[str, Sequence[float]]

    def means(self) -> dict[str, dict[str, float | None]]:
        """Mean bits and distances of each text; None where nothing is defined."""
        both = {"bits": self.bits, "distance": self.distances}
        means: dict[str, dict[str, float | None]] = {}
        for text in TEXTS:
            of_text = {name: values[text] for name, values in both.items()}
            means[text] = {name: mean_interval(own, len(own)).mean for name, own in of_text.items()}
        return means


def own_clusters(
    questions: Sequence[ClusteredQuestion], answers: Sequence[AnsweredQuestion]
) -> list[ClusteredQuestion]:
    """The questions with the answers of a trained model as their clusters, equal spellings together. Without
    answers, a question keeps its own clusters."""
    by_id = {one.id: one.answers for one in answers}
    changed = []
    for question in questions:
        own = by_id.get(question.id, ())
        clusters = [Cluster(answer=own[group[0]], size=len(group)) for group in group_indices(own)]
        changed.append(replace(question, clusters=tuple(clusters) or question.clusters))
    return changed


def answer_sets(answers: Sequence[AnsweredQuestion]) -> dict[str, AnswerSet]:
    """The answers of each question in two halves, where there are enough."""
    sets = {}
    for one in answers:
        if len(one.answers) > 1:
            first, second = halves(one.answers, one.id)
            sets[one.id] = AnswerSet(
                question_id=one.id,
                masked_out=first,
                conditioning=second[: len(first)],
                halved="shuffled",
            )
    return sets


def measure_reflections(
    measures: Measures,
    questions: Sequence[ClusteredQuestion],
    statements: Sequence[StatedBelief],
    answers: Mapping[str, AnswerSet],
    done: Callable[[], None],
) -> BitsAndDistances:
    """Measure three texts of each statement as summaries of the question's sampled answers.

    Questions without a reflection are left out: their three texts could not be compared.

    Args:
        done: called after each question.
    """
    bits: dict[str, list[float]] = {name: [] for name in TEXTS}
    distances: dict[str, list[float]] = {name: [] for name in TEXTS}
    for question, statement in zip(questions, statements, strict=True):
        if not statement.reflection or not statement.answer or question.id not in answers:
            done()
            continue
        record = Question(id=question.id, text=question.question, context=question.context)
        texts = (statement.answer, f"{statement.answer}. {statement.reflection}", statement.reflection)
        summaries = [
            Summary(question_id=question.id, name=name, text=text)
            for name, text in zip(TEXTS, texts, strict=True)
        ]
        for result in measures.measure(record, answers[question.id], summaries):
            if isinstance(result, Information) and result.bits is not None:
                bits[result.summary].append(result.bits)
            elif isinstance(result, Score):
                distances[result.summary].append(result.value)
        done()
    return BitsAndDistances(bits, distances)


def told_table(results: BitsAndDistances, title: str) -> Table:
    """Means with 95 % intervals over questions."""
    rows: list[tuple[Cell, ...]] = []
    for name in TEXTS:
        size = max(len(results.bits[name]), len(results.distances[name]))
        rows.append((name, size, *_cells(results.bits[name], ".2f"), *_cells(results.distances[name], ".4f")))
    columns = (
        Column("text"),
        Column("n", "d"),
        Column("bits", ".2f"),
        Column("95%"),
        Column("SelfReflect", ".4f"),
        Column("95%"),
    )
    notes = (
        "bits: told of a held-out sampled answer; more is better. SelfReflect: distance; less is better.",
        "A reflection that adds bits to its answer says what the samples disagree about.",
    )
    return Table(title, columns, tuple(rows), notes)


def faithfulness_table(scores: Mapping[str, tuple[int, Sequence[float]]], judge: str) -> Table:
    """Mean scores with 95 % intervals over reflections.

    Args:
        scores: by method, how many reflections the judge was shown, and the scores in [0, 1] that it gave.
    """
    rows: list[tuple[Cell, ...]] = []
    for method, (count, values) in scores.items():
        rows.append((method, count, len(values), *_cells(values, ".2f")))
    columns = (
        Column("method"),
        Column("reflections", "d"),
        Column("scored", "d"),
        Column("faithfulness", ".2f"),
        Column("95%"),
    )
    note = "From 0 to 1: how well a reflection says what the sampled answers disagree about."
    return Table(f"Faithfulness of the reflections to {judge}", columns, tuple(rows), (note,))


def _cells(values: Sequence[float], form: str) -> tuple[Cell, Cell]:
    estimate = mean_interval(values, len(values))
    return estimate.mean, interval_text(estimate.low, estimate.high, form)
