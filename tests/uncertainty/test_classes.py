"""Rules that sort answers: their names, and their thresholds."""

from __future__ import annotations

import pytest

from selfreflect.errors import ConfigError
from selfreflect.uncertainty.classes import ClassRule, threshold_of
from selfreflect.uncertainty.question import AnsweredQuestion


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("same", "same"),
        ("exact", "exact"),
        ("numeric", "numeric"),
        ("jaccard", "jaccard:0.5, first"),
        ("rouge", "rouge:0.7, first"),
        ("jaccard:0.25", "jaccard:0.25, first"),
        ("rouge:1", "rouge:1, first"),
        ("nli:model", "nli:model, first"),
        ("numeric:1%", "numeric:1%, first"),
        ("numeric:1 per cent", "numeric:1 per cent, first"),
    ],
)
def test_a_rule_names_what_it_does(rule: str, name: str) -> None:
    assert ClassRule(rule).name == name
    assert ClassRule(rule).undecided == 0


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("exakt", "no class rule 'exakt'.* Did you mean 'exact'.* Known: same, exact, numeric"),
        ("exact:0.5", "the class rule 'exact' takes no threshold"),
        ("judge", "the class rule 'judge' needs a model to ask"),
        ("nli", "needs a model, as in nli:DIRECTORY"),
        ("jaccard:", "'jaccard:': the threshold after the colon must be a number"),
        ("rouge:1.01", "must be a number in"),
    ],
)
def test_other_rules_are_refused(rule: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ClassRule(rule)


@pytest.mark.parametrize("name", ["x:0", "x:-0.1", "x:1.0001", "x:inf", "x:nan", "x:a", "x:0.5:0.6"])
def test_other_thresholds_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"'{name}': the threshold"):
        threshold_of(name, 0.3)


def test_a_threshold_is_reached() -> None:
    """Two of four words are shared: 0.5."""
    question = AnsweredQuestion(id="q", answers=("a b c", "a b d", "e"))
    classes = {rule: ClassRule(rule)(question).tolist() for rule in ("jaccard", "jaccard:0.51")}
    assert classes == {"jaccard": [0, 0, 1], "jaccard:0.51": [0, 1, 2]}


def test_numbers_and_aliases_go_before_similarity() -> None:
    question = AnsweredQuestion(
        id="q", answers=("UK", "Britain", "the uk", "France"), aliases=(("uk", "britain"), ("france",))
    )
    assert ClassRule("jaccard:1")(question).tolist() == [0, 0, 0, 1]
    numbers = AnsweredQuestion(id="q", answers=("one", "1", "1.0 in all", "ONE"), aliases=())
    assert ClassRule("numeric")(numbers).tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("rule", "answers", "labels"),
    [
        ("numeric", ("5 km", "5 miles", "5", "5000 m"), [0, 1, 2, 0]),
        ("numeric", ("5 km", "5", "about 5 km"), [0, 0, 0]),
        ("numeric", ("3-5", "5", "It took 3–5."), [0, 1, 0]),
        ("numeric", ("1.5 million", "1.5 billion", "1,500,000"), [0, 1, 0]),
        ("numeric", ("12:30", "It is 12:30.", "30"), [0, 0, 1]),
        ("numeric", ("12:30 pm", "3-5", "12:30"), [0, 1, 0]),
        ("exact", ("King’s", "King's", "Jean‑Luc", "Jean-Luc", "-5", "5"), [0, 0, 1, 1, 2, 3]),
        ("same", ("Oslo", "The capital is Oslo.", "Rome", "not Oslo"), [0, 0, 1, 2]),
    ],
)
def test_what_rules_join(rule: str, answers: tuple[str, ...], labels: list[int]) -> None:
    question = AnsweredQuestion(id="q", text="What is the capital?", answers=answers)
    assert ClassRule(rule)(question).tolist() == labels
