"""The figures of a report as SVG, drawn by matplotlib: in the style of a paper, or in the colours of the page that shows them.

A figure is drawn from a table, and the table's CSV holds what is behind it.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal
from xml.etree import ElementTree

from selfreflect.errors import MissingExtraError
from selfreflect.report.comparison import Contender, comparison, contender
from selfreflect.report.length import LengthAudit, length_audit, point_table
from selfreflect.report.render import Cell, Table, to_csv
from selfreflect.report.tables import RunRecords, joined, overview
from selfreflect.report.text import one_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Style = Literal["paper", "page"]

_WIDTH: dict[Style, float] = {"paper": 6.3, "page": 5.2}
"""Inches: the text width of a one-column paper; what a telephone still shows at its own size."""
_COLUMNS: dict[Style, int] = {"paper": 4, "page": 2}
_TICKS: dict[Style, int] = {"paper": 8, "page": 5}
_SIZE: dict[Style, float] = {"paper": 8, "page": 11}
"""Points."""
_NAME_LENGTH = 32

INK, QUIET, LINE, MARK = "#1b1e23", "#5a626d", "#dfe2e6", "#0b57a4"
_CLASSES = {INK: "ink", QUIET: "muted", LINE: "line", MARK: "mark"}
"""On a page these colours become classes, so that the page's style sheet decides, for light and dark."""

_LOOK: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "axes.titlesize": "medium",
    "figure.titlesize": "medium",
    "figure.labelsize": "medium",
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "text.usetex": False,  # whatever the user's own settings say: names are not TeX
    "text.parse_math": False,  # a strategy may be called $x$
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}
_FONTS: dict[Style, str] = {"paper": "path", "page": "none"}
"""A paper's figure looks the same wherever it is set; a page's takes the fonts of the page, and can be searched."""

_DOT = 3
"""Points across a dot of the length figure."""
_DENSE = 20
"""A page gets more markers than these as one path."""
_REFERENCE = re.compile(r"#(\w+)")
_NUMERIC = ("d", "x", "y", "width", "height")
_NUMBER = re.compile(r"-?\d+\.\d+")

_XLINK = "http://www.w3.org/1999/xlink"


def paper_figures(runs: Sequence[RunRecords], baseline: str | None = None) -> dict[str, str]:
    """Every figure in the style of a paper, and the rows behind it, by file name.

    Raises:
        DataError: the first run has no strategy ``baseline``.
        MissingExtraError: matplotlib is not installed.
    """
    overviews = {run.label: overview(run) for run in runs}
    made = {"means.svg": means_figure(overviews), "means.csv": to_csv(joined(overviews))}
    sides = contenders(runs, baseline)
    if len(sides) > 1:
        table = comparison(sides[0], sides[1:])
        made |= {"differences.svg": differences_figure("differences", table), "differences.csv": to_csv(table)}
    for place, run in enumerate(runs, 1):
        name, audits = f"length-{place}" if len(runs) > 1 else "length", length_audit(run)
        made |= {f"{name}.svg": length_figure(name, audits), f"{name}.csv": to_csv(point_table(audits))}
    return made


def contenders(runs: Sequence[RunRecords], baseline: str | None) -> list[Contender]:
    """All strategies of all runs, the baseline first: a strategy of the first run, by default its first.

    Raises:
        DataError: the first run has no such strategy.
    """
    names = [(run, name) for run in runs for name in run.strategies]
    if baseline is None and not runs[0].strategies:
        return []
    chosen = contender(runs[0], baseline if baseline is not None else runs[0].strategies[0])
    return [chosen, *(contender(run, name) for run, name in names if run is not runs[0] or name != chosen.strategy)]


_Interval = tuple[str, float | None, float | None, float | None]
"""Name, middle, low, high"""


def means_figure(overviews: Mapping[str, Table], style: Style = "paper") -> str:
    """Mean score and interval of every strategy, from the overview of each run by its label."""
    several = len(overviews) > 1
    rows = [row for label, table in overviews.items() for row in _interval_rows(table, "mean score", label if several else "")]
    return _intervals("means", rows, "SelfReflect score (0 is perfect, lower is better)", style, zero=False)


def differences_figure(name: str, table: Table, style: Style = "paper") -> str:
    """Paired differences to one baseline with their intervals, from :func:`selfreflect.report.comparison.comparison`."""
    rows = _interval_rows(table, "difference", first=1)
    if len({row[0] for row in table.rows}) > 1:
        names = [_name(str(row[1]), str(row[0])) for row in table.rows]
        rows = [(full, middle, low, high) for full, (_, middle, low, high) in zip(names, rows, strict=True)]
    return _intervals(name, rows, "difference in score to the baseline (below 0 is better)", style, zero=True)


