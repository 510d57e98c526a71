"""The bundled items, and the made-up items of the curves."""

from __future__ import annotations

from selfreflect.bench.work import AXES, made_up_item, scaling_points
from selfreflect.sources.items import Item, bundled_items


def bundled() -> list[Item]:
    return bundled_items("bench_items")


def test_the_bundled_items_are_of_the_size_that_targets_are_stated_for() -> None:
    assert [(len(i.masked_out), len(i.conditioning), len(i.summaries)) for i in bundled()] == [
        (10, 10, 3)
    ] * 4


def test_a_made_up_item_has_exactly_the_size_asked_for_and_is_always_the_same() -> None:
    item = made_up_item(bundled(), "x", answers=3, words=5, summaries=2, context=20)
    assert [len(text.split()) for text in item.masked_out] == [5, 5, 5]
    assert [len(text.split()) for text in item.conditioning] == [7, 7, 6]
    assert [len(text.split()) for text in item.summaries.values()] == [20, 20]
    assert made_up_item(bundled(), "x", answers=3, words=5, summaries=2, context=20) == item
    longer = made_up_item(bundled(), "y", answers=4, words=9, summaries=3, context=40)
    assert all(
        text.startswith(start) for start, text in zip(item.masked_out, longer.masked_out, strict=False)
    )
    assert longer.summaries["summary 2"].startswith(item.summaries["summary 2"])
    assert len(set(longer.masked_out)) == 4


def test_a_curve_varies_one_size_and_keeps_the_others() -> None:
    seen: dict[str, list[int]] = {axis: [] for axis in AXES}
    for point in scaling_points(bundled()):
        item = point.item
        sizes = {
            "answers": len(item.masked_out),
            "words": len(item.masked_out[0].split()),
            "summaries": len(item.summaries),
            "context": len(item.summaries["summary 1"].split()),
        }
        defaults = {name: axis.default for name, axis in AXES.items()}
        assert sizes == {**defaults, point.axis: point.value}
        seen[point.axis].append(point.value)
    assert {axis: tuple(values) for axis, values in seen.items()} == {
        name: axis.values for name, axis in AXES.items()
    }
