"""The curves as a picture: how cost grows with each size of an item."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from selfreflect.bench.result import NAMES, Result
from selfreflect.bench.scaling import LABELS
from selfreflect.render.curves import draw_curves
from selfreflect.render.plots import LINE, drawing
from selfreflect.render.text import one_line


@dataclass(frozen=True)
class _Timings:
    """Seconds by size of one schedule."""

    label: str
    x: list[float]
    y: list[float]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


def draw(result: Result, folder: Path) -> list[Path]:
    """Write ``scaling.svg`` and ``scaling.png``; both axes are logarithmic, so proportional growth is a line
    of slope one.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    with drawing("scaling", "paper", 5) as figure:
        from matplotlib.ticker import LogLocator

        axes = figure.subplots(2, 2, sharey=True)
        for (axis, label), panel in zip(LABELS.items(), axes.flat, strict=True):
            points = [point for point in result.scaling if point.axis == axis]
            sizes = [float(point.value) for point in points]
            seconds = {
                letter: [point.measured.timings[letter].seconds for point in points] for letter in result.only
            }
            draw_curves(panel, [_Timings(NAMES[letter], sizes, seconds[letter]) for letter in result.only])
            panel.set_xscale("log", base=2)
            panel.set_yscale("log")
            panel.set_xticks(sizes, [str(point.value) for point in points])
            panel.minorticks_off()
            panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            panel.yaxis.set_major_formatter("{x:g}")
            panel.set_xlabel(label)
            panel.grid(color=LINE, linewidth=0.6)
        for row in axes:
            row[0].set_ylabel("seconds per question")
        axes[0][0].legend(frameon=False)
        machine = result.machine
        made_with = (
            f"{machine['judge']}, {machine['dtype']}, {machine['processor']}, threads: {machine['threads']}"
        )
        figure.suptitle(one_line(made_with))
        written = [folder / "scaling.svg", folder / "scaling.png"]
        for path in written:
            figure.savefig(path, dpi=150, facecolor="white")
    return written
