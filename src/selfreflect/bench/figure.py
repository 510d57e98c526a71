"""The curves as a picture: how cost grows with each size of an item."""

from __future__ import annotations

from pathlib import Path

from selfreflect.bench.result import NAMES, Result
from selfreflect.bench.scaling import LABELS
from selfreflect.errors import MissingExtraError
from selfreflect.report.text import one_line

_STYLES = {"a": ("s", "#b5533c"), "b": ("^", "#c99a2e"), "c": ("o", "#2b6cb0")}


def draw(result: Result, folder: Path) -> list[Path]:
    """Write ``scaling.svg`` and ``scaling.png``; both axes are logarithmic, so proportional growth is a line of slope one.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import LogLocator
    except ImportError:
        raise MissingExtraError("drawing curves", "plots") from None
    figure = Figure(figsize=(9, 6.5), layout="constrained")
    axes = figure.subplots(2, 2, sharey=True)
    for (axis, label), panel in zip(LABELS.items(), axes.flat, strict=True):
        points = [point for point in result.scaling if point.axis == axis]
        for letter in result.only:
            marker, colour = _STYLES[letter]
            seconds = [point.measured.timings[letter].seconds for point in points]
            panel.plot([point.value for point in points], seconds, marker=marker, color=colour, label=NAMES[letter])
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xticks([point.value for point in points], [str(point.value) for point in points])
        panel.minorticks_off()
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter("{x:g}")
        panel.set_xlabel(label)
        panel.grid(alpha=0.3)
    for row in axes:
        row[0].set_ylabel("seconds per question")
    axes[0][0].legend()
    machine = result.machine
    made_with = f"{machine['judge']}, {machine['dtype']}, {machine['processor']}, threads: {machine['threads']}"
    figure.suptitle(one_line(made_with), fontsize=9, parse_math=False)
    written = [folder / "scaling.svg", folder / "scaling.png"]
    for path in written:
        figure.savefig(path, dpi=150)
    return written
