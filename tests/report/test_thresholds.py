"""``compare --fail-if``: a gate for other people's continuous integration, which never passes by accident."""

from __future__ import annotations

import operator
from pathlib import Path

import pytest
from command import run
from finished_run import write_run
from hypothesis import given
from hypothesis import strategies as st
from plain_runs import run as plain_run

from selfreflect.errors import ConfigError
from selfreflect.metric.measure import measure_named
from selfreflect.records import Score, Summary
from selfreflect.report.compare import Contender, compare
from selfreflect.report.thresholds import check_conditions, parse_condition
from selfreflect.store.run import Run

OPERATORS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


@pytest.fixture(scope="module")
def worse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Greedy scores 0.375 on seven questions, basic a little more on each, and odd has no score."""
    path = write_run(tmp_path_factory.mktemp("worse") / "r", count=7, informed=True)
    with Run.open(path, {}) as stored:
        for number in range(7):
            for name, value in {"basic": 0.4 + number / 1000, "odd": 0.2}.items():
                stored.append(Summary(question_id=f"q{number}", name=name, text="x"))
                if name == "basic":
                    fields = {"value": value, "stderr": None, "token_tasks": 2, "judge": "tiny"}
                    stored.append(Score(question_id=f"q{number}", summary=name, **fields))
    return path


@pytest.mark.parametrize(
    ("conditions", "code"),
    [
        (["worse > 0"], 3),
        (["worse>=2"], 2),  # nobody can tell of odd
        (["worse>=2", "untestable > 1"], 0),
        (["worse>=2", "untestable > 0"], 3),
        (["better != 0", "untestable > 1"], 0),
        (["unclear == 1"], 3),
        (["unclear > 1"], 0),
        (["worse > better"], 2),
        (["difference > 2.5%"], 3),
        (["difference > 100%"], 2),  # that of odd is not defined
        (["difference > 100%", "untestable > 1"], 0),
        (["n < 7"], 3),
        (["losses > 6"], 3),
        (["recovered.worse > 0"], 2),  # not measured for basic and odd
    ],
)
def test_the_exit_code_says_whether_a_condition_holds(worse: Path, conditions: list[str], code: int) -> None:
    flags = [part for condition in conditions for part in ("--fail-if", condition)]
    done = run("compare", worse, *flags)
    assert done.code == code, done.stderr
    assert run("compare", worse, *flags, "--json").code == code
    if code == 3:
        assert f"{conditions[-1]} holds" in done.said


def test_it_says_what_holds_and_where(worse: Path) -> None:
    said = run("compare", worse, "--fail-if", "losses > 6", "--fail-if", "difference > 2.5%").said
    assert "losses is 7 for basic of r" in said
    assert "difference is 0.028 (2.8 %) for basic of r" in said


def test_each_version_with_a_gap_is_named(worse: Path) -> None:
    done = run("report", worse, "--fail-if", "recovered < 1%")
    assert done.code == 2
    gaps = [line for line in done.stderr.splitlines() if "recovered < 1% is undecided" in line]
    assert [name for name in ("greedy", "basic", "odd") if any(f"of {name}" in line for line in gaps)] == [
        "basic",
        "odd",
    ]


@pytest.mark.parametrize(
    ("allowance", "is_allowed"),
    [("undefined > 2", True), ("recovered.undefined > 2", True), ("score.undefined > 2", False)],
)
def test_what_may_be_undefined_of_a_measure_says_nothing_of_another(allowance: str, is_allowed: bool) -> None:
    condition = parse_condition("recovered < 60%")
    assert parse_condition(allowance).allows(condition, "undefined") is is_allowed


def test_where_nothing_can_be_compared_is_an_error_not_a_pass(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, strategy=strategy) for name, strategy in (("a", "greedy"), ("b", "x"))]
    for arguments in ([runs[0], "--fail-if", "worse > 0"], [*runs, "--fail-if", "recovered.difference < 0"]):
        assert run("compare", *arguments).code == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wrse > 0", "'worse'"),
        ("worse > lots", "is not a number"),
        ("losses > wins", "'difference < 0'"),
        ("recovered.worse >= recovered.better", "'worse > 0'"),
        ("0 < worse", "there is no '0'"),
        ("worse", "'worse > 0'"),
        ("worse > nan", "is not a number"),
        ("worse > 1_0", "is not a number"),
        ("__import__('os').getcwd() > 0", "cannot be read"),
        ("worse > 0 or better > 0", "cannot be read"),
        ("x" * 5000 + " > 1", "there is no"),
        ("worse > 5%", "strategies"),
        ("recovered.losses > 50%", "questions"),
        ("recovered.difference < -5", "-5%"),
        ("p_value < 5", "5%"),
        ("high >= " + "9" * 5000, "a share of 1"),
        ("recovered < 60", "60%"),
        ("recovered < lots", "is not a number"),
        ("recoverd < 60%", "'recovered'"),
        ("any wrse < 1", "there is no 'any"),
        ("any undefined > 0", "there is no 'any"),
        ("undefined > 2 words", "is not in 'words'"),
        ("score < 0.5 words", "is not in 'words'"),
        ("recovered <", "cannot be read"),
        ("< 60%", "cannot be read"),
        ("any", "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_anything_else_is_refused_before_anything_is_read(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_condition(text)
    assert caught.value.code == "condition"
    for command in (["compare", "no-such-run"], ["report", "none"], ["score", "--items", "none.csv"]):
        refused = run(*command, "--fail-if", text)
        assert refused.code == 2
        assert said in refused.said
        assert len(refused.said) < 600


@given(st.text(max_size=40))
def test_any_text_is_a_condition_or_is_refused(text: str) -> None:
    try:
        condition = parse_condition(text)
    except ConfigError:
        return
    assert condition.name.part in text


@given(st.floats(-0.9999, 0.9999), st.sampled_from(sorted(OPERATORS)))
def test_numbers_are_compared_as_python_does(number: float, sign: str) -> None:
    condition = parse_condition(f"difference {sign} {number!r}")
    assert condition.is_met_by(0.5) == OPERATORS[sign](0.5, number)


@given(st.integers(-1000, 1000), st.sampled_from(["wins", "n"]))
def test_counts_are_compared_with_any_number_of_questions(number: int, name: str) -> None:
    assert parse_condition(f"{name} > {number}").limit == number


@pytest.mark.parametrize(("changed", "is_cautious"), [(5, True), (6, False)])
def test_a_pass_says_if_too_few_questions_differ_for_any_other_verdict(
    changed: int, is_cautious: bool
) -> None:
    """Eight questions decide, even if five of them differ: no test could have found these five worse."""
    values = [0.5 + (number < changed) * (0.1, -0.1)[number % 2] for number in range(8)]
    records = plain_run({"greedy": [0.5] * 8, "basic": values}, questions=8)
    sides = Contender(records, "greedy"), Contender(records, "basic")
    [outcome] = check_conditions([parse_condition("worse > 0")], [sides])
    assert (outcome.holds, outcome.gaps) == ([], [])
    sentence = compare(*sides, measure_named("selfreflect")).sentence
    assert (sentence in outcome.findings) == is_cautious
