"""Evaluation of stated confidences on test questions, with baselines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from selfreflect.models.base import Message
from selfreflect.stats import defined, paired_difference
from selfreflect.store.journal import ModelReplies
from selfreflect.table import Cell, Column, Table, interval_text
from selfreflect.text import quoted
from selfreflect.train.rewards.stated import StatedBelief
from selfreflect.train.sayself.clusters import ClusteredQuestion, listed_clusters, prompts, user_message
from selfreflect.train.sayself.statement import parse_confidence, parse_statement, write_statement
from selfreflect.uncertainty.asking.asker import Asker, Inquiry, failure_of, parse_verdict, reply_text
from selfreflect.uncertainty.assess import ScoredAnswers
from selfreflect.uncertainty.calibrators import FOLDS
from selfreflect.uncertainty.correctness import Correctness
from selfreflect.uncertainty.measures import INTERVALS, MeasuredValue, definitions, measure_all
from selfreflect.uncertainty.prediction import Tally
from selfreflect.uncertainty.question import AnsweredQuestion, NoValue
from selfreflect.uncertainty.relations import words
from selfreflect.uncertainty.tables import measured

MEASURED = ("ece_10_left", "mae", "auroc", "brier")
MAX_TOKENS = 160


@dataclass(frozen=True)
class Evaluation:
    """A method's answers and confidences on the common questions."""

    method: str
    statements: tuple[StatedBelief, ...]
    """Statements, one per question."""
    correct: tuple[bool | None, ...]
    """Correctness of the statements; None without a right answer."""
    baseline: bool = False

    @property
    def accuracy(self) -> float | None:
        """Share of right answers among labelled statements, with or without confidence; None without
        labels."""
        labels = defined(self.correct)
        return fmean(labels) if labels else None

    @property
    def without_confidence(self) -> Counter[str]:
        """Number of statements without a confidence, by reason; empty for baselines."""
        values = [] if self.baseline else [statement.confidence for statement in self.statements]
        return Counter(value.reason for value in values if isinstance(value, NoValue))

    def lines(self, questions: Sequence[ClusteredQuestion]) -> list[dict[str, Any]]:
        """List each question's statement as JSON. A missing confidence comes with its ``problem``."""
        lines = []
        for question, statement, label in zip(questions, self.statements, self.correct, strict=True):
            confidence = statement.confidence
            problem = confidence.reason if isinstance(confidence, NoValue) else ""
            line: dict[str, Any] = {"method": self.method, "question_id": question.id}
            line |= {"answer": statement.answer, "reflection": statement.reflection, "correct": label}
            lines.append(line | {"confidence": None if problem else confidence, "problem": problem})
        return lines

    @property
    def scored(self) -> ScoredAnswers:
        """Statements with confidence and label, and their answers' lengths in words."""
        indices, confidences, labels = [], [], []
        lengths: list[float | None] = []
        for index, (statement, label) in enumerate(zip(self.statements, self.correct, strict=True)):
            if label is not None and not isinstance(statement.confidence, NoValue):
                indices.append(index)
                confidences.append(statement.confidence)
                labels.append(float(label))
                lengths.append(float(len(words(statement.answer))))
        return ScoredAnswers(indices, np.array(confidences), np.array(labels), lengths)

    @property
    def mean_confidence(self) -> float | None:
        """Mean confidence in labelled answers; None if there are none."""
        confidences = self.scored.scores.tolist()
        return fmean(confidences) if confidences else None

    def squared_errors(self, constant: bool = False) -> dict[str, float]:
        """Compute the squared error of each confidence, by question index.

        Args:
            constant: of always saying how often this method's own answers are right instead: training changes
                the answers, so the accuracy of other methods is no measure of what this one knows.
        """
        indices, confidences, labels, *_ = self.scored
        guesses = labels.mean() if constant and len(labels) else confidences
        return dict(zip(map(str, indices), ((guesses - labels) ** 2).tolist(), strict=True))

    def measures(self) -> dict[str, MeasuredValue]:
        """Compute the measures of ``MEASURED`` with intervals over questions; empty without pairs."""
        _, confidences, labels, *_ = self.scored
        return measure_all(MEASURED, Tally.of(confidences, labels)) if len(labels) else {}


def label_statements(
    questions: Sequence[ClusteredQuestion], statements: Sequence[StatedBelief], correctness: Correctness
) -> tuple[bool | None, ...]:
    """Compare each statement's answer with the right answers. A blank answer is wrong."""
    answers = [statement.answer or None for statement in statements]
    labels = correctness.label_all(list(map(_plain, questions)), answers)
    for index, (question, answer) in enumerate(zip(questions, answers, strict=True)):
        if answer is None and question.gold:
            labels[index] = False
    return tuple(labels)


