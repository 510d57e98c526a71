"""What a run's summaries tell: shares over questions, controls, and differences."""

from __future__ import annotations

from dataclasses import replace

import pytest
from measured import AVAILABLE, controls, information, measured_run
from msgspec.structs import replace as replace_struct
from plain_runs import run

from selfreflect.cli.show import show_results
from selfreflect.records import Failure, dump_line
from selfreflect.report.comparison import comparisons, contenders
from selfreflect.report.figures import paper_figures
from selfreflect.report.overview import overview
from selfreflect.report.page.build import report_page
from selfreflect.report.question_table import joined, question_table
from selfreflect.report.results import INFORMATION, SELFREFLECT, best_first, strategy_results
from selfreflect.report.run_records import removable_parts
from selfreflect.report.sentences import headline
from selfreflect.table import to_csv, to_markdown


def rows(table):
    return {
        row[0]: dict(zip([column.heading for column in table.columns], row, strict=True))
        for row in table.rows
    }


def note(table, start):
    return [text for text in table.notes if text.startswith(start)]


def test_a_strategy_tells_a_ratio_of_sums_over_the_questions_with_a_share():
    records = measured_run({"greedy": [2.0, 8.0, None]})
    few = information("q1", "greedy", 40.0, bits_available=90.0, recovered=40 / 90)
    records = replace(records, information={**records.information, ("q1", "greedy"): few})
    (result,) = strategy_results(records)
    assert result.recovered.mean == pytest.approx((2 + 40) / (AVAILABLE + 90))
    assert (result.recovered.n, result.recovered.total, dict(result.undefined)) == (2, 3, {"known": 1})
    assert (result.bits, result.bits_available) == (21.0, 50.0)
    assert (result.pending, result.score.n) == (0, 0)


def test_the_overview_shows_what_is_told_before_the_score_and_controls_below():
    scores = {"greedy": [0.08, 0.07], "basic": [0.07, 0.07]}
    table = overview(measured_run({"greedy": [5.0, 6.0], "basic": [3.0, 4.0]}, scores=scores))
    headings = [column.heading for column in table.columns]
    assert headings[1:7] == ["tells", "tells 95% low", "tells 95% high", "mean score", "95% low", "95% high"]
    named = rows(table)
    assert list(named)[:3] == ["greedy", "basic", "control: empty"]
    assert (named["greedy"]["tells"], named["greedy"]["mean score"]) == pytest.approx((0.55, 0.075))
    assert named["control: empty"]["tells"] == 0
    assert named["control: empty"]["mean score"] == pytest.approx(0.086)
    assert named["control: nonsense"]["mean score"] is None
    assert [name for name in named if "pasted" in name] == [
        "control: 1 answer pasted",
        "control: 2 answers pasted",
        "control: 5 answers pasted",
        "control: all answers pasted",
    ]
    assert named["control: all answers pasted"]["tells"] == 1
    assert "| greedy | 55% |" in to_markdown(table)
    assert note(table, "tells: ")[0].endswith(
        "100% is what ten sampled answers would, each different one said once"
    )
    assert "judge of what summaries tell: judge-1, float32, informed reader" in table.notes


def test_shares_that_rest_on_fewer_questions_than_scores_have_their_own_n():
    scores = {"greedy": [0.08, 0.07, 0.06], "basic": [0.07, 0.07, 0.07]}
    bits = {"greedy": [5.0, 6.0, None], "basic": [3.0, 4.0, 5.0]}
    table = overview(measured_run(bits, scores=scores))
    assert [column.heading for column in table.columns][3:5] == ["tells 95% high", "tells n"]
    named = rows(table)
    assert (named["greedy"]["tells n"], named["greedy"]["n"]) == (2, 3)
    assert (named["basic"]["tells n"], named["basic"]["n"]) == (3, 3)
    assert named["control: empty"]["mean score"] is not None
    whole = overview(measured_run({"greedy": [5.0, 6.0]}, scores={"greedy": [0.1, 0.2]}))
    assert "tells n" not in [column.heading for column in whole.columns]


def test_information_alone_has_no_columns_of_scores_and_lacks_nothing():
    table = overview(measured_run({"greedy": [5.0, 6.0]}, controlled=False))
    assert [column.heading for column in table.columns][:5] == [
        "strategy",
        "tells",
        "tells 95% low",
        "tells 95% high",
        "n",
    ]
    assert (rows(table)["greedy"]["n"], rows(table)["greedy"]["coverage"]) == (2, "100.0% (2/2)")
    assert note(table, "the run is not finished") == []


