"""What the page on uncertainty says: bins, curves, sentences, and reasons where there is no number."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from selfreflect.errors import DataError
from selfreflect.report.page.frame import UncertaintyPart
from selfreflect.uncertainty.assess import Assessment, Method, predictions
from selfreflect.uncertainty.classes import ClassRule
from selfreflect.uncertainty.page import best_first, reliability, uncertainty_part
from selfreflect.uncertainty.question import AnsweredQuestion

pytestmark = pytest.mark.usefixtures("quick_figures")


def part(count: int, correct: Callable[[int], bool], confidence: Callable[[int], float]) -> UncertaintyPart:
    questions = [
        AnsweredQuestion(id=str(number), confidence=confidence(number), correct=correct(number))
        for number in range(count)
    ]
    assessment = Assessment(questions, ["stated"], Method(ClassRule(), correctness=("human",)))
    return uncertainty_part(assessment, "human", predictions(assessment, "human"))


def test_bins_hold_their_lower_edge_and_the_last_one_holds_1() -> None:
    bins = reliability([0.0, 0.3, 0.3, 0.6, 1.0], [0, 1, 0, 1, 1])
    filled = [(entry.name, entry.n, entry.accuracy) for entry in bins if entry.n]
    assert filled == [("[0, 0.1)", 1, 0), ("[0.3, 0.4)", 2, 0.5), ("[0.6, 0.7)", 1, 1), ("[0.9, 1]", 1, 1)]
    assert bins[1].confidence is bins[1].accuracy_low is None
    with pytest.raises(DataError):
        reliability([1.5], [1])


def test_the_first_sentence_says_what_was_found() -> None:
    good = part(40, lambda n: n % 2 == 0, lambda n: 0.9 if n % 2 == 0 else 0.1)
    assert "right in 50 % of 40 answers" in good.lead
    assert "AUROC 1.00" in good.lead
    assert good.table.rows[0][:2] == ("stated", 40)
    assert good.baselines == {1}


def test_what_is_undefined_has_a_reason() -> None:
    right = part(8, lambda n: True, lambda n: 0.5)
    assert any("all answers are correct, or all are wrong" in note for note in right.table.notes)
    few = part(3, lambda n: n > 0, lambda n: 0.5)
    assert "too few for a cross-fitted calibration" in few.panels[0].figures[0].caption


@pytest.mark.parametrize("sure", [0, 1])
def test_an_estimator_without_values_is_never_the_best_one(sure: int) -> None:
    """Log-probabilities are missing, so what needs them cannot lead, however badly the others do."""
    questions = [
        AnsweredQuestion(id=str(n), answers=("a", "a") if n % 2 else ("a", "b"), correct=n % 2 == sure)
        for n in range(20)
    ]
    names = ["semantic_entropy", "entropy", "modal_share"]
    assessment = Assessment(questions, names, Method(ClassRule(), correctness=("human",)))
    rows = predictions(assessment, "human", ("auroc",))
    assert [row.estimator for row in best_first(rows)] == ["entropy", "modal_share", "semantic_entropy"]
