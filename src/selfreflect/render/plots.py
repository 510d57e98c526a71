"""Draw figures as SVG, in the style of a paper or in the colours of the page that shows them."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal
from xml.etree import ElementTree

from selfreflect.errors import MissingExtraError
from selfreflect.render.text import one_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Style = Literal["paper", "page"]

WIDTH: dict[Style, float] = {"paper": 6.3, "page": 5.2}
"""Inches: the text width of a one-column paper; what a phone shows without scaling."""
SIZE: dict[Style, float] = {"paper": 8, "page": 11}
"""Font size in points."""
_NAME_LENGTH = 32

INK = "#1b1e23"
QUIET = "#5a626d"
LINE = "#dfe2e6"
MARK = "#0b57a4"
_CLASSES = {INK: "ink", QUIET: "muted", LINE: "line", MARK: "mark"}
"""On a page these colours become classes, so that its style sheet can set them for light and dark mode."""

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
"""A paper's figure looks the same everywhere; a page's figure uses the page's fonts and can be searched."""

DOT = 3
"""Diameter in points of a dot among many."""
_DENSE = 20
"""On a page, more markers than this become one path."""
_REFERENCE = re.compile(r"#(\w+)")
_NUMERIC = ("d", "x", "y", "width", "height")
_NUMBER = re.compile(r"-?\d+\.\d+")

_XLINK = "http://www.w3.org/1999/xlink"


def short_name(strategy: str, label: str = "", limit: int = _NAME_LENGTH) -> str:
    """Shorten untrusted names to one short line."""
    if label:
        strategy = f"{strategy} ({label})"
    name = one_line(strategy) or "(blank)"
    if len(name) > limit:
        name = name[: limit - 1] + "…"
    return name


@contextmanager
def drawing(name: str, style: Style, height: float) -> Iterator[Figure]:
    """Open an empty figure in our style, ``height`` inches tall. Its SVG depends only on what is drawn.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("Drawing figures", "plots") from None
    settings = {
        **_LOOK,
        "font.size": SIZE[style],
        "svg.fonttype": _FONTS[style],
        "svg.hashsalt": name,
        "svg.id": name,
    }
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # names may be in any script, and browsers have the fonts
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield Figure(figsize=(WIDTH[style], height), layout="constrained")


def svg(figure: Figure, style: Style) -> str:
    """Return the figure as SVG."""
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
    referenced = set(_REFERENCE.findall(text))
    for node in root.iter():
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
        name, value = (part.strip() for part in declaration.split(":", 1))
        if value in _CLASSES:
            classes.append(f"{_CLASSES[value]}-{name}")
        elif name != "font-family":
            node.set(name, value)
    if classes:
        node.set("class", " ".join(classes))
    for name in _NUMERIC:
        if name in node.attrib:
            node.set(name, _NUMBER.sub(_rounded, " ".join(node.attrib[name].split())))
    if node.get("transform", "").startswith("rotate(-0 "):
        del node.attrib["transform"]


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def _as_one_path(group: ElementTree.Element) -> None:
    """Replace markers by the round caps of zero-length lines, in a hundredth of the space."""
    path = "".join(f"M{use.get('x')} {use.get('y')}h0" for use in group)
    for use in list(group):
        group.remove(use)
    attributes = {
        "d": path,
        "class": "mark-stroke",
        "fill": "none",
        "stroke-linecap": "round",
        "stroke-width": str(DOT),
    }
    ElementTree.SubElement(group, "path", attributes)
