"""Presents a benchmark to people: tables, a sentence on agreement, and the curves as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from selfreflect.bench import scaling
from selfreflect.bench.result import LABELS, SCHEDULES, TOLERANCE, Result, to_json
from selfreflect.errors import excerpt
from selfreflect.render.plots import LINE, drawing
from selfreflect.render.table import Cell, Column, Table
from selfreflect.render.text import one_line


def item_table(result: Result) -> Table:
    """Seconds of each schedule, and how many times faster the engine is; the last row has the medians."""
    keys = ["id", "requests"]
    columns = [Column("item"), Column("requests", "d")]
    for letter in result.only:
        keys.append(f"seconds_{SCHEDULES[letter]}")
        columns.append(Column(f"({letter}) s", ".2f"))
    for letter in result.only:
        if letter != "c" and "c" in result.only:
            keys.append(f"speedup_against_{SCHEDULES[letter]}")
            columns.append(Column(f"({letter})/(c)", ".2f"))
    medians = {**to_json(result), "id": "median", "requests": None}
    rows = [_row(item.figures, keys) for item in result.items]
    rows.append(_row(medians, keys))
    return Table("Time per item", tuple(columns), tuple(rows), notes=_batch_note(result))


def _row(figures: dict[str, Any], keys: list[str]) -> tuple[Cell, ...]:
    return tuple(figures[key] for key in keys)


def _batch_note(result: Result) -> tuple[str, ...]:
    if result.batch_size is None:
        return ()
    trials = ", ".join(f"{size} took {seconds:.2f} s" for size, seconds in result.batch_trials.items())
    return (
        f"(b) runs {result.batch_size} requests at a time, the fastest size on part of an item of median "
        f"size: {trials}.",
    )


def work_table(result: Result) -> Table:
    """Tokens computed by each schedule, its memory, and the engine's share of the machine's peak."""
    figures = to_json(result)
    nodes = figures["tokens_tree"]
    rows: list[tuple[Cell, ...]] = []
    for letter in result.only:
        tokens = figures[f"tokens_{SCHEDULES[letter]}"]
        memory = figures[f"memory_{SCHEDULES[letter]}_bytes"]
        rows.append((LABELS[letter], tokens, tokens / nodes, None if memory is None else memory / 2**20))
    notes = [
        f"The trees have {nodes} nodes, one tree for each context. (a) can compute fewer tokens, because it "
        "also shares prefixes between contexts.",
        "Memory is the highest of any item, above the loaded model.",
    ]
    if "c" in result.only:
        notes.append(_efficiency_note(figures))
    columns = (
        Column("schedule"),
        Column("tokens computed", ",d"),
        Column("per tree node", ".3f"),
        Column("peak memory MiB", ",.0f"),
    )
    return Table("Work", columns, tuple(rows), notes=tuple(notes))


def _efficiency_note(figures: dict[str, Any]) -> str:
    if figures["flop_per_second_gemm_peak"] is None:
        return "The engine's rate is unknown: the operations of this judge's architecture are not counted."
    engine = figures["flop_per_second_engine"] / 1e9
    peak = figures["flop_per_second_gemm_peak"] / 1e9
    torch_gemm = figures["flop_per_second_torch_gemm"] / 1e9
    return (
        f"From trees to distances, the engine reaches {engine:,.1f} GFLOP/s, "
        f"{figures['efficiency_of_gemm_peak']:.1%} of the peak: matrix products alone reach {peak:,.1f} "
        f"GFLOP/s at the model's shapes ({torch_gemm:,.1f} with torch's own kernels). From texts to scores, "
        f"it reaches {figures['efficiency_with_text']:.1%}. Only operations that the trees need are counted."
    )


def scaling_table(result: Result) -> Table:
    """How cost grows with one size of an item, the others staying the same."""
    keys = ["requests", "tokens_tree"]
    columns = [Column("what grows"), Column("to", "d"), Column("requests", ",d"), Column("tree nodes", ",d")]
    for letter in result.only:
        keys.append(f"seconds_{SCHEDULES[letter]}")
        columns.append(Column(f"({letter}) s", ".2f"))
    rows: list[tuple[Cell, ...]] = []
    for point, measured in result.scaling:
        rows.append((scaling.LABELS[point.axis], point.value, *_row(measured.figures, keys)))
    return Table("How cost grows", tuple(columns), tuple(rows))


def draw_scaling(result: Result, folder: Path) -> list[Path]:
    """Write ``scaling.svg`` and ``scaling.png``. Both axes are logarithmic, so proportional growth is a line
    of slope one.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    paths = [folder / "scaling.svg", folder / "scaling.png"]
    machine = result.machine
    with drawing("scaling", "paper", 5) as figure:
        panels = figure.subplots(2, 2, sharey=True)
        for (axis, label), panel in zip(scaling.LABELS.items(), panels.flat, strict=True):
            curve = {point.value: measured for point, measured in result.scaling if point.axis == axis}
            sizes = list(curve)
            for letter in result.only:
                seconds = [measured.timings[letter].seconds for measured in curve.values()]
                panel.plot(sizes, seconds, marker="o", markersize=3, linewidth=1.2, label=LABELS[letter])
            panel.set_xscale("log", base=2)
            panel.set_yscale("log")
            panel.set_xticks(sizes, [str(size) for size in sizes])
            panel.minorticks_off()
            panel.yaxis.set_major_formatter("{x:g}")
            panel.set_xlabel(label)
            panel.grid(color=LINE, linewidth=0.6)
        figure.supylabel("seconds per question")
        panels[0][0].legend(frameon=False)
        title = (
            f"{machine['judge']}, {machine['dtype']}, {machine['processor']}, threads: {machine['threads']}"
        )
        figure.suptitle(one_line(title))
        for path in paths:
            figure.savefig(path, dpi=150, facecolor="white")
    return paths


def agreement(result: Result) -> str:
    """Say whether the schedules gave the same distances."""
    if result.difference is None:
        return "Only one schedule ran, so there are no distances to compare."
    dtype = result.machine["dtype"]
    message = f"Distances of the schedules differ by at most {result.difference:.1e}"
    if dtype != "float32":
        return f"{message}. The limit of {TOLERANCE:.0e} holds for float32 only; this is {dtype}."
    if not result.disagreeing:
        return f"{message}; {TOLERANCE:.0e} is allowed."
    items = ", ".join(f"{excerpt(item.id)} ({item.difference:.1e})" for item in result.disagreeing[:5])
    return f"{message}, and {TOLERANCE:.0e} is allowed, so one of them is wrong. Too far apart: {items}."
