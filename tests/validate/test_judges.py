"""Agreement between judges: over names, single summaries and the order within items."""

from __future__ import annotations

import pytest

from selfreflect.errors import ConfigError
from selfreflect.sources.items import Item
from selfreflect.validate.agreement import JudgeAgreement
from selfreflect.validate.base import MetricInfo, Undefined, Value
from selfreflect.validate.study import Finding

METRIC = MetricInfo(
    name="selfreflect", better="lower", group="selfreflect", about="made up", needs=("judge",)
)
NAMES = ("greedy", "basic", "cot", "sampled")


def items(n: int, names: tuple[str, ...] = NAMES) -> list[Item]:
    texts = {name: name for name in names}
    return [
        Item(id=f"i{number}", question="Why?", masked_out=("x",), conditioning=("y",), summaries=texts)
        for number in range(n)
    ]


def value(item: Item, summary: str, by: str, number: float | None, metric: MetricInfo = METRIC) -> Value:
    why = Undefined(reason="too_long", message="no room") if number is None else None
    return Value(
        metric=metric.name, item=item.id, summary=summary, digest="", by=by, value=number, undefined=why
    )


def agreement(made: list[Item], **judges) -> Finding:
    values = [
        value(item, name, by, rule(number, place))
        for by, rule in judges.items()
        for number, item in enumerate(made)
        for place, name in enumerate(item.summaries)
    ]
    return JudgeAgreement(made).finding(values, [METRIC])


def rows(found: Finding) -> list[dict[str, object]]:
    """One for each two judges, of all three tables on how they agree."""
    made = []
    for cells in zip(*(table.rows for table in found.tables[:3]), strict=True):
        row: dict[str, object] = {"judge": cells[0][1], "other judge": cells[0][2]}
        assert {of[:3] for of in cells} == {cells[0][:3]}
        for name, n, of in zip(
            ("names", "summaries", "same order"), ("n names", "n summaries", "items"), cells, strict=True
        ):
            row |= dict(zip((name, f"{name} low", f"{name} high", n), of[3:], strict=True))
        made.append(row)
    return made


def plain(number: int, place: int) -> float:
    return 0.1 * place + 0.01 * (number * 7 % 5)


def test_a_judge_agrees_with_a_rescaled_copy_of_itself():
    (row,) = rows(agreement(items(10), a=plain, b=lambda number, place: 3 * plain(number, place) + 1))
    assert (row["judge"], row["other judge"]) == ("a", "b")
    assert (row["names"], row["n names"], row["n summaries"], row["items"]) == (pytest.approx(1), 4, 40, 10)
    assert row["summaries"] == pytest.approx(1)
    assert row["same order"] == 1
    assert row["same order low"] == pytest.approx(0.025 ** (1 / 10))


def test_a_judge_that_turns_everything_round_disagrees():
    (row,) = rows(agreement(items(10), a=plain, b=lambda number, place: -plain(number, place)))
    assert (row["names"], row["summaries"], row["same order"]) == (pytest.approx(-1), pytest.approx(-1), 0)


def test_one_exchange_of_neighbours_among_four_names():
    order = (0, 2, 1, 3)
    found = agreement(items(10), a=plain, b=lambda number, place: plain(number, order[place]))
    (row,) = rows(found)
    assert row["names"] == pytest.approx(4 / 6)  # five pairs agree, one does not
    assert row["same order"] == pytest.approx(5 / 6)
    assert "in the same order in 83%" in found.says[0]


def test_hard_questions_raise_the_correlation_of_summaries_but_not_the_order_within_items():
    (row,) = rows(
        agreement(items(20), a=lambda n, place: n + 0.1 * place, b=lambda n, place: n - 0.1 * place)
    )
    assert row["summaries"] > 0.9
    assert row["same order"] == 0
    assert row["names"] == pytest.approx(-1)


