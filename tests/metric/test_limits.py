"""What a user may ask for, and what is refused with advice."""

from __future__ import annotations

import pytest

from selfreflect.errors import ConfigError
from selfreflect.metric.limits import Limits


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"standard_error": 0.0}, "standard error"),
        ({"standard_error": float("nan")}, "standard error"),
        ({"standard_error": 1.0}, "standard error"),
        ({"race": 1.0}, "confidence of a race"),
        ({"race": 95}, "confidence of a race"),
        ({"race": float("nan")}, "confidence of a race"),
    ],
)
def test_limits_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Limits.parse(**options)


def test_no_limit_is_no_limits():
    assert Limits.parse(seed=7) is None


@pytest.mark.parametrize(
    ("options", "adaptive"),
    [
        ({"budget": 100}, False),
        ({"budget": "1s"}, True),
        ({"standard_error": 0.01}, True),
        ({"race": 0.9}, True),
    ],
)
def test_only_tokens_are_spent_in_one_round(options, adaptive):
    assert Limits.parse(**options).adaptive == adaptive
