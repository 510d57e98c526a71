"""The rule that colours words: what a reader should see for what the judge was told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.records import WordBits
from selfreflect.report.words import FULL, PLAIN_BELOW, mark, marks

bits = st.floats(-60, 60)


@pytest.mark.parametrize(
    ("told", "available", "kind", "size"),
    [
        (7.2, 7.9, "covered", 7.2),
        (0.5, 8.1, "missed", 7.6),
        (-6.6, 4.9, "misleading", 6.6),
        (-3.7, 12.0, "misleading", 3.7),  # a false statement, not just a gap
        (0.3, 0.4, "plain", 0.3),  # neither covers it
        (-0.5, 0.4, "plain", 0.0),
        (5.0, 8.0, "covered", 5.0),  # the larger part counts
        (3.0, 8.0, "missed", 5.0),
        (-1.0, 6.0, "missed", 6.0),
        (5.7, -6.5, "covered", 5.7),
        (-5.0, -5.0, "plain", 0.0),  # a rare answer: the answers themselves make it less likely
        (-9.0, -5.0, "misleading", 4.0),
    ],
)
def test_a_word_is_marked_by_what_the_summary_and_the_answers_tell(told, available, kind, size):
    marked = mark(WordBits("word", told, available))
    assert marked.kind == kind
    assert marked.bits == pytest.approx(size)


@given(bits, bits)
def test_marks_are_bits_and_strengths_are_shares(told, available):
    marked = mark(WordBits("word", told, available))
    assert 0 <= marked.strength <= 1
    assert marked.strength == pytest.approx(min(marked.bits / FULL, 1))
    assert (marked.kind == "plain") == (marked.bits < PLAIN_BELOW)


@given(bits, bits)
def test_a_summary_that_tells_what_the_answers_tell_neither_misses_nor_misleads(told, available):
    assert mark(WordBits("word", available, available)).kind in ("plain", "covered")
    better = max(told, available)
    assert mark(WordBits("word", better, available)).kind in ("plain", "covered")


@pytest.mark.parametrize(
    ("word", "summary", "kind"),
    [
        ("Ankara.", "Ankara", "covered"),
        ("Ankara.", "The capital of Turkey is **ANKARA**!", "covered"),
        ("Ankara", "I would say Ankara's old town", "covered"),
        ("安卡拉。", "首都是安卡拉", "covered"),
        ("Ankara.", "Ankaraspor won", "missed"),
        ("Ankara.", "Istanbul", "missed"),
        ("Ankara.", "", "missed"),
        ("5", "15 or 25", "missed"),
    ],
)
def test_a_word_that_stands_in_the_summary_is_never_missed(word, summary, kind):
    [label] = marks([WordBits(word, 0.5, 8.0)], summary)
    assert label.kind == kind


def test_a_word_of_the_summary_can_mislead_and_can_be_plain():
    labels = marks([WordBits("red", -6.0, 3.0), WordBits("red", 0.3, 0.4)], "not red")
    assert [label.kind for label in labels] == ["misleading", "plain"]
