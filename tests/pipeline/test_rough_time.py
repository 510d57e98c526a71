"""Times guessed before a model has worked: what is shown is a range, not a number that looks certain."""

from __future__ import annotations

import pytest

from selfreflect.pipeline.rough_time import rough_duration, rough_range


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (4, "some seconds"),
        (40, "20 to 80 s"),
        (180, "2 to 6 min"),
        (4000, "1 to 2 h"),
        (7 * 3600, "4 to 14 h"),
        (6 * 86400, "3 to 12 days"),
    ],
)
def test_a_guess_is_said_as_a_range(seconds: float, text: str) -> None:
    assert rough_duration(seconds) == text
    low, high = rough_range(seconds)
    assert low < seconds < high
