"""What suits a model unless the user says otherwise."""

from __future__ import annotations

import pytest

from selfreflect.server.requests import AskBody, ModelChoices

BOTH = {"selfreflect", "information"}


@pytest.mark.parametrize(
    ("judge", "measures", "expected"),
    [
        ("smollm2", None, {"information"}),
        ("smollm2", ["selfreflect"], {"selfreflect"}),
        ("smollm2", ["selfreflect", "information"], BOTH),
        ("a/larger", None, BOTH),
        ("a/larger", ["information"], {"information"}),
    ],
)
def test_the_app_measures_what_suits_the_judge_unless_told_otherwise(judge, measures, expected):
    body = AskBody(question="Why?", judge=judge, measures=measures)
    assert ModelChoices(["a/larger"]).config(body).scores.measure_names == expected
