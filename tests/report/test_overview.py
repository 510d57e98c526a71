import csv
import io
from typing import get_args

import pytest
from msgspec.structs import replace
from plain_runs import failure, run, score
from rich.text import Text

from selfreflect.cli.show import grouped_answers
from selfreflect.errors import DataError
from selfreflect.records import AnswerSet, FailureKind, Information, Question, Sampled, Summary, WordDistance
from selfreflect.report.comparison import Contender, compare, comparison, contenders
from selfreflect.report.overview import REMEDIES, failure_table, overview
from selfreflect.report.question_table import question_table
from selfreflect.report.results import score_text, strategy_results
from selfreflect.report.run_records import RunRecords
from selfreflect.report.words import worst_words
from selfreflect.table import to_csv, to_markdown, to_rich

HOSTILE = "=<script>|\x1b[31m\u202e\ud800\n# x"


def rows(table):
    return [dict(zip([column.heading for column in table.columns], row, strict=True)) for row in table.rows]


def test_the_overview_has_known_means_in_the_given_order():
    table = overview(
        run(
            {"greedy": [0.1, 0.15, 0.2, 0.3, 0.35, 0.4], "basic": [0.5] * 6},
            questions=6,
            label="mine",
            lengths={"greedy": 2, "basic": 7},
        )
    )
    greedy, basic = rows(table)
    assert table.title == "SelfReflect score: 0 is perfect, lower is better (mine)"
    assert (greedy["strategy"], greedy["mean score"], greedy["n"]) == ("greedy", 0.25, 6)
    assert (greedy["coverage"], greedy["median words"], greedy["failures"]) == ("100.0% (6/6)", 2, 0)
    assert 0.1 <= greedy["95% low"] < 0.25 < greedy["95% high"] <= 0.4
    assert basic == {"strategy": "basic", "mean score": 0.5, "95% low": 0.5, "95% high": 0.5} | {
        "n": 6,
        "coverage": "100.0% (6/6)",
        "median words": 7,
        "failures": 0,
    }
    assert table.notes == (
        "judge of the SelfReflect scores: judge-1, float32, temperature 5; "
        "intervals: 95% BCa bootstrap over questions",
    )


def test_tables_show_no_interval_from_a_handful_of_questions():
    table = overview(run({"greedy": [0.1, 0.4, 0.2, 0.2, 0.3]}, questions=5))
    [greedy] = rows(table)
    assert (greedy["95% low"], greedy["95% high"]) == (None, None)
    assert "none from fewer than 6 questions" in table.notes[0]


def test_strategies_with_different_coverage_are_compared_on_what_they_share():
    failures = [failure("q3", name="greedy"), failure("q0", name="basic"), failure("q1", name="basic")]
    table = overview(
        run({"greedy": [0.1, 0.2, 0.3, None], "basic": [None, None, 0.5, 0.7]}, failures=failures)
    )
    greedy, basic = rows(table)
    assert (greedy["mean score"], greedy["coverage"], greedy["failures"]) == (
        pytest.approx(0.2),
        "75.0% (3/4), incomplete",
        1,
    )
    assert (basic["mean score"], basic["coverage"], basic["failures"]) == (
        pytest.approx(0.6),
        "50.0% (2/4), incomplete",
        2,
    )
    assert (greedy["common mean"], basic["common mean"]) == (0.3, 0.5)
    assert {greedy["common n"], basic["common n"]} == {1}
    assert table.notes[1].endswith("compare them only by the common mean, coverage 25.0% (1/4)")


def test_equal_counts_of_different_questions_are_still_noticed():
    table = overview(run({"greedy": [0.1, None], "basic": [None, 0.5]}, questions=2))
    assert not any("common" in column.heading for column in table.columns)
    assert any(note.endswith("none in common: do not compare their means") for note in table.notes)


