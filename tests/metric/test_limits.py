"""What a user may ask for, and what is refused with advice."""

from __future__ import annotations

import pytest

from selfreflect.errors import ConfigError
from selfreflect.metric.inputs import Limits


@pytest.mark.parametrize("text", ["20000", " 20000 tokens", "20000token", 20000])
def test_a_budget_is_tokens(text):
    limits = Limits.parse(text)
    assert (limits.tokens, limits.budget) == (20000, str(text))


@pytest.mark.parametrize("text", ["-5", "0", "30s", "2m", "1e5", "", "2.5", "٣", "9" * 400, "3,000", "10 20"])
def test_a_budget_that_is_none_is_refused_with_advice(text):
    with pytest.raises(ConfigError, match="such as 20000"):
        Limits.parse(text)


def test_no_limit_is_no_limits():
    assert Limits.parse(seed=7) is None