def test_questions_without_a_share_are_counted_with_the_reason_and_a_way_out():
    table = overview(measured_run({"greedy": [5.0, None, None], "basic": [4.0, None, None]}))
    (text,) = note(table, "no share")
    assert text.startswith(
        "no share on 2 of 3 questions: the judge already knows the answers; use another judge"
    )


def test_a_control_that_beats_a_strategy_is_named():
    records = measured_run({"greedy": [5.0] * 6, "basic": [1.0] * 6})
    loud = {id_: controls(id_, question=4.0) for id_ in records.questions}
    table = overview(replace(records, controls=loud))
    assert note(table, "CONTROL AHEAD") == [
        "CONTROL AHEAD: question repeated tells more than basic (40% against 10%)"
    ]
    assert note(overview(records), "CONTROL AHEAD") == []
    # to a blind judge the question was told much before it was its zero
    blind = {id_: replace_struct(one, reader="blind", anchor="pasted") for id_, one in loud.items()}
    old = measured_run({"greedy": [5.0] * 6, "basic": [1.0] * 6}, anchor="pasted")
    assert note(overview(replace(old, controls=blind)), "CONTROL AHEAD") == []


def test_an_empty_summary_with_the_better_score_is_named_and_whether_that_is_clear():
    bits, scores = {"greedy": [5.0], "basic": [5.0]}, {"greedy": [0.08], "basic": [0.09]}
    table = overview(measured_run(bits, scores=scores))
    assert note(table, "control ahead") == [
        "control ahead, but not clearly: empty is lower (better) than basic (0.0860 against 0.0900)"
    ]
    bits, scores = {"greedy": [5.0] * 6, "basic": [5.0] * 6}, {"greedy": [0.08] * 6, "basic": [0.09] * 6}
    table = overview(measured_run(bits, scores=scores))
    assert note(table, "CONTROL AHEAD") == [
        "CONTROL AHEAD: empty is lower (better) than basic (0.0860 against 0.0900)"
    ]


def test_a_control_ahead_of_all_strategies_is_named_once_on_a_page():
    records = measured_run({"greedy": [-2.0] * 6, "basic": [-3.0] * 6}, scores={"greedy": [0.09] * 6})
    text = headline(records)
    ahead = "an empty summary (0%), the repeated question (-10%) and nonsense (-8%) do better than"
    assert f"Beware: by what they tell, {ahead} the best strategy, greedy (-20%). Do not rank" in text
    assert "by SelfReflect score, an empty summary (0.0860) does better than greedy (0.0900)" in text
    assert note(overview(records), "CONTROL AHEAD") == []
    assert note(overview(records), "control ahead") == []


def test_a_control_not_clearly_ahead_of_the_best_strategy_is_named_for_the_others():
    bits = {"greedy": [-2.0, 5.0, -6.0, 1.0, -4.0, 2.0, 0.0, -1.0], "basic": [-30.0] * 8, "cot": [-20.0] * 8}
    [empty, *_] = note(overview(measured_run(bits)), "CONTROL AHEAD")
    assert empty == "CONTROL AHEAD: empty tells more than basic (0% against -300%), cot (0% against -200%)"
    few = overview(measured_run({"rare": [-0.1] + [None] * 7, "greedy": [-5.0] * 8}))
    assert "CONTROL AHEAD: empty tells more than greedy (0% against -50%)" in few.notes


def test_controls_ahead_clearly_and_not_are_named_apart():
    text = headline(measured_run({"greedy": [-2.0, -0.5], "basic": [-3.0, 1.0]}))
    unclear = "an empty summary (0%) and nonsense (-8%) are ahead, though not clearly, of"
    assert (
        f"{unclear} the best strategy, basic (-10%). Take more questions before you rank summaries by it."
        in text
    )
    assert "the repeated question (-10%) does as well as the best strategy, basic (-10%)" in text


def test_the_outcomes_of_a_question_are_sorted_the_best_first():
    records = measured_run({"known": [None], "low": [2.0], "high": [6.0]}, scores={"known": [0.1]})
    [question] = records.questions
    assert [one.strategy for one in best_first(records.outcomes(question))] == ["high", "low", "known"]
    plain = run({"worse": [0.3], "missing": [None], "better": [0.1], "equal": [0.1]}, questions=1)
    names = [one.strategy for one in best_first(plain.outcomes("q0"))]
    assert names == ["better", "equal", "worse", "missing"]


