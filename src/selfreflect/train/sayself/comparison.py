"""Comparison of trained models with baselines, by stated confidences and doubts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from msgspec.structs import replace

from selfreflect.grouping import group_indices
from selfreflect.models.base import Message
from selfreflect.stats import mean_interval
from selfreflect.table import Cell, Column, Table, interval_text
from selfreflect.train.rewards.base import BatchColumns
from selfreflect.train.rewards.stated import ScoringRule, StatedBelief, StatedReward
from selfreflect.train.sayself import evaluation as ev
from selfreflect.train.sayself.clusters import Cluster, ClusteredQuestion
from selfreflect.train.sayself.evaluation import Evaluation, ask_texts, label_statements
from selfreflect.train.sayself.examples import Adapter, Variant, Workspace
from selfreflect.train.sayself.statement import begin_statement, parse_confidence, parse_statement
from selfreflect.train.trainers import RECORD, Preset, Training, read_record
from selfreflect.uncertainty.asking.asker import Asker
from selfreflect.uncertainty.correctness import Correctness
from selfreflect.uncertainty.question import AnsweredQuestion, NoValue

OpenModel = Callable[[str | None], Asker]
"""Function that opens a model by name; None means the model that drew the answers."""


def own_clusters(
    questions: Sequence[ClusteredQuestion], answers: Sequence[AnsweredQuestion]
) -> list[ClusteredQuestion]:
    """Replace clusters with a trained model's answers, grouped by spelling. Without answers, a question keeps
    its clusters."""
    by_id = {question.id: question.answers for question in answers}
    reclustered = []
    for question in questions:
        texts = by_id.get(question.id, ())
        clusters = [Cluster(answer=texts[group[0]], size=len(group)) for group in group_indices(texts)]
        reclustered.append(replace(question, clusters=tuple(clusters) or question.clusters))
    return reclustered


def faithfulness_table(scores: Mapping[str, tuple[int, Sequence[float]]], judge: str) -> Table:
    """Tabulate mean scores of reflections with 95 % intervals.

    Args:
        scores: by method, how many reflections the judge was shown, and the scores in [0, 1] that it gave.
    """
    rows: list[tuple[Cell, ...]] = []
    for method, (count, values) in scores.items():
        mean = mean_interval(values, len(values))
        cells = mean.mean, interval_text(mean.low, mean.high, ".2f")
        rows.append((method, count, len(values), *cells))
    columns = (
        Column("method"),
        Column("reflections", "d"),
        Column("scored", "d"),
        Column("faithfulness", ".2f"),
        Column("95%"),
    )
    note = "From 0 to 1: how well a reflection describes what the sampled answers disagree about."
    return Table(f"Faithfulness of the reflections to {judge}", columns, tuple(rows), (note,))


def adapter_asker(open_model: OpenModel, adapter: Adapter) -> Asker:
    """Open a trained model as an asker. Responses are stored under its training record, so that a retrained
    model is asked again."""
    asker = open_model(str(adapter.folder))
    # the name keys the stored replies
    digest = hashlib.sha256(json.dumps(read_record(adapter.folder), sort_keys=True).encode()).hexdigest()[:12]
    asker.model = f"{asker.model} trained {digest}"
    return asker


class MethodComparison:
    """Statements of all methods on the same questions.

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
        """All methods, baselines first."""
        return [*self._baselines, *self._trained]

    def ask(
        self,
        adapters: Iterable[Adapter],
        base: str | None,
        open_model: OpenModel,
        samples: int,
    ) -> None:
        """Collect every method's confidences.

        Args:
            base: the untrained model, which is asked directly.
            samples: answers that trained models with reflections give to each question besides.
        """
        agreed = self._labelled("agreement of samples (SC)", ev.agreement(self._questions))
        direct = ev.ask_directly(self._questions, open_model(base))
        self._baselines += [agreed, self._labelled("asked directly (DP)", direct)]
        self._baselines += ev.reference_rows(agreed)
        for adapter in adapters:
            asker = adapter_asker(open_model, adapter)
            if adapter.variant == "rtuning":
                # it states no number, and was trained on the most common answer
                statements = ev.ask_whether_sure(self._questions, agreed.statements, asker)
            else:
                statements = ev.ask_statements(self._questions, asker)
            name = adapter.folder.name
            method = self._labelled(name, statements)
            self._trained.append(method)
            if samples and _reflects(method):
                self._answers[name] = ev.draw_answers(self._questions, asker, samples)

    def _labelled(self, method: str, statements: Sequence[StatedBelief]) -> Evaluation:
        labels = ev.label_statements(self._questions, statements, self._label)
        return Evaluation(method, tuple(statements), labels)

    def tabulate(self, title: str) -> None:
        """Add a table of all methods, and one of the trained models' leads over the best baseline."""
        self.tables.append(ev.evaluation_table(self.rows, title))
        if differences := ev.difference_table(self._trained, self._baselines):
            self.tables.append(differences)

    def judge(self, asker: Asker, judge: str) -> None:
        """Add the reflections' faithfulness according to a judge."""
        scores = {}
        for method in filter(_reflects, self._trained):
            clusters = own_clusters(self._questions, self._answers.get(method.method, []))
            replies = asker.ask(ev.faithfulness_inquiries(clusters, method.statements))
            values = [score for score in map(ev.read_score, replies) if isinstance(score, float)]
            scores[method.method] = (len(replies), values)
            mean = fmean(values) if values else None
            faithfulness = {"mean": mean, "read": len(values), "asked": len(replies)}
            self.extra[method.method] = {"faithfulness": faithfulness}
        self.tables.append(faithfulness_table(scores, judge))

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield one JSON line per method."""
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
    """Check whether a trained model states reflections."""
    return any(statement.reflection for statement in method.statements)


def within_limits(rows: Sequence[dict[str, Any]], preset: Preset) -> list[dict[str, Any]]:
    """Select the first examples within the preset's limits on length and number."""
    words = [len(f"{row['question']} {row['response']}".split()) for row in rows]
    limit = preset.limits["words"]
    short = [row for row, count in zip(rows, words, strict=True) if count <= limit]
    return short[: preset.limits["examples"]]


