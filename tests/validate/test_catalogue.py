"""Every metric by name: which there are, what they need, and that models are loaded once and only if they are
needed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from scripted import Scripted

from selfreflect.errors import ConfigError
from selfreflect.sources.items import Item
from selfreflect.validate import base
from selfreflect.validate.base import families

pytestmark = pytest.mark.usefixtures("one_embedder")

JUDGED = ["selfreflect", "information", "information_blind"]
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


def test_reading_the_catalogue_loads_no_model_library():
    heavy = "torch transformers numpy scipy ot rouge_score nltk sklearn"
    code = "import sys, selfreflect.validate.base\n"
    code += f"print(sorted(set('{heavy}'.split()) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_without_names_it_is_what_can_be_computed_and_models_are_loaded_once(judge, monkeypatch):
    assert named(families()) == OTHERS
    generator = Loader(Scripted("5"))
    assert named(families(judge=judge, generator=generator)) == [*JUDGED, "llm_judge", *OTHERS]
    assert named(families(["length", "rouge_l", "length"], judge=judge)) == ["rouge_l", "length"]
    assert (judge.calls, generator.calls) == (1, 1)
    monkeypatch.setattr(base, "find_spec", lambda name: None if name == "ot" else object())
    assert named(families()) == ["embedding_cosine", "rouge_l", "claims", "length"]
    assert named(families(["embedding_transport", "length"])) == ["embedding_transport", "length"]


@pytest.mark.parametrize(
    ("names", "code", "shown"),
    [
        (["rouge"], "unknown_name", "'rouge_l'"),
        (["kl"], "removed", "selfreflect"),
        (["competitors", "length"], "removed", "rouge_l"),
        (["\x1b[31m"], "unknown_name", r"'\x1b[31m'"),
        ([], "no_metric", "selfreflect"),
        (["length", "selfreflect"], "no_model", "judge"),
        (["llm_judge"], "no_model", "model"),
    ],
)
def test_what_cannot_be_selected_is_explained(names, code, shown):
    with pytest.raises(ConfigError) as caught:
        families(names)
    assert caught.value.code == code
    assert shown in str(caught.value)


def test_every_family_gives_each_summary_a_record_for_each_of_its_metrics(judge):
    item = Item(
        id="q",
        question="What?",
        masked_out=("a hen",),
        conditioning=("a duck",),
        summaries={"s": "a hen", "blank": " ", "same": "a hen"},
    )
    for family in families(judge=judge, generator=lambda: Scripted("5")):
        values = family.score(item)
        keys = [(value.summary, value.metric) for value in values]
        assert keys == [(name, info.name) for name in item.summaries for info in family.metrics]
        by_name = {
            name: [value.value for value in values if value.summary == name] for name in item.summaries
        }
        assert by_name["s"] == by_name["same"]
        assert all(value.by == family.by for value in values)
