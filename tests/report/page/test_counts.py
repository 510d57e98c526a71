"""The figures at the top of a page of several runs."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from measured import measured_run
from msgspec import structs

from selfreflect.report.page.build import report_page


@pytest.mark.parametrize(("same", "count"), [(True, "24"), (False, "48")])
def test_answers_that_two_versions_are_scored_against_count_once(same, count):
    released, new = (measured_run({"mine": [5.0, 6.0]}, label=label) for label in ("released", "new"))
    if not same:
        answers = {id_: structs.replace(one, masked_out=("a", "b")) for id_, one in new.answers.items()}
        new = replace(new, answers=answers)
    page = report_page([[released], [new]])
    assert re.findall(r"sampled answers<\D*(\d+)", page) == [count]
