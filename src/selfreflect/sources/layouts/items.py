"""The layout of this package: columns say what they hold."""

from __future__ import annotations

from collections.abc import Sequence

from selfreflect.sources.files import Row
from selfreflect.sources.layouts import Layout


class Items(Layout):
    """Rows of questions with answers, each in its column."""

    name = "items"

    def matches(self, rows: Sequence[Row]) -> bool:
        return True