def shorter_questions(questions: Sequence[ClusteredQuestion], preset: Preset) -> list[ClusteredQuestion]:
    """Select the first questions of stage two within the preset's limits on length and number."""
    limit = preset.limits["question_words"]
    short = [item for item in questions if len(item.question.split()) <= limit]
    return short[: preset.limits["questions"]]


class StatedConfidenceReward(StatedReward):
    """Reward for completing a statement that the prompt begins, up to ``Confidence:``.

    So only the confidence is trained, and every token before it is masked. A model that is rewarded for its
    answer, too, learns that a wrong answer with confidence 0 is as good as a right one with 1. The column
    ``correct`` says whether the answer in the prompt is right.
    """

    def __init__(self, scoring: ScoringRule = "brier") -> None:
        self.scoring = scoring
        self.__name__ = f"confidence_{scoring}"
        super().__init__()

    def parse(self, text: str) -> StatedBelief:
        return StatedBelief("", parse_confidence(text))

    def truths(self, answers: Sequence[str | None], columns: BatchColumns) -> list[float | None]:
        return [float(bool(correct)) for correct in columns.values("correct")]


def reinforcement_rows(
    questions: Sequence[ClusteredQuestion], asker: Asker, correctness: Correctness
) -> list[dict[str, Any]]:
    """Let a fine-tuned model answer questions, and cut its statements before the confidence.

    Whether an answer is correct is read from the answer alone. (The published code also searches the question
    and the reflection for the right answer, so that naming it anywhere counts.)

    Returns:
        Rows with ``question_id``, ``prompt`` (chat messages, the last one a statement that ends with
        ``Confidence:``) and ``correct``. Left out are statements without an answer or a confidence, and
        questions without a right answer.
    """
    texts = ask_texts(questions, asker)
    statements = [
        StatedBelief("", text) if isinstance(text, NoValue) else parse_statement(text) for text in texts
    ]
    labels = label_statements(questions, statements, correctness)
    rows = []
    for question, text, statement, label in zip(questions, texts, statements, labels, strict=True):
        if isinstance(text, NoValue) or not statement.is_complete or label is None:
            continue
        turns = (
            Message(role="user", content=question.asked),
            Message(role="assistant", content=begin_statement(text)),
        )
        prompt = [{"role": turn.role, "content": turn.content} for turn in turns]
        rows.append({"question_id": question.id, "prompt": prompt, "correct": label})
    return rows


SAMPLES = 10
"""Number of answers per question by a trained model, the basis of its reflections."""

# Variants that state a confidence
REINFORCED = ("full", "no_rationale", "group")


@dataclass(frozen=True)
class TrainingPlan:
    """Settings of both training stages."""

    out: Path
    preset: Preset
    reward: Literal[ScoringRule, "none"]
    """Reward of the second stage; ``none`` leaves the stage out."""

    def reinforces(self, variant: Variant) -> bool:
        """Check whether a variant has the second stage."""
        return self.reward != "none" and variant in REINFORCED


def fine_tune(plan: TrainingPlan, rows: Sequence[dict[str, Any]], variant: Variant, seed: int) -> str:
    """Run the first stage unless done, and return its outcome as a sentence.

    Raises:
        ConfigError: it was done, or begun, with other input.
        DataError: training changed nothing.
    """
    folder = Workspace(plan.out).adapter(variant, seed).folder
    return Training(plan.preset, within_limits(rows, plan.preset), folder, seed).run()


def reinforce(
    plan: TrainingPlan,
    questions: Sequence[ClusteredQuestion],
    variant: Variant,
    seed: int,
    open_model: OpenModel,
    label: Correctness,
) -> str:
    """Run the second stage unless done; see :func:`fine_tune`."""
    workspace = Workspace(plan.out)
    folder = workspace.adapter(variant, seed, plan.reward).folder
    start = workspace.adapter(variant, seed)
    questions = shorter_questions(questions, plan.preset)
    assert plan.reward != "none"  # the caller has asked plan.reinforces
    rows = reinforcement_rows(questions, adapter_asker(open_model, start), label)
    if len(rows) < plan.preset.step_questions and not (folder / RECORD).exists():
        return (
            f"the model in {start.folder} states a confidence on only {len(rows)} of the {len(questions)} "
            "questions for reinforcement, so that stage is left out. Train on more examples, or for more "
            "epochs."
        )
    reward = StatedConfidenceReward(plan.reward)
    return Training(plan.preset, rows, folder, seed, start=start.folder, reward=reward).run()
