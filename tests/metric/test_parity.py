"""The published scorer's own numbers, computed with the embedded model: matched by the engine and by the
oracle that proves it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import oracle
import pytest

from selfreflect.metric.engine.engines import TreeEngine
from selfreflect.metric.scorer import SelfReflect
from selfreflect.models.base import ModelSpec
from selfreflect.models.judge import Judge
from selfreflect.models.local.loading import load_causal_lm
from selfreflect.records import Score

DATA = Path(__file__).parents[1] / "data"
ITEMS: dict[str, dict[str, Any]] = {
    item["id"]: item for item in json.loads((DATA / "parity_items.json").read_text(encoding="utf-8"))
}
PUBLISHED = json.loads((DATA / "parity_scores.json").read_text(encoding="utf-8"))["items"]
TOLERANCE = 1e-4

pytestmark = pytest.mark.timeout(900)

CORNERS = ("empty_and_blank_answers", "one_answer_each")
"""In every test run for the oracle, which needs minutes for all ten."""
QUICK = (*CORNERS, "quotes_underscores_braces", "stopwords_only")
"""In every test run for the engine; equal answers also come up in ``engine/test_engines.py``."""


def slow_but(quick: tuple[str, ...]) -> list[Any]:
    return [item if item in quick else pytest.param(item, marks=pytest.mark.slow) for item in ITEMS]


@pytest.fixture(scope="module")
def metric():
    return SelfReflect(Judge.load("smollm2", device="cpu", dtype="float32"))


def test_no_item_is_missing():
    assert set(ITEMS) == set(PUBLISHED)
    assert len(ITEMS) == 10
    assert sum(len(item["summaries"]) for item in ITEMS.values()) == sum(
        len(item["scores"]) for item in PUBLISHED.values()
    )


@cache
def scored(metric: SelfReflect, name: str) -> dict[str, Score]:
    item = ITEMS[name]
    halves = {"masked_out": item["masked_out_task_answers"], "conditioning": item["conditioning_answers"]}
    return metric.score(item["question"], summaries=item["summaries"], **halves)


@pytest.mark.parametrize("name", slow_but(QUICK))
def test_the_engine_reproduces_the_published_scores(metric, name):
    assert type(metric.engine) is TreeEngine
    found = scored(metric, name)
    assert {summary: score.value for summary, score in found.items()} == pytest.approx(
        PUBLISHED[name]["scores"], abs=TOLERANCE, rel=0
    )
    assert {score.token_tasks for score in found.values()} == {PUBLISHED[name]["token_tasks_per_context"]}


@pytest.mark.parametrize("name", slow_but(CORNERS))
def test_the_oracle_reproduces_the_published_scores_and_the_engine_the_oracle_s(metric, name):
    item = ITEMS[name]
    lm = load_causal_lm(ModelSpec("smollm2", device="cpu"), library=True)  # of which the engine uses nothing
    found = oracle.score(
        lm.model,
        lm.tokenizer,
        item["question"],
        item["masked_out_task_answers"],
        item["conditioning_answers"],
        item["summaries"],
    )
    assert {summary: score.value for summary, score in found.items()} == pytest.approx(
        PUBLISHED[name]["scores"], abs=TOLERANCE, rel=0
    )
    ours = scored(metric, name)
    for summary, score in found.items():
        distances = [distance for answer in score.distances for word in answer for distance in word]
        assert len(distances) == PUBLISHED[name]["token_tasks_per_context"]
        assert [distance for word in ours[summary].words for distance in word.distances] == pytest.approx(
            distances, abs=1e-5, rel=0
        )
