"""Comparison of trained models with baselines by what they state, and the bits that reflections tell."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from msgspec.structs import replace

from selfreflect.grouping import group_indices
from selfreflect.metric.measure import Measures
from selfreflect.records import AnswerSet, Information, Question, Score, Summary, halves
from selfreflect.stats import mean_interval
from selfreflect.table import Cell, Column, Table, interval_text
from selfreflect.train.rewards.stated import StatedBelief
from selfreflect.train.sayself import evaluation as ev
from selfreflect.train.sayself.clusters import Cluster, ClusteredQuestion
from selfreflect.train.sayself.evaluation import Evaluation
from selfreflect.train.sayself.examples import Adapter
from selfreflect.uncertainty.asking.asker import Asker, ReplyCounter
from selfreflect.uncertainty.correctness import Correctness
from selfreflect.uncertainty.question import AnsweredQuestion

TEXTS = ("answer", "answer and reflection", "reflection")

OpenModel = Callable[[str | None], Asker]
"""Opens a model to ask, by name; None is the one that drew the answers."""
ShowStage = Callable[[str, int], AbstractContextManager[ReplyCounter]]
"""Opens the display of a stage, by its name and its number of questions."""


@dataclass(frozen=True)
class BitsAndDistances:
    """Bits told of a test answer and distances, by text, over the questions where each is defined."""

    bits: Mapping[str, Sequence[float]]
    distances: Mapping[str, Sequence[float]]

    def means(self) -> dict[str, dict[str, float | None]]:
        """Average bits and distances of each text; None where nothing is defined."""
        columns = {"bits": self.bits, "distance": self.distances}
        means: dict[str, dict[str, float | None]] = {}
        for text in TEXTS:
            means[text] = {
                name: mean_interval(values[text], len(values[text])).mean for name, values in columns.items()
            }
        return means


def own_clusters(
    questions: Sequence[ClusteredQuestion], answers: Sequence[AnsweredQuestion]
) -> list[ClusteredQuestion]:
    """Replace clusters by the answers of a trained model, equal spellings together. Without answers, a
    question keeps its clusters."""
    by_id = {question.id: question.answers for question in answers}
    reclustered = []
    for question in questions:
        texts = by_id.get(question.id, ())
        clusters = [Cluster(answer=texts[group[0]], size=len(group)) for group in group_indices(texts)]
        reclustered.append(replace(question, clusters=tuple(clusters) or question.clusters))
    return reclustered


def answer_sets(questions: Sequence[AnsweredQuestion]) -> dict[str, AnswerSet]:
    """Halve the answers of each question, where there are enough."""
    sets = {}
    for question in questions:
        if len(question.answers) > 1:
            first, second = halves(question.answers, question.id)
            sets[question.id] = AnswerSet(
                question_id=question.id,
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
    on_question: Callable[[], None],
) -> BitsAndDistances:
    """Measure three texts of each statement as summaries of the question's sampled answers.

    Questions without a reflection are left out: their three texts could not be compared.

    Args:
        on_question: called after each question.
    """
    bits: dict[str, list[float]] = {name: [] for name in TEXTS}
    distances: dict[str, list[float]] = {name: [] for name in TEXTS}
    for question, statement in zip(questions, statements, strict=True):
        if statement.reflection and statement.answer and question.id in answers:
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
        on_question()
    return BitsAndDistances(bits, distances)


def told_table(results: BitsAndDistances, title: str) -> Table:
    """Make a table of means with 95 % intervals over questions."""
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
        "bits: told of a test answer; more is better. SelfReflect: distance; less is better.",
        "A reflection that adds bits to its answer says what the samples disagree about.",
    )
    return Table(title, columns, tuple(rows), notes)


def faithfulness_table(scores: Mapping[str, tuple[int, Sequence[float]]], judge: str) -> Table:
    """Make a table of mean scores with 95 % intervals over reflections.

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


def adapter_asker(open_model: OpenModel, adapter: Adapter) -> Asker:
    """Ask a trained model. Its replies are kept under what its training left behind, so that one that is
    trained anew in the same folder is asked anew."""
    asker = open_model(str(adapter.folder))
    # the name keys the stored replies
    digest = hashlib.sha256(json.dumps(adapter.record, sort_keys=True).encode()).hexdigest()[:12]
    asker.model = f"{asker.model} trained {digest}"
    return asker


