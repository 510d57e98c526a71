"""Multiple choice: the grid, the texts, and the correlations of metrics whose answer is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from studies import LOWER, measured, rows

from selfreflect.errors import ConfigError
from selfreflect.validate.base import MetricInfo, Value
from selfreflect.validate.choice import QUESTIONS, MultipleChoice, shapes


def distances_of(study: MultipleChoice) -> dict[tuple[str, str], float]:
    """By item and summary."""
    rows = study.distances.reshape(len(study.items), -1)
    return {
        (item.id, name): distance
        for item, row in zip(study.items, rows.tolist(), strict=True)
        for name, distance in zip(item.summaries, row, strict=True)
    }


Score = Callable[[str, str, float], float | None]
"""Of the item, the summary and the distance."""


def values(study: MultipleChoice, metric: MetricInfo, score: Score) -> list[Value]:
    distances = distances_of(study)
    return measured(study, metric, lambda item, name: score(item.id, name, distances[item.id, name]))


def test_two_distributions_word_by_word():
    study = MultipleChoice(grid=2)
    certain, even, *_ = study.items
    assert certain.id == "choice-colour-10-0-0-0"
    assert certain.question == "Which colour would you paint the front door: red, blue, green or white?"
    assert {*certain.masked_out, *certain.conditioning} == {"blue"}
    assert certain.summaries == even.summaries
    assert even.summaries == {
        "red 0%, blue 100%, green 0%, white 0%": (
            "I would say “red” (0%), “blue” (100%), “green” (0%) or “white” (0%)."
        ),
        "red 30%, blue 20%, green 20%, white 30%": (
            "I would say “red” (30%), “blue” (20%), “green” (20%) or “white” (30%)."
        ),
    }
    assert Counter(even.masked_out) == Counter(even.conditioning)
    assert Counter(even.masked_out) == {"red": 3, "blue": 2, "green": 2, "white": 3}
    assert study.distances[0].tolist() == [[0.0, 0.8], [0.8, 0.0]]


def test_every_distribution_is_true_once_and_stated_of_all():
    study = MultipleChoice()
    assert len(study.items) == 16
    assert study.distances.shape == (2, 8, 8)
    for text, options in QUESTIONS.values():
        items = [item for item in study.items if text in item.question]
        assert len(items) == 8
        assert all(item.summaries == items[0].summaries for item in items)
        distances = distances_of(study)
        for item, name in zip(items, items[0].summaries, strict=True):
            assert [other for other in item.summaries if distances[item.id, other] == 0] == [name]
        assert max(distances[item.id, name] for item in items for name in item.summaries) >= 0.9
        most = [Counter(item.conditioning).most_common(1)[0][1] for item in items]
        leading = [
            place
            for item in items[:4]
            for place in [options.index(Counter(item.conditioning).most_common(1)[0][0])]
        ]
        assert (max(most), min(most), sorted(leading)) == (10, 3, [0, 1, 2, 3])
    for item in study.items:
        assert Counter(item.masked_out) == Counter(item.conditioning)
        assert len(item.masked_out) == 10
        assert len({len(text.split()) for text in item.summaries.values()}) == 1  # length tells nothing
    assert len({item.id for item in study.items}) == 16


@pytest.mark.parametrize("answers", [3, 25])
def test_distances_are_those_of_the_answers_that_are_there(answers: int):
    study = MultipleChoice(seed=2, grid=4, answers=answers)
    assert len(study.items) == 2 * min(4, len(shapes(answers)))
    for item in study.items:
        assert len(item.masked_out) == len(item.conditioning) == answers
        counts = Counter(item.conditioning)
        for name, text in item.summaries.items():
            stated = [
                (part.split()[0], int(part.split()[1].removesuffix("%")) / 100) for part in name.split(", ")
            ]
            distance = sum(abs(share - counts[option] / answers) for option, share in stated) / 2
            assert distances_of(study)[item.id, name] == pytest.approx(
                distance, abs=0.015
            )  # whole percentages
            for option, share in stated:
                assert f"“{option}” ({share * 100:.0f}%)" in text


def found(study: MultipleChoice, score: Score, metric: MetricInfo = LOWER) -> dict[str, Any]:
    """The row of a metric, with its sentence."""
    finding = study.finding(values(study, metric, score), [metric])
    [row] = rows(finding.tables[0])
    return {**row, "says": finding.says[1]}


@pytest.mark.parametrize(("turn", "verdict"), [(1, "as it must"), (-1, "BETTER")])
def test_the_true_distance_correlates_fully(turn: int, verdict: str):
    row = found(MultipleChoice(), lambda item, name, distance: turn * distance)
    assert (row["Spearman"], row["as measured"]) == (pytest.approx(turn), pytest.approx(turn))
    assert (row["n"], row["of"]) == (128, 128)
    assert row["p"] < 0.001
    assert 0 < row["form"] < 0.3
    assert verdict in row["says"]


def test_a_metric_that_reads_only_the_form_has_no_relation_net_of_form():
    """Statements with many zeros are far from most true distributions. Whoever likes zeros seems to like
    wrong statements."""
    row = found(MultipleChoice(), lambda item, name, _: 4.0 - name.count(" 0%"))
    assert row["as measured"] < -0.2
    assert (row["Spearman"], row["p"], row["form"]) == (None, None, pytest.approx(1))
    mixed = found(MultipleChoice(), lambda _, name, distance: distance / 10 - name.count(" 0%"))
    assert mixed["as measured"] < 0.2
    assert mixed["Spearman"] == pytest.approx(1, abs=1e-3)
    assert mixed["form"] > 0.9


def test_a_quirk_of_one_statement_with_some_truths_is_no_reading():
    """A bootstrap over true distributions holds it for certain, since it is in all of them."""
    study = MultipleChoice()
    odd = list(study.items[0].summaries)[1]
    turn = {item.id: 1 if number % 2 else -1 for number, item in enumerate(study.items)}
    assert found(study, lambda item, name, _: float(turn[item] * (name == odd)))["p"] > 0.05


def test_true_distributions_without_all_values_are_left_out_and_show_in_n():
    study = MultipleChoice()
    gap = study.items[3].id
    row = found(study, lambda item, name, distance: None if item == gap and not distance else distance)
    assert (row["n"], row["of"], row["Spearman"]) == (120, 128, pytest.approx(1, abs=0.02))
    nothing = found(study, lambda item, name, distance: None)
    assert (nothing["n"], nothing["Spearman"]) == (0, None)


@pytest.mark.parametrize("settings", [{"grid": 1}, {"grid": 24}, {"answers": 0}, {"answers": 1}])
def test_settings_that_make_no_sense_are_refused(settings: dict[str, int]):
    with pytest.raises(ConfigError) as caught:
        MultipleChoice(**settings)
    assert caught.value.code == "out_of_range"
