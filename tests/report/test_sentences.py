"""What is said in words: the paragraph that a report begins with, and sentences on one summary."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from plain_runs import failure, run

from selfreflect.records import Control, Controls, Information
from selfreflect.report.sentences import (
    cautions,
    controls_caution,
    findings,
    headline,
    information_sentence,
    percent,
    place,
    place_text,
    share_sentence,
)

LOW = [0.10, 0.11, 0.12, 0.13, 0.14, 0.15, 0.16, 0.17]
HIGH = [value + 0.1 + value / 50 for value in LOW]


def changed_answers(records, **fields):
    """The run with other fields in every answer set."""
    answers = {id_: replace(one, **fields) for id_, one in records.answers.items()}
    records.answers.clear()
    records.answers.update(answers)
    return records


def test_the_best_strategy_leads_and_a_clear_difference_is_said():
    text = headline(run({"greedy": HIGH, "basic": LOW}, questions=8))
    assert text.startswith("Of 2 strategies, basic has the best (lowest) mean SelfReflect score: 0.1350")
    assert "Basic is lower (better) than greedy by 0.10" in text
    assert cautions(run({"greedy": HIGH, "basic": LOW}, questions=8)) == []


def test_no_clear_difference_is_said_too():
    text = headline(run({"greedy": LOW, "basic": LOW[::-1]}, questions=8))
    assert "No clear difference between" in text


def test_strategies_that_are_exactly_equal_share_the_lead():
    text = headline(run({"greedy": LOW, "basic": LOW}, questions=8))
    assert text.startswith("greedy and basic have the same mean SelfReflect score: 0.1350 on 8 questions")
    assert "difference" not in text
    text = headline(run({"greedy": LOW, "basic": LOW, "cot": HIGH}, questions=8))
    assert text.startswith("Of 3 strategies, greedy and basic share the best (lowest) mean SelfReflect score")


def told(shares):
    """A run whose strategies tell these shares, by name and question."""
    names = list(shares)
    records = run(dict.fromkeys(names, HIGH), questions=8)
    for name in names:
        for id_, share in zip(records.questions, shares[name], strict=True):
            records.information[id_, name] = Information(
                question_id=id_, summary=name, zero="empty", anchor="distinct", reader="informed", judge="j",
                bits=8 * share, bits_available=8.0, recovered=share,
            )  # fmt: skip
    return records


def test_what_two_summaries_tell_is_equal_ahead_or_clearly_ahead():
    text = findings(told({"greedy": [0.5] * 8, "basic": [0.5] * 8}))
    assert text == [
        "greedy and basic tell equally much: 50 % of what one sampled answer would, on 8 questions."
    ]
    mixed = [0.4, 0.7, 0.4, 0.7, 0.4, 0.7, 0.4, 0.7]
    text = findings(told({"greedy": [0.5] * 8, "basic": mixed}))
    assert text[0].startswith("Of 2 strategies, basic is ahead, though not clearly: it tells 55 %")
    text = findings(told({"greedy": [0.3] * 8, "basic": mixed}))
    assert text[0].startswith("Of 2 strategies, basic tells most: 55 %")


def test_what_summaries_tell_comes_before_the_score():
    records = run({"greedy": HIGH}, questions=8)
    for id_ in records.questions:
        share = Information(
            question_id=id_, summary="greedy", zero="empty", anchor="distinct", reader="informed", judge="j",
            bits=6.0, bits_available=8.0, recovered=0.75,
        )  # fmt: skip
        records.information[id_, "greedy"] = share
    assert findings(records)[0].startswith("greedy tells 75 % of what one sampled answer would")


def test_few_questions_are_not_compared():
    text = headline(run({"greedy": HIGH, "basic": LOW}, questions=3))
    assert "3 questions are too few to tell strategies apart: take at least 6" in text
    assert "difference" not in text
    assert "interval" not in text


def test_cut_off_answers_are_named_from_five_per_cent_on():
    records = run({"basic": LOW}, questions=8)
    twenty = ("Paris",) * 10
    changed_answers(records, masked_out=twenty, conditioning=twenty, max_new_tokens=9, truncated=1)
    assert "cut off" not in headline(records)
    text = headline(changed_answers(records, truncated=2))
    assert "16 of 160 answers (10 %) were cut off after 9 tokens" in text


def test_an_empty_summary_that_does_as_well_is_a_caution():
    records = run({"basic": LOW}, questions=8)
    for score, warned in ((0.09, True), (0.3, False)):
        for id_ in records.questions:
            empty = Control(name="empty", words=0, score=score)
            records.controls[id_] = Controls(question_id=id_, controls=(empty,))
        assert ("Beware: by SelfReflect score, an empty summary" in headline(records)) is warned


def test_a_control_that_is_ahead_by_chance_is_no_verdict_on_the_judge():
    records = run({"basic": LOW}, questions=8)
    for number, id_ in enumerate(records.questions):
        empty = Control(name="empty", words=0, score=LOW[number] + (0.05 if number % 2 else -0.06))
        records.controls[id_] = Controls(question_id=id_, controls=(empty,))
    text = headline(records)
    assert "an empty summary (0.1300) is ahead, though not clearly, of basic (0.1350)" in text
    assert "Do not rank" not in text


def test_incomplete_strategies_come_last_and_are_named():
    failures = [failure("q7", "summaries", "cut_off", "basic")]
    records = run({"greedy": HIGH, "basic": LOW[:7]}, questions=8, failures=failures)
    text = headline(records)
    assert text.startswith("greedy has a mean SelfReflect score of ")
    assert text.endswith("Incomplete is basic: 7 of 8 questions.")


def test_identical_answers_at_a_temperature_are_doubted():
    records = run({"basic": LOW}, questions=8)
    equal = {"masked_out": ("Paris",) * 3, "conditioning": ("Paris",) * 3}
    assert "same text" not in headline(changed_answers(records, temperature=0.0, **equal))
    text = headline(changed_answers(records, temperature=1.0))
    assert "All answers to 8 of 8 questions are the same text although they were sampled" in text


def test_a_run_without_results_says_so():
    assert headline(run({"greedy": []}, questions=8)).startswith("Nothing has been measured yet.")


SHARES = st.floats(-20, 20)


def information(recovered=0.56, interval=(0.41, 0.71), **fields):
    fields = {
        "reader": "informed",
        "zero": "empty",
        "anchor": "distinct",
        "bits": 23.0,
        "bits_available": 41.0,
        **fields,
    }
    return Information(question_id="q", summary="s", recovered=recovered, interval=interval, **fields)


def percents(text):
    return [int(number) for number in re.findall(r"-?\d+(?= %| to )", text)]


def test_the_first_sentence_a_person_reads():
    assert information_sentence(information(), 10) == (
        "This summary tells 56 % of what ten sampled answers would (95 % interval: 41 to 71 %)."
    )


def test_bits_in_a_phrase_that_all_answers_share_are_said():
    plain, shared = (
        information_sentence(replace(information(), shared_phrase=part), 10) for part in (None, 0.61)
    )
    assert shared.startswith(plain)
    assert percents(shared) == [*percents(plain), 61]


def test_one_answer_and_many_are_counted_in_the_right_number():
    assert "of what one sampled answer would" in information_sentence(information(), 1)
    assert "of what 50 sampled answers would" in information_sentence(information(), 50)


def test_the_blind_reader_is_named():
    text = share_sentence(0.56, (0.41, 0.71), 8, "blind", "greedy")
    assert text.startswith(
        "greedy tells 56 % of what eight sampled answers would, to a judge that does not see"
    )


def test_only_a_clear_loss_is_called_misleading():
    clear = share_sentence(-0.13, (-0.2, -0.05), 10, "informed")
    assert clear.startswith("This summary misleads: after reading it, the judge expects fresh answers less")
    assert percents(clear) == [-13, 95, -20, -5]
    assert share_sentence(-0.03, (-0.1, 0.04), 10, "informed") == (
        "This summary tells nothing: -3 % of what ten sampled answers would (95 % interval: -10 to 4 %)."
    )


@given(
    SHARES, st.tuples(SHARES, SHARES).map(sorted), st.integers(1, 60), st.sampled_from(["informed", "blind"])
)
def test_the_numbers_of_the_sentence_are_those_of_the_record(share, interval, answers, reader):
    text = information_sentence(information(share, tuple(interval), reader=reader), answers)
    shown = percents(text)
    assert shown[0] == pytest.approx(100 * share, abs=0.5001)
    if percent(interval[0]) == percent(interval[1]) and interval[1] >= 0:
        assert len(shown) == 1, "an interval without width would look like certainty"
    else:
        assert shown[1] == 95
        assert shown[2:] == [pytest.approx(100 * end, abs=0.5001) for end in interval]
    assert ("misleads" in text) == (interval[1] < 0)
    assert "-0 " not in text
    assert ("does not see the question" in text) == (reader == "blind")


def test_where_the_judge_knows_the_answers_no_number_is_given_but_ways_out():
    informed, blind = (
        information_sentence(information(None, None, reader=reader, undefined="known"), 8)
        for reader in ("informed", "blind")
    )
    assert informed == (
        "The judge already knows these answers: it learns hardly anything from eight sampled answers, so no "
        "summary can tell it much. Use another judge, a context that only the model reads, or the blind "
        "reader."
    )
    assert blind.endswith("Use another judge, or a context that only the model reads.")


def test_too_few_answers_are_said_to_be_too_few():
    text = information_sentence(information(None, None, undefined="unclear"), 1)
    assert text == (
        "Too few answers (one sampled answer), or too different ones, to say what a summary tells of them. "
        "Draw more answers, or shorter ones."
    )


def test_texts_that_say_nothing_and_tell_as_much_are_a_caution():
    def controls(reader, **bits):
        some = tuple(Control(name=name, words=1, bits=value) for name, value in bits.items())
        return Controls(
            question_id="q", controls=some, zero="empty", anchor="distinct", reader=reader, bits_available=10
        )

    best = [information(bits=5.0), information(bits=2.0)]
    assert controls_caution(controls("informed", empty=0.0, question=1.0, pasted=9.0), best) == ""
    said = controls_caution(controls("blind", empty=-1.0, question=6.0), best)
    assert "as much from the repeated question as from the best summary" in said
    assert "does not see the question" in said
    said = controls_caution(controls("informed", empty=5.0, nonsense=7.0), best)
    assert "from nothing and nonsense as" in said
    assert "does not see" not in said


def test_a_score_between_its_anchors_has_a_place():
    assert place_text(0.0749, 0.0860, 0.0680, 10) == (
        "62 % of the way from the empty summary (0.0860) to ten pasted answers (0.0680)"
    )


def test_scores_outside_their_anchors_are_said_to_be_outside():
    assert place_text(0.09, 0.086, 0.068, 10) == (
        "worse than the empty summary (0.0860); ten pasted answers: 0.0680"
    )
    assert place_text(0.06, 0.086, 0.068, 1) == (
        "better than one pasted answer (0.0680); the empty summary: 0.0860"
    )


def test_anchors_in_the_wrong_order_give_no_place():
    assert place(0.07, 0.068, 0.086) is None
    assert "the empty summary (0.0680) scores no worse than" in place_text(0.07, 0.068, 0.086, 10)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_the_place_is_linear_between_the_anchors(score, empty, pasted):
    share = place(score, empty, pasted)
    if share is None:
        assert empty - pasted <= 1e-4
    else:
        assert empty + share * (pasted - empty) == pytest.approx(score, abs=1e-9)
