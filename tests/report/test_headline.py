"""The paragraph that a report begins with."""

from __future__ import annotations

from msgspec.structs import replace
from plain_runs import failure, run

from selfreflect.records import Control, Controls, Information
from selfreflect.report.headline import cautions, findings, headline

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
                question_id=id_, summary=name, reader="informed", judge="j", bits=8 * share,
                bits_available=8.0, recovered=share,
            )  # fmt: skip
    return records


def test_what_two_summaries_tell_is_equal_ahead_or_clearly_ahead():
    text = findings(told({"greedy": [0.5] * 8, "basic": [0.5] * 8}))
    assert text == [
        "greedy and basic tell equally much: 50 % of what the sampled answers would, on 8 questions."
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
            question_id=id_, summary="greedy", reader="informed", judge="j", bits=6.0, bits_available=8.0,
            recovered=0.75,
        )  # fmt: skip
        records.information[id_, "greedy"] = share
    assert findings(records)[0].startswith("greedy tells 75 % of what the sampled answers would")


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
