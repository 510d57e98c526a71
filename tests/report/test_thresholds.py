"""``compare --fail-if``: a gate for other people's continuous integration, which never passes by accident."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import run
from finished_run import write_run
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.errors import ConfigError
from selfreflect.records import Score, Summary
from selfreflect.report.thresholds import parse_threshold
from selfreflect.store.run import Run


@pytest.fixture(scope="module")
def worse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Greedy scores 0.375 on seven questions, basic a little more on each, and odd has one score."""
    path = write_run(tmp_path_factory.mktemp("worse") / "r", count=7, informed=True)
    with Run.open(path, {}) as stored:
        for number in range(7):
            for name, value in {"basic": 0.4 + number / 1000, "odd": 0.2}.items():
                stored.append(Summary(question_id=f"q{number}", name=name, text="x"))
                if name == "basic":
                    scored = Score(
                        question_id=f"q{number}",
                        summary=name,
                        value=value,
                        stderr=None,
                        token_tasks=2,
                        judge="tiny",
                    )
                    stored.append(scored)
    return path


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("worse > 0", 3),
        ("worse>=2", 0),
        ("better != 0", 0),
        ("unclear == 1", 3),
        ("worse > better", 3),
        ("difference > 2.5%", 2),  # that of odd is not defined
        ("recovered.worse > 0", 0),
        ("n < 7", 3),
        ("losses > wins", 3),
    ],
)
def test_the_exit_code_says_whether_a_condition_holds(worse: Path, condition: str, code: int) -> None:
    done = run("compare", worse, "--fail-if", condition)
    assert done.code == code, done.stderr
    assert run("compare", worse, "--fail-if", "better > 5", "--fail-if", condition, "--json").code == code


def test_it_says_what_holds_and_where(worse: Path) -> None:
    said = run("compare", worse, "--fail-if", "losses > wins", "--fail-if", "worse > 0").said
    assert "losses > wins holds: losses is 7, wins is 0 for basic of r" in said
    assert "worse > 0 holds: worse is 1" in said


def test_a_share_is_shown_in_percent_too() -> None:
    line = {"strategy": "basic", "run": "r", "difference": 0.028, "sentence": "", "verdict": "worse"}
    line["recovered"] = {"difference": -0.0701, "low": -0.1, "verdict": "worse"}
    [said] = parse_threshold("difference > 2.5%").line_breaches([line])
    assert said == "difference > 2.5% holds: difference is 0.028 (2.8%) for basic of r"
    [said] = parse_threshold("recovered.difference < -0.05").line_breaches([line])
    assert "recovered.difference is -0.0701 (-7.01%) for" in said
    [said] = parse_threshold("recovered.low < difference").line_breaches([line])
    assert "recovered.low is -0.1 (-10%), difference is 0.028 (2.8%) for" in said


def test_a_number_that_is_not_defined_is_an_error_not_a_pass(worse: Path, tmp_path: Path) -> None:
    refused = run("compare", worse, "--fail-if", "difference > 100%")
    assert refused.code == 2
    assert "difference is not defined for 'odd'" in refused.said
    one = write_run(tmp_path / "one")
    assert "nothing to compare" in run("compare", one, "--fail-if", "worse > 0").said
    two = write_run(tmp_path / "two", strategy="basic")
    refused = run("compare", one, two, "--fail-if", "recovered.difference < 0")
    assert refused.code == 2
    assert "was not measured in all of these runs" in refused.said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "wrse > 0",
            "there is no 'wrse'. Did you mean 'worse'? Names are better, worse, unclear, untestable, di",
        ),
        ("worse > lots", "there is no 'lots'"),
        ("0 < worse", "there is no '0'"),
        ("worse", "Write a name, one of < <= > >= == !="),
        ("worse > nan", "there is no 'nan'"),
        ("worse > 1_0", "there is no '1_0'"),
        ("__import__('os').getcwd() > 0", "is not understood"),
        ("worse > 0 or better > 0", "is not understood"),
        ("x" * 5000 + " > 1", "there is no"),
        ("worse > 5%", "worse counts strategies and is no share of them. Write a whole number"),
        ("recovered.losses > 50%", "recovered.losses counts questions"),
        ("recovered.difference < -5", "'-5' of it would be -500%. Write '-5%' if you mean percent"),
        ("p_value < 5", "p_value is a share of 1"),
        ("high >= " + "9" * 5000, "high is a share of 1"),
    ],
)
def test_anything_else_is_refused_before_a_run_is_read(text: str, said: str) -> None:
    refused = run("compare", "no-such-run", "--fail-if", text)
    assert refused.code == 2
    assert said in refused.said
    assert len(refused.said) < 600


@given(st.text(max_size=40))
def test_any_text_is_a_condition_or_is_refused(text: str) -> None:
    try:
        threshold = parse_threshold(text)
    except ConfigError:
        return
    assert threshold.left in text


@given(st.floats(-0.9999, 0.9999), st.sampled_from(["<", "<=", ">", ">=", "==", "!="]))
def test_numbers_are_compared_as_python_does(number: float, sign: str) -> None:
    line = {"strategy": "basic", "run": "r", "difference": 0.5, "sentence": "", "verdict": "unclear"}
    holds = bool(parse_threshold(f"difference {sign} {number!r}").line_breaches([line]))
    assert holds == eval(f"0.5 {sign} {number!r}")


@given(st.integers(-1000, 1000), st.sampled_from(["wins", "n"]))
def test_counts_are_compared_with_any_number_of_questions(number: int, name: str) -> None:
    line = {"strategy": "basic", "run": "r", "n": 7, "wins": 7, "sentence": "", "verdict": "unclear"}
    assert bool(parse_threshold(f"{name} > {number}").line_breaches([line])) == (number < 7)
