"""Estimators that read the tokens of one answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.logprobs import AnswerTokens, TokenValues, answer_tokens
from selfreflect.uncertainty.classes import ClassRule
from selfreflect.uncertainty.estimators import ESTIMATORS, estimate
from selfreflect.uncertainty.features import (
    Samples,
    entropy_interval,
    group_confidence,
    probabilities,
    rank_contributions,
    rest_bucket_entropy,
    token_confidences,
    truncated_entropy,
    unsure_words,
)
from selfreflect.uncertainty.question import AnsweredQuestion, NoValue
from selfreflect.uncertainty.relations import jaccard

LISTS = ((0.9, 0.05, 0.02, 0.01), (0.5, 0.25, 0.15, 0.05), (0.3, 0.3, 0.2, 0.1))
TOP = tuple(tuple(np.log(row).tolist()) for row in LISTS)
CHOSEN = tuple(np.log([0.9, 0.25, 0.04]).tolist())
KNOWN = {
    "normalised_prob": 0.208008,
    "mean_prob": 0.396667,
    "min_prob": 0.04,
    "perplexity": 4.807499,
    "epr": 0.923645,
    "token_entropy_renormalised": 0.934188,
    "token_entropy_rest": 1.076407,
    "token_entropy_low": 1.081028,
    "margin": 0.366667,
    "group_confidence": np.mean([2.904571, 1.743073, 1.579992]),
}


def value(name: str, *questions: AnsweredQuestion) -> float | NoValue:
    return estimate(ESTIMATORS[name], Samples(questions[0], ClassRule("exact"), jaccard))


def question(**fields: Any) -> AnsweredQuestion:
    columns: dict[str, Any] = {"logprobs": (CHOSEN,), "top_logprobs": (TOP,)}
    columns |= {name: fields.pop(name) or () for name in [*fields] if name in TokenValues._fields}
    fields.setdefault("answers", ("a b c",))
    return AnsweredQuestion(id="q", token_values=TokenValues(**columns), **fields)


@pytest.mark.parametrize("name", KNOWN)
def test_known_values(name: str) -> None:
    assert value(name, question()) == pytest.approx(KNOWN[name], abs=1e-6)
    shuffled = tuple(tuple(reversed(row)) for row in TOP)
    assert value(name, question(top_logprobs=(shuffled,))) == pytest.approx(KNOWN[name], abs=1e-6)


def test_known_values_of_each_token() -> None:
    shares = probabilities(TOP)
    assert truncated_entropy(shares).max() == pytest.approx(1.274530, abs=1e-6)
    assert rest_bucket_entropy(shares).max() == pytest.approx(1.504788, abs=1e-6)
    low, high = entropy_interval(shares, 49152)
    assert (low.mean(), high.mean()) == pytest.approx((1.081028, 1.688554), abs=1e-6)
    confidences = token_confidences(TOP)
    assert confidences == pytest.approx([2.904571, 1.743073, 1.579992], abs=1e-6)
    assert group_confidence(confidences, 2) == pytest.approx(1.661533, abs=1e-6)
    means = [0.267530, 0.285851, 0.228232, 0.142032]
    largest = [0.361192, 0.361192, 0.321888, 0.230259]
    assert rank_contributions(TOP) == pytest.approx([*means, *largest], abs=1e-6)


def weighted(weights: tuple[float, ...], top: object = (TOP,)) -> float | NoValue:
    samples = Samples(question(top_logprobs=top), ClassRule("exact"), jaccard, weights=weights)
    return estimate(ESTIMATORS["wepr"], samples)


def test_weights_of_ranks_give_log_odds() -> None:
    lists = [np.log([0.5, *[0.02] * 14]), np.log([0.9, *[0.005] * 14]), np.log([0.3, 0.2, 0.1, *[0.02] * 12])]
    top = (tuple(map(tuple, lists)),)
    assert weighted((2.0, *[-1.0] * 15, *[0.0] * 15), top) == pytest.approx(2 - 1.253290, abs=1e-6)
    assert weighted((0.5, *[0.0] * 7, -1.0)) == pytest.approx(0.5 - 0.230259, abs=1e-6)
    for weights, reason in (((), "not_fitted"), ((0.0, 1.0, 1.0), "too_few_ranks")):
        missing = weighted(weights)
        assert isinstance(missing, NoValue)
        assert missing.reason == reason


@given(st.integers(0, 2**32), st.integers(3, 400), st.floats(0.05, 8))
def test_the_interval_holds_the_entropy_and_narrows(seed: int, vocabulary: int, peak: float) -> None:
    logits = np.random.default_rng(seed).normal(size=(4, vocabulary)) * peak
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    entropy = -(shares * np.log(np.maximum(shares, 1e-300))).sum(axis=1)
    falling = -np.sort(-shares, axis=1)
    widths = []
    for ranks in sorted({2, min(5, vocabulary), vocabulary}):
        bounds = entropy_interval(falling[:, :ranks], vocabulary)
        assert (bounds.low <= entropy + 1e-7).all()
        assert (entropy <= bounds.high + 1e-7).all()
        assert (rest_bucket_entropy(falling[:, :ranks]) <= bounds.low + 1e-9).all()
        widths.append(float((bounds.high - bounds.low).mean()))
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] == pytest.approx(0, abs=1e-6)


def test_parts_of_a_character_belong_to_its_word() -> None:
    words = unsure_words(("你", "", "好", " a", "b"), (-1, -2, -3, -4, -5), ((-0.1, -3.0),) * 5)
    assert [(word.text, np.log(word.probability)) for word in words] == [
        ("你", pytest.approx(-1)),
        ("好", pytest.approx(-5)),
        (" ab", pytest.approx(-9)),
    ]
    assert unsure_words(("a",), (-0.7,), ((-0.7, -800.0),)) == []  # a rest, of which none is possible


def test_several_answers_speak_by_those_of_the_judged_class() -> None:
    sure, unsure = np.log([0.9, 0.9]), np.log([0.2, 0.2])
    columns = {"answers": ("Oslo", "Bern", "oslo"), "top_logprobs": None}
    asked = question(**columns, logprobs=(tuple(sure), tuple(unsure), tuple(np.log([0.7, 0.7]))))
    assert value("mean_prob", asked) == pytest.approx(0.8)
    other = question(answers=("Oslo", "Bern"), answer="Rome", logprobs=((-1.0,), (-1.0,)))
    missing = value("mean_prob", other)
    assert isinstance(missing, NoValue)
    assert missing.reason == "not_sampled"


@pytest.mark.parametrize(
    ("top", "reason"),
    [
        (None, "no_top_logprobs"),
        (((TOP[0], TOP[1][:3], TOP[2]),), "too_few_ranks"),
        ((tuple(row[:1] for row in TOP),), "too_few_ranks"),
        (((TOP[0], (), TOP[2]),), "too_few_ranks"),
    ],
)
def test_lists_that_lack_something_give_a_reason(top: object, reason: str) -> None:
    for name in ("epr", "token_entropy_low", "margin", "group_confidence"):
        missing = value(name, question(top_logprobs=top))
        assert isinstance(missing, NoValue)
        assert missing.reason == reason
    lost = question(logprobs=None, top_logprobs=None, missing_logprobs="a value is -9999")
    missing = value("epr", lost)
    assert isinstance(missing, NoValue)
    assert (missing.reason, missing.message) == ("no_logprobs", "a value is -9999")
    exact = value("token_entropy", question())
    assert isinstance(exact, NoValue)
    assert exact.reason == "no_entropies"


def test_a_value_beyond_all_numbers_is_a_reason() -> None:
    impossible = question(
        top_logprobs=(((-0.1, -900.0), (-0.2, -2.0), (-0.3, -2.0)),), logprobs=((-5e3,) * 3,)
    )
    for name in ("perplexity", "token_entropy_low", "token_entropy_high"):
        missing = value(name, impossible)
        assert isinstance(missing, NoValue)
        assert missing.reason == "out_of_range"


def test_lists_of_servers_are_ordered_cut_and_cleaned() -> None:
    texts, chosen = ["Os", "lo"], [-0.1, -0.2]
    best = [-0.1, -3.0, -4.0]

    def kept(*extra: float | None, ranks: int = 3) -> object:
        return answer_tokens("Oslo", texts, chosen, top=[[*extra, *best], best], ranks=ranks)

    plain = kept()
    assert isinstance(plain, AnswerTokens)
    assert plain.top == ((-0.1, -3.0, -4.0),) * 2
    for extra in (-7.5, -9999.0, None, float("-inf"), float("nan")):  # a fourth entry changes nothing
        assert kept(extra) == plain
    lifted = answer_tokens("Oslo", texts, [0.0, -0.2], top=[[1e-7, -30.0], [-0.2, -3.0]], ranks=2)
    assert isinstance(lifted, AnswerTokens)
    assert lifted.top[0] == (0.0, -30.0)
    assert kept(0.5) == "out_of_range"
    assert kept(-0.05) == "out_of_range", "the probabilities add up to more than 1"
    reasoned = answer_tokens(
        "Oslo", ["x", "</think>", *texts], [-9.0, -9.0, *chosen], top=[[], [-9.0], best, best], ranks=3
    )
    assert reasoned == plain


def test_an_answer_with_five_ranks_is_small() -> None:
    from selfreflect.records import dump_line

    texts = [f"t{number:02}" for number in range(24)]
    row = np.log([0.612345, 0.2, 0.1, 0.05, 0.01]).tolist()
    stored = answer_tokens(
        "".join(texts), texts, [row[0]] * 24, top=[row] * 24, entropies=[1.2345678] * 24, ranks=5
    )
    assert isinstance(stored, AnswerTokens)
    assert len(dump_line(stored)) <= 2048
