"""Figures as SVG or PDF, styled for a paper or for a page."""

from __future__ import annotations

import io
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from xml.etree import ElementTree

from selfreflect.text import one_line

if TYPE_CHECKING:
    from matplotlib.backends.backend_pdf import PdfPages
    from matplotlib.figure import Figure

Style = Literal["paper", "page"]

# Inches: the text width of a one-column paper; what a phone shows without scaling.
_WIDTH: dict[Style, float] = {"paper": 6.3, "page": 5.2}
# Font size in points.
_SIZE: dict[Style, float] = {"paper": 8, "page": 11}
_TICKS: dict[Style, int] = {"paper": 8, "page": 5}
# A paper's figure looks the same everywhere; a page's figure uses the page's fonts and can be
# searched.
_FONTS: dict[Style, str] = {"paper": "path", "page": "none"}

INK = "#1b1e23"
QUIET = "#5a626d"
LINE = "#dfe2e6"
MARK = "#0b57a4"
# On a page these colours become classes, so that its style sheet can set them for light and dark
# mode.
_CLASSES = {INK: "ink", QUIET: "muted", LINE: "line", MARK: "mark"}
MARKERS = ("o", "s", "^", "D", "v", "P")

_LOOK: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "axes.titlesize": "medium",
    "figure.titlesize": "medium",
    "figure.labelsize": "medium",
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.unicode_minus": False,  # numbers are written as in tables and sentences
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

DOT = 3
"""Diameter of a dot among many, in points."""
CHOICE = "choice-"
"""Prefix of ids for marks that a page's script selects from."""
# On a page, more markers than this become one path.
_DENSE = 20


_REFERENCE = re.compile(r"#(\w+)")
_NUMBER = re.compile(r"-?\d+\.\d+")
_XLINK = "http://www.w3.org/1999/xlink"


class Interval(NamedTuple):
    """A line of :func:`intervals_figure`, with a name from :func:`axis_name`."""

    name: str
    mean: float | None
    low: float | None
    high: float | None


# Characters of a name in one of its two lines beside an axis.
_NAME_LINE = 28


def axis_name(strategy: str, label: str = "", suffix: str = "") -> str:
    """Format an untrusted name as at most two short lines that end in ``suffix``."""
    # words leave a part of the first line blank
    name = short_name(strategy, label, 2 * _NAME_LINE - 6 - len(suffix))
    return "\n".join(textwrap.wrap(name + suffix, _NAME_LINE))


def short_name(strategy: str, label: str = "", limit: int = 32) -> str:
    """Shorten an untrusted name to one short line."""
    return one_line(f"{strategy} ({label})" if label else strategy, limit) or "(blank)"


_BOOK: ContextVar[PdfPages | None] = ContextVar("book", default=None)
"""PDF that also receives the figures as pages."""


@contextmanager
def pdf_book() -> Iterator[io.BytesIO]:
    """Collect all figures drawn in this context as pages of a PDF."""
    from matplotlib.backends.backend_pdf import PdfPages

    buffer = io.BytesIO()
    # without the time of day, so that the same figures make the same file
    with PdfPages(buffer, metadata={"CreationDate": None, "Creator": None, "Producer": None}) as book:
        token = _BOOK.set(book)
        try:
            yield buffer
        finally:
            _BOOK.reset(token)


@contextmanager
def drawing(name: str, style: Style, height: float) -> Iterator[Figure]:
    """Open an empty figure in our style, ``height`` inches tall. Its SVG depends only on what is drawn."""
    import matplotlib
    from matplotlib.figure import Figure

    settings = {
        **_LOOK,
        "font.size": _SIZE[style],
        "svg.fonttype": _FONTS[style],
        "pdf.fonttype": 42,  # letters that stay text
        "svg.hashsalt": name,
        "svg.id": name,
    }
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # names may be in any script, and browsers have the fonts
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield Figure(figsize=(_WIDTH[style], height), layout="constrained")


