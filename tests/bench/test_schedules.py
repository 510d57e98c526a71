"""The schedules of the benchmark give the engine's distances, and compute the tokens that they say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from selfreflect.bench import (
    Bench,
    Ids,
    RewindableCache,
    compare_trees,
    counted_tokens,
    encode,
    one_by_one,
    requests,
    score,
    work_of,
)
from selfreflect.errors import DataError, JudgeError
from selfreflect.metric.scorer import SelfReflect
from selfreflect.models.judge import Judge
from selfreflect.sources.items import Item

pytestmark = pytest.mark.usefixtures("small_heap")

ITEM = Item(
    id="i1",
    question="What should I plant?",
    masked_out=("Radishes grow fast", "Lettuce", "Lettuce", "", "It is not.", "Lettuce or peas"),
    conditioning=("basil or peas", "", "basil or peas"),
    summaries={"z": "Radishes.", "a": "Maybe kale, or else nothing at all before May.", "same": "Radishes."},
)


def brute_force_one_by_one(contexts: Sequence[Sequence[Ids]]) -> int:
    """Distinct beginnings of all requests, and one token for each request that was made before."""
    asked = [request for context in contexts for request in context]
    beginnings = {request[:end] for request in asked for end in range(1, len(request) + 1)}
    return len(beginnings) + len(asked) - len(set(asked))


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_both_schedules_give_the_same_distances(
    tiny_metric: Callable[..., SelfReflect], architecture: str
) -> None:
    metric = tiny_metric(architecture)
    judge, contexts = metric.judge, encode(metric.judge, ITEM)
    expected = score(metric, ITEM)
    assert max(values.max() for values in expected) > 0.01
    distances = one_by_one(judge, contexts, 5.0)
    assert [len(values) for values in distances] == [len(values) for values in expected]
    np.testing.assert_allclose(np.concatenate(distances), np.concatenate(expected), rtol=0, atol=1e-5)


def test_the_published_schedule_computes_each_token_once(tiny_judge: Callable[..., Judge]) -> None:
    judge = tiny_judge("llama")
    contexts = encode(judge, ITEM)
    with counted_tokens(judge) as tokens:
        one_by_one(judge, contexts, 5.0)
    asked = [requests(prompts) for prompts in contexts]
    assert sum(tokens) == brute_force_one_by_one(asked)
    assert work_of(judge, ITEM).requests == sum(map(len, asked))


def test_the_engine_computes_the_nodes_of_its_trees(tiny_metric: Callable[..., SelfReflect]) -> None:
    metric = tiny_metric("llama")
    work = work_of(metric.judge, ITEM)
    for run in (lambda: score(metric, ITEM), lambda: compare_trees(metric, work)):
        with counted_tokens(metric.judge) as tokens:
            run()
        assert sum(tokens) == work.tree_tokens


IDS = st.lists(st.integers(0, 3), min_size=1, max_size=8).map(tuple)


@settings(max_examples=30, deadline=None)
@given(st.lists(IDS, min_size=1, max_size=8))
def test_wherever_a_cache_has_been_it_gives_the_states_of_a_fresh_model(walk: list[Ids]) -> None:
    decoder = JUDGE.decoder
    cache = RewindableCache(JUDGE, 8)
    with torch.inference_mode():
        for ids in walk:
            expected = decoder(torch.tensor([ids])).last_hidden_state[:, -1]
            np.testing.assert_allclose(cache.go_to(ids), expected, atol=1e-4)


@pytest.fixture(scope="module", autouse=True)
def _cache_judge(tiny_judge: Callable[..., Judge]) -> None:
    global JUDGE
    JUDGE = tiny_judge("llama")


JUDGE: Judge


@pytest.mark.parametrize("architecture", ["mistral"])
def test_a_cache_that_cannot_go_back_is_refused_and_the_engine_alone_still_runs(
    tiny_judge: Callable[..., Judge], architecture: str
) -> None:
    judge = tiny_judge(architecture)
    with pytest.raises(JudgeError, match="only c"):
        one_by_one(judge, encode(judge, ITEM), 5.0)
    figures, *_ = Bench(judge, [ITEM], ["c"]).run()
    assert figures["seconds_engine"] > 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"masked_out": (" ", "")}, "no test answers"),
        ({"conditioning": ()}, "no reference answers"),
        ({"summaries": {"long": "kale " * 3000}}, "window"),
    ],
)
def test_an_item_without_a_score_is_refused_by_name(
    tiny_judge: Callable[..., Judge], changes: dict[str, object], reason: str
) -> None:
    fields = {
        "id": "i1",
        "question": "What?",
        "masked_out": ("a b",),
        "conditioning": ("c",),
        "summaries": {"s": "d"},
    }
    with pytest.raises(DataError, match=f"item 'i1' cannot be timed: .*{reason}"):
        work_of(tiny_judge("llama"), Item(**{**fields, **changes}))  # type: ignore[arg-type]
