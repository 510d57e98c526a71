"""Scorer for inspect_ai that compares a model's confidence over epochs with the grades of its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from selfreflect.errors import optional
from selfreflect.records import Graded
from selfreflect.sources.answer_values import verdict
from selfreflect.uncertainty.assess import Assessment, Method
from selfreflect.uncertainty.classes import DEFAULT, ClassRule
from selfreflect.uncertainty.correctness import GRADED
from selfreflect.uncertainty.measures import measure_all
from selfreflect.uncertainty.prediction import Tally
from selfreflect.uncertainty.question import AnsweredQuestion, not_blank
from selfreflect.uncertainty.tables import RISK, conclude

QUESTION = "selfreflect_question"
"""Metadata key of a score's question, which determines equal answers."""


class GradedAnswer(NamedTuple):
    """The answer of one epoch of a sample, with its grade."""

    sample: str
    question: str
    answer: str
    grade: Any
    """The grader's value, such as ``"C"``."""


def confidence(grader: Any, *, classes: str = DEFAULT, risk: float = RISK) -> Any:
    """Make a scorer that grades as ``grader`` does, and measures the agreement of a sample's epochs.

    A task needs ``epochs``, at least 2. Beside accuracy and its standard error the log has the metrics of
    :func:`measured`.

    Args:
        grader: a scorer of inspect_ai, such as ``includes()`` or ``model_graded_qa()``.
        classes: what makes two answers the same, as ``selfreflect uncertainty --classes`` takes it.
        risk: share of wrong answers that may be given, for ``answered``.

    Raises:
        MissingExtraError: inspect_ai is not installed.
    """
    with optional("the scorer for inspect_ai", "inspect"):
        from inspect_ai.scorer import Score, accuracy, metric, scorer, stderr

    @metric(name="selfreflect", scores="unreduced")  # type: ignore[untyped-decorator]
    def knowledge() -> Callable[[list[Any]], dict[str, float | None]]:
        def compute(scores: list[Any]) -> dict[str, float | None]:
            return measured(map(_graded_answer, scores), classes, risk)

        return compute

    @scorer(name="selfreflect", metrics=[accuracy(), stderr(), knowledge()])  # type: ignore[untyped-decorator]
    def graded() -> Any:
        async def score(state: Any, target: Any) -> Any:
            grade = await grader(state, target)
            answer = grade.answer or state.output.completion
            metadata = {**(grade.metadata or {}), QUESTION: state.input_text}
            return Score(value=grade.value, answer=answer, explanation=grade.explanation, metadata=metadata)

        return score

    return graded()


def measured(
    answers: Iterable[GradedAnswer], classes: str = DEFAULT, risk: float = RISK
) -> dict[str, float | None]:
    """Compute the measures over all samples; None where a value is undefined.

    Returns:
        ``modal_share`` and ``classes``, means over samples; ``modal_accuracy``, the share of samples whose
        most common answer is right; ``ece`` of the modal share (10 bins), ``auroc``, and ``answered``: the
        share of samples that could be answered with at most ``risk`` errors, by the modal share.
    """
    by_sample: dict[str, list[GradedAnswer]] = {}
    for answer in answers:
        by_sample.setdefault(answer.sample, []).append(answer)
    questions = []
    for name, epochs in by_sample.items():
        texts = [epoch.answer for epoch in epochs]
        epochs = [epochs[index] for index in not_blank(texts)]
        grades = {GRADED: tuple(Graded(epoch.answer, verdict(epoch.grade)) for epoch in epochs)}
        answered = tuple(epoch.answer for epoch in epochs)
        text = epochs[0].question if epochs else ""
        questions.append(AnsweredQuestion(name, text, answers=answered, grades=grades))
    assessment = Assessment(
        questions, ["modal_share", "classes"], Method(ClassRule(classes), correctness=(GRADED,))
    )
    columns = {
        name: [value for value in column if isinstance(value, float)]
        for name, column in assessment.values.items()
    }
    results = {name: sum(values) / len(values) if values else None for name, values in columns.items()}
    labelled = assessment.labelled_scores("modal_share", GRADED)
    conclusion = conclude(assessment, GRADED, risk)
    tally = Tally.of(labelled.scores, labelled.labels) if len(labelled.labels) else None
    measures = measure_all(("ece_10_left", "auroc"), tally) if tally else {}
    return {
        **results,
        "modal_accuracy": float(tally.accuracy) if tally else None,
        "ece": measures["ece_10_left"].value if tally else None,
        "auroc": measures["auroc"].value if tally else None,
        "answered": None if conclusion is None else conclusion.answered,
    }


def _graded_answer(sample_score: Any) -> GradedAnswer:
    score = sample_score.score
    question = (score.metadata or {}).get(QUESTION, "")
    return GradedAnswer(str(sample_score.sample_id), question, score.answer or "", score.value)