def test_controls_count_only_where_a_share_is_defined():
    records = measured_run({"greedy": [5.0, None]})
    odd = {**records.controls, "q1": controls("q1", question=50.0, bits_available=-1.0)}
    assert rows(overview(replace(records, controls=odd)))["control: question repeated"]["n"] == 1


def test_readers_are_not_mixed_in_silence():
    records = measured_run({"greedy": [5.0, 6.0], "basic": [5.0, 6.0]})
    blind = {("q1", name): information("q1", name, 6.0, reader="blind") for name in records.strategies}
    by_question = replace(records, information={**records.information, **blind})
    (text,) = note(overview(by_question), "compare strategies")
    assert text.startswith("compare strategies, not questions, which were not all measured alike: ")
    assert "blind reader: 1 question; judge-1, float32, informed reader: 1 question" in text
    base, other = contenders([by_question], None)
    assert not any("NOT" in line for line in comparisons(base, [other])[0][0].notes)

    del blind["q1", "basic"]
    mixed = replace(records, information={**records.information, **blind})
    (text,) = note(overview(mixed), "NOT DIRECTLY COMPARABLE")
    assert "with different judges or settings (judge-1, float32, blind reader; judge-1, float32, inf" in text
    base, other = contenders([mixed], None)
    assert comparisons(base, [other])[0][0].notes[1].startswith("NOT DIRECTLY COMPARABLE: basic was measured")


def test_json_lines_gain_what_is_told_and_keep_their_keys(capsys):
    show_results(measured_run({"greedy": [5.0, 6.0, None]}), json=True)
    line = capsys.readouterr().out
    assert '"undefined": {"known": 1}' in line
    assert '"recovered": 0.55' in line
    assert '"reader": "informed"' in line
    assert line.startswith(
        '{"run": "", "strategy": "greedy", "score": null, "low": null, "high": null, "conf'
    )


def test_rows_of_questions_hold_bits_and_shares():
    table = question_table(measured_run({"greedy": [5.0, None]}))
    headings = [column.heading for column in table.columns]
    first, second = (dict(zip(headings, row, strict=True)) for row in table.rows)
    assert (first["bits"], first["bits_available"], first["recovered"]) == (5.0, 10.0, 0.5)
    assert (first["recovered_low"], first["recovered_high"]) == pytest.approx((0.35, 0.65))
    assert (second["recovered"], second["undefined"], second["reader"]) == (None, "known", "informed")


def test_runs_with_different_columns_are_joined_by_their_headings():
    both = measured_run({"greedy": [5.0]}, scores={"greedy": [0.08]}, controlled=False)
    alone = replace(both, information={})
    table = joined({"new": overview(both), "old": overview(alone)})
    lines = to_csv(table).splitlines()
    assert lines[0].startswith("run,strategy,tells,tells 95% low,tells 95% high,mean score,")
    assert lines[1].startswith("new,greedy,0.5,,,0.08,")
    assert lines[2].startswith("old,greedy,,,,0.08,")


def test_the_difference_of_two_strategies_is_a_share_of_what_there_was_to_tell():
    bits = {"greedy": [2.0, 3.0, 4.0, 2.0, 3.0, 4.0], "basic": [5.0, 6.0, 7.0, 5.5, 6.5, 7.5]}
    records = measured_run(bits, scores={"greedy": [0.08] * 6, "basic": [0.07] * 6})
    base, other = contenders([records], "greedy")
    (told, first), (_, second) = comparisons(base, [other])
    assert (first, second) == (INFORMATION, SELFREFLECT)
    row = rows(replace(told, rows=tuple(row[1:] for row in told.rows), columns=told.columns[1:]))["basic"]
    assert row["difference"] == pytest.approx(19.5 / 60)
    assert told.columns[2].show(row["difference"]) == "+32.5"  # in points, as the title says
    assert (row["wins"], row["losses"], row["p"]) == (6, 0, 2 / 64)
    assert told.notes[0].startswith("basic tells more than greedy by 32.5 points [")
    assert told.title.endswith("strategy − greedy: above 0 is better")


def test_a_comparison_of_readers_is_called_out():
    one = measured_run({"greedy": [5.0, 6.0]}, label="one")
    two = measured_run({"greedy": [5.0, 6.0]}, label="two", reader="blind")
    base, other = contenders([one, two], None)
    ((table, _),) = comparisons(base, [other])
    assert table.notes[1].startswith(
        "NOT DIRECTLY COMPARABLE: greedy was measured with another judge, reader or scale"
    )


