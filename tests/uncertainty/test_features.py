"""What estimators read of a question, each part on its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from selfreflect.uncertainty.classes import ClassRule
from selfreflect.uncertainty.features import Samples
from selfreflect.uncertainty.hedges import Hedge
from selfreflect.uncertainty.question import AnsweredQuestion, NoValue
from selfreflect.uncertainty.relations import jaccard


class Noting:
    """Calls texts alike by the share of equal first letters, and notes what it was asked."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        self.calls.append(list(texts))
        lengths = np.array([float(len(text)) for text in texts])
        return np.minimum(lengths[:, None], lengths) / np.maximum(lengths[:, None], lengths)


def test_each_two_different_answers_are_compared_once() -> None:
    similarity = Noting()
    one = Samples(AnsweredQuestion(id="q", answers=("aa", "b", "aa", "cccc")), ClassRule(), similarity)
    expected = [[1, 0.5, 1, 0.5], [0.5, 1, 0.5, 0.25], [1, 0.5, 1, 0.5], [0.5, 0.25, 0.5, 1]]
    assert one.similarities.tolist() == expected
    assert one.similarities.tolist() == expected
    assert similarity.calls == [["aa", "b", "cccc"]]
    words = Samples(AnsweredQuestion(id="q", answers=("a b", "b c", "a b")), ClassRule(), similarity)
    assert words.rouge_similarities.tolist() == [[1, 0.5, 1], [0.5, 1, 0.5], [1, 0.5, 1]]


def test_tokens_are_weighed_by_what_the_sentence_is_without_them() -> None:
    """Without "abc" 4 of 7 characters are left, without "d" 6 of 7."""
    relevance = Noting()
    question = AnsweredQuestion(
        id="q",
        text="Q?",
        answers=("abcd", "e"),
        tokens=(("abc", "d"), ("e",)),
        logprobs=((-1.0, -5.0), (-2.0,)),
    )
    sars = Samples(question, ClassRule(), jaccard, relevance).token_sars
    assert relevance.calls == [["Q? abcd", "Q? d", "Q? abc"], ["Q? e", "Q? "]]
    assert sars == pytest.approx([(3 / 7 * 1 + 1 / 7 * 5) / (4 / 7), 2.0])


def test_log_probabilities_are_summed_and_averaged_over_tokens() -> None:
    question = AnsweredQuestion(id="q", answers=("a b", "c"), logprobs=((-1.0, -2.0), (-4.0,)))
    one = Samples(question, ClassRule(), jaccard)
    assert one.sequence_logprobs.tolist() == [-3.0, -4.0]
    assert one.mean_logprobs.tolist() == [-1.5, -4.0]


@pytest.mark.parametrize(
    ("answers", "modal"),
    [(("b", "a", "a"), "a"), (("b", "a"), "b"), (("B", "b", "b", "a"), "b"), ((), None)],
)
def test_the_judged_answer_is_the_response_else_the_modal_one(
    answers: tuple[str, ...], modal: str | None
) -> None:
    question = AnsweredQuestion(id="q", answers=answers)
    assert Samples(question, ClassRule(), jaccard).judged_answer == modal
    given = AnsweredQuestion(id="q", answers=answers, answer="c")
    one = Samples(given, ClassRule(), jaccard)
    assert (one.judged_answer, one.modal_answer) == ("c", modal)


def test_words_of_probability_are_those_of_the_greedy_answer_else_of_the_judged_one() -> None:
    judged = AnsweredQuestion(id="q", answers=("Likely Paris",))
    greedy = AnsweredQuestion(id="q", answers=("Likely Paris",), greedy="Unlikely Rome")
    phrases = []
    for question in (judged, greedy):
        hedge = Samples(question, ClassRule(), jaccard).hedge
        assert isinstance(hedge, Hedge)
        phrases.append(hedge.phrase)
    assert phrases == ["likely", "unlikely"]
    nothing = Samples(AnsweredQuestion(id="q", confidence=0.5), ClassRule(), jaccard).hedge
    assert isinstance(nothing, NoValue)
    assert nothing.reason == "no_hedge"
