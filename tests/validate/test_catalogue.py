"""Every metric by name: which there are, what they need, and that models are loaded once and only if they are
needed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from scripted import Scripted

from selfreflect.errors import ConfigError
from selfreflect.sources.items import Item
from selfreflect.validate import catalogue
from selfreflect.validate.catalogue import METRICS, families, metric

pytestmark = pytest.mark.usefixtures("one_embedder")

JUDGED = [
    "selfreflect",
    "tv_t1",
    "information",
    "information_blind",
]
GENERATED = ["llm_judge"]
OTHERS = ["embedding_cosine", "embedding_transport", "rouge_l", "claims", "length"]


def named(found):
    return [info.name for family in found for info in family.metrics]


class Loader:
    """Loads a model, and counts how often."""

    def __init__(self, model):
        self.model, self.calls = model, 0

    def __call__(self):
        self.calls += 1
        return self.model


@pytest.fixture
def judge(tiny_judge):
    return Loader(tiny_judge("llama"))


def test_the_metrics_are_those_of_the_contract_in_a_fixed_order():
    assert [info.name for info in METRICS] == JUDGED + GENERATED + OTHERS
    assert {info.name: info.needs for info in METRICS if info.needs} == {
        **dict.fromkeys(JUDGED, ("judge",)),
        **dict.fromkeys(GENERATED, ("generator",)),
        **dict.fromkeys(OTHERS[:2], ("embedder",)),
    }


def test_reading_the_catalogue_loads_no_model_library():
    heavy = "torch transformers numpy scipy ot rouge_score nltk sklearn"
    loaded = f"set('{heavy}'.split()) & set(sys.modules)"
    code = f"import sys, selfreflect.validate.catalogue; print(sorted({loaded}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=True
    )
    assert done.stdout == "[]\n"


def test_without_names_it_is_what_can_be_computed(judge):
    assert named(families()) == OTHERS
    assert named(families(judge=judge)) == JUDGED + OTHERS
    assert named(families(generator=lambda: Scripted("5"))) == GENERATED + OTHERS


def test_what_is_not_installed_is_left_out_unless_asked_for(monkeypatch):
    monkeypatch.setattr(catalogue, "find_spec", lambda name: None if name == "ot" else object())
    assert named(families()) == ["embedding_cosine", "rouge_l", "claims", "length"]
    assert named(families(["embedding_transport", "length"])) == ["embedding_transport", "length"]


def test_names_and_groups_select_in_the_order_of_the_catalogue(judge):
    assert named(families(["length", "rouge_l", "claims", "length"])) == ["rouge_l", "claims", "length"]
    assert named(families(["controls", "tv_t1", "selfreflect"], judge=judge)) == [
        "selfreflect",
        "tv_t1",
        "length",
    ]
    assert named(families(["ablations"], judge=judge)) == ["tv_t1"]
    assert named(families(["competitors"])) == OTHERS[:4]
    assert named(families(["all"])) == OTHERS


def test_models_are_loaded_once_and_only_if_needed(judge):
    generator = Loader(Scripted("5"))
    families(["length"], judge=judge, generator=generator)
    assert (judge.calls, generator.calls) == (0, 0)
    families(judge=judge, generator=generator)
    assert (judge.calls, generator.calls) == (1, 1)


@pytest.mark.parametrize(
    ("names", "code", "shown"),
    [
        (["rouge"], "unknown_name", "'rouge_l'"),
        (["control"], "unknown_name", "'controls'"),
        (["kl"], "removed", "selfreflect"),
        (["pmi"], "removed", "information"),
        (["claims_f1"], "removed", "llm_judge"),
        (["\x1b[31m"], "unknown_name", r"'\x1b[31m'"),
        ([], "no_metric", "tv_t1"),
        (["length", "selfreflect"], "no_model", "judge"),
        (["llm_judge"], "no_model", "model"),
        (["ablations"], "no_model", "judge"),
    ],
)
def test_what_cannot_be_selected_is_explained(names, code, shown):
    with pytest.raises(ConfigError) as caught:
        families(names)
    assert caught.value.code == code
    assert shown in str(caught.value)


def test_one_metric_scores_one_summary(judge):
    assert metric("length").score("What?", ["hen", "duck"], "hen or duck").value == 3
    assert metric("llm_judge", generator=Scripted("5")).score("What?", ["hen", "duck"], "hen").value == 5
    assert (
        metric("llm_judge", generator=Scripted("nonsense"))
        .score("What?", ["hen", "duck"], "hen")
        .undefined.reason
        == "unparsed"
    )
    value = metric("selfreflect", judge=judge.model).score("What?", ["hen", "duck"], "hen")
    assert 0 <= value.value <= 1
    assert value.metric == "selfreflect"
    for name, code in (("all", "unknown_name"), ("selfreflect", "no_model")):
        with pytest.raises(ConfigError) as caught:
            metric(name)
        assert caught.value.code == code


def test_every_family_gives_each_summary_a_record_for_each_of_its_metrics(judge):
    item = Item(
        id="q",
        question="What?",
        masked_out=("a hen",),
        conditioning=("a duck",),
        summaries={"s": "a hen", "blank": " ", "same": "a hen"},
    )
    found = families(judge=judge, generator=lambda: Scripted("5"))
    for family in found:
        values = family.score(item)
        assert sorted((value.summary, value.metric) for value in values) == sorted(
            (name, info.name) for name in item.summaries for info in family.metrics
        )
        by_name = {
            name: [value.value for value in values if value.summary == name] for name in item.summaries
        }
        assert by_name["s"] == by_name["same"]
        assert all(value.by == family.by for value in values)