def test_the_interval_of_the_names_is_over_items():
    found = agreement(items(20), a=plain, b=lambda n, place: 0.1 * place if n % 2 else -0.09 * place)
    assert "in 50% [30%, 70%] of pairs, which cannot be told from a coin;" in found.says[0]
    assert "cannot be told" not in agreement(items(20), a=plain, b=plain).says[0]
    (row,) = rows(found)
    assert row["names low"] < row["names"] <= row["names high"] <= 1


def test_summaries_of_one_item_are_not_counted_as_independent():
    def rules(made: list[Item]) -> dict[str, object]:
        (row,) = rows(agreement(made, a=lambda n, place: float(n), b=lambda n, place: float(n * 7 % 10)))
        return row

    four, one = rules(items(10)), rules(items(10, ("greedy",)))
    assert (four["n summaries"], one["n summaries"]) == (40, 10)
    assert four["summaries low"] == pytest.approx(one["summaries low"])
    assert four["summaries high"] == pytest.approx(one["summaries high"])


def test_each_two_judges_are_compared():
    found = agreement(items(6), a=plain, b=plain, c=plain)
    assert [(row["judge"], row["other judge"]) for row in rows(found)] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert len(found.says) == 4


def test_only_what_both_judges_value_is_compared():
    (row,) = rows(
        agreement(
            items(6),
            a=plain,
            b=lambda number, place: None if number == 0 and place < 3 else plain(number, place),
        )
    )
    # the first item has one summary left, which has no order
    assert (row["n summaries"], row["items"]) == (21, 5)


def test_two_names_have_no_rank_correlation():
    found = agreement(items(8, ("good", "bad")), a=plain, b=plain)
    assert rows(found)[0]["names"] is None
    assert "the means of 2 strategies is undefined" in found.says[0]


def test_each_summary_is_a_dot_with_its_values_by_both_judges():
    found = agreement(items(6), a=plain, b=lambda number, place: 2 * plain(number, place))
    (plot,) = found.plots
    assert (plot.x_label, plot.y_label, [curve.label for curve in plot.curves]) == ("a", "b", list(NAMES))
    for place, curve in enumerate(plot.curves):
        assert curve.x == tuple(plain(number, place) for number in range(6))
        assert curve.y == tuple(2 * x for x in curve.x)


def test_metrics_by_one_judge_are_named_and_left_out():
    other = MetricInfo(name="length", better="higher", group="control", about="made up")
    made = items(6)
    values = [
        value(item, name, by, plain(0, place))
        for by in "ab"
        for item in made
        for place, name in enumerate(item.summaries)
    ]
    values += [value(item, name, "", 1.0, other) for item in made for name in item.summaries]
    found = JudgeAgreement(made).finding(values, [METRIC, other])
    assert {row[0] for table in found.tables for row in table.rows} == {"selfreflect"}
    assert "Left out, because fewer than two judges computed them: length." in found.says


@pytest.mark.parametrize("n", [1, 3])
def test_few_items_are_said_to_be_too_few(n):
    found = agreement(items(n), a=plain, b=plain)
    assert "too small a number" in found.says[0]


def test_a_judge_without_any_value_agrees_on_nothing():
    found = agreement(items(8), a=plain, b=lambda number, place: None)
    (row,) = rows(found)
    assert (row["names"], row["summaries"], row["same order"], row["items"]) == (None, None, None, 0)
    assert "too small a number" in found.says[0]


def test_one_judge_or_metrics_without_a_model_cannot_be_compared():
    with pytest.raises(ConfigError, match="two or more"):
        agreement(items(8), a=plain)
    with pytest.raises(ConfigError, match="two or more"):
        JudgeAgreement(items(2)).finding([value(items(2)[0], "greedy", "", 1.0)], [METRIC])
    with pytest.raises(ConfigError, match="two or more"):
        JudgeAgreement(items(2)).finding(
            [value(items(2)[0], "greedy", by, 1.0) for by in ("", "a")], [METRIC]
        )
    elsewhere = [value(item, "greedy", by, 1.0) for item in items(9)[3:] for by in "ab"]
    with pytest.raises(ConfigError, match="two or more"):
        JudgeAgreement(items(2)).finding(elsewhere, [METRIC])
