"""Figures that follow from what was measured, and the made-up items of the curves."""

from __future__ import annotations

from dataclasses import replace
from importlib import resources

import pytest

from selfreflect.bench.result import MachineSpeed, Measured, Result, Timing, to_json
from selfreflect.bench.scaling import AXES, Size, made_up_item, points
from selfreflect.bench.tables import agreement, item_table, work_table
from selfreflect.sources.items import read_items


def measured(a: float, b: float, c: float, difference: float | None = 1e-7) -> Measured:
    timings = {letter: Timing(seconds, 100, None) for letter, seconds in zip("abc", (a, b, c), strict=True)}
    machine = MachineSpeed(flops=1000, peak_seconds=c / 4, torch_gemm_seconds=c)
    return Measured("i", 10, 80, timings, difference, c / 2, machine)


def result(*items: Measured, dtype: str = "float32") -> Result:
    return Result(machine={"dtype": dtype}, only=("a", "b", "c"), items=list(items))


def test_ratios_are_taken_item_by_item_before_their_median() -> None:
    figures = to_json(result(measured(10, 4, 1), measured(12, 6, 3), measured(100, 50, 10)))
    assert (figures["speedup_against_requests"], figures["speedup_against_batched"]) == (10, 4)
    assert (figures["efficiency_of_gemm_peak"], figures["efficiency_with_text"]) == (0.5, 0.25)
    assert (figures["tokens_engine"], figures["tokens_tree"], figures["requests"]) == (300, 240, 30)
    assert (figures["flop_per_second_engine"], figures["flop_per_second_gemm_peak"]) == (
        1000 / 1.5,
        1000 / 0.75,
    )
    assert figures["flop_per_second_torch_gemm"] == 1000 / 3
    assert figures["memory_engine_bytes"] is None


def test_what_did_not_run_is_none_and_its_rate_is_never_a_number() -> None:
    timings = {"c": Timing(1, 100, None)}
    alone = Measured("i", 10, 80, timings, difference=None, model_seconds=0.5)
    only = Result(machine={"dtype": "float32"}, only=("c",), items=[alone])
    figures = to_json(only)
    for key in ("speedup_against_requests", "efficiency_of_gemm_peak", "seconds_batched", "tokens_requests"):
        assert figures[key] is None
    assert "no distances to compare" in agreement(only)
    assert "rate is unknown" in work_table(only).notes[-1]
    assert [column.heading for column in item_table(only).columns] == ["item", "requests", "(c) s"]


@pytest.mark.parametrize(("difference", "wrong"), [(9e-6, False), (1.1e-5, True)])
def test_float32_is_held_to_the_tolerance(difference: float, wrong: bool) -> None:
    outcome = result(measured(1, 1, 1), measured(1, 1, 1, difference))
    assert bool(outcome.disagreeing) is wrong
    assert ("one of them is wrong" in agreement(outcome)) is wrong


def test_half_precision_is_reported_and_not_held_to_it() -> None:
    outcome = result(measured(1, 1, 1, 3e-4), dtype="bfloat16")
    assert outcome.disagreeing == []
    assert "3.0e-04. The limit of 1e-05 holds for float32 only" in agreement(outcome)


def bundled() -> list:
    with resources.as_file(resources.files("selfreflect") / "data" / "bench_items.json") as path:
        return read_items(path)


def test_the_bundled_items_are_of_the_size_that_targets_are_stated_for() -> None:
    assert [(len(i.masked_out), len(i.conditioning), len(i.summaries)) for i in bundled()] == [
        (10, 10, 3)
    ] * 4


def test_a_made_up_item_has_exactly_the_size_asked_for_and_is_always_the_same() -> None:
    item = made_up_item(bundled(), Size(answers=3, words=5, summaries=2, context=20), "x")
    assert [len(text.split()) for text in item.masked_out] == [5, 5, 5]
    assert [len(text.split()) for text in item.conditioning] == [7, 7, 6]
    assert [len(text.split()) for text in item.summaries.values()] == [20, 20]
    assert made_up_item(bundled(), Size(answers=3, words=5, summaries=2, context=20), "x") == item
    longer = made_up_item(bundled(), Size(answers=4, words=9, summaries=3, context=40), "y")
    assert all(
        text.startswith(start) for start, text in zip(item.masked_out, longer.masked_out, strict=False)
    )
    assert longer.summaries["summary 2"].startswith(item.summaries["summary 2"])
    assert len(set(longer.masked_out)) == 4


def test_a_curve_varies_one_size_and_keeps_the_others() -> None:
    seen = {axis: [] for axis in AXES}
    for point in points(bundled()):
        item = point.item
        size = Size(
            len(item.masked_out),
            len(item.masked_out[0].split()),
            len(item.summaries),
            len(item.summaries["summary 1"].split()),
        )
        assert size == replace(Size(), **{point.axis: point.value})
        seen[point.axis].append(point.value)
    assert {axis: tuple(values) for axis, values in seen.items()} == AXES
