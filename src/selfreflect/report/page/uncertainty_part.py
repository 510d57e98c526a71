"""What pages show of uncertainty: tables and figures that :mod:`selfreflect.uncertainty.page` makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from selfreflect.report.page.frame import render_page
from selfreflect.report.page.view import packed
from selfreflect.table import Table


@dataclass(frozen=True)
class UncertaintyFigure:
    """A figure with its table, or why there is none."""

    title: str
    caption: str
    figure: Markup
    """Empty if it is undefined."""
    table: Table | None = None
    name: str = ""
    """Of the CSV of the table."""
    undefined: str = ""


@dataclass(frozen=True)
class EstimatorPanel:
    """The figures of one estimator."""

    estimator: str
    name: str
    """Identifies the panel on the page."""
    figures: list[UncertaintyFigure]


@dataclass
class UncertaintyPart:
    """Estimators of one set of questions against one kind of correctness."""

    name: str
    """Identifies the part on the page and begins the names of its CSV."""
    label: str
    """Tells it from other parts."""
    lead: str
    """What was found, in one sentence."""
    about: list[str]
    table: Table
    baselines: frozenset[int]
    """The rows of the table that are baselines."""
    panels: list[EstimatorPanel]
    notes: list[str] = field(default_factory=list)
    csv: dict[str, str] = field(default_factory=dict)
    """By name."""


def uncertainty_page(title: str, parts: Sequence[UncertaintyPart], facts: Sequence[tuple[str, str]]) -> str:
    """Render a page of its own: one HTML file that needs no network and no other file.

    Args:
        title: what the questions are called; may be untrusted.
        facts: names and values of the figures at the top.
    """
    csv: dict[str, str] = {}
    for part in parts:
        csv |= part.csv
    return render_page(
        "uncertainty.html",
        ("dom.js", "csv.js", "frame.js", "uncertainty.js"),
        title=title,
        parts=parts,
        facts=facts,
        blocks={"index": packed({"csv": csv})},
    )