def intervals_figure(
    name: str,
    intervals: Sequence[Interval],
    axis: str,
    style: Style = "paper",
    *,
    mark: float | None = None,
    percent: str | None = None,
) -> str:
    """Draw one dot with its interval per line, first on top, and a reference line at ``mark``.

    ``percent`` writes 50 beside the axis in place of 0.5, and this sign behind it."""
    from matplotlib.ticker import PercentFormatter

    height = _SIZE[style] * (0.075 + 0.034 * max(1, len(intervals)))
    with drawing(name, style, height) as figure:
        axes = figure.subplots()
        for y, (_, mean, low, high) in enumerate(intervals):
            if low is not None and high is not None:
                axes.plot([low, high], [y, y], color=MARK, linewidth=1.6, solid_capstyle="butt")
            if mean is not None:
                axes.plot([mean], [y], "o", color=MARK, markersize=4.5)
        if mark is not None:
            axes.axvline(mark, color=QUIET, linewidth=0.8)
        axes.set_yticks(range(len(intervals)), [interval.name for interval in intervals])
        axes.set_ylim(len(intervals) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.locator_params(axis="x", nbins=_TICKS[style])
        if percent is not None:
            axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=percent))
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x", color=LINE, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.margins(x=0.08)
        figure.supxlabel(axis)
        return svg(figure, style)


def svg(figure: Figure, style: Style) -> str:
    """Return the figure as SVG, and add it to an open :func:`pdf_book`."""
    book = _BOOK.get()
    if book is not None:
        book.savefig(figure)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return _for_page(text) if style == "page" else text


def _for_page(text: str) -> str:
    """Adapt matplotlib's SVG to a page with a strict Content-Security-Policy.

    Colours become classes and styles become attributes, because style elements and attributes are forbidden.
    Ids that are not referenced are removed, since they recur in every figure. Numbers are rounded.
    """
    root = ElementTree.fromstring(text)
    for node in root.iter():
        node.tag = node.tag.rpartition("}")[2]  # HTML needs no namespace
        target = node.attrib.pop(f"{{{_XLINK}}}href", None)
        if target is not None:
            node.set("href", target)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in ("metadata", "style"):
                parent.remove(child)
    # matplotlib gives everything an id, and a page with many figures would repeat them
    referenced = set(_REFERENCE.findall(text))
    for node in root.iter():
        if node.get("id", "").startswith(CHOICE):
            node.set("data-choice", node.attrib.pop("id").removeprefix(CHOICE))
        if node.get("id") not in referenced:
            node.attrib.pop("id", None)
        _restyle(node)
        if len(node) > _DENSE and all(child.tag == "use" for child in node):
            _as_one_path(node)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("class", "plot")
    root.set("aria-hidden", "true")  # the table next to it says the same
    return ElementTree.tostring(root, encoding="unicode")


def _restyle(node: ElementTree.Element) -> None:
    classes = []
    for declaration in filter(None, node.attrib.pop("style", "").split(";")):
        name, value = map(str.strip, declaration.split(":", 1))
        if value in _CLASSES:
            classes.append(f"{_CLASSES[value]}-{name}")
        # the page's style sheet chooses the font
        elif name != "font-family":
            node.set(name, value)
    if classes:
        node.set("class", " ".join(classes))
    for name in node.attrib.keys() & {"d", "x", "y", "width", "height"}:
        node.set(name, _NUMBER.sub(_rounded, " ".join(node.attrib[name].split())))
    # matplotlib writes this for texts that are not turned
    if node.get("transform", "").startswith("rotate(-0 "):
        del node.attrib["transform"]


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def _as_one_path(group: ElementTree.Element) -> None:
    """Replace markers with round caps of zero-length lines, in a hundredth of the space."""
    path = "".join(f"M{use.get('x')} {use.get('y')}h0" for use in group)
    for use in list(group):
        group.remove(use)
    attributes = {"d": path, "class": "mark-stroke", "fill": "none", "stroke-linecap": "round"}
    ElementTree.SubElement(group, "path", attributes, **{"stroke-width": str(DOT)})
