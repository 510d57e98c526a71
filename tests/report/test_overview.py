"""The table of a run: means of every measure, controls, coverage, notes; and what failed."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import get_args

import msgspec
import pytest
from measured import AVAILABLE, controls, information, measured_run
from plain_runs import failure, run, score

from selfreflect.cli.show import show_results
from selfreflect.metric.measure import measure_named
from selfreflect.records import Failure, FailureKind, Sampled
from selfreflect.report.compare import Contender, comparison
from selfreflect.report.document import question_table
from selfreflect.report.overview import REMEDIES, failure_table, overview
from selfreflect.report.results import best_first, best_strategy, score_text, sorted_results, strategy_results
from selfreflect.report.run_records import RunRecords
from selfreflect.table import joined, to_csv, to_markdown

SAMPLED = Sampled(
    words_scored=20, words_total=80, tokens_scored=30, tokens_total=110, stderr=0.002, stopped="budget"
)

SELFREFLECT, INFORMATION = measure_named("selfreflect"), measure_named("information")


def rows(table):
    """List the rows of a table by heading."""
    return [dict(zip(table.headings, row, strict=True)) for row in table.rows]


def by_name(table):
    return {row["strategy"]: row for row in rows(table)}


def notes(table, start):
    return [note for note in table.notes if note.startswith(start)]


def test_the_overview_has_known_means_in_the_given_order():
    scores = {"greedy": [0.1, 0.15, 0.2, 0.3, 0.35, 0.4], "basic": [0.5] * 6}
    table = overview(run(scores, questions=6, label="mine", lengths={"greedy": 2, "basic": 7}))
    greedy, basic = rows(table)
    assert table.title.endswith("(mine)")
    assert (greedy["strategy"], greedy["mean score"], greedy["n"]) == ("greedy", 0.25, 6)
    assert 0.1 <= greedy["95% low"] < 0.25 < greedy["95% high"] <= 0.4
    flat = {"mean score": 0.5, "95% low": 0.5, "95% high": 0.5}
    counts = {"n": 6, "coverage": "100.0% (6/6)", "median words": 7, "failures": 0}
    assert basic == {"strategy": "basic", **flat, **counts}
    assert "judge-1, float32, temperature 5" in table.notes[0]


def test_tables_show_no_interval_from_a_handful_of_questions():
    [greedy] = rows(overview(run({"greedy": [0.1, 0.4, 0.2, 0.2, 0.3]}, questions=5)))
    assert (greedy["95% low"], greedy["95% high"]) == (None, None)
    [line] = to_markdown(overview(run({"greedy": [0.25]}, questions=1))).splitlines()[4:5]
    assert line == "| greedy | 0.2500 | – | – | 1 | 100.0 % (1/1) | 3 | 0 |"


def test_strategies_with_different_coverage_are_said_not_to_compare():
    failures = [failure("q3", name="greedy"), failure("q0", name="basic"), failure("q1", name="basic")]
    scores = {"greedy": [0.1, 0.2, 0.3, None], "basic": [None, None, 0.5, 0.7]}
    table = overview(run(scores, failures=failures))
    greedy, basic = rows(table)
    for row, mean, coverage, failed in (
        (greedy, 0.2, "75.0% (3/4), incomplete", 1),
        (basic, 0.6, "50.0% (2/4), incomplete", 2),
    ):
        assert (row["mean score"], row["coverage"], row["failures"]) == (
            pytest.approx(mean),
            coverage,
            failed,
        )
    even = overview(run({"greedy": [0.1, 0.2], "basic": [0.3, 0.5]}, questions=2))
    assert [any("selfreflect compare" in note for note in shown.notes) for shown in (table, even)] == [
        True,
        False,
    ]


def test_a_strategy_that_failed_everywhere_does_not_hide_the_others():
    failures = [failure(f"q{number}", name="basic") for number in range(2)]
    scores = {"greedy": [0.1, 0.3], "basic": [None, None], "cot": [0.2, None]}
    greedy, cot, basic = rows(overview(run(scores, questions=2, failures=failures)))
    assert (greedy["mean score"], cot["mean score"]) == (0.2, 0.2)
    assert (basic["mean score"], basic["n"], basic["coverage"], basic["failures"]) == (
        None,
        0,
        "0.0% (0/2)",
        2,
    )


def test_no_questions_and_no_strategies_are_tables_too():
    [row] = rows(overview(run({"greedy": []}, questions=0)))
    assert (row["strategy"], row["mean score"], row["n"]) == ("greedy", None, 0)
    assert overview(run({})).rows == question_table(run({"greedy": []}, questions=0)).rows == ()


def test_failures_explain_what_is_missing_and_the_rest_is_pending():
    failures = [failure("q0", "answers", "backend"), failure("q1", "summaries", "blank_summary", "basic")]
    records = run({"greedy": [None, 0.1, 0.2, 0.3], "basic": [None, None, 0.2]}, failures=failures)
    results = strategy_results(records)
    counts = [(result.estimate(SELFREFLECT).n, result.failures, result.pending) for result in results]
    assert counts == [(3, 1, 0), (1, 2, 1)]
    assert "selfreflect score --out DIR" in overview(records).notes[-1]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (run({"mine": [0.1, 0.2]}, model=""), (0, 0)),  # not every item has a summary of every name
        (run({"mine": [0.1, None]}, model=""), (0, 1)),
        (run({"greedy": [0.1]}, questions=1, failures=[failure("q0", "answers", "backend")]), (0, 0)),
    ],
)
def test_what_is_pending(records, expected):
    [result] = strategy_results(records)
    assert (result.failures, result.pending) == expected


def test_a_score_that_failed_where_bits_were_measured_hides_no_pending_work():
    records = measured_run({"greedy": [5.0, 5.0, 5.0]})
    fields = {"stage": "scores", "kind": "too_long", "message": "too long", "name": "greedy"}
    failures = [Failure(question_id=id_, **fields) for id_ in ("q0", "q1")]
    part = {key: record for key, record in records.information.items() if key[0] != "q2"}
    [result] = strategy_results(replace(records, failures=failures, information=part))
    assert (result.failures, result.pending) == (2, 1)


def test_records_of_unknown_questions_and_strategies_are_left_out():
    full = run({"greedy": [0.1, 0.2, 0.9, 0.9], "other": [0.5] * 4})
    small = run({"greedy": [0.1, 0.2]}, questions=2)
    mixed = RunRecords("", ("greedy",), small.questions, full.answers, full.summaries, full.scores, ())
    assert overview(mixed).rows == overview(small).rows


def test_scores_of_different_judges_are_called_out():
    first = run({"greedy": [0.1, 0.2]}, questions=2)
    second = run({"basic": [0.1, 0.2]}, questions=2, judge="judge-2", compat="published")
    scores = {**first.scores, **second.scores}
    [note] = notes(overview(RunRecords("", ("greedy", "basic"), first.questions, {}, {}, scores, ())), "NOT ")
    assert "judge-1, float32" in note
    assert "judge-2, float32, temperature 5, compat published" in note


@pytest.mark.parametrize(("judge", "warned"), [("smollm2", True), ("judge-2", False)])
def test_the_embedded_judge_is_said_not_to_read_hedges(judge, warned):
    scored = run({"greedy": [0.1]}, questions=1, judge=judge)
    for records in (scored, measured_run({"greedy": [5.0]}, judge=judge)):
        assert any("hedges or percentages" in note for note in overview(records).notes) is warned


def test_failures_are_counted_by_stage_strategy_and_kind():
    failures = [
        failure("q3", name="zeta"),
        failure("q0", name="greedy", message="first\nmessage"),
        failure("q1", name="greedy", message="second"),
        failure("q2", name="greedy", kind="backend"),
        failure("q2", "answers", "no_answers", message="x" * 500),
    ]
    table = failure_table(run({"zeta": [], "greedy": []}, failures=failures))
    assert [row[:5] for row in table.rows] == [
        ("answers", None, "no_answers", 1, "What is q2?"),
        ("scores", "zeta", "too_long", 1, "What is q3?"),
        ("scores", "greedy", "backend", 1, "What is q2?"),
        ("scores", "greedy", "too_long", 2, "What is q0?"),
    ]
    assert table.rows[3][5] == "first message"
    assert table.rows[0][5] == "x" * 159 + "…"
    assert failure_table(run({"greedy": [0.1]})).rows == ()


def test_every_kind_of_failure_has_a_remedy_for_its_stage():
    cut = [failure("q0", "summaries", "cut_off", "greedy"), failure("q1", "answers", "cut_off")]
    of_answers, of_summaries = failure_table(run({"greedy": []}, failures=cut)).notes
    assert "answers.max_new_tokens" in of_answers
    assert "summaries.max_new_tokens" in of_summaries
    assert REMEDIES.keys() == set(get_args(FailureKind))


def test_the_question_table_has_a_row_for_each_question_and_strategy():
    failures = [
        failure("q1", "answers", "backend", message="server is gone"),
        failure("q1", "summaries", "blank_summary", "greedy"),
    ]
    table = question_table(run({"greedy": [0.125, None]}, questions=3, failures=failures))
    headings, *lines = csv.reader(io.StringIO(to_csv(table), newline=""))
    names = (
        "question_id question kind strategy score stderr token_tasks estimated_from bits bits_available "
        "recovered recovered_low recovered_high reader zero anchor undefined summary summary_words"
    )
    assert headings == [*names.split(), "failure"]
    words = "word word word"
    assert lines == [
        ["q0", "What is q0?", "fact", "greedy", "0.125", "0.01", "8", *[""] * 10, words, "3", ""],
        ["q1", "What is q1?", "fact", "greedy", *[""] * 13, words, "3", "backend: server is gone"],
        ["q2", "What is q2?", "fact", "greedy", *[""] * 16],
    ]


def estimated(values, exact=(), **fields):
    """Make a run whose scores are estimates, except for the strategies named in ``exact``."""
    records = run(values, **fields)
    for key, record in records.scores.items():
        if key[1] not in exact:
            records.scores[key] = score(*key, record.value, stderr=record.stderr, estimate=SAMPLED)
    return records


def test_estimates_are_marked_in_tables_and_not_in_files():
    records = estimated({"greedy": [0.1, None], "basic": [0.3, 0.5]}, exact=["basic"], questions=2)
    table = overview(records)
    basic, greedy = to_markdown(table).splitlines()[4:6]
    assert greedy.split(" | ")[1] == "≈0.1000"
    assert "≈" not in basic + to_csv(table)
    assert "1 of 3 scores are estimates from 20 of their 80 masked words (25 %)" in notes(table, "≈")[0]
    difference = comparison(Contender(records, "basic"), [Contender(records, "greedy")], SELFREFLECT)
    assert "| ≈-0.2000 |" in to_markdown(difference)
    assert rows(question_table(records))[0]["estimated_from"] == "20 of 80 words"
    exact = run({"greedy": [0.25], "basic": [0.5]}, questions=1)
    assert "≈" not in "".join(map(to_markdown, (overview(exact), question_table(exact))))
    texts = [score_text(made.scores["q0", "greedy"]) for made in (records, exact)]
    assert texts == ["≈0.1000 ± 0.0100 (estimated from 20 of 80 words)", "0.2500 ± 0.0100"]


# --- usable information


def test_a_strategy_recovers_a_ratio_of_sums_over_the_questions_with_a_share():
    records = measured_run({"greedy": [2.0, 8.0, None]})
    few = information("q1", "greedy", 40.0, bits_available=90.0, recovered=40 / 90)
    [result] = strategy_results(replace(records, information={**records.information, ("q1", "greedy"): few}))
    recovered = result.estimate(INFORMATION)
    assert recovered.mean == pytest.approx((2 + 40) / (AVAILABLE + 90))
    assert (recovered.n, recovered.total, result.undefined["information"]) == (2, 3, {"known": 1})
    assert (result.pending, result.estimate(SELFREFLECT).n) == (0, 0)


def test_the_overview_shows_information_before_the_score_and_controls_below():
    scores = {"greedy": [0.08, 0.07], "basic": [0.07, 0.07]}
    table = overview(measured_run({"greedy": [5.0, 6.0], "basic": [3.0, 4.0]}, scores=scores))
    ends = ["95% low", "95% high"]
    information_headings = ["recovered", *(f"recovered {end}" for end in ends)]
    assert table.headings[1:7] == [*information_headings, "mean score", *ends]
    named = by_name(table)
    assert (named["greedy"]["recovered"], named["greedy"]["mean score"]) == pytest.approx((0.55, 0.075))
    assert (named["control: empty"]["recovered"], named["control: empty"]["mean score"]) == (
        0,
        pytest.approx(0.086),
    )
    assert named["control: nonsense"]["mean score"] is None
    pasted = [name.removeprefix("control: ") for name in named if "pasted" in name]
    assert pasted == ["1 answer pasted", "2 answers pasted", "5 answers pasted", "all answers pasted"]
    assert named["control: all answers pasted"]["recovered"] == 1
    assert "| greedy | 55 % |" in to_markdown(table)
    assert any("judge-1, float32, informed reader" in note for note in table.notes)


def test_shares_that_rest_on_fewer_questions_than_scores_have_their_own_n():
    scores = {"greedy": [0.08, 0.07, 0.06], "basic": [0.07, 0.07, 0.07]}
    bits = {"greedy": [5.0, 6.0, None], "basic": [3.0, 4.0, 5.0]}
    named = by_name(overview(measured_run(bits, scores=scores)))
    counts = [(row["n"], row["mean score n"]) for row in map(named.__getitem__, scores)]
    assert counts == [(2, 3), (3, 3)]
    whole = overview(measured_run({"greedy": [5.0, 6.0]}, scores={"greedy": [0.1, 0.2]}))
    assert "mean score n" not in whole.headings
    none = overview(measured_run({"greedy": [None] * 3}, scores={"greedy": [0.1] * 3}))
    assert [heading for heading in none.headings if heading.endswith("n")] == ["n"], "a count of nothing"


def test_information_alone_has_no_columns_of_scores_and_lacks_nothing():
    table = overview(measured_run({"greedy": [5.0, 6.0]}, controlled=False))
    assert "mean score" not in table.headings
    assert (rows(table)[0]["n"], rows(table)[0]["coverage"]) == (2, "100.0% (2/2)")
    assert notes(table, "the run is not finished") == []


def test_questions_without_a_share_are_counted_with_the_reason():
    bits = {"greedy": [5.0, None, None], "basic": [4.0, None, None]}
    [text] = notes(overview(measured_run(bits)), "recovered information is undefined on 2 of 3 questions")
    assert text.endswith(INFORMATION.reasons["known"])


def test_controls_count_only_where_a_share_is_defined():
    records = measured_run({"greedy": [5.0, None]})
    odd = {**records.controls, "q1": controls("q1", question=50.0, bits_available=-1.0)}
    assert by_name(overview(replace(records, controls=odd)))["control: question repeated"]["n"] == 1


def test_readers_are_not_mixed_in_silence():
    records = measured_run({"greedy": [5.0, 6.0], "basic": [5.0, 6.0]})
    blind = {("q1", name): information("q1", name, 6.0, reader="blind") for name in records.strategies}
    by_question = replace(records, information={**records.information, **blind})
    [text] = notes(overview(by_question), "compare summaries of one question")
    assert "blind reader: 1 question; judge-1, float32, informed reader: 1 question" in text
    del blind["q1", "basic"]
    mixed = replace(records, information={**records.information, **blind})
    assert "blind reader; judge-1, float32, inf" in notes(overview(mixed), "NOT DIRECTLY COMPARABLE")[0]


def test_json_lines_hold_both_measures_and_keep_their_keys(capsys):
    records = measured_run({"greedy": [5.0, 6.0, None]})
    show_results(records, json=True)
    line = msgspec.json.decode(capsys.readouterr().out)
    assert list(line)[:5] == ["run", "strategy", "score", "low", "high"]
    assert (line["undefined"], line["recovered"], line["reader"]) == ({"known": 1}, 0.55, "informed")
    assert (line["bits"], line["bits_available"], line["recovered_n"]) == (5.5, 10.0, 2)
    show_results(replace(records, information={}, controls={}), json=True)
    assert "recovered" not in capsys.readouterr().out


def test_runs_with_different_columns_are_joined_by_their_headings():
    both = measured_run({"greedy": [5.0]}, scores={"greedy": [0.08]}, controlled=False)
    tables = {"new": overview(both), "old": overview(replace(both, information={}))}
    lines = to_csv(joined(tables)).splitlines()
    assert lines[0].startswith("run,strategy,recovered,recovered 95% low,recovered 95% high,mean score,")
    assert lines[1].startswith("new,greedy,0.5,,,0.08,")
    assert lines[2].startswith("old,greedy,,,,0.08,")


def test_a_table_says_how_many_scored_summaries_lack_information():
    records = measured_run({"greedy": [5.0, 6.0]}, scores={"greedy": [0.08, 0.07]})
    assert notes(overview(records), "recovered information of 1 summary") == []
    part = {key: record for key, record in records.information.items() if key[0] == "q0"}
    [text] = notes(overview(replace(records, information=part)), "recovered information of 1 summary")
    assert "`selfreflect score`" in text


def test_the_outcomes_of_a_question_are_sorted_the_best_first():
    records = measured_run({"known": [None], "low": [2.0], "high": [6.0]}, scores={"known": [0.1]})
    assert [outcome.strategy for outcome in best_first(records, "q0")] == ["high", "low", "known"]
    plain = run({"worse": [0.3], "missing": [None], "better": [0.1], "equal": [0.1]}, questions=1)
    names = [outcome.strategy for outcome in best_first(plain, "q0")]
    assert names == ["better", "equal", "worse", "missing"]


@pytest.mark.parametrize(("by", "order"), [(3e-7, ["cot", "mine"]), (1e-3, ["mine", "cot"])])
def test_texts_that_tie_keep_their_order_and_share_the_lead(by, order):
    bits = [5.0, 6.0, 7.0, 4.0]
    records = measured_run({"cot": bits, "mine": [value + 10 * by for value in bits]})
    results = sorted_results(records)
    assert [result.strategy for result in results] == order
    assert best_strategy(results, INFORMATION) == order[0]
    assert [outcome.strategy for outcome in best_first(records, "q0")] == order