def test_a_strategy_that_failed_everywhere_does_not_hide_the_others():
    failures = [failure(f"q{number}", name="basic") for number in range(2)]
    table = overview(
        run({"greedy": [0.1, 0.3], "basic": [None, None], "cot": [0.2, None]}, questions=2, failures=failures)
    )
    greedy, cot, basic = rows(table)  # complete, incomplete, without any result
    assert (greedy["common mean"], cot["common mean"]) == (0.1, 0.2)
    assert (basic["mean score"], basic["95% low"], basic["n"], basic["coverage"], basic["failures"]) == (
        None,
        None,
        0,
        "0.0% (0/2)",
        2,
    )
    assert (basic["common mean"], basic["common n"]) == (None, 0)


def test_no_questions_and_no_strategies_are_tables_too():
    assert rows(overview(run({"greedy": []}, questions=0))) == [
        dict.fromkeys(["strategy", "mean score", "95% low", "95% high", "coverage", "median words"])
        | {"strategy": "greedy", "n": 0, "failures": 0}
    ]
    assert overview(run({})).rows == ()
    assert question_table(run({"greedy": []}, questions=0)).rows == ()


def test_one_question_has_a_mean_and_no_interval():
    table = overview(run({"greedy": [0.25]}, questions=1))
    assert to_markdown(table).splitlines()[4] == "| greedy | 0.2500 | – | – | 1 | 100.0% (1/1) | 3 | 0 |"


def test_failures_explain_what_is_missing_and_the_rest_is_pending():
    failures = [failure("q0", "answers", "backend"), failure("q1", "summaries", "blank_summary", "basic")]
    results = strategy_results(
        run({"greedy": [None, 0.1, 0.2, 0.3], "basic": [None, None, 0.2]}, failures=failures)
    )
    assert [(result.score.n, result.failures, result.pending) for result in results] == [(3, 1, 0), (1, 2, 1)]
    table = overview(run({"greedy": [None, 0.1, 0.2, 0.3], "basic": [None, None, 0.2]}, failures=failures))
    assert (
        table.notes[-1]
        == "the run is not finished: 1 score is still missing; add with: selfreflect score --out DIR"
    )


def test_an_item_without_a_summary_of_some_name_waits_for_nothing():
    (result,) = strategy_results(run({"mine": [0.1, 0.2]}, model=""))
    assert (result.score.n, result.pending) == (2, 0)
    (result,) = strategy_results(run({"mine": [0.1, None]}, model=""))
    assert (result.score.n, result.pending) == (1, 1)


def test_a_failure_beside_a_score_is_not_counted():
    (result,) = strategy_results(
        run({"greedy": [0.1]}, questions=1, failures=[failure("q0", "answers", "backend")])
    )
    assert (result.failures, result.pending) == (0, 0)


def test_records_of_unknown_questions_and_strategies_are_left_out():
    full, small = (
        run({"greedy": [0.1, 0.2, 0.9, 0.9], "other": [0.5] * 4}),
        run({"greedy": [0.1, 0.2]}, questions=2),
    )
    mixed = RunRecords("", ("greedy",), small.questions, full.answers, full.summaries, full.scores, ())
    assert overview(mixed).rows == overview(small).rows


def test_scores_of_different_judges_are_called_out():
    one, other = (
        run({"greedy": [0.1, 0.2]}, questions=2),
        run({"basic": [0.1, 0.2]}, questions=2, judge="judge-2", compat="published"),
    )
    mixed = RunRecords("", ("greedy", "basic"), one.questions, {}, {}, {**one.scores, **other.scores}, ())
    (note, _) = overview(mixed).notes
    assert note.startswith("NOT DIRECTLY COMPARABLE")
    assert "judge-1, float32" in note
    assert "judge-2, float32, temperature 5, compat published" in note


