"""How a record looks in a Python session: one line, and a small table in a notebook."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from selfreflect.render.text import one_line

Fields = Iterable[tuple[str, object]]

_TEXT = 60
_WORDS = 200


def one_liner(name: str, fields: Fields) -> str:
    """Write a record as ``Score(value=0.0954, stderr=0.0025)``; fields that are None are left out."""
    parts = [f"{field}={_brief(value)}" for field, value in fields if value is not None]
    return f"{name}({', '.join(parts)})"


def html_table(name: str, fields: Fields, words: str = "") -> str:
    """The same as HTML, with a line of ``words`` below."""
    rows = []
    for field, value in fields:
        if value is not None:
            cell = escape(_brief(value))
            rows.append(f'<tr><th style="text-align:left">{escape(field)}</th><td>{cell}</td></tr>')
    caption = f"<caption>{escape(name)}</caption>"
    return f"<table>{caption}{''.join(rows)}</table>" + (f"<p>{words}</p>" if words else "")


def shaded_words(words: Iterable[tuple[str, float, str]]) -> str:
    """Words as HTML. Each is a text, how dark it is from 0 to 1, and what a pointer on it tells."""
    spans = []
    for text, strength, title in list(words)[:_WORDS]:
        style = f"background:rgba(255,140,0,{0.7 * min(max(strength, 0.0), 1.0):.2f})"
        spans.append(f'<span style="{style}" title="{escape(title)}">{escape(one_line(text))}</span>')
    return " ".join(spans)


def _brief(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, str):
        return repr(one_line(value, _TEXT))
    if isinstance(value, tuple) and all(isinstance(number, float) for number in value):
        return f"({', '.join(f'{number:.4g}' for number in value)})"
    return one_line(str(value), _TEXT)