def ask_statements(questions: Sequence[ClusteredQuestion], asker: Asker) -> list[StatedBelief]:
    """Ask a trained model each question as in training, and parse its statements."""
    return list(map(_statement, asker.ask(_plain_inquiries(questions))))


def ask_texts(questions: Sequence[ClusteredQuestion], asker: Asker) -> list[str | NoValue]:
    """Ask each question, and return whole texts or reasons for missing ones."""
    return list(map(reply_text, asker.ask(_plain_inquiries(questions))))


def draw_answers(questions: Sequence[ClusteredQuestion], asker: Asker, n: int) -> list[AnsweredQuestion]:
    """Draw ``n`` statements of a trained model per question, and keep their answers, which its reflections
    are about."""
    results = []
    inquiries = [
        inquiry._replace(step="samples", n=n, temperature=1.0) for inquiry in _plain_inquiries(questions)
    ]
    for question, reply in zip(questions, asker.ask(inquiries), strict=True):
        answers = [parse_statement(text).answer for text in reply.texts]
        results.append(_plain(question, tuple(filter(None, answers))))
    return results


def _plain(question: ClusteredQuestion, answers: tuple[str, ...] = ()) -> AnsweredQuestion:
    return AnsweredQuestion(
        id=question.id,
        text=question.question,
        context=question.context,
        gold=question.gold,
        answers=answers,
    )


def _plain_inquiries(questions: Sequence[ClusteredQuestion]) -> list[Inquiry]:
    inquiries = []
    for question in questions:
        message = Message(role="user", content=question.asked)
        inquiries.append(Inquiry("statement", (message,), max_new_tokens=MAX_TOKENS))
    return inquiries


def _statement(reply: ModelReplies) -> StatedBelief:
    """Parse a statement, even one cut off after its confidence."""
    text = reply_text(reply)
    if not isinstance(text, NoValue):
        return parse_statement(text)
    if reply.failure is not None:
        return StatedBelief(answer="", confidence=text)
    partial = parse_statement(reply.texts[0])
    # a digit at the very end may be the 1 of 10
    if not isinstance(partial.confidence, NoValue) and not reply.texts[0][-1].isdigit():
        return partial
    return StatedBelief(answer=partial.answer, confidence=text)


def ask_directly(questions: Sequence[ClusteredQuestion], asker: Asker) -> list[StatedBelief]:
    """Ask for answer and confidence in one prompt (baseline DP)."""
    inquiries = []
    for question in questions:
        values = {"question": question.asked}
        inquiries.append(Inquiry("direct", (user_message("direct", values),), max_new_tokens=MAX_TOKENS))
    return list(map(_statement, asker.ask(inquiries)))


def ask_whether_sure(
    questions: Sequence[ClusteredQuestion], statements: Sequence[StatedBelief], asker: Asker
) -> list[StatedBelief]:
    """Ask a model tuned by R-Tuning whether it is sure (1) or unsure (0) of an answer within the
    conversation."""
    inquiries = {}
    for index, (question, statement) in enumerate(zip(questions, statements, strict=True)):
        if statement.answer:
            turns = (
                Message(role="user", content=question.asked),
                Message(role="assistant", content=write_statement("", statement.answer, "", None)),
                Message(role="user", content=prompts()["sure"]["user"]),
            )
            inquiries[index] = Inquiry("sure", turns, max_new_tokens=16)
    replies = dict(zip(inquiries, asker.ask(list(inquiries.values())), strict=True))
    results = []
    for index, statement in enumerate(statements):
        confidence: float | NoValue = NoValue("no_reply", "there is no answer to be sure of")
        if index in replies:
            confidence = _sureness(replies[index])
        results.append(StatedBelief(answer=statement.answer, confidence=confidence))
    return results


def _sureness(reply: ModelReplies) -> float | NoValue:
    if failure := failure_of(reply):
        return failure
    text = reply.texts[0].lower()
    is_unsure = "unsure" in text or "not sure" in text
    if is_unsure == ("i am sure" in text):  # both, or neither
        verdict = parse_verdict(reply.texts[0])
        return verdict if isinstance(verdict, NoValue) else float(verdict)
    return 0.0 if is_unsure else 1.0


def agreement(questions: Sequence[ClusteredQuestion]) -> list[StatedBelief]:
    """State the largest cluster's answer, with its share as confidence (baseline SC)."""
    statements = []
    for question in questions:
        largest = question.clusters[0]
        statements.append(StatedBelief(answer=largest.answer, confidence=question.share(largest)))
    return statements