def test_the_embedded_judge_is_said_not_to_read_hedges() -> None:
    measured = Information(
        question_id="q0",
        summary="greedy",
        zero="empty",
        anchor="distinct",
        reader="informed",
        bits=1.0,
        bits_available=2.0,
        recovered=0.5,
        judge="smollm2",
    )
    full = run({"greedy": [None]}, questions=1)
    without_scores = RunRecords(
        "", ("greedy",), full.questions, {}, {}, {}, (), information={("q0", "greedy"): measured}
    )
    for judge, records, expected in (
        ("smollm2", run({"greedy": [0.1]}, questions=1, judge="smollm2"), True),
        ("smollm2", without_scores, True),
        ("judge-2", run({"greedy": [0.1]}, questions=1, judge="judge-2"), False),
    ):
        hedges = [note for note in overview(records).notes if "reads no hedges" in note]
        assert bool(hedges) is expected, judge


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


def test_every_kind_of_failure_has_a_remedy_for_its_stage():
    cut = [failure("q0", "summaries", "cut_off", "greedy"), failure("q1", "answers", "cut_off")]
    notes = failure_table(run({"greedy": []}, failures=cut)).notes
    assert [("--summary-tokens" in note, "--max-new-tokens" in note) for note in notes] == [
        (False, True),
        (True, False),
    ]
    assert REMEDIES.keys() == set(get_args(FailureKind))


def test_no_failures_are_an_empty_table():
    assert failure_table(run({"greedy": [0.1]})).rows == ()


def test_the_question_table_has_a_row_for_each_question_and_strategy():
    failures = [
        failure("q1", "answers", "backend", message="server is gone"),
        failure("q1", "summaries", "blank_summary", "greedy"),
    ]
    table = question_table(run({"greedy": [0.125, None]}, questions=3, failures=failures))
    lines = list(csv.reader(io.StringIO(to_csv(table), newline="")))
    assert lines == [
        [
            "question_id",
            "question",
            "kind",
            "strategy",
            "score",
            "stderr",
            "token_tasks",
            "estimated_from",
            "bits",
            "bits_available",
            "recovered",
            "recovered_low",
            "recovered_high",
            "reader",
            "zero",
            "anchor",
            "undefined",
            "summary",
            "summary_words",
            "failure",
        ],
        ["q0", "What is q0?", "fact", "greedy", "0.125", "0.01", "8", *[""] * 10, "word word word", "3", ""],
        [
            "q1",
            "What is q1?",
            "fact",
            "greedy",
            *[""] * 13,
            "word word word",
            "3",
            "backend: server is gone",
        ],
        ["q2", "What is q2?", "fact", "greedy", *[""] * 16],
    ]


def test_hostile_text_anywhere_in_a_run_leaves_every_rendering_harmless():
    records = RunRecords(
        label=HOSTILE,
        strategies=[HOSTILE],
        questions={HOSTILE: Question(id=HOSTILE, text=HOSTILE, kind=HOSTILE)},
        answers={HOSTILE: AnswerSet(question_id=HOSTILE, masked_out=(HOSTILE,), conditioning=(HOSTILE,))},
        summaries={(HOSTILE, HOSTILE): Summary(question_id=HOSTILE, name=HOSTILE, text=HOSTILE)},
        scores={(HOSTILE, HOSTILE): score(HOSTILE, HOSTILE, 0.5, judge=HOSTILE)},
        failures=[failure(HOSTILE, name=HOSTILE, message=HOSTILE)],
    )
    side = Contender(records, HOSTILE)
    for table in (
        overview(records),
        failure_table(records),
        question_table(records),
        comparison(side, [side]),
    ):
        markdown, written = to_markdown(table), to_csv(table)
        (markdown + written).encode("utf-8")
        assert "<script>" not in markdown
        assert "\x1b" not in markdown + written
        assert all(len(line) == len(table.columns) for line in csv.reader(io.StringIO(written, newline="")))
        assert not any(
            cell.startswith("=") for line in csv.reader(io.StringIO(written, newline="")) for cell in line
        )
        tables = [part for part in to_rich(table) if not isinstance(part, Text)]
        assert {part.row_count for part in tables} == {len(table.rows)}


def both(greedy, other, **fields):
    records = run({"greedy": greedy, "other": other}, questions=max(len(greedy), len(other)), **fields)
    return compare(Contender(records, "greedy"), Contender(records, "other"))