def test_bits_of_an_earlier_version_are_labelled_and_compared_with_no_others():
    old = measured_run({"greedy": [5.0, 6.0]}, label="old", zero="question")
    assert "0% is the question alone, as in earlier versions" in note(overview(old), "tells: ")[0]
    base, other = contenders([old, measured_run({"greedy": [5.0, 6.0]}, label="new")], None)
    ((table, _),) = comparisons(base, [other])
    assert "NOT DIRECTLY COMPARABLE" in table.notes[1]
    assert "0% is the question alone" in table.notes[1]


def test_without_information_there_is_one_comparison_and_no_new_key(capsys):
    records = measured_run({"greedy": [5.0, 6.0], "basic": [5.0, 6.0]}, scores={"greedy": [0.1, 0.2]})
    old = replace(records, information={}, controls={})
    base, other = contenders([old], None)
    assert [measure for _, measure in comparisons(base, [other])] == [SELFREFLECT]
    show_results(old, json=True)
    assert "recovered" not in capsys.readouterr().out


def test_names_with_braces_stay_names():
    records = measured_run({"{x}": [5.0, 6.0], "{}": [5.0, 6.0]})
    base, other = contenders([records], None)
    for table, _ in comparisons(base, [other]):
        assert "{x}" in table.title
        dump_line(to_markdown(table))


def test_figures_of_a_measured_run_hold_shares_and_the_paste_curve():
    pytest.importorskip("matplotlib")
    files = paper_figures([measured_run({"greedy": [5.0, 6.0], "basic": [3.0, 4.0]})])
    assert {"tells.svg", "differences-tells.svg", "differences-tells.csv", "pasted.svg", "pasted.csv"} <= {
        *files
    }
    old = replace(measured_run({"greedy": [5.0]}, scores={"greedy": [0.1]}), information={}, controls={})
    assert {"means.svg", "means.csv", "length.svg", "length.csv"} == {*paper_figures([old])}


def test_results_end_with_what_the_words_are_worth(capsys):
    show_results(measured_run({"greedy": [7.0, 7.0]}, words=28), json=False)
    lines = " ".join(capsys.readouterr().out.split())
    assert lines.endswith("On average, greedy tells as much in 28 words as pasting 3.5 answers (70 words).")


def test_the_page_compares_what_strategies_tell():
    pytest.importorskip("matplotlib")
    records = measured_run({"greedy": [5.0, 6.0], "basic": [3.0, 4.0]})
    page = report_page([[records]])
    assert "What each strategy tells" in page
    assert "basic against greedy: " in page
    assert "What each strategy tells" not in report_page([[replace(records, information={}, controls={})]])


def test_a_score_that_failed_where_bits_were_measured_hides_no_pending_work():
    records = measured_run({"greedy": [5.0, 5.0, 5.0]})
    failures = [
        Failure(question_id=id_, stage="scores", kind="too_long", message="too long", name="greedy")
        for id_ in ("q0", "q1")
    ]
    measured = {key: one for key, one in records.information.items() if key[0] != "q2"}
    (result,) = strategy_results(replace(records, failures=failures, information=measured))
    assert (result.failures, result.pending) == (2, 1)


def test_a_table_says_how_many_scored_summaries_lack_information():
    records = measured_run({"greedy": [5.0, 6.0]}, scores={"greedy": [0.08, 0.07]})
    start = "what 1 scored summaries tell has not been measured"
    assert note(overview(records), start) == []
    part = {key: one for key, one in records.information.items() if key[0] == "q0"}
    assert len(note(overview(replace(records, information=part)), start)) == 1


def test_a_control_that_looks_equal_is_not_ahead():
    records = measured_run({"greedy": [-0.51]}, controlled=True)  # the empty summary: -0.5 of 10 bits
    assert note(overview(records), "CONTROL AHEAD") == []


def test_a_blind_reader_is_not_advised_to_be_blind():
    (advice,) = note(overview(measured_run({"greedy": [None, 5.0]}, reader="blind")), "no share on 1")
    assert advice.endswith("use another judge, or a context that only the model reads")


def test_a_large_page_without_scores_can_leave_out_words():
    assert removable_parts(measured_run({"greedy": [5.0]}).information.values()) == ["words"]
