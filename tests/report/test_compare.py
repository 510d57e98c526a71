"""Paired differences: verdicts, what is too little to tell, ties, warnings, and judges side by side."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured import information, measured_run
from msgspec.structs import replace as replace_struct
from plain_runs import failure, run

from selfreflect.cli.show import grouped_answers, print_differences
from selfreflect.errors import DataError
from selfreflect.metric.measure import measure_named
from selfreflect.records import WordDistance
from selfreflect.report.compare import (
    Contender,
    compare,
    comparison,
    comparisons,
    contenders,
    same_order,
    summary_table,
    worse_table,
)
from selfreflect.report.document import comparison_line
from selfreflect.report.findings import findings
from selfreflect.report.run_records import RunRecords
from selfreflect.report.words import worst_words
from selfreflect.stats import TIE, paired_difference, settled
from selfreflect.validate.agreement import summary_orders
from selfreflect.validate.base import MetricInfo

CLOSE = 3e-7
GREEDY = [0.3 + number / 100 for number in range(20)]
BETTER = [value - 0.01 - 0.001 * (number % 3) for number, value in enumerate(GREEDY)]

SELFREFLECT, INFORMATION = measure_named("selfreflect"), measure_named("information")


def rows(table):
    """List the rows of a table by heading."""
    return [dict(zip(table.headings, row, strict=True)) for row in table.rows]


def both(greedy, candidate):
    records = run({"greedy": greedy, "other": candidate}, questions=max(len(greedy), len(candidate)))
    return compare(Contender(records, "greedy"), Contender(records, "other"), SELFREFLECT)


@pytest.mark.parametrize(
    ("greedy", "candidate", "verdict", "testable", "start"),
    [
        ([*GREEDY, None], [*BETTER, 0.9], "better", True, "other is lower (better) than greedy by 0.0110 ["),
        ([0.1] * 10, [0.3] * 10, "worse", True, "other is higher (worse) than greedy by 0.2000 [0.2000, "),
        (
            [0.5] * 6,
            [0.3, 0.4, 0.35, 0.3, 0.31, 0.4],
            "better",
            True,
            "other is lower (better) than greedy by 0.1",
        ),
        (
            [0.5] * 6,
            [0.4, 0.6] * 3,
            "unclear",
            True,
            "no clear difference between other and greedy: +0.0000 [",
        ),
        # the interval leaves out 0, but the test decides
        ([0.6] * 7, [0.5, 0.4, 0.3, 0.5, 0.4, 0.1, 0.7], "unclear", True, "no clear difference"),
        # all three agree, yet three coins agree in a quarter of all cases
        (
            [0.5] * 3,
            [0.3, 0.4, 0.35],
            "unclear",
            False,
            "other against greedy: -0.1500 on 3 common questions; a test",
        ),
        ([0.5], [0.25], "unclear", False, "other against greedy: -0.2500 on 1 common question; a test"),
        (
            [0.5] * 8,
            [*[0.4] * 3, *[0.5] * 5],
            "unclear",
            False,
            "other against greedy: -0.0375 on 8 common questions; they differ on 3",
        ),
        ([0.5] * 8, [0.5] * 8, "unclear", True, "other and greedy are equal on 8 common questions"),
        (
            [0.5, None],
            [None, 0.5],
            "unclear",
            False,
            "other and greedy share no question on which the SelfReflect score is",
        ),
    ],
)
def test_a_difference_has_a_verdict_and_a_sentence(greedy, candidate, verdict, testable, start):
    result = both(greedy, candidate)
    assert (result.verdict, result.is_testable) == (verdict, testable)
    assert result.sentence.startswith(start)
    if not result.paired.is_testable:
        assert result.paired.difference.low is None


def test_the_comparison_has_a_row_for_each_contender():
    first = run({"greedy": [0.5] * 4, "cot": [0.5, 0.5, 0.6, None]}, label="one")
    second = run({"greedy": [0.4] * 4}, label="two")
    table = comparison(
        Contender(first, "greedy"), [Contender(first, "cot"), Contender(second, "greedy")], SELFREFLECT
    )
    cot, greedy = rows(table)
    assert table.title.endswith("strategy − greedy (one): below 0 is better")
    assert (cot["run"], cot["strategy"], cot["n common"], cot["coverage"]) == ("one", "cot", 3, 0.75)
    assert (cot["wins"], cot["ties"], cot["losses"], cot["p"]) == (0, 2, 1, 1)
    assert (greedy["run"], greedy["wins"], greedy["p"]) == ("two", 4, 2 / 16)
    assert greedy["difference"] == pytest.approx(-0.1)
    assert "greedy (two) against greedy (one): " in table.notes[1]
    assert "not adjusted for multiple" in table.notes[-1]
    alone = comparison(Contender(first, "greedy"), [Contender(first, "cot")], SELFREFLECT)
    assert "not adjusted" not in alone.notes[-1]


@pytest.mark.parametrize("changes", [{"text": "Something else?"}, {"context": "Anna: red."}])
def test_questions_with_one_id_and_two_texts_or_contexts_are_not_the_same_question(changes):
    first, second = run({"greedy": [0.5] * 4}, label="one"), run({"greedy": [0.4] * 4}, label="two")
    changed = {**second.questions, "q0": replace_struct(second.questions["q0"], **changes)}
    second = replace(second, questions=changed)
    table = comparison(Contender(first, "greedy"), [Contender(second, "greedy")], SELFREFLECT)
    assert (rows(table)[0]["n common"], rows(table)[0]["coverage"]) == (3, 1)
    assert "3 of 4 and 4 are common" in table.notes[1]


@pytest.mark.parametrize(
    ("first", "second", "settings"),
    [
        (run({"greedy": [0.5] * 4}), run({"greedy": [0.4] * 4}, judge="judge-2"), "(judge-2, "),
        (measured_run({"greedy": [5.0]}), measured_run({"greedy": [5.0]}, reader="blind"), "blind reader"),
        (
            measured_run({"greedy": [5.0]}),
            measured_run({"greedy": [5.0]}, zero="question"),
            "0 % is the question alone",
        ),
    ],
)
def test_a_comparison_across_judges_readers_or_scales_is_called_out(first, second, settings):
    base, candidate = contenders([first, second], None)
    [(table, _)] = comparisons(base, [candidate])
    assert table.notes[1].startswith("NOT DIRECTLY COMPARABLE: greedy ")
    assert settings in table.notes[1]


def test_an_unknown_strategy_is_refused_with_the_known_ones():
    with pytest.raises(DataError, match=r"only greedy, cot\. Did you mean 'greedy'\?"):
        contenders([run({"greedy": [], "cot": []}, label="mine")], "gredy")


def test_the_difference_of_two_strategies_is_a_share_of_the_information():
    bits = {"greedy": [2.0, 3.0, 4.0, 2.0, 3.0, 4.0], "basic": [5.0, 6.0, 7.0, 5.5, 6.5, 7.5]}
    records = measured_run(bits, scores={"greedy": [0.08] * 6, "basic": [0.07] * 6})
    base, candidate = contenders([records], "greedy")
    (table, first), (_, second) = comparisons(base, [candidate])
    assert (first.name, second.name) == (INFORMATION.name, SELFREFLECT.name)
    [row] = rows(table)
    assert row["difference"] == pytest.approx(19.5 / 60)
    assert table.columns[2].show(row["difference"]) == "+32.5"  # in points
    assert (row["wins"], row["losses"], row["p"]) == (6, 0, 2 / 64)
    assert table.notes[0].startswith("basic recovers more than greedy by 32.5 points [")
    scores_only = replace(records, information={}, controls={})
    base, candidate = contenders([scores_only], "greedy")
    assert [measure.name for _, measure in comparisons(base, [candidate])] == [SELFREFLECT.name]


def test_readers_that_differ_between_questions_only_are_comparable():
    records = measured_run({"greedy": [5.0, 6.0], "basic": [5.0, 6.0]})
    for name in records.strategies:
        records.information["q1", name] = information("q1", name, 6.0, reader="blind")
    base, candidate = contenders([records], None)
    assert not any("NOT" in note for note in comparisons(base, [candidate])[0][0].notes)


# --- ties: differences below 1e-6


def twins(by):
    """Make two strategies; the second is better by ``by`` on most questions and worse on one."""
    bits, scores = [5.0, 6.0, 7.0, 4.0, 5.5, 6.5, 3.0], [0.1, 0.09, 0.08, 0.11, 0.1, 0.07, 0.12]
    signs = [1, 1, 1, 1, 1, -1, 1]
    second_bits = [value + 10 * by * sign for value, sign in zip(bits, signs, strict=True)]
    second = [value - by * sign for value, sign in zip(scores, signs, strict=True)]
    return measured_run({"cot": bits, "mine": second_bits}, scores={"cot": scores, "mine": second})


@pytest.mark.parametrize("measure", [SELFREFLECT, INFORMATION])
@pytest.mark.parametrize(("by", "counts"), [(CLOSE, (0, 7, 0)), (1e-3, (6, 0, 1))])
def test_wins_and_losses_are_differences_above_the_eighth_digit(measure, by, counts):
    records = twins(by)
    paired = compare(Contender(records, "cot"), Contender(records, "mine"), measure).paired
    assert (paired.wins, paired.ties, paired.losses) == counts


def test_a_tie_is_no_lead_and_no_difference():
    records = twins(CLOSE)
    line = comparison_line(Contender(records, "cot"), Contender(records, "mine"))
    assert (line["verdict"], line["difference"], line["p_value"]) == ("unclear", 0.0, 1.0)
    assert len(findings(records)) == 1  # no sentence on who is ahead


def test_validation_counts_no_win_of_a_tie():
    metric = MetricInfo(name="m", better="lower", group="control", about="")
    assert not metric.wins(0.1, 0.1 + CLOSE)
    assert metric.wins(0.1, 0.1 + 2 * TIE)
    assert summary_orders({("q", "a"): 0.1, ("q", "b"): 0.1 + CLOSE}) == {("q", "a", "b"): 0}


def test_differences_that_are_shares_tie_as_shares():
    paired = paired_difference({"q": 0.0}, {"q": 2e-6}, 1, scale={"q": 10.0}, higher_is_better=True)
    assert (paired.wins, paired.ties) == (0, 1)


@given(st.lists(st.floats(-1, 1)))
def test_settled_values_keep_their_order_and_differ_by_more_than_a_tie(values):
    lowest = settled(values)
    assert all(0 <= value - low < TIE for value, low in zip(values, lowest, strict=True))
    assert all(b - a >= TIE for a, b in pairwise(sorted(set(lowest))))


@pytest.mark.parametrize(
    ("first", "second", "mean", "n"),
    [
        (
            {"a": {"q1": 1.0, "q2": 5.0, "q3": 1.0}, "b": {"q1": 2.0, "q2": 4.0, "q3": 1.0}},  # q3 is a tie
            {
                "a": {"q1": 0.1, "q2": 0.1, "q3": 0.3},
                "b": {"q1": 0.2, "q2": 0.9, "q3": 0.2},
                "c": {"q1": 3.0},
            },
            0.5,
            2,
        ),
        ({"a": {"q": 0.1}, "b": {"q": 0.1 + CLOSE}}, {"a": {"q": 0.1}, "b": {"q": 0.3}}, None, 0),
        ({"a": {"q1": 1.0}}, {"c": {"q1": 1.0}}, None, 0),
    ],
)
def test_judges_agree_on_pairs_of_summaries_that_both_tell_apart(first, second, mean, n):
    share = same_order(first, second)
    assert (share.mean, share.n) == (mean, n)


# --- one question


def word(text, *distances):
    return WordDistance(answer=0, word=0, text=text, distances=distances)


def test_the_worst_words_are_means_over_their_occurrences():
    paris = (word("Paris", 0.2), word("Paris.", 0.6, 0.8), word("Paris", 0.3))
    words = (*paris, word("in", 0.9), word("Lyon", 0.3), word("odd"))
    assert worst_words(words, 2) == [("in", 0.9), ("Paris", pytest.approx(0.4))]
    assert worst_words(words, 9)[2:] == [("Lyon", 0.3)]


def test_the_detail_of_a_question_holds_answers_summaries_and_failures():
    failures = [failure("q0", name="basic")]
    records = run({"greedy": [0.25], "basic": [None]}, questions=1, failures=failures)
    greedy, basic = records.outcomes("q0")
    assert sorted(grouped_answers(records, "q0").groups) == [("Lyon", 1), ("Paris", 1)]
    assert (greedy.summary.text, greedy.score.value, greedy.failure) == ("word word word", 0.25, None)
    assert (basic.strategy, basic.score, basic.failure.kind) == ("basic", None, "too_long")
    empty = RunRecords("", ("greedy",), records.questions, {}, {}, {}, ())
    assert grouped_answers(empty, "q0").groups == []
    assert empty.outcomes("q0") == [("greedy", None, None, None, None, [])]


def test_a_question_is_found_by_its_id_its_text_or_a_part_that_only_it_has():
    records = run({"greedy": []}, questions=12)
    for query in ("q1", " what  IS Q1? ", "q1?"):
        assert records.question(query).id == "q1"
    for query, match in (
        ("is q1", r"3 questions .*\[q10\]"),
        ("", "has no question ''"),
        ("q-7", "Did you mean 'q7'"),
    ):
        with pytest.raises(DataError, match=match):
            records.question(query)


def test_versions_without_a_common_question_are_compared_in_one_sentence(capsys):
    first, second = run({"greedy": [0.5] * 4}, label="one"), run({"greedy": [0.4] * 4}, label="two")
    asked = {id_: replace_struct(question, text="Another?") for id_, question in second.questions.items()}
    sides = Contender(first, "greedy"), Contender(replace(second, questions=asked), "greedy")
    table = comparison(sides[0], [sides[1]], SELFREFLECT)
    assert len([note for note in table.notes if note not in table.details]) == 1
    assert worse_table(*sides, SELFREFLECT).notes == ()
    print_differences(table, explain=False)
    shown = capsys.readouterr().out
    assert "one" in shown
    assert "wins" not in shown


def test_only_values_that_count_are_sorted():
    assert "worst first" in summary_table(run({"greedy": [0.5, None]})).title
    assert "worst first" not in summary_table(run({"greedy": [None, None]})).title
    several = summary_table(run({"greedy": [None, None], "basic": [0.5, 0.4]}))
    assert "worst first" not in several.title