def test_a_clear_gain_is_said_in_words():
    greedy = [0.3 + number / 100 for number in range(20)]
    result = both(
        [*greedy, None], [*(value - 0.01 - 0.001 * (number % 3) for number, value in enumerate(greedy)), 0.9]
    )
    low, high = result.paired.difference.low, result.paired.difference.high
    assert (
        result.sentence
        == f"other is lower (better) than greedy by 0.0110 [{-high:.4f}, {-low:.4f}] on 20 common questions"
    )
    assert low < -0.011 < high < 0
    assert (result.paired.wins, result.paired.losses) == (20, 0)


def test_a_clear_loss_is_said_in_words():
    result = both([0.1] * 10, [0.3] * 10)
    assert (
        result.sentence
        == "other is higher (worse) than greedy by 0.2000 [0.2000, 0.2000] on 10 common questions"
    )


def test_an_interval_around_zero_is_no_clear_difference():
    result = both([0.5] * 6, [0.4, 0.6, 0.4, 0.6, 0.4, 0.6])
    low, high = result.paired.difference.low, result.paired.difference.high
    interval = f"+0.0000 [{low:+.4f}, {high:+.4f}]"
    assert (
        result.sentence
        == f"no clear difference between other and greedy: {interval} on 6 common questions (p = 1)"
    )


def test_an_interval_that_contradicts_the_test_is_explained():
    result = both([0.6] * 7, [0.5, 0.4, 0.3, 0.5, 0.4, 0.1, 0.7])
    assert result.verdict == "unclear"
    assert result.paired.difference.side_of(0) == -1
    assert result.sentence.endswith(
        "the interval leaves out 0, but with few questions it is too short, so p decides"
    )


def test_three_questions_are_too_few_and_no_interval_says_otherwise():
    """All three agree, yet three coins agree in a quarter of all cases."""
    result = both([0.5, 0.5, 0.5], [0.3, 0.4, 0.35])
    assert result.paired.difference.high is None
    assert result.sentence == (
        "other against greedy: -0.1500, but 3 common questions are too few to tell; at least 6 are needed"
    )
    records = run({"greedy": [0.5] * 4, "cot": [0.3, 0.4, 0.35, 0.3]})
    [row] = rows(comparison(Contender(records, "greedy"), [Contender(records, "cot")]))
    assert (row["95% low"], row["95% high"], row["p"]) == (None, None, 2 / 2**4)


def test_six_questions_that_agree_are_enough():
    result = both([0.5] * 6, [0.3, 0.4, 0.35, 0.3, 0.31, 0.4])
    assert result.sentence.startswith("other is lower (better) than greedy by 0.1")
    assert result.paired.p_value == 2 / 2**6


def test_ties_do_not_count_as_questions_that_tell():
    result = both([0.5] * 8, [*[0.4] * 3, *[0.5] * 5])
    assert result.sentence == (
        "other against greedy: -0.0375 on 8 common questions, but they differ on 3 of them, too few to tell; "
        "at least 6 are needed"
    )
    assert both([0.5] * 8, [0.5] * 8).sentence == "other and greedy are equal on 8 common questions"


def test_too_little_in_common_is_said_in_words():
    assert both([0.5, None], [None, 0.5]).sentence == "other and greedy have no scored question in common"
    assert both([0.5], [0.25]).sentence == (
        "other against greedy: -0.2500, but 1 common question is too few to tell; at least 6 are needed"
    )


def test_the_comparison_has_a_row_for_each_contender():
    one, two = (
        run({"greedy": [0.5] * 4, "cot": [0.5, 0.5, 0.6, None]}, label="one"),
        run({"greedy": [0.4] * 4}, label="two"),
    )
    table = comparison(Contender(one, "greedy"), [Contender(one, "cot"), Contender(two, "greedy")])
    cot, other = rows(table)
    assert table.title == "Difference in SelfReflect score, strategy − greedy (one): below 0 is better"
    assert (cot["run"], cot["strategy"], cot["n common"], cot["coverage"]) == ("one", "cot", 3, 0.75)
    assert (cot["wins"], cot["ties"], cot["losses"], cot["p"]) == (0, 2, 1, 1)
    assert (other["run"], other["difference"], other["wins"], other["p"]) == (
        "two",
        pytest.approx(-0.1),
        4,
        2 / 16,
    )
    assert "cot against greedy: " in table.notes[0]
    assert "greedy (two) against greedy (one): " in table.notes[1]
    assert table.notes[-1].endswith("not adjusted for multiple comparisons")


