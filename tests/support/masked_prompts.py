"""Prompts of masked words, as a Hypothesis strategy."""

from __future__ import annotations

from hypothesis import strategies as st

from selfreflect.metric.engine.tree import Prompt


@st.composite
def prompts(draw) -> list[Prompt]:
    """Prompts over three tokens, many of which share beginnings, are prefixes of one another, or are
    equal."""
    stem = draw(st.lists(st.integers(1, 3), max_size=4))
    found = []
    for _ in range(draw(st.integers(1, 8))):
        ids = (*stem, *draw(st.lists(st.integers(1, 3), min_size=2, max_size=7)))
        found.append(Prompt(ids=ids, first=draw(st.integers(1, len(ids) - 1))))
    return found
