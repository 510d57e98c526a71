"""Multiple choice: the grid, the texts, and the correlations of metrics whose answer is known."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import tiny
import torch
from studies import LOWER, measured, rows
from transformers import PretrainedConfig

from selfreflect.errors import ConfigError
from selfreflect.models.judge import Judge
from selfreflect.models.local.loading import CausalLM
from selfreflect.models.vllm.judge import LMHead
from selfreflect.sources.items import bundled_items
from selfreflect.validate.base import FAMILIES, MetricInfo, Value
from selfreflect.validate.choice import QUESTIONS, MultipleChoice, shapes
from selfreflect.validate.judged import JudgeMeasures
from selfreflect.validate.study import Finding, measure


def distances_of(study: MultipleChoice) -> dict[tuple[str, str], float]:
    """By item and summary."""
    rows = study.distances.reshape(len(study.items), -1)
    return {
        (item.id, name): distance
        for item, row in zip(study.items, rows.tolist(), strict=True)
        for name, distance in zip(item.summaries, row, strict=True)
    }


Score = Callable[[str, str, float], float | None]
"""Of the item, the summary and the distance."""


def values(study: MultipleChoice, metric: MetricInfo, score: Score) -> list[Value]:
    distances = distances_of(study)
    return measured(study, metric, lambda item, name: score(item.id, name, distances[item.id, name]))


def test_two_distributions_word_by_word():
    study = MultipleChoice(grid=2)
    certain, even, *_ = study.items
    assert certain.id == "choice-colour-10-0-0-0"
    assert certain.question == "Which colour would you paint the front door: red, blue, green or white?"
    assert {*certain.masked_out, *certain.conditioning} == {"blue"}
    assert certain.summaries == even.summaries
    assert even.summaries == {
        "red 0%, blue 100%, green 0%, white 0%": (
            "I would say “red” (0%), “blue” (100%), “green” (0%) or “white” (0%)."
        ),
        "red 30%, blue 20%, green 20%, white 30%": (
            "I would say “red” (30%), “blue” (20%), “green” (20%) or “white” (30%)."
        ),
    }
    assert Counter(even.masked_out) == Counter(even.conditioning)
    assert Counter(even.masked_out) == {"red": 3, "blue": 2, "green": 2, "white": 3}
    assert study.distances[0].tolist() == [[0.0, 0.8], [0.8, 0.0]]


def test_every_distribution_is_true_once_and_stated_of_all():
    study = MultipleChoice()
    assert len(study.items) == 16
    assert study.distances.shape == (2, 8, 8)
    for text, options in QUESTIONS.values():
        items = [item for item in study.items if text in item.question]
        assert len(items) == 8
        assert all(item.summaries == items[0].summaries for item in items)
        distances = distances_of(study)
        for item, name in zip(items, items[0].summaries, strict=True):
            assert [other for other in item.summaries if distances[item.id, other] == 0] == [name]
        assert max(distances[item.id, name] for item in items for name in item.summaries) >= 0.9
        most = [Counter(item.conditioning).most_common(1)[0][1] for item in items]
        leading = [
            place
            for item in items[:4]
            for place in [options.index(Counter(item.conditioning).most_common(1)[0][0])]
        ]
        assert (max(most), min(most), sorted(leading)) == (10, 3, [0, 1, 2, 3])
    for item in study.items:
        assert Counter(item.masked_out) == Counter(item.conditioning)
        assert len(item.masked_out) == 10
        assert len({len(text.split()) for text in item.summaries.values()}) == 1  # length tells nothing
    assert len({item.id for item in study.items}) == 16


@pytest.mark.parametrize("answers", [3, 25])
def test_distances_are_those_of_the_answers_that_are_there(answers: int):
    study = MultipleChoice(seed=2, grid=4, answers=answers)
    assert len(study.items) == 2 * min(4, len(shapes(answers)))
    for item in study.items:
        assert len(item.masked_out) == len(item.conditioning) == answers
        counts = Counter(item.conditioning)
        for name, text in item.summaries.items():
            stated = [
                (part.split()[0], int(part.split()[1].removesuffix("%")) / 100) for part in name.split(", ")
            ]
            distance = sum(abs(share - counts[option] / answers) for option, share in stated) / 2
            assert distances_of(study)[item.id, name] == pytest.approx(
                distance, abs=0.015
            )  # whole percentages
            for option, share in stated:
                assert f"“{option}” ({share * 100:.0f}%)" in text


def found(study: MultipleChoice, score: Score, metric: MetricInfo = LOWER) -> dict[str, Any]:
    """The row of a metric, with its sentence."""
    finding = study.finding(values(study, metric, score), [metric])
    [row] = rows(finding.tables[0])
    return {**row, "says": finding.says[1]}


@pytest.mark.parametrize(("turn", "verdict"), [(1, "as it must"), (-1, "BETTER")])
def test_the_true_distance_correlates_fully(turn: int, verdict: str):
    row = found(MultipleChoice(), lambda item, name, distance: turn * distance)
    assert (row["Spearman"], row["as measured"]) == (pytest.approx(turn), pytest.approx(turn))
    assert (row["n"], row["of"]) == (128, 128)
    assert row["p"] < 0.001
    assert 0 < row["form"] < 0.3
    assert verdict in row["says"]


def test_a_metric_that_reads_only_the_form_has_no_relation_net_of_form():
    """Statements with many zeros are far from most true distributions. Whoever likes zeros seems to like
    wrong statements."""
    row = found(MultipleChoice(), lambda item, name, _: 4.0 - name.count(" 0%"))
    assert row["as measured"] < -0.2
    assert (row["Spearman"], row["p"], row["form"]) == (None, None, pytest.approx(1))
    mixed = found(MultipleChoice(), lambda _, name, distance: distance / 10 - name.count(" 0%"))
    assert mixed["as measured"] < 0.2
    assert mixed["Spearman"] == pytest.approx(1, abs=1e-3)
    assert mixed["form"] > 0.9


def test_a_quirk_of_one_statement_with_some_truths_is_no_reading():
    """A bootstrap over true distributions holds it for certain, since it is in all of them."""
    study = MultipleChoice()
    odd = list(study.items[0].summaries)[1]
    turn = {item.id: 1 if number % 2 else -1 for number, item in enumerate(study.items)}
    assert found(study, lambda item, name, _: float(turn[item] * (name == odd)))["p"] > 0.05


def test_true_distributions_without_all_values_are_left_out_and_show_in_n():
    study = MultipleChoice()
    gap = study.items[3].id
    row = found(study, lambda item, name, distance: None if item == gap and not distance else distance)
    assert (row["n"], row["of"], row["Spearman"]) == (120, 128, pytest.approx(1, abs=0.02))
    nothing = found(study, lambda item, name, distance: None)
    assert (nothing["n"], nothing["Spearman"]) == (0, None)


@pytest.mark.parametrize("settings", [{"grid": 1}, {"grid": 24}, {"answers": 0}, {"answers": 1}])
def test_settings_that_make_no_sense_are_refused(settings: dict[str, int]):
    with pytest.raises(ConfigError) as caught:
        MultipleChoice(**settings)
    assert caught.value.code == "out_of_range"


MASKED = FAMILIES["judged:JudgeMeasures"]
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


def read_by(reader: Reader, study: MultipleChoice, metrics: Sequence[MetricInfo] = MASKED) -> Finding:
    masked = JudgeMeasures(reader.judge, metrics)
    return study.finding(measure(study.items, [masked]), masked.metrics)


def test_whoever_reads_percentages_follows_the_true_distance():
    study = MultipleChoice()
    masked = JudgeMeasures(Reader(stated, 5.0).judge, MASKED)
    found_values = measure(study.items, [masked])
    distances = study.distances.ravel().tolist()
    assert [value.value for value in found_values] == pytest.approx(distances, abs=1e-5)
    [row] = rows(study.finding(found_values, masked.metrics).tables[0])
    assert row["Spearman"] > 0.98  # rounding parts some equal distances


@pytest.mark.parametrize("read", [backwards, names_alone])
def test_whoever_does_not_read_them_is_found_out(read: Callable[[str], Shares]):
    [row] = rows(read_by(Reader(read, 5.0), MultipleChoice(grid=5)).tables[0])
    assert (row["Spearman"] or -1) < -0.5


def test_temperature_blurs_a_perfect_reader_but_leaves_the_sign():
    """The judge's temperature of 5 makes a tenth nearly as much as a half, and nothing at all of 0% and of
    what is not named."""
    [blurred] = rows(read_by(Reader(stated, 1.0), MultipleChoice(), MASKED).tables[0])
    assert 0.5 < blurred["Spearman"] < 0.98