class MethodComparison:
    """Statements of every method about some questions.

    Attributes:
        tables: on what was compared, in the order of the calls.
        extra: further fields of a method's line of JSON.
    """

    def __init__(self, questions: Sequence[ClusteredQuestion], label: Correctness) -> None:
        self.tables: list[Table] = []
        self.extra: dict[str, dict[str, Any]] = {}
        self._questions = questions
        self._label = label
        self._baselines: list[Evaluation] = []
        self._trained: list[Evaluation] = []
        self._answers: dict[str, list[AnsweredQuestion]] = {}
        """Answers of each trained model with reflections."""

    @property
    def rows(self) -> list[Evaluation]:
        """The baselines, then the trained models."""
        return [*self._baselines, *self._trained]

    def ask(
        self,
        adapters: Iterable[Adapter],
        base: str | None,
        open_model: OpenModel,
        sample: int,
        per_question: int,
    ) -> None:
        """Let every method state its confidences.

        Args:
            base: the untrained model, which is asked directly.
            sample: number of questions that trained models with reflections answer, each ``per_question``
                times.
        """
        agreed = self._labelled("agreement of samples (SC)", ev.agreement(self._questions))
        direct = ev.ask_directly(self._questions, open_model(base))
        self._baselines += [agreed, self._labelled("asked directly (DP)", direct)]
        self._baselines += ev.reference_rows(agreed)
        for adapter in adapters:
            asker = adapter_asker(open_model, adapter)
            if adapter.variant == "rtuning":  # which states no number
                statements = ev.ask_whether_sure(self._questions, agreed.statements, asker)
            else:
                statements = ev.ask_statements(self._questions, asker)
            name = adapter.folder.name
            method = self._labelled(name, statements)
            self._trained.append(method)
            if per_question and sample and _reflects(method):
                subset = self._questions if sample >= len(self._questions) else self._sample(sample)
                self._answers[name] = ev.draw_answers(subset, asker, per_question)

    def _labelled(self, method: str, statements: Sequence[StatedBelief]) -> Evaluation:
        labels = ev.label_statements(self._questions, statements, self._label)
        return Evaluation(method, tuple(statements), labels)

    def _sample(self, number: int) -> Sequence[ClusteredQuestion]:
        """Draw random questions, the same whenever there are the same."""
        return random.Random(0).sample(self._questions, min(number, len(self._questions)))

    def tabulate(self, title: str) -> None:
        """Add the table of all methods, and the differences of trained models from the best baseline."""
        self.tables.append(ev.evaluation_table(self.rows, title))
        tables = ev.difference_table(self._trained, self._baselines), ev.own_constant_table(self._trained)
        self.tables += [table for table in tables if table is not None]

    def grade(self, asker: Asker, grader: str) -> None:
        """Add the figures of the published code."""
        figures = {}
        for method in self.rows:
            if not method.baseline:
                grades = ev.grade_answers(self._questions, method.statements, asker)
                figures[method.method] = ev.published_figures(method, grades)
                self._add(method, "published", figures[method.method]._asdict())
        self.tables.append(ev.published_table(figures, grader))

    def judge(self, asker: Asker, judge: str) -> None:
        """Add how faithful the reflections are to a judge."""
        scores = {}
        for method in filter(_reflects, self._trained):
            clusters = own_clusters(self._questions, self._answers.get(method.method, []))
            replies = asker.ask(ev.faithfulness_inquiries(clusters, method.statements))
            values = [score for score in map(ev.read_score, replies) if isinstance(score, float)]
            scores[method.method] = (len(replies), values)
            mean = fmean(values) if values else None
            self._add(method, "faithfulness", {"mean": mean, "read": len(values), "asked": len(replies)})
        self.tables.append(faithfulness_table(scores, judge))

    def measure(
        self, measures: Measures, number: int, of_run: Mapping[str, AnswerSet], progress: ShowStage
    ) -> bool:
        """Add how much the reflections of each model tell of its answers, on the same random questions.

        Args:
            of_run: the answers of the run, by question, for models that drew none.
            progress: shows how far each model is.

        Returns:
            Whether any model stated a reflection.
        """
        sample = self._sample(number)
        indices = {question.id: index for index, question in enumerate(self._questions)}
        reflecting = list(filter(_reflects, self._trained))
        for method in reflecting:
            statements = [method.statements[indices[question.id]] for question in sample]
            answers = self._answers.get(method.method)
            sets = answer_sets(answers) if answers else of_run
            with progress(f"reflections of {method.method}", len(sample)) as stage:
                figures = measure_reflections(measures, sample, statements, sets, stage.advance)
            self.tables.append(told_table(figures, f"What {method.method} tells of the sampled answers"))
            self._add(method, "told", figures.means())
        return bool(reflecting)

    def _add(self, method: Evaluation, name: str, value: Any) -> None:
        self.extra.setdefault(method.method, {})[name] = value

    def lines(self) -> Iterator[dict[str, Any]]:
        """Make a line of JSON for each method."""
        for method in self.rows:
            constant = method.squared_errors(constant=True).values()
            yield {
                "method": method.method,
                "baseline": method.baseline,
                "n": len(method.scored.labels),
                "without_confidence": dict(method.without_confidence),
                "accuracy": None if method.baseline else method.accuracy,
                "mean_confidence": method.mean_confidence,
                "own_constant_brier": fmean(constant) if constant else None,
                **{name: asdict(value) for name, value in method.measures().items()},
                **self.extra.get(method.method, {}),
            }


def _reflects(method: Evaluation) -> bool:
    """Return whether a trained model states self-reflections."""
    return any(statement.reflection for statement in method.statements)
