"""What a user may ask for, and what is refused with advice."""

from __future__ import annotations

import pytest

from selfreflect.errors import ConfigError
from selfreflect.metric.inputs import Limits


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("20000", (20000, None)),
        (" 20000 tokens", (20000, None)),
        ("1token", (1, None)),
        ("30s", (None, 30.0)),
        ("0.5 seconds", (None, 0.5)),
        ("2m", (None, 120.0)),
        ("1.5 min", (None, 90.0)),
    ],
)
def test_a_budget_is_tokens_or_time(text, expected):
    limits = Limits.parse(text)
    assert (limits.tokens, limits.seconds) == expected
    assert limits.budget == text


@pytest.mark.parametrize(
    "text",
    ["-5", "0", "0s", "12 parsecs", "nan", "inf", "1e5", "", "s", "2.5", "٣", "9" * 400, "3,000", "10 20"],
)
def test_a_budget_that_is_none_is_refused_with_advice(text):
    with pytest.raises(ConfigError, match="as in 20000, or seconds or minutes"):
        Limits.parse(text)


def test_no_limit_is_no_limits():
    assert Limits.parse(seed=7) is None
