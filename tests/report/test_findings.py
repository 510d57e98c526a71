"""What is said of a run and of one summary: which numbers, names and cautions, in the right number."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured import controls, information, measured_run
from msgspec.structs import replace
from plain_runs import failure, run

from selfreflect.records import Control, Controls
from selfreflect.report.findings import (
    cautions,
    controls_caution,
    controls_place,
    findings,
    headline,
    place,
    value_sentence,
)
from selfreflect.report.wording import percent

LOW = [0.10, 0.11, 0.12, 0.13, 0.14, 0.15, 0.16, 0.17]
HIGH = [value + 0.1 + value / 50 for value in LOW]
MIXED = [4.0, 7.0, 4.0, 7.0, 4.0, 7.0, 4.0, 7.0]


def changed_answers(records, **fields):
    """Change fields of every answer set of a run."""
    answers = {id_: replace(record, **fields) for id_, record in records.answers.items()}
    records.answers.clear()
    records.answers.update(answers)
    return records


@pytest.mark.parametrize(
    ("scores", "start", "verdict"),
    [
        ({"greedy": HIGH, "basic": LOW}, "Of 2 strategies, basic has the best (lowest) mean", "by 0.10"),
        ({"greedy": LOW, "basic": LOW[::-1]}, "greedy and basic have the same mean", "No clear difference"),
        (
            {"greedy": LOW, "basic": LOW},
            "greedy and basic have the same mean SelfReflect score: 0.1350",
            None,
        ),
        ({"a": LOW, "b": LOW, "cot": HIGH}, "Of 3 strategies, a and b share the best (lowest) mean", None),
        (
            {"basic": LOW},
            "basic has a mean SelfReflect score of 0.1350 on 8 questions (lower is better, ",
            None,
        ),
    ],
)
def test_the_best_strategy_by_score_and_whether_its_lead_is_clear(scores, start, verdict):
    [first, *more] = findings(run(scores, questions=8))
    assert first.startswith(start)
    assert [verdict in sentence for sentence in more] == ([] if verdict is None else [True])


@pytest.mark.parametrize(
    ("bits", "start"),
    [
        ({"basic": MIXED}, "basic recovers 55 % of the information in ten sampled answers (95 % CI "),
        ({"greedy": [5.0] * 8, "basic": [5.0] * 8}, "greedy and basic recover equally much: 50 % of"),
        (
            {"greedy": [5.0] * 8, "basic": MIXED},
            "Of 2 strategies, basic is ahead, though not clearly: it recovers 55 %",
        ),
        ({"greedy": [3.0] * 8, "basic": MIXED}, "Of 2 strategies, basic recovers most: 55 %"),
        ({"greedy": [-0.3] * 8}, "greedy misleads: "),
    ],
)
def test_the_best_strategy_by_information_comes_before_its_score(bits, start):
    records = measured_run(bits, scores=dict.fromkeys(bits, LOW), controlled=False)
    text = findings(records)[0]
    assert text.startswith(start)
    assert text.endswith(", on 8 questions.")


def test_few_questions_are_not_compared():
    text = headline(run({"greedy": HIGH, "basic": LOW}, questions=3))
    assert "3 questions are too few to tell strategies apart: use at least 6" in text
    assert "difference" not in text
    assert "CI" not in text


def test_cut_off_answers_are_named_from_five_per_cent_on():
    records = run({"basic": LOW}, questions=8)
    twenty = ("Paris",) * 10
    changed_answers(records, masked_out=twenty, conditioning=twenty, max_new_tokens=9, truncated=1)
    assert cautions(records) == []
    [text] = cautions(changed_answers(records, truncated=2))
    assert text.startswith("16 of 160 answers (10 %) were cut off after 9 tokens:")


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([0.09] * 8, "an empty summary (0.0900) does better than basic (0.1350). Do not rank"),
        (
            [value + (0.05 if value in LOW[1::2] else -0.06) for value in LOW],
            "is ahead, though not clearly, of basic",
        ),
        ([0.3] * 8, None),
    ],
)
def test_an_empty_summary_that_does_as_well_is_a_caution(scores, expected):
    records = run({"basic": LOW}, questions=8)
    for id_, score in zip(records.questions, scores, strict=True):
        empty = Control(name="empty", words=0, score=score)
        records.controls[id_] = Controls(question_id=id_, controls=(empty,))
    assert [expected in text for text in cautions(records)] == ([] if expected is None else [True])


def test_controls_ahead_clearly_and_not_are_named_apart():
    texts = cautions(measured_run({"greedy": [-2.0, -0.5], "basic": [-3.0, 1.0]}))
    assert "an empty summary (0 %) and nonsense (-8 %) are ahead, though not clearly, of the best" in texts[0]
    assert "the repeated question (-10 %) does as well as the best strategy, basic (-10 %)" in texts[1]


def test_a_blind_judge_of_an_earlier_version_learned_from_the_repeated_question():
    # before it was the zero of such judges, it was no fair control
    for anchor, expected in (("distinct", 1), ("pasted", 0)):
        records = measured_run({"greedy": [5.0] * 6}, anchor=anchor)
        fields = {"reader": "blind", "anchor": anchor}
        for id_ in records.questions:
            records.controls[id_] = replace(controls(id_, question=9.0), **fields)
        texts = cautions(records)
        assert sum("the repeated question (90 %)" in text for text in texts) == expected


def test_incomplete_strategies_come_last_and_are_named():
    failures = [failure("q7", "summaries", "cut_off", "basic")]
    text = headline(run({"greedy": HIGH, "basic": LOW[:7]}, questions=8, failures=failures))
    assert text.startswith("greedy has a mean SelfReflect score of ")
    assert text.endswith("basic has results on only 7 of 8 questions.")


def test_identical_answers_at_a_temperature_are_doubted():
    records = run({"basic": LOW}, questions=8)
    equal = {"masked_out": ("Paris",) * 3, "conditioning": ("Paris",) * 3}
    assert cautions(changed_answers(records, temperature=0.0, **equal)) == []
    [text] = cautions(changed_answers(records, temperature=1.0))
    assert text.startswith("All answers to 8 of 8 questions are the same text")


@pytest.mark.parametrize(
    ("answer", "count"), [("東京です", 1), ("ไทยแลนด์", 1), ("Paris", 0), ("Seoul 서울", 0)]
)
def test_answers_without_spaces_are_said_to_be_one_word(answer, count):
    records = changed_answers(run({"basic": LOW}, questions=8), temperature=0.0, masked_out=(answer, "no"))
    assert len(cautions(records)) == count


SHARES = st.floats(-20, 20)


def percents(text):
    return [int(number) for number in re.findall(r"-?\d+(?= %| to )", text)]


@given(
    SHARES, st.tuples(SHARES, SHARES).map(sorted), st.integers(1, 60), st.sampled_from(["informed", "blind"])
)
def test_the_numbers_of_the_sentence_are_those_of_the_record(share, interval, answers, reader):
    record = information("q", "s", 1.0, recovered=share, interval=tuple(interval), reader=reader)
    text = value_sentence(record, answers)
    shown = percents(text)
    assert shown[0] == pytest.approx(100 * share, abs=0.5001)
    if percent(interval[0]) == percent(interval[1]) and interval[1] >= 0:
        assert len(shown) == 1, "an interval without width would look like certainty"
    else:
        assert shown[1] == 95
        assert shown[2:] == [pytest.approx(100 * end, abs=0.5001) for end in interval]
    assert ("misleads" in text) == (interval[1] < 0), "only a clear loss misleads"
    assert "-0 " not in text
    assert ("does not see the question" in text) == (reader == "blind")


def test_bits_in_a_phrase_that_all_answers_share_are_said():
    plain, shared = (
        value_sentence(information("q", "s", 5.6, shared_phrase=part), 10) for part in (None, 0.61)
    )
    assert shared.startswith(plain)
    assert percents(shared) == [*percents(plain), 61]


def test_where_the_judge_knows_the_answers_no_number_is_given_but_ways_out():
    texts = []
    for reader in ("informed", "blind"):
        texts.append(value_sentence(information("q", "s", None, reader=reader), 8))
    assert [percents(text) for text in texts] == [[], []]
    assert ["or the blind reader" in text for text in texts] == [True, False]


def test_texts_that_say_nothing_and_recover_as_much_are_a_caution():
    def of_question(reader, **bits):
        texts = tuple(Control(name=name, words=1, bits=value) for name, value in bits.items())
        fields = {"zero": "empty", "anchor": "distinct", "bits_available": 10}
        return Controls(question_id="q", controls=texts, reader=reader, **fields)

    results = [5.0, 2.0]  # bits of two summaries
    assert controls_caution(of_question("informed", empty=0.0, question=1.0, pasted=9.0), results) == ""
    text = controls_caution(of_question("blind", empty=-1.0, question=6.0), results)
    assert "as much from the repeated question as" in text
    assert "does not see the question" in text
    text = controls_caution(of_question("informed", empty=5.0, nonsense=7.0), results)
    assert "from nothing and nonsense as" in text
    assert "does not see" not in text


@pytest.mark.parametrize(
    ("score", "empty", "pasted", "position", "start"),
    [
        (0.0749, 0.0860, 0.0680, 0.6166, "62 % of the way from the empty summary (0.0860) to ten pasted"),
        (0.09, 0.086, 0.068, -0.2222, "worse than the empty summary (0.0860)"),
        (0.06, 0.086, 0.068, 1.4444, "better than ten pasted answers (0.0680)"),
        (0.06, 0.068, 0.068001, None, "says little here"),
    ],
)
def test_a_score_has_a_place_between_its_controls(score, empty, pasted, position, start):
    assert place(score, empty, pasted) == (position and pytest.approx(position, abs=1e-4))
    texts = (
        Control(name="empty", words=0, score=empty),
        Control(name="pasted", answers=9, words=9, score=pasted),
    )
    assert controls_place(score, Controls(question_id="q", controls=texts), 10).startswith(start)
    assert controls_place(score, Controls(question_id="q", controls=texts[:1]), 10) is None
    assert controls_place(score, None) is None
