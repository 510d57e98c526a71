"""What a study found: tables, sentences and curves."""

from __future__ import annotations

from dataclasses import dataclass

from selfreflect.render.table import Table


@dataclass(frozen=True)
class Curve:
    """One line of a figure. ``low`` and ``high`` are the ends of intervals, where there are any; all have the
    length of ``x``."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True)
class Plot:
    """Curves on common axes. ``name`` is that of its file; ``points`` draws dots that no line joins.

    With ``against`` each curve is a single number: its name stands beside it, and a line marks that value,
    such as chance.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    points: bool = False
    against: float | None = None


@dataclass(frozen=True)
class Finding:
    """The tables of a study, and in ``says`` what can and what cannot be concluded from them: plain
    paragraphs.

    Names and texts in it may come from files and models. Rendering makes them safe.
    """

    study: str
    tables: tuple[Table, ...]
    says: tuple[str, ...]
    plots: tuple[Plot, ...] = ()
