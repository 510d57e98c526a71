"""What the page on uncertainty says: bins, curves, sentences, and reasons where there is no number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from selfreflect.errors import DataError
from selfreflect.report.page.frame import UncertaintyPart
from selfreflect.stats import Estimate
from selfreflect.uncertainty.assess import Assessment, Method, predictions
from selfreflect.uncertainty.classes import ClassRule
from selfreflect.uncertainty.figures import reliability, wilson
from selfreflect.uncertainty.page import Headline, auroc_difference, best_first, uncertainty_part
from selfreflect.uncertainty.prediction import Tally, auroc
from selfreflect.uncertainty.question import AnsweredQuestion

pytestmark = pytest.mark.usefixtures("quick_figures")


def stated(count: int, correct: Any, confidence: Any, length: Any = lambda number: 1) -> Assessment:
    questions = [
        AnsweredQuestion(
            id=str(number),
            confidence=confidence(number),
            correct=correct(number),
            length=length(number),
        )
        for number in range(count)
    ]
    return Assessment(questions, ["stated"], Method(ClassRule(), correctness=("human",)))


def headline(assessment: Assessment) -> Headline:
    return Headline(assessment, "human", predictions(assessment, "human"))


def part(assessment: Assessment, **options: Any) -> UncertaintyPart:
    return uncertainty_part(assessment, "human", predictions(assessment, "human"), **options)


def test_bins_hold_their_lower_edge_and_the_last_one_holds_1() -> None:
    bins = reliability([0.0, 0.3, 0.3, 0.6, 1.0], [0, 1, 0, 1, 1])
    filled = [(one.name, one.n, one.accuracy) for one in bins if one.n]
    assert filled == [("[0, 0.1)", 1, 0), ("[0.3, 0.4)", 2, 0.5), ("[0.6, 0.7)", 1, 1), ("[0.9, 1]", 1, 1)]
    assert bins[1].confidence is None
    assert bins[1].accuracy_low is None
    with pytest.raises(DataError):
        reliability([1.5], [1])


def test_an_interval_of_a_share_is_that_of_wilson() -> None:
    assert wilson(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    low, high = wilson(1.0, 4)
    assert (low, high) == pytest.approx((0.5101, 1.0), abs=1e-4)


def test_the_difference_from_length_is_paired() -> None:
    labels = np.array([1.0, 0, 1, 0, 1, 0, 1, 1, 0, 0] * 5)
    same = auroc_difference(labels, labels, labels)
    assert same is not None
    assert same == Estimate(0, None, None, 50, 50)
    opposite = auroc_difference(labels, -labels, labels)
    assert opposite is not None
    assert opposite == Estimate(1, pytest.approx(2 * 0.025 ** (1 / 25) - 1), 1, 50, 50)
    assert auroc_difference(labels, labels, np.ones(50)) is None
    scores = np.random.default_rng(2).normal(size=50) + labels
    mixed = auroc_difference(scores, np.arange(50.0), labels)
    separate = [float(auroc(Tally.of(column, labels))) for column in (scores, np.arange(50.0))]
    assert mixed is not None
    assert mixed.mean == pytest.approx(separate[0] - separate[1], abs=1e-12)
    assert mixed.low is not None
    assert mixed.high is not None
    assert mixed.low < mixed.mean < mixed.high


def test_the_first_sentence_says_what_was_found() -> None:
    good = headline(stated(40, lambda n: n % 2 == 0, lambda n: 0.9 if n % 2 == 0 else 0.1, lambda n: n % 3))
    sentence = good.lead()
    assert "stated tells correct from wrong answers: AUROC 1.000" in sentence
    assert sentence.endswith("which is clearly less.")
    assert "its calibration error (ECE) is 0.100 as it is and " in sentence
    assert good.about()[0] == "50.0 % of the judged answers to 40 questions are correct (human)."
    assert "always saying the accuracy has 0.250" in " ".join(good.about())


def test_too_few_answers_for_an_interval_show_nothing_clearly() -> None:
    few = headline(stated(10, lambda n: n % 2 == 0, lambda n: 1 - n % 2))
    assert "AUROC 1.000;" in few.lead()
    assert "not clearly better than guessing" in few.lead()
    fewer = headline(stated(8, lambda n: n % 2 == 0, lambda n: 1 - n % 2))
    assert "1.000" not in fewer.lead()


def test_what_is_undefined_has_a_reason() -> None:
    right = stated(8, lambda n: True, lambda n: 0.5)
    assert "all answers are correct, or all are wrong" in headline(right).lead()
    assert any("all answers are correct, or all are wrong" in note for note in part(right).table.notes)
    few = part(stated(3, lambda n: n > 0, lambda n: 0.5))
    assert "too few to calibrate" in few.panels[0].figures[0].caption
    questions = [AnsweredQuestion(id=str(n), confidence=0.5, correct=n > 2) for n in range(8)]
    empty = Assessment(questions, ["stated"], Method(ClassRule(), correctness=("human",)))
    assert part(empty).panels[0].figures[2].undefined == "no judged answer has a length"


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
    lead = Headline(assessment, "human", rows).lead()
    assert lead.startswith("entropy tells correct from wrong answers")
    assert "best of 3 estimators" in lead
    assert ("no better than guessing" in lead) == (sure == 0)
    assert f"AUROC {sure}.000" in lead