def length_figure(name: str, audits: Sequence[LengthAudit], style: Style = "paper") -> str:
    """Score against length of every summary, one panel per strategy on common axes."""
    shown = [audit for audit in audits if audit.words]
    columns = min(_COLUMNS[style], max(1, len(shown)))
    lines = max(1, -(-len(shown) // columns))
    with _drawing(name, style, 0.4 + 1.75 * lines) as figure:
        panels = list(figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).flat)
        for panel, audit in zip(panels, shown, strict=False):
            rho = audit.correlation.rho
            panel.plot(audit.words, audit.scores, "o", color=MARK, markersize=_DOT, markeredgewidth=0)
            shown_rho = "undefined" if rho is None else format(rho, "+z.2f").replace("-", "−")
            panel.set_title(f"{_name(audit.strategy, limit=20)}\nρ = {shown_rho}")
        for panel in panels[len(shown) :]:
            panel.set_visible(False)
        panels[0].set(xlim=(0, None), ylim=(0, None))  # shared, so not before the last panel is drawn
        figure.supxlabel("words in the summary")
        figure.supylabel("score (lower is better)")
        return _svg(figure, style)


def _intervals(name: str, rows: Sequence[_Interval], axis: str, style: Style, *, zero: bool) -> str:
    """Dots with intervals, one line for each row, the first on top."""
    with _drawing(name, style, 0.075 * _SIZE[style] + 0.034 * _SIZE[style] * max(1, len(rows))) as figure:
        axes = figure.subplots()
        for place, (_, middle, low, high) in enumerate(rows):
            if low is not None and high is not None:
                axes.plot([low, high], [place, place], color=MARK, linewidth=1.6, solid_capstyle="butt")
            if middle is not None:
                axes.plot([middle], [place], "o", color=MARK, markersize=4.5)
        if zero:
            axes.axvline(0, color=QUIET, linewidth=0.8)
        axes.set_yticks(range(len(rows)), [row[0] for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.locator_params(axis="x", nbins=_TICKS[style])
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x", color=LINE, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.margins(x=0.08)
        figure.supxlabel(axis)
        return _svg(figure, style)


def _interval_rows(table: Table, middle: str, label: str = "", first: int = 0) -> list[_Interval]:
    """Name, mean and ends of every row of a table whose strategy stands in column ``first``."""
    headings = [column.heading for column in table.columns]
    places = [headings.index(heading) for heading in (middle, "95% low", "95% high")]
    rows = []
    for row in table.rows:
        mean, low, high = (_number(row[place]) for place in places)
        rows.append((_name(str(row[first]), label), mean, low, high))
    return rows


def _number(cell: Cell) -> float | None:
    return None if cell is None or isinstance(cell, str) else float(cell)


def _name(strategy: str, label: str = "", limit: int = _NAME_LENGTH) -> str:
    """Untrusted names as one short line."""
    shown = one_line(f"{strategy} ({label})" if label else strategy) or "(blank)"
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


@contextmanager
def _drawing(name: str, style: Style, height: float) -> Iterator[Figure]:
    """An empty figure of our style, ``height`` inches tall. What it is saved as depends on nothing but what is drawn."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("Drawing the figures of a report", "plots") from None
    settings = {**_LOOK, "font.size": _SIZE[style], "svg.fonttype": _FONTS[style], "svg.hashsalt": name, "svg.id": name}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # names may be in any script; a browser has the fonts
        yield Figure(figsize=(_WIDTH[style], height), layout="constrained")


def _svg(figure: Figure, style: Style) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return _for_page(buffer.getvalue()) if style == "page" else buffer.getvalue()


def _for_page(text: str) -> str:
    """matplotlib's SVG made fit to stand in a page: its colours become classes and its styles attributes, since a strict
    Content-Security-Policy forbids both style elements and style attributes; names that occur in every figure go; numbers are rounded.
    """
    root = ElementTree.fromstring(text)
    for node in root.iter():
        node.tag = node.tag.rpartition("}")[2]  # in HTML the namespace goes without saying
        if (target := node.attrib.pop(f"{{{_XLINK}}}href", None)) is not None:
            node.set("href", target)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in ("metadata", "style"):
                parent.remove(child)
    used = {f"#{id_}" for id_ in _REFERENCE.findall(text)}
    for node in root.iter():
        if f"#{node.get('id')}" not in used:
            node.attrib.pop("id", None)
        _restyle(node)
        if len(node) > _DENSE and all(child.tag == "use" for child in node):
            _as_one_path(node)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("class", "plot")
    root.set("aria-hidden", "true")  # the table beside it says the same
    return ElementTree.tostring(root, encoding="unicode")


def _restyle(node: ElementTree.Element) -> None:
    classes = []
    for declaration in filter(None, node.attrib.pop("style", "").split(";")):
        name, value = (part.strip() for part in declaration.split(":", 1))
        if value in _CLASSES:
            classes.append(f"{_CLASSES[value]}-{name}")
        elif name != "font-family":
            node.set(name, value)
    if classes:
        node.set("class", " ".join(classes))
    for name in _NUMERIC:
        if name in node.attrib:
            node.set(name, _NUMBER.sub(lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), " ".join(node.attrib[name].split())))
    if node.get("transform", "").startswith("rotate(-0 "):
        del node.attrib["transform"]


def _as_one_path(group: ElementTree.Element) -> None:
    """Thousands of markers as the round ends of lines without length, in a hundredth of the space."""
    path = "".join(f"M{use.get('x')} {use.get('y')}h0" for use in group)
    for use in list(group):
        group.remove(use)
    attributes = {"d": path, "class": "mark-stroke", "fill": "none", "stroke-linecap": "round", "stroke-width": str(_DOT)}
    ElementTree.SubElement(group, "path", attributes)
