"""How figures look, and how they become SVG: in the style of a paper, or in the colours of the page that
shows them."""

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
"""Inches: the text width of a one-column paper; what a telephone still shows at its own size."""
SIZE: dict[Style, float] = {"paper": 8, "page": 11}
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
"""A paper's figure looks the same wherever it is set; a page's takes the fonts of the page, and can be
searched."""

DOT = 3
"""Points across a dot of a figure with many."""
_DENSE = 20
"""A page gets more markers than these as one path."""
_REFERENCE = re.compile(r"#(\w+)")
_NUMERIC = ("d", "x", "y", "width", "height")
_NUMBER = re.compile(r"-?\d+\.\d+")

_XLINK = "http://www.w3.org/1999/xlink"


def short_name(strategy: str, label: str = "", limit: int = _NAME_LENGTH) -> str:
    """Untrusted names as one short line."""
    shown = one_line(f"{strategy} ({label})" if label else strategy) or "(blank)"
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


@contextmanager
def drawing(name: str, style: Style, height: float) -> Iterator[Figure]:
    """An empty figure of our style, ``height`` inches tall. What it is saved as depends on nothing but what
    is drawn."""
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
        # names may be in any script; a browser has the fonts
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield Figure(figsize=(WIDTH[style], height), layout="constrained")


def svg(figure: Figure, style: Style) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return _for_page(buffer.getvalue()) if style == "page" else buffer.getvalue()


def _for_page(text: str) -> str:
    """matplotlib's SVG made fit to stand in a page: its colours become classes and its styles attributes,
    since a strict Content-Security-Policy forbids both style elements and style attributes; names that occur
    in every figure go; numbers are rounded.
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
            node.set(
                name,
                _NUMBER.sub(
                    lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."),
                    " ".join(node.attrib[name].split()),
                ),
            )
    if node.get("transform", "").startswith("rotate(-0 "):
        del node.attrib["transform"]


def _as_one_path(group: ElementTree.Element) -> None:
    """Thousands of markers as the round ends of lines without length, in a hundredth of the space."""
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
