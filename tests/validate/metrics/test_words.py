"""ROUGE-L, and the control that every metric must beat."""

from __future__ import annotations

import string
import sys

import pytest
from hostile import PAYLOADS
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.tokenizers import DefaultTokenizer

from selfreflect.errors import MissingExtraError
from selfreflect.sources.items import Item
from selfreflect.validate.metrics.words import Length, Overlap, Words


def item(answers, *summaries, masked_out=()):
    named = {f"s{number}": text for number, text in enumerate(summaries)}
    return Item(
        id="q",
        question="What first?",
        masked_out=tuple(masked_out),
        conditioning=tuple(answers),
        summaries=named,
    )


def numbers(family, given):
    return [value.value for value in family.score(given)]


def test_rouge_l_is_the_mean_f_measure_of_the_longest_common_subsequence():
    assert numbers(
        Overlap(), item(["the red hen ran"], "The red hen ran!", "red ran", "ran red", "duck")
    ) == pytest.approx(
        [1.0, 2 / 3, 2 * 1 / (4 + 2), 0.0]  # 2 * common / (words of one + words of the other)
    )


def test_rouge_l_takes_both_halves_and_leaves_blank_answers_out():
    given = item(["duck", " "], "hen", masked_out=["hen", "hen", ""])
    assert numbers(Overlap(), given) == pytest.approx([2 / 3])
    swapped = item(["hen", "hen"], "hen", masked_out=["duck"])
    assert numbers(Overlap(), swapped) == pytest.approx([2 / 3])


def test_letters_of_every_script_count():
    assert numbers(Overlap(), item(["Вильгельм Рентген"], "рентген", "Radium")) == pytest.approx([2 / 3, 0.0])


@given(st.text(alphabet=string.printable))
def test_ascii_texts_have_the_words_that_rouge_score_gives_them(text):
    assert Words().tokenize(text) == DefaultTokenizer(use_stemmer=False).tokenize(text)


@pytest.mark.parametrize("family", [Overlap(), Length()])
def test_odd_texts_have_values_too(family):
    found = family.score(item(["hen", *PAYLOADS[:-1]], *PAYLOADS[:-1]))
    assert [value.summary for value in found] == [f"s{number}" for number in range(len(PAYLOADS) - 1)]
    assert all(value.value is not None for value in found)


def test_what_cannot_be_compared_is_undefined_for_a_reason():
    assert [
        value.undefined and value.undefined.reason
        for value in Overlap().score(item(["hen"], "\n", "?!", "hen"))
    ] == ["blank"] * 2 + [None]
    [value] = Overlap().score(item([" "], "hen", masked_out=[""]))
    assert value.value is None
    assert value.undefined.reason == "no_answers"


def test_without_the_extra_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    with pytest.raises(MissingExtraError, match=r"selfreflect\[validate\]"):
        Overlap()


def test_length_is_counted_in_words_and_longer_is_better():
    assert numbers(Length(), item(["hen"], "", " two  words\n", "three or-so words")) == [0, 2, 3]
    [info] = Length().metrics
    assert info.wins(3, 2)
    assert not info.wins(2, 2)
