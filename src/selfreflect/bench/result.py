"""What a benchmark measures: the figures of ``--json``, and the tables, the curves and the sentence on
agreement that people read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from selfreflect.bench.work import AXES
from selfreflect.errors import excerpt
from selfreflect.plots import LINE, drawing
from selfreflect.table import Cell, Column, Table
from selfreflect.text import one_line

SCHEDULES = {"a": "requests", "b": "batched", "c": "engine"}
"""The letters of ``--only``, and the names in the keys of ``--json``."""

LABELS = {"a": "(a) one request per token", "b": "(b) requests in batches", "c": "(c) this engine"}

TOLERANCE = 1e-5
"""Largest allowed difference between two schedules in one distance, in float32."""

Figures = dict[str, Any]
"""What ``--json`` prints of an item, by key."""


class Figure(NamedTuple):
    """How the figures of all items become one, and the heading of its column in the tables of times."""

    combine: Callable[[list[float]], float]
    heading: str = ""


FIGURES = {
    "seconds_requests": Figure(median, "(a) s"),
    "seconds_batched": Figure(median, "(b) s"),
    "seconds_engine": Figure(median, "(c) s"),
    "speedup_against_requests": Figure(median, "(a)/(c)"),
    "speedup_against_batched": Figure(median, "(b)/(c)"),
    "seconds_information": Figure(median),
    "seconds_information_with_controls": Figure(median),
    "information_share_of_engine": Figure(median),
    "information_with_controls_share_of_engine": Figure(median),
    "tokens_requests": Figure(sum),
    "tokens_batched": Figure(sum),
    "tokens_engine": Figure(sum),
    "tokens_tree": Figure(sum),
    "requests": Figure(sum),
    "memory_requests_bytes": Figure(max),
    "memory_batched_bytes": Figure(max),
    "memory_engine_bytes": Figure(max),
    "efficiency_of_gemm_peak": Figure(median),
    "efficiency_with_text": Figure(median),
    "flop_per_second_engine": Figure(median),
    "flop_per_second_gemm_peak": Figure(median),
    "flop_per_second_torch_gemm": Figure(median),
}


@dataclass
class Result:
    """Filled while a benchmark runs, so that an interrupted one keeps what it has."""

    machine: dict[str, Any]
    only: tuple[str, ...]
    """Letters of the schedules."""
    batch_size: int | None = None
    """Requests that (b) computes together."""
    batch_trials: dict[int, float] = field(default_factory=dict)
    """Batch size to seconds, on the reference and the first summary of an item of median size."""
    items: list[Figures] = field(default_factory=list)
    scaling: list[Figures] = field(default_factory=list)
    """The points of the curves, with ``axis`` and ``value``."""
    decoding: list[Figures] = field(default_factory=list)
    """How fast samples of one prompt are drawn, by their number."""

    @property
    def difference(self) -> float | None:
        """Largest difference between two schedules; None if only one ran."""
        if len(self.only) < 2:
            return None
        return max((item["difference"] for item in self.items + self.scaling), default=None)

    @property
    def disagreeing(self) -> list[Figures]:
        """The items whose schedules differ by more than the tolerance, which holds for float32 only."""
        if self.machine["dtype"] != "float32":
            return []
        return [item for item in self.items + self.scaling if (item["difference"] or 0) > TOLERANCE]


def to_json(result: Result) -> Figures:
    """What ``--json`` prints: each figure over all items, then every item. None means not measured."""
    figures: Figures = {
        "machine": result.machine,
        "n_items": len(result.items),
        "batch_size": result.batch_size,
        "difference_largest": result.difference,
        "tolerance": TOLERANCE if result.machine["dtype"] == "float32" else None,
    }
    for key, figure in FIGURES.items():
        values = [item[key] for item in result.items if item.get(key) is not None]
        figures[key] = figure.combine(values) if values else None
    trials = [{"size": size, "seconds": seconds} for size, seconds in result.batch_trials.items()]
    return {
        **figures,
        "batch_trials": trials,
        "items": result.items,
        "scaling": result.scaling,
        "decoding": result.decoding,
    }


def item_table(result: Result) -> Table:
    """Seconds of each schedule, and how many times faster the engine is; the last row has the medians."""
    columns = {"id": Column("item"), "requests": Column("requests", "d")}
    medians = {**to_json(result), "id": "median", "requests": None}
    notes = []
    if result.batch_size is not None:
        trials = ", ".join(f"{size} took {seconds:.2f} s" for size, seconds in result.batch_trials.items())
        notes.append(
            f"(b) runs {result.batch_size} requests at a time, the fastest size on part of an item of "
            f"median size: {trials}."
        )
    if (alone := medians["information_share_of_engine"]) is not None:
        more = medians["information_with_controls_share_of_engine"]
        notes.append(
            f"Usable information of the same summaries takes {alone:.0%} of the time of (c), {more:.0%} with "
            f"its controls: it is {1 / alone:.1f} and {1 / more:.1f} times faster."
        )
    return _table("Time per item", columns | _times(result.items), [*result.items, medians], tuple(notes))


def scaling_table(result: Result) -> Table:
    """How cost grows with one size of an item, the others staying the same."""
    columns = {
        "what grows": Column("what grows"),
        "value": Column("to", "d"),
        "requests": Column("requests", ",d"),
        "tokens_tree": Column("tree nodes", ",d"),
    }
    rows = [{**point, "what grows": AXES[point["axis"]].label} for point in result.scaling]
    seconds = {key: column for key, column in _times(rows).items() if key.startswith("seconds_")}
    return _table("How cost grows", columns | seconds, rows)


def _times(rows: Sequence[Figures]) -> dict[str, Column]:
    """Columns for the times that were measured."""
    columns = {}
    for key, figure in FIGURES.items():
        if figure.heading and key in rows[0]:
            columns[key] = Column(figure.heading, ".2f")
    return columns


def _table(
    title: str, columns: dict[str, Column], rows: Sequence[Figures], notes: tuple[str, ...] = ()
) -> Table:
    cells = [tuple(row[key] for key in columns) for row in rows]
    return Table(title, tuple(columns.values()), tuple(cells), notes)


def decoding_table(result: Result) -> Table:
    """Tokens per second of samples that are drawn together, and how many times faster than transformers."""
    columns = {
        "samples": Column("samples", "d"),
        "prompt_tokens": Column("prompt tokens", "d"),
        "tokens_per_second": Column("tokens/s", ",.0f"),
        "tokens_per_second_transformers": Column("transformers", ",.0f"),
        "ratio": Column("ratio", ".2f"),
    }
    return _table("Sampling answers, against transformers' generate", columns, result.decoding)


def work_table(result: Result) -> Table:
    """Tokens computed by each schedule, its memory, and the engine's share of the machine's peak."""
    figures = to_json(result)
    rows: list[tuple[Cell, ...]] = []
    for letter in result.only:
        memory = figures[f"memory_{SCHEDULES[letter]}_bytes"]
        mebibytes = None if memory is None else memory / 2**20
        rows.append((LABELS[letter], figures[f"tokens_{SCHEDULES[letter]}"], mebibytes))
    notes = [
        f"The trees have {figures['tokens_tree']} nodes, one tree for each context. (a) can compute fewer "
        "tokens, because it also shares prefixes between contexts.",
        "Memory is the highest of any item, above the loaded model.",
    ]
    if "c" in result.only:
        notes.append(_efficiency_note(figures))
    columns = (Column("schedule"), Column("tokens computed", ",d"), Column("peak memory MiB", ",.0f"))
    return Table("Work", columns, tuple(rows), tuple(notes))


def _efficiency_note(figures: Figures) -> str:
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
    items = [f"{excerpt(item['id'])} ({item['difference']:.1e})" for item in result.disagreeing[:5]]
    return (
        f"{message}, and {TOLERANCE:.0e} is allowed, so one of them is wrong. "
        f"Too far apart: {', '.join(items)}."
    )


def draw_scaling(result: Result, folder: Path) -> list[Path]:
    """Write ``scaling.svg`` and ``scaling.png``. Both axes are logarithmic, so proportional growth is a line
    of slope one.
    """
    paths = [folder / "scaling.svg", folder / "scaling.png"]
    machine = result.machine
    with drawing("scaling", "paper", 5) as figure:
        panels = figure.subplots(2, 2, sharey=True)
        for (name, axis), panel in zip(AXES.items(), panels.flat, strict=True):
            curve = [point for point in result.scaling if point["axis"] == name]
            sizes = [point["value"] for point in curve]
            for letter in result.only:
                seconds = [point[f"seconds_{SCHEDULES[letter]}"] for point in curve]
                panel.plot(sizes, seconds, marker="o", markersize=3, linewidth=1.2, label=LABELS[letter])
            panel.set_xscale("log", base=2)
            panel.set_yscale("log")
            panel.set_xticks(sizes, list(map(str, sizes)))
            panel.minorticks_off()
            panel.yaxis.set_major_formatter("{x:g}")
            panel.set_xlabel(axis.label)
            panel.grid(color=LINE, linewidth=0.6)
        figure.supylabel("seconds per question")
        panels[0][0].legend(frameon=False)
        figure.suptitle(one_line("{judge}, {dtype}, {processor}, threads: {threads}".format_map(machine)))
        for path in paths:
            figure.savefig(path, dpi=150, facecolor="white")
    return paths
