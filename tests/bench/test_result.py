"""Figures of all items, their tables, and whether the schedules agree."""

from __future__ import annotations

import pytest

from selfreflect.bench.result import (
    Figures,
    Result,
    agreement,
    item_table,
    scaling_table,
    to_json,
    work_table,
)


def figures_of(a: float, b: float, c: float, difference: float = 1e-7) -> Figures:
    return {
        "id": "i",
        "requests": 10,
        "tokens_tree": 80,
        "difference": difference,
        "seconds_requests": a,
        "seconds_batched": b,
        "seconds_engine": c,
        "tokens_engine": 100,
        "memory_engine_bytes": None,
        "speedup_against_requests": a / c,
        "speedup_against_batched": b / c,
    }


def result(*items: Figures, dtype: str = "float32") -> Result:
    return Result(machine={"dtype": dtype}, only=("a", "b", "c"), items=list(items))


def test_ratios_are_taken_item_by_item_before_their_median() -> None:
    outcome = result(figures_of(10, 4, 1), figures_of(12, 6, 3), figures_of(100, 50, 10))
    figures = to_json(outcome)
    assert (figures["speedup_against_requests"], figures["speedup_against_batched"]) == (10, 4)
    assert (figures["tokens_engine"], figures["tokens_tree"], figures["requests"]) == (300, 240, 30)
    assert figures["memory_engine_bytes"] is None
    table = item_table(outcome)
    headings = [column.heading for column in table.columns]
    assert headings == ["item", "requests", "(a) s", "(b) s", "(c) s", "(a)/(c)", "(b)/(c)"]
    assert table.rows[-1] == ("median", None, 12, 6, 3, 10, 4)
    outcome.scaling.append({**figures_of(10, 4, 1), "axis": "words", "value": 4})
    assert scaling_table(outcome).rows == (("words per masked-out answer", 4, 10, 80, 10, 4, 1),)


def test_what_did_not_run_is_none_and_its_rate_is_never_a_number() -> None:
    alone = {"id": "i", "requests": 10, "tokens_tree": 80, "difference": None, "seconds_engine": 1}
    alone |= {"tokens_engine": 100, "memory_engine_bytes": None}
    only = Result(machine={"dtype": "float32"}, only=("c",), items=[alone])
    only.scaling.append({**alone, "axis": "words", "value": 4})
    figures = to_json(only)
    for key in ("speedup_against_requests", "efficiency_of_gemm_peak", "seconds_batched", "tokens_requests"):
        assert figures[key] is None
    assert "no distances to compare" in agreement(only)
    assert "rate is unknown" in work_table(only).notes[-1]
    assert [column.heading for column in item_table(only).columns] == ["item", "requests", "(c) s"]
    assert scaling_table(only).rows == (("words per masked-out answer", 4, 10, 80, 1),)


@pytest.mark.parametrize(("difference", "wrong"), [(9e-6, False), (1.1e-5, True)])
def test_float32_is_held_to_the_tolerance(difference: float, wrong: bool) -> None:
    outcome = result(figures_of(1, 1, 1), figures_of(1, 1, 1, difference))
    assert bool(outcome.disagreeing) is wrong
    assert ("one of them is wrong" in agreement(outcome)) is wrong


def test_half_precision_is_reported_and_not_held_to_it() -> None:
    outcome = result(figures_of(1, 1, 1, 3e-4), dtype="bfloat16")
    assert outcome.disagreeing == []
    assert "3.0e-04. The limit of 1e-05 holds for float32 only" in agreement(outcome)
