"""Compare trained models with baselines by what they state of the same questions."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any

from selfreflect.metric.measure import Measures
from selfreflect.records import AnswerSet
from selfreflect.sayself import evaluation as ev
from selfreflect.sayself.clusters import ClusteredQuestion
from selfreflect.sayself.evaluation import Evaluation
from selfreflect.sayself.faithfulness import (
    answer_sets,
    faithfulness_table,
    measure_reflections,
    own_clusters,
    told_table,
)
from selfreflect.sayself.published import grade_answers, published_figures, published_table, read_score
from selfreflect.sayself.workspace import Adapter
from selfreflect.table import Table
from selfreflect.train.parsing import StatedBelief
from selfreflect.uncertainty.asking.asker import Asker, ReplyCounter
from selfreflect.uncertainty.correctness import Correctness
from selfreflect.uncertainty.question import AnsweredQuestion

OpenModel = Callable[[str | None], Asker]
"""Opens a model to ask, by name; None is the one that drew the answers."""
ShowStage = Callable[[str, int], AbstractContextManager[ReplyCounter]]
"""Opens the display of a stage, by its name and its number of questions."""


def adapter_asker(open_model: OpenModel, adapter: Adapter) -> Asker:
    """Ask a trained model. Its replies are kept under what its training left behind, so that one that is
    trained anew in the same folder is asked anew."""
    asker = open_model(str(adapter.folder))
    digest = hashlib.sha256(json.dumps(adapter.record, sort_keys=True).encode()).hexdigest()[:12]
    asker.model = f"{asker.model} trained {digest}"
    return asker


class MethodComparison:
    """What every method states of some questions.

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
        drawn: int,
        per_question: int,
    ) -> None:
        """Let every method state its confidences.

        Args:
            base: the untrained model, which is asked directly.
            drawn: of how many questions trained models with reflections answer, and with how many texts.
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
            self._trained.append(self._labelled(name, statements))
            if per_question and drawn and any(one.reflection for one in statements):
                subset = self._questions if drawn >= len(self._questions) else self._sample(drawn)
                self._answers[name] = ev.draw_answers(subset, asker, per_question)

    def _labelled(self, method: str, statements: Sequence[StatedBelief]) -> Evaluation:
        labels = ev.label_statements(self._questions, statements, self._label)
        return Evaluation(method, tuple(statements), labels)

    def _sample(self, number: int) -> Sequence[ClusteredQuestion]:
        """Random questions, the same whenever there are the same."""
        return random.Random(0).sample(self._questions, min(number, len(self._questions)))

    def tabulate(self, title: str) -> None:
        """Add the table of all methods, and the differences of trained models from the best baseline."""
        self.tables.append(ev.evaluation_table(self.rows, title))
        differences = ev.difference_table(self._trained, self._baselines)
        own = ev.own_constant_table(self._trained)
        self.tables += [table for table in (differences, own) if table is not None]

    def grade(self, asker: Asker, grader: str) -> None:
        """Add the figures of the published code."""
        figures = {}
        for one in self.rows:
            if not one.baseline:
                grades = grade_answers(self._questions, one.statements, asker)
                figures[one.method] = published_figures(one, grades)
                self._add(one, "published", figures[one.method]._asdict())
        self.tables.append(published_table(figures, grader))

    def judge(self, asker: Asker, judge: str) -> None:
        """Add how faithful the reflections are to a judge."""
        scores = {}
        for one in self._reflecting():
            clusters = own_clusters(self._questions, self._answers.get(one.method, []))
            replies = asker.ask(ev.faithfulness_inquiries(clusters, one.statements))
            read = [score for score in map(read_score, replies) if isinstance(score, float)]
            scores[one.method] = (len(replies), read)
            mean = sum(read) / len(read) if read else None
            self._add(one, "faithfulness", {"mean": mean, "read": len(read), "asked": len(replies)})
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
        places = {question.id: place for place, question in enumerate(self._questions)}
        reflecting = list(self._reflecting())
        for one in reflecting:
            texts = [one.statements[places[question.id]] for question in sample]
            own = self._answers.get(one.method)
            sets = answer_sets(own) if own else of_run
            with progress(f"reflections of {one.method}", len(sample)) as stage:
                figures = measure_reflections(measures, sample, texts, sets, stage.advance)
            self.tables.append(told_table(figures, f"What {one.method} tells of the sampled answers"))
            self._add(one, "told", figures.means())
        return bool(reflecting)

    def _reflecting(self) -> Iterator[Evaluation]:
        """The trained models with a self-reflection."""
        for one in self._trained:
            if any(statement.reflection for statement in one.statements):
                yield one

    def _add(self, one: Evaluation, name: str, value: Any) -> None:
        self.extra.setdefault(one.method, {})[name] = value

    def lines(self) -> Iterator[dict[str, Any]]:
        """A line of JSON for each method."""
        for one in self.rows:
            constant = list(ev.own_constant(one).values())
            yield {
                "method": one.method,
                "baseline": one.baseline,
                "n": len(one.scored.labels),
                "without_confidence": dict(one.without_confidence),
                "accuracy": None if one.baseline else one.accuracy,
                "mean_confidence": one.mean_confidence,
                "own_constant_brier": sum(constant) / len(constant) if constant else None,
                **{name: asdict(value) for name, value in one.measures().items()},
                **self.extra.get(one.method, {}),
            }
