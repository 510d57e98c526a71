"""Do the studies of stated percentages measure what they say? With a judge that does read percentages they
must find a full relation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pytest
import tiny
import torch
from studies import rows
from transformers import PretrainedConfig

from selfreflect.models.judge import Judge
from selfreflect.models.local.loading import CausalLM
from selfreflect.models.vllm.judge import LMHead
from selfreflect.sources.items import bundled_items
from selfreflect.validate.base import MetricInfo
from selfreflect.validate.catalogue import MASKED
from selfreflect.validate.edits.percentages import QUESTIONS, MultipleChoice
from selfreflect.validate.measure import measure
from selfreflect.validate.metrics.judged import Masked
from selfreflect.validate.study import Finding

RANKED = bundled_items("ranked_items")

TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>", re.DOTALL)
TASK = re.compile(r"you gave above: (.*)\nPlease provide only", re.DOTALL)
SAMPLE = re.compile(r"^x_\d+ = '(.*)'$", re.MULTILINE)
STATED = re.compile(r"“([^”]*)” \((\d+)%\)")

Shares = Mapping[str, float]


def stated(said: str) -> Shares:
    return {text: float(percentage) for text, percentage in STATED.findall(said)}


def backwards(said: str) -> Shares:
    """Takes every percentage for that of all others."""
    return {text: 100 - share for text, share in stated(said).items()}


def names_alone(said: str) -> Shares:
    """Does not read percentages."""
    return dict.fromkeys(stated(said), 1.0)


class Reader:
    """A judge in place of a model: it fills in a masked word in proportion to what was said of the answers
    that have it there.

    Hidden states are its logits, so that everything but the decoder is the metric's own: conversations,
    tokens, the tree of prompts, temperature, distances and means.

    Args:
        read: what it makes of a summary. It counts the conditioning answers.
        temperature: at which its predictions are these proportions.
    """

    def __init__(self, read: Callable[[str], Shares], temperature: float) -> None:
        words = [
            word
            for item in RANKED
            for answer in item.masked_out + item.conditioning
            for word in answer.split()
        ]
        words += [option for _, options in QUESTIONS.values() for option in options]
        plain = tiny.tokenizer()
        trained = plain.train_new_from_iterator(
            [*tiny.CORPUS, *words * 3], 2000, new_special_tokens=[tiny.OPEN], show_progress=False
        )
        trained.chat_template = plain.chat_template
        self.words, self.read, self.temperature = trained, read, temperature
        # no two have a beginning in common
        assert all(len(self.ids(option)) == 1 for _, options in QUESTIONS.values() for option in options)
        self.opening = [trained.convert_tokens_to_ids(tiny.OPEN), *self.ids("assistant\n")]
        linear = torch.nn.Linear(len(trained), len(trained), bias=False)
        linear.weight = torch.nn.Parameter(torch.eye(len(trained)), requires_grad=False)
        self.judge = Judge(
            CausalLM(LMHead(linear, PretrainedConfig()), trained, "reader", "", "cpu", "float32", None)
        )
        self.judge.last_states = self.states

    def ids(self, text: str) -> list[int]:
        return self.words(text, add_special_tokens=False).input_ids

    def states(self, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
        return torch.stack([self.temperature * self.probabilities(list(prompt)).log() for prompt in prompts])

    def probabilities(self, prompt: list[int]) -> torch.Tensor:
        """Of the next token, given the tokens of the word that are there already."""
        found = torch.full((len(self.words),), 1e-9)
        begun = prompt[len(prompt) - prompt[::-1].index(self.opening[0]) - 1 :]
        if begun[: len(self.opening)] == self.opening:  # a prefix that only warms a cache ends elsewhere
            turns = TURN.findall(self.words.decode(prompt))
            [masked] = TASK.findall(turns[-1][1])
            shares = Counter(SAMPLE.findall(turns[-2][1])) or self.read(turns[-2][1])
            for answer, share in shares.items():
                for place, word in enumerate(words := answer.split()):
                    ids = [*self.opening, *self.ids(word)]
                    if (
                        " ".join([*words[:place], "_", *words[place + 1 :]]) == masked
                        and ids[: len(begun)] == begun != ids
                    ):
                        # what is named at 0% is still the only one that fits some places
                        found[ids[len(begun)]] += share + 1e-6
        return found / found.sum()


def found_by(reader: Reader, study: MultipleChoice, metrics: Sequence[MetricInfo] = MASKED[:1]) -> Finding:
    masked = Masked(reader.judge, metrics)
    return study.finding(measure(study.items, [masked]), masked.metrics)


def cells(finding: Finding, table: int, row: int = 0) -> dict[str, object]:
    return rows(finding.tables[table])[row]


@pytest.fixture(scope="module")
def good_reader() -> Reader:
    return Reader(stated, 5.0)


def test_whoever_reads_percentages_follows_the_true_distance(good_reader: Reader):
    study = MultipleChoice()
    values = measure(study.items, [Masked(good_reader.judge, MASKED[:1])])
    distances = study.distances.ravel().tolist()
    assert [value.value for value in values] == pytest.approx(distances, abs=1e-5)
    finding = study.finding(values, Masked(good_reader.judge, MASKED[:1]).metrics)
    for table in range(3):
        assert cells(finding, table)["Spearman"] > 0.98  # rounding parts some equal distances
        assert cells(finding, table)["Pearson"] == pytest.approx(1, abs=1e-6)


def test_whoever_reads_them_backwards_is_found_out():
    finding = found_by(Reader(backwards, 5.0), MultipleChoice(grid=5))
    assert cells(finding, 0)["Spearman"] < -0.5
    assert "gets BETTER with the distance" in finding.says[1]


def test_whoever_does_not_read_them_shows_nothing():
    finding = found_by(Reader(names_alone, 5.0), MultipleChoice(grid=5))
    assert cells(finding, 0)["Spearman"] is None
    assert cells(finding, 0)["form"] is None


def test_temperature_blurs_a_perfect_reader_but_leaves_the_sign():
    """The judge's temperature of 5 makes a tenth nearly as much as a half, and nothing at all of 0% and what
    is not named."""
    finding = found_by(Reader(stated, 1.0), MultipleChoice(), MASKED[:2])
    assert cells(finding, 0, 1)["Pearson"] == pytest.approx(1, abs=1e-6)
    assert 0.5 < cells(finding, 0, 0)["Pearson"] < 0.95
