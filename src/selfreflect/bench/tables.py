"""A benchmark as tables for people."""

from __future__ import annotations

from selfreflect.bench.result import NAMES, SCHEDULES, TOLERANCE, Measured, Result, figures, most_memory
from selfreflect.bench.scaling import LABELS
from selfreflect.errors import excerpt
from selfreflect.render.table import Cell, Column, Table


def item_table(result: Result) -> Table:
    """Seconds of each schedule, and how many times faster the engine is; the last row has the medians."""
    found = figures(result)
    columns = [
        Column("item"),
        Column("requests", "d"),
        *(Column(f"({letter}) s", ".2f") for letter in result.only),
    ]
    others = [letter for letter in result.only if letter != "c"] if "c" in result.only else []
    columns += [Column(f"({letter})/(c)", ".2f") for letter in others]
    rows = [_item_row(one, result.only, others) for one in result.items]
    middle: list[Cell] = ["median", None, *(found[f"seconds_{SCHEDULES[letter]}"] for letter in result.only)]
    middle += [found[f"speedup_against_{SCHEDULES[letter]}"] for letter in others]
    return Table(
        title="Time per item",
        columns=tuple(columns),
        rows=(*rows, tuple(middle)),
        notes=tuple(_batch_note(result)),
    )


def _item_row(one: Measured, only: tuple[str, ...], others: list[str]) -> tuple[Cell, ...]:
    return (
        one.id,
        one.requests,
        *(one.seconds(letter) for letter in only),
        *(one.speedup(letter) for letter in others),
    )


def _batch_note(result: Result) -> list[str]:
    if result.batch_size is None:
        return []
    tried = ", ".join(f"{size} took {seconds:.2f} s" for size, seconds in result.batch_trials.items())
    return [
        f"(b) runs {result.batch_size} requests at a time, the fastest size on part of an item of middling size: {tried}."
    ]


def schedule_table(result: Result) -> Table:
    """Tokens computed against those of the trees, and memory."""
    tree = sum(one.tree_tokens for one in result.items)
    rows: list[tuple[Cell, ...]] = []
    for letter in result.only:
        tokens = sum(one.timings[letter].tokens for one in result.items)
        memory = most_memory(result.items, letter)
        rows.append((NAMES[letter], tokens, tokens / tree, None if memory is None else memory / 2**20))
    notes = [
        f"The trees have {tree} nodes, one tree for each context. (a) can have fewer: it also shares what contexts begin with."
    ]
    notes += ["Memory is the highest of any item, above the loaded model."]
    columns = (
        Column("schedule"),
        Column("tokens computed", ",d"),
        Column("per tree node", ".3f"),
        Column("peak memory MiB", ",.0f"),
    )
    return Table(title="Work", columns=columns, rows=tuple(rows), notes=tuple(notes))


def efficiency_table(result: Result) -> Table:
    """How close the engine is to the machine's own speed; medians over the items."""
    found = figures(result)
    peak, usual = found["flop_per_second_gemm_peak"], found["flop_per_second_torch_gemm"]
    rows: list[tuple[Cell, ...]] = [
        ("matrix products alone, at the model's shapes (the peak)", _giga(peak), 1.0),
        (
            "the same with torch's own choice of a kernel",
            _giga(usual),
            None if usual is None else usual / peak,
        ),
        (
            "engine, from trees to distances",
            _giga(found["flop_per_second_engine"]),
            found["efficiency_of_gemm_peak"],
        ),
    ]
    share = found["efficiency_with_text"]
    overall = None if share is None else share * peak
    rows.append(("engine, from texts to scores", _giga(overall), share))
    note = "Only operations that the trees need are counted: no padding, no repetition."
    if peak is None:
        note = "The operations of this judge's architecture are not counted, so there is no rate."
    columns = (Column("what"), Column("GFLOP/s", ",.1f"), Column("share of peak", ".1%"))
    return Table(title="Speed against the machine's peak", columns=columns, rows=tuple(rows), notes=(note,))


def scaling_table(result: Result) -> Table:
    """How cost grows with one size of an item, the others staying the same."""
    rows: list[tuple[Cell, ...]] = []
    for point in result.scaling:
        one = point.measured
        rows.append(
            (
                LABELS[point.axis],
                point.value,
                one.requests,
                one.tree_tokens,
                *(one.seconds(letter) for letter in result.only),
            )
        )
    columns = (Column("what grows"), Column("to", "d"), Column("requests", ",d"), Column("tree nodes", ",d"))
    return Table(
        title="How cost grows",
        columns=(*columns, *(Column(f"({x}) s", ".2f") for x in result.only)),
        rows=tuple(rows),
    )


def agreement(result: Result) -> str:
    """One sentence on whether the schedules gave the same distances."""
    if result.difference is None:
        return "One schedule alone ran, so there is nothing to compare its distances with."
    apart = f"Distances of the schedules differ by at most {result.difference:.1e}"
    if result.machine["dtype"] != "float32":
        return f"{apart}. Only float32 is held to {TOLERANCE:.0e}; this is {result.machine['dtype']}."
    if not result.disagreeing:
        return f"{apart}; {TOLERANCE:.0e} is allowed."
    names = ", ".join(f"{excerpt(one.id)} ({one.difference:.1e})" for one in result.disagreeing[:5])
    return f"{apart}, and {TOLERANCE:.0e} is allowed, so one of them is wrong. Too far apart: {names}."


def _giga(value: float | None) -> float | None:
    return None if value is None else value / 1e9