def reference_rows(evaluation: Evaluation) -> list[Evaluation]:
    """Build reference rows: constant accuracy, cross-fitted confidences, and confidence from length alone."""
    answers = evaluation.scored
    indices, confidences, labels, lengths, *_ = answers
    # calibration needs right and wrong answers
    if len(labels) < FOLDS or labels.min() == labels.max():
        return []
    rows = {"constant (base rate)": np.full(len(labels), labels.mean())}
    # shorter answers are taken to be surer
    shorter = -np.array(defined(lengths))
    for name, scores in (
        (f"isotonic ({evaluation.method})", confidences),
        ("length only (isotonic)", shorter),
    ):
        calibrated = answers._replace(scores=scores).calibrated()
        if not isinstance(calibrated, str):
            rows[name] = calibrated
    references = []
    nothing = StatedBelief("", NoValue("no_number", "nothing to calibrate"))
    for name, values in rows.items():
        statements = [nothing] * len(evaluation.statements)
        for index, value in zip(indices, values.tolist(), strict=True):
            statements[index] = StatedBelief("", value)
        references.append(Evaluation(name, tuple(statements), evaluation.correct, baseline=True))
    return references


def evaluation_table(evaluations: Sequence[Evaluation], title: str) -> Table:
    """Tabulate one row per method, with 95 % intervals over questions."""
    columns = [Column("method"), Column("n", "d"), Column("no confidence", "d"), Column("accuracy", ".3f")]
    measure_columns, cells_by_row = measured([row.measures() for row in evaluations], MEASURED)
    columns += [Column("mean confidence", ".3f"), *measure_columns]
    rows: list[tuple[Cell, ...]] = []
    for row, numbers in zip(evaluations, cells_by_row, strict=True):
        accuracy = None if row.baseline else row.accuracy
        n, silent = len(row.scored.labels), row.without_confidence.total()
        cells = (row.method, n, silent, accuracy, row.mean_confidence)
        rows.append((*cells, *numbers))
    notes = definitions(MEASURED)
    notes += [INTERVALS, "no confidence: statements without a readable confidence."]
    return Table(title, tuple(columns), tuple(rows), tuple(notes))


def difference_table(trained: Sequence[Evaluation], baselines: Sequence[Evaluation]) -> Table | None:
    """Compare squared errors of confidences per question with two baselines; None if nothing can be compared.

    The first is the one with the lowest mean among those that state a confidence for every question, the
    second each method's own constant: always saying how often its own answers are right.
    """
    errors = {baseline.method: baseline.squared_errors() for baseline in baselines}
    total = max(map(len, errors.values()), default=0)
    means = {
        name: fmean(values.values()) for name, values in errors.items() if values and len(values) == total
    }
    best = min(means, key=lambda name: means[name], default="")
    rows: list[tuple[Cell, ...]] = []
    for method in trained:
        against = {best: errors[best]} if best else {}
        for name, theirs in {**against, "own constant": method.squared_errors(constant=True)}.items():
            if theirs:
                paired = paired_difference(theirs, method.squared_errors(), len(theirs))
                estimate = paired.difference
                interval = interval_text(estimate.low, estimate.high, "+.3f")
                rows.append((method.method, name, estimate.n, estimate.mean, interval, paired.p_value))
    columns = (
        *(Column("method"), Column("baseline"), Column("n", "d")),
        *(Column("difference", "+.3f"), Column("95%"), Column("p", ".3f")),
    )
    notes = (
        "Over questions with both confidences. Lower is better. p: two-sided sign-flip test.",
        "own constant: always stating how often the method's own answers are right. A method that is not "
        "clearly below it says nothing about single questions.",
    )
    return (
        Table("Brier score minus the Brier score of baselines", columns, tuple(rows), notes) if rows else None
    )


def faithfulness_inquiries(
    questions: Sequence[ClusteredQuestion], statements: Sequence[StatedBelief]
) -> list[Inquiry]:
    """Ask a judge how well each reflection fits the disagreement among answers. Statements without a
    reflection are left out."""
    inquiries = []
    for question, statement in zip(questions, statements, strict=True):
        if statement.reflection:
            values = {
                "question": quoted(question.asked),
                "responses": listed_clusters(question),
                "reflection": quoted(statement.reflection),
            }
            inquiries.append(Inquiry("faithful", (user_message("faithful", values),), max_new_tokens=48))
    return inquiries


def read_score(reply: ModelReplies) -> float | NoValue:
    """Parse ``Score: 7`` as 0.7; see :func:`parse_confidence`."""
    text = reply_text(reply)
    # the last one, since a judge may speak of scores before
    return text if isinstance(text, NoValue) else parse_confidence(text.rpartition("Score:")[2])