def test_one_comparison_is_not_several():
    records = run({"greedy": [0.5] * 4, "cot": [0.4] * 4})
    assert (
        comparison(Contender(records, "greedy"), [Contender(records, "cot")])
        .notes[-1]
        .endswith("p: two-sided sign-flip test")
    )


@pytest.mark.parametrize("changes", [{"text": "Something else?"}, {"context": "Anna: red."}])
def test_questions_with_one_id_and_two_texts_or_contexts_are_not_the_same_question(changes):
    one, two = run({"greedy": [0.5] * 4}, label="one"), run({"greedy": [0.4] * 4}, label="two")
    changed = {**two.questions, "q0": replace(two.questions["q0"], **changes)}
    two = RunRecords("two", two.strategies, changed, two.answers, two.summaries, two.scores, ())
    table = comparison(Contender(one, "greedy"), [Contender(two, "greedy")])
    assert (rows(table)[0]["n common"], rows(table)[0]["coverage"]) == (3, 1)
    assert (
        table.notes[1]
        == "the runs ask different questions: 3 of 4 and 4 are common, and only these are compared"
    )


def test_a_comparison_across_judges_is_called_out():
    one, two = (
        run({"greedy": [0.5] * 4}, label="one"),
        run({"greedy": [0.4] * 4}, label="two", judge="judge-2"),
    )
    table = comparison(Contender(one, "greedy"), [Contender(two, "greedy")])
    assert table.notes[1].startswith(
        "NOT DIRECTLY COMPARABLE: greedy was scored with another judge or other settings (judge-2, "
    )


def test_an_unknown_strategy_is_refused_with_the_known_ones():
    with pytest.raises(
        DataError, match=r"run 'mine' has no strategy 'gredy', only greedy, cot\. Did you mean 'greedy'\?"
    ):
        contenders([run({"greedy": [], "cot": []}, label="mine")], "gredy")


def word(text, *distances, answer=0):
    return WordDistance(answer=answer, word=0, text=text, distances=distances)


def test_the_worst_words_are_means_over_their_occurrences():
    words = (
        word("Paris", 0.2),
        word("Paris.", 0.6, 0.8),
        word("Paris", 0.3),
        word("in", 0.9),
        word("Lyon", 0.3),
        word("odd"),
    )
    assert worst_words(words, 2) == [("in", 0.9), ("Paris", pytest.approx(0.4))]
    assert worst_words(words, 9)[2:] == [("Lyon", 0.3)]


def test_the_detail_of_a_question_holds_answers_summaries_and_words():
    records = run(
        {"greedy": [0.25], "basic": [None]},
        questions=1,
        failures=[failure("q0", name="basic")],
        words=(word("Paris", 0.5),),
    )
    greedy, basic = records.outcomes("q0")
    assert records.question("q0").text == "What is q0?"
    assert sorted(grouped_answers(records, "q0")) == [("Lyon", 1), ("Paris", 1)]
    assert (greedy.strategy, greedy.summary.text, greedy.score.value) == ("greedy", "word word word", 0.25)
    assert greedy.failure is None
    assert worst_words(greedy.score.words, 3) == [("Paris", 0.5)]
    assert (basic.strategy, basic.score, basic.failure.kind) == ("basic", None, "too_long")


def test_a_question_that_has_nothing_yet_has_no_outcome():
    records = run({"greedy": []}, questions=1)
    empty = RunRecords("", ("greedy",), records.questions, {}, {}, {}, ())
    assert grouped_answers(empty, "q0") == []
    assert empty.outcomes("q0") == [("greedy", None, None, None, None)]


