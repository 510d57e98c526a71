"""Estimators against values known from their definitions, and class rules where they differ."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.logprobs import AnswerTokens, TokenValues
from selfreflect.uncertainty import features
from selfreflect.uncertainty.classes import ClassRule
from selfreflect.uncertainty.estimators import ESTIMATORS, estimate
from selfreflect.uncertainty.features import Samples
from selfreflect.uncertainty.question import AnsweredQuestion, NoValue, token_fields
from selfreflect.uncertainty.relations import jaccard, rouge, rouge_l, words

texts = st.lists(st.text("ab ", max_size=8), min_size=1, max_size=7)
labelled = st.lists(st.integers(0, 4), min_size=2, max_size=12).map(lambda values: np.array(values))


def question(answers: list[str], **fields: Any) -> AnsweredQuestion:
    return AnsweredQuestion(id="q", text="What?", answers=tuple(answers), **fields)


def of(name: str, one: AnsweredQuestion, rule: str = "exact") -> float | NoValue:
    return estimate(ESTIMATORS[name], Samples(one, ClassRule(rule), jaccard, jaccard))


# --- classes


def test_aliases_are_one_class_and_gold_answers_are_not() -> None:
    answers = ["Holland", "The Netherlands", "France"]
    assert ClassRule()(question(answers, gold=("Holland", "The Netherlands"))).tolist() == [0, 1, 2]
    assert ClassRule()(question(answers, aliases=(("holland", "the netherlands"),))).tolist() == [0, 0, 1]


CHAIN = ["a b c", "b c d", "c d e"]
"""Each shares half of its words with its neighbour, and a fifth with the other."""


def test_a_chain_of_matches_depends_on_the_order_which_the_name_tells() -> None:
    first = ClassRule("jaccard:0.5")
    assert first(question(CHAIN)).tolist() == [0, 0, 1]
    assert first.name == "jaccard:0.5, first"
    middle_first = [CHAIN[1], CHAIN[0], CHAIN[2]]
    assert first(question(middle_first)).tolist() == [0, 0, 0]


# --- similarities


@given(texts)
def test_similarities_are_symmetric_with_ones(answers: list[str]) -> None:
    for matrix in (jaccard(answers), rouge(answers)):
        assert (matrix == matrix.T).all()
        assert (matrix.diagonal() == 1).all()
        assert matrix.min() >= 0
        assert matrix.max() <= 1


@given(st.text("ab c", max_size=40), st.text("ab c", max_size=40))
def test_rouge_is_that_of_its_package(one: str, other: str) -> None:
    from rouge_score.rouge_scorer import RougeScorer

    expected = RougeScorer(["rougeL"]).score(one, other)["rougeL"].fmeasure
    assert rouge_l(words(one), words(other)) == pytest.approx(expected)
    assert rouge([one, other])[0, 1] == pytest.approx(expected)


# --- samples


@given(labelled)
def test_samples_stay_in_their_declared_ranges(labels: np.ndarray) -> None:
    one = question([f"answer{label}" for label in labels])
    for name, info in ESTIMATORS.items():
        if info.needs == "samples":
            value = of(name, one)
            assert isinstance(value, float), name
            assert info.low - 1e-9 <= value <= info.high + 1e-9, (name, value)


@pytest.mark.parametrize("size", [2, 5, 20])
def test_the_ends_of_the_scale(size: int) -> None:
    agreeing, disagreeing = question(["yes"] * size), question([f"answer{i}" for i in range(size)])
    ends = {
        "modal_share": (1, 1 / size),
        "split_half": (1, 0),
        "entropy": (0, math.log(size)),
        "classes": (1, size),
        "lexical": (1, 0),
        "eigv": (1, size),
        "deg": (0, 1 - 1 / size),
    }
    for name, (sure, unsure) in ends.items():
        assert of(name, agreeing) == pytest.approx(sure, abs=1e-9), name
        assert of(name, disagreeing) == pytest.approx(unsure, abs=1e-9), name
    assert of("ecc", agreeing) == 0


def test_the_modal_answer_is_the_most_common_spelling_of_the_largest_class() -> None:
    one = Samples(question(["b", "A", "the a", "A", "b", "c"]), ClassRule(), jaccard)
    assert one.modal_answer == "A"
    assert Samples(question(["b", "a"]), ClassRule(), jaccard).modal_answer == "b"


# --- log-probabilities


def test_three_formulas_called_semantic_entropy() -> None:
    labels = np.array([0, 0, 1, 1])
    toy = np.array([-1.0, -1, -2, -2])
    assert features.semantic_entropy(toy, labels) == pytest.approx(0.582, abs=5e-4)
    assert features.semantic_entropy_monte_carlo(toy, labels, range(4)) == pytest.approx(0.807, abs=5e-4)
    equal = np.full(4, math.log(0.25))
    assert features.semantic_entropy_direct(equal, labels, range(4)) == pytest.approx(1.386, abs=5e-4)
    assert features.semantic_entropy(equal, labels) == pytest.approx(0.693, abs=5e-4)
    assert features.entropy(labels) == pytest.approx(0.693, abs=5e-4)


def test_sar_is_its_loop() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        size = int(rng.integers(1, 6))
        similar = rng.random((size, size))
        similar = (similar + similar.T) / 2
        np.fill_diagonal(similar, 1)
        logs = -3 * rng.random(size)
        terms = []
        for j in range(size):
            shared = sum(similar[j, k] * math.exp(logs[k]) for k in range(size) if k != j)
            terms.append(-math.log(math.exp(logs[j]) + shared / 0.001))
        assert features.sentence_sar(logs, similar) == pytest.approx(np.mean(terms))
        assert features.sar(-logs, similar) == pytest.approx(np.mean(terms))


STORED = AnswerTokens(("a", " b"), (-1.0, -2.0), 5.0)


def test_what_a_run_stores_brings_its_estimators() -> None:
    stored = (STORED, AnswerTokens(("c",), (-4.0,), 6.0))
    one = question(["a b", "c"], **token_fields(stored))
    assert of("predictive_entropy", one) == pytest.approx(3.5)
    assert of("self_certainty", one) == pytest.approx(5.5)
    assert of("token_sar", one) == pytest.approx((1.5 + 4) / 2)
    assert isinstance(of("sar", one), float)
    assert token_fields(()) == {}
    without = question(["a b", "c"], **token_fields((STORED, AnswerTokens(("c",), (-4.0,)))))
    missing = of("self_certainty", without)
    assert isinstance(missing, NoValue)
    assert missing.reason == "no_self_certainty"
    assert of("predictive_entropy", without) == pytest.approx(3.5)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ("not_returned", "the server does not return"),
        ("other_text", "another tokenizer"),
        ("out_of_range", "not a number of at most 0"),
        (AnswerTokens((), (), None), "an answer is blank"),
    ],
)
def test_a_question_with_an_answer_without_log_probabilities_says_why(other: Any, why: str) -> None:
    one = question(["a b", "c"], **token_fields((STORED, other)))
    for name in ("predictive_entropy", "semantic_entropy", "token_sar", "sentence_sar", "sar"):
        missing = of(name, one)
        assert isinstance(missing, NoValue)
        assert missing.reason == "no_logprobs"
        assert why in missing.message


@pytest.mark.parametrize("name", ["entropy", "entropy_mm", "eigv", "deg", "ecc"])
def test_the_same_classes_in_another_order_are_a_tie(name: str) -> None:
    rng = np.random.default_rng(0)
    answers = ["a"] * 2 + ["b"] * 4 + ["c"] * 6 + ["d"] * 2
    values = set()
    for _ in range(30):
        shuffled = [answers[place] for place in rng.permutation(len(answers))]
        values.add(of(name, question(shuffled)))
    assert len(values) == 1


SURE = question(
    ["yes it is"] * 4,
    token_values=TokenValues(
        # "-p log p" counts once for each sample, so that it falls only near 1
        logprobs=((-0.01, -0.02),) * 4,
        tokens=(("yes", " it is"),) * 4,
        self_certainty=(9.0,) * 4,
        top_logprobs=(((-0.01, -5.0), (-0.02, -5.0)),) * 4,
        token_entropies=((0.2, 0.3),) * 4,
    ),
    confidence=0.9,
    greedy="Almost certainly yes",
    values={
        **{"greedy_distance": 0.1, "greedy_bits": 8.0, "greedy_recovered": 0.9},
        **{"support": 0.9, "contradicted": 0.1, "mentioned": 0.8},
    },
)
UNSURE = question(
    ["yes", "no way", "maybe so", "who knows"],
    token_values=TokenValues(
        logprobs=((-2.0,), (-3.0, -2.0), (-4.0, -2.5), (-3.0, -2.2)),
        tokens=(("yes",), ("no", " way"), ("maybe", " so"), ("who", " knows")),
        self_certainty=(2.0, 3.0, 1.0, 2.0),
        top_logprobs=(((-1.0, -1.2),), *[((-1.0, -1.2), (-0.9, -1.3))] * 3),
        token_entropies=((4.0,), *[(4.0, 5.0)] * 3),
    ),
    confidence=0.2,
    greedy="Unlikely, yes",
    values={
        **{"greedy_distance": 0.6, "greedy_bits": 1.0, "greedy_recovered": 0.1},
        **{"support": 0.1, "contradicted": 0.6, "mentioned": 0.2},
    },
)


@pytest.mark.parametrize(
    "name", [name for name, info in ESTIMATORS.items() if info.needs != "model" and info.inputs is None]
)
def test_every_estimator_scores_what_is_sure_higher(name: str) -> None:
    info = ESTIMATORS[name]
    sure, unsure = of(name, SURE), of(name, UNSURE)
    assert isinstance(sure, float)
    assert isinstance(unsure, float)
    assert info.score(sure) > info.score(unsure)
    assert info.low <= min(sure, unsure)
    assert max(sure, unsure) <= info.high
    assert abs(info.score(0.5)) == 0.5


@pytest.mark.parametrize(
    ("labels", "share"),
    [
        ([0, 0, 1, 0, 1, 1], (1 / 3 + 1 / 3) / 2),
        ([0, 0, 0, 1, 1], (1 / 3 + 0) / 2),  # halves of 2 and 3
        ([0, 1, 0, 0], ((1 + 0) / 2 + 1 / 2) / 2),  # both are largest in the first half
        ([0, 1], 0),
        ([0, 0], 1),
    ],
)
def test_split_halves_by_hand(labels: list[int], share: float) -> None:
    assert features.split_half_share(np.array(labels)) == pytest.approx(share)


def test_entropies_by_hand() -> None:
    labels = np.array([0, 0, 0, 1])
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert features.entropy(labels) == pytest.approx(entropy)
    assert features.entropy_miller_madow(labels) == pytest.approx(entropy + 1 / 8)
    assert features.entropy_miller_madow(np.zeros(3, int)) == 0
    assert features.number_of_classes(np.array([0, 1, 0, 2])) == 3


@pytest.mark.parametrize(("similar", "eccentricity"), [(0.5, 1.0), (0.8, 1.0), (0.85, 0.0), (1.0, 0.0)])
def test_the_graph_of_two_answers_has_a_closed_form(similar: float, eccentricity: float) -> None:
    """Eigenvalues 0 and 2 s / (1 + s); from s = 9 / 11 on the second one is above 0.9."""
    matrix = np.array([[1.0, similar], [similar, 1.0]])
    second = 2 * similar / (1 + similar)
    assert features.eigenvalue_sum(matrix) == pytest.approx(1 + (1 - second))
    assert features.degree(matrix) == pytest.approx((1 - similar) / 2)
    assert features.eccentricity(matrix) == pytest.approx(eccentricity, abs=1e-9)
    assert features.mean_similarity(matrix) == similar


def test_kernel_entropy_is_that_of_the_matrix_exponential() -> None:
    from scipy.linalg import expm, logm

    matrix = np.array([[1.0, 0.5, 0.0, 0.1], [0.5, 1.0, 0.25, 0], [0.0, 0.25, 1.0, 0.9], [0.1, 0, 0.9, 1]])
    kernel = expm(-0.3 * (np.diag(matrix.sum(0)) - matrix))
    kernel = kernel / np.sqrt(np.outer(np.diag(kernel), np.diag(kernel))) / 4
    assert features.kernel_entropy(matrix) == pytest.approx(-np.trace(kernel @ logm(kernel)) / math.log(4))


def test_likelihoods_by_hand() -> None:
    labels, logs = np.array([0, 1, 0]), np.log([0.2, 0.3, 0.1])
    assert features.predictive_entropy(logs) == pytest.approx(-np.log([0.2, 0.3, 0.1]).mean())
    assert features.semantic_entropy(logs, labels) == pytest.approx(math.log(2))
    masses = -(2 * math.log(0.3) + math.log(0.3)) / 3
    assert features.semantic_entropy_monte_carlo(logs, labels, range(3)) == pytest.approx(masses)
    assert features.semantic_entropy_direct(logs, labels, range(3)) == pytest.approx(-3 * 0.3 * math.log(0.3))
    assert str(features.semantic_entropy(logs, np.zeros(3, int))) == "0.0"


def test_an_answer_that_was_drawn_twice_is_not_twice_as_probable() -> None:
    labels, logs = np.array([0, 0, 0, 0, 1]), np.log([0.6, 0.6, 0.6, 0.3, 0.1])
    distinct = Samples(question(["Paris"] * 3 + ["Its Paris", "London"]), ClassRule(), jaccard).distinct
    value = features.semantic_entropy_monte_carlo(logs, labels, distinct)
    assert value == pytest.approx(-(4 * math.log(0.9) + math.log(0.1)) / 5)
    value = features.semantic_entropy_direct(logs, labels, distinct)
    assert value == pytest.approx(-4 * 0.9 * math.log(0.9) - 0.1 * math.log(0.1))


@pytest.mark.parametrize(
    ("name", "fields", "reason"),
    [
        ("stated", {}, "no_confidence"),
        ("greedy_bits", {}, "not_measured"),
        ("greedy_bits", {"values": {"greedy_bits": 1.0}}, "no_greedy"),
        ("greedy_bits", {"greedy": "a"}, "not_measured"),
        ("p_true", {}, "no_model"),
        ("hedge", {"greedy": "Paris"}, "no_hedge"),
        ("sentence_sar", {}, "no_logprobs"),
        ("token_sar", {"token_values": TokenValues(tokens=(("a",),))}, "no_logprobs"),
        ("token_sar", {"token_values": TokenValues(logprobs=((-1.0,),))}, "no_tokens"),
        ("self_certainty", {"token_values": TokenValues(logprobs=((-1.0,),))}, "no_self_certainty"),
        ("lexical", {}, "too_few_samples"),
    ],
)
def test_what_is_missing_is_named(name: str, fields: dict[str, Any], reason: str) -> None:
    value = of(name, question(["a"], **fields))
    assert isinstance(value, NoValue)
    assert value.reason == reason