def test_an_unknown_question_is_refused_with_some_that_exist():
    with pytest.raises(DataError, match=r"has no question 'q-7'\. .*What is q0\?"):
        run({"greedy": []}).question("q-7")


def test_a_question_is_found_by_its_id_its_text_or_a_part_that_only_it_has():
    records = run({"greedy": []}, questions=12)
    for wanted in ("q1", " what  IS Q1? ", "q1?"):
        assert records.question(wanted).id == "q1"
    with pytest.raises(DataError, match=r"3 questions of run '' contain 'is q1'.*\[q10\].*[Ii]d"):
        records.question("is q1")
    with pytest.raises(DataError, match=r"has no question ''"):
        records.question("")


# --- estimates

SAMPLED = Sampled(
    words_scored=20,
    words_total=80,
    tokens_scored=30,
    tokens_total=110,
    stderr=0.002,
    stopped="budget",
    budget="900",
)


def partly(values, exact=(), **fields):
    """A run whose scores are estimates, except for the strategies named in ``exact``."""
    made = run(values, **fields)
    scores = {
        key: one if key[1] in exact else score(*key, one.value, stderr=one.stderr, estimate=SAMPLED)
        for key, one in made.scores.items()
    }
    return RunRecords(
        made.label, made.strategies, made.questions, made.answers, made.summaries, scores, made.failures
    )


def test_an_estimated_mean_is_marked_and_says_how_much_was_scored():
    table = overview(partly({"greedy": [0.1, 0.2], "basic": [0.3, 0.5]}, questions=2))
    assert [line.split(" | ")[1] for line in to_markdown(table).splitlines()[4:6]] == ["≈0.1500", "≈0.4000"]
    assert (
        table.notes[1]
        == "≈: 4 of 4 scores are estimates from 80 of their 320 masked words (25%), not exact scores"
    )
    assert "≈" not in to_csv(table)


def test_a_mixed_table_marks_the_estimates_only_and_counts_them():
    table = overview(partly({"greedy": [0.1, None], "basic": [0.3, 0.5]}, exact=["basic"], questions=2))
    basic, greedy = to_markdown(table).splitlines()[4:6]
    assert greedy.split(" | ")[1] == "≈0.1000"
    assert greedy.endswith("≈0.1000 | 1 |")
    assert "≈" not in basic
    assert any(note.startswith("≈: 1 of 3 scores are estimates") for note in table.notes)


def test_exact_tables_say_nothing_of_estimates():
    exact = run({"greedy": [0.1, 0.2], "basic": [0.3, 0.5]}, questions=2)
    tables = [
        overview(exact),
        question_table(exact),
        comparison(Contender(exact, "greedy"), [Contender(exact, "basic")]),
    ]
    assert "≈" not in "".join(map(to_markdown, tables))


def test_rows_of_questions_say_from_how_many_words_they_were_estimated():
    (row,) = rows(question_table(partly({"greedy": [0.25]}, questions=1)))
    assert row["estimated_from"] == "20 of 80 words"


def test_differences_of_estimates_are_marked():
    mixed = partly({"greedy": [0.1, 0.2], "basic": [0.3, 0.5]}, exact=["basic"], questions=2)
    table = comparison(Contender(mixed, "basic"), [Contender(mixed, "greedy")])
    assert "| ≈-0.2500 |" in to_markdown(table)
    assert (
        "≈: 2 of 4 scores are estimates from 40 of their 160 masked words (25%), not exact scores"
        in table.notes
    )


def test_the_score_in_words_says_that_it_is_an_estimate():
    made = [partly({"greedy": [0.25]}, questions=1), run({"greedy": [0.25]}, questions=1)]
    assert [score_text(one.scores["q0", "greedy"]) for one in made] == [
        "≈0.2500 ± 0.0100 (estimated from 20 of 80 words)",
        "0.2500 ± 0.0100",
    ]
