from __future__ import annotations

import math
import re
from collections.abc import Sequence

import oracle
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from transformers import PretrainedConfig

from selfreflect.errors import ConfigError
from selfreflect.metric.engine.engines import engine_for
from selfreflect.metric.information import compare, measure, pasted, words_of_tokens
from selfreflect.metric.prompts import CannotScoreError
from selfreflect.metric.sampling.limits import Limits
from selfreflect.metric.scorer import SelfReflect
from selfreflect.models.judge import Judge
from selfreflect.models.local.loading import CausalLM
from selfreflect.models.vllm.judge import LMHead
from selfreflect.records import AnswerSet, Information, Question, Score, Summary

QUESTION = Question(id="q7", text="What should I plant?")
HELD_OUT = ("Radishes grow fast.", "", "Lettuce, or peas", "It is not clear")
TOLD = ("basil or peas", "Radishes")
SUMMARIES = {"good": "Radishes, lettuce or peas.", "empty": "", "wrong": "An oak forest, of course."}


def measured(
    judge: Judge, summaries: Sequence[str], held_out=HELD_OUT, told=TOLD, reader="informed"
) -> list[Information]:
    answers = AnswerSet(question_id=QUESTION.id, masked_out=tuple(held_out), conditioning=tuple(told))
    results = measure(judge, engine_for(judge), QUESTION, answers, summaries, reader)
    return [results[summary] for summary in summaries]


# --- the engine against a slow computation that shares no code with it


@pytest.mark.parametrize("reader", ["informed", "blind"])
@pytest.mark.parametrize("architecture", ["llama", "qwen3", "mistral", "gemma2"])
def test_bits_equal_those_of_one_plain_pass_for_each_answer(tiny_judge, architecture, reader) -> None:
    judge = tiny_judge(architecture)
    results = measured(judge, list(SUMMARIES.values()), reader=reader)
    for result, summary in zip(results, SUMMARIES.values(), strict=True):
        bits, available = oracle.information(
            judge.lm.model, judge.lm.tokenizer, QUESTION.text, HELD_OUT, TOLD, summary, reader == "blind"
        )
        assert result.bits == pytest.approx(bits, abs=1e-4)
        assert result.bits_available == pytest.approx(available, abs=1e-4)
        total = sum(word.told for answer in result.answers for word in answer)
        assert total / len(result.answers) == pytest.approx(result.bits, abs=1e-3)  # words are rounded


def test_pasted_answers_recover_everything(tiny_judge) -> None:
    [result] = measured(tiny_judge("llama"), [pasted(TOLD)])
    assert result.bits == pytest.approx(result.bits_available, abs=1e-5)


def test_what_cannot_be_measured_is_typed(tiny_judge) -> None:
    judge = tiny_judge("llama")
    for held_out, told in (((" ",), TOLD), (HELD_OUT, ())):
        with pytest.raises(CannotScoreError) as caught:
            measured(judge, ["x"], held_out, told)
        assert caught.value.kind == "no_answers"
    with pytest.raises(CannotScoreError) as caught:
        measured(judge, ["x"], HELD_OUT, ["word " * 5000])
    assert caught.value.kind == "too_long"
    with pytest.raises(KeyError):
        measured(judge, ["word " * 5000])


def test_the_scorer_adds_it_on_request(tiny_judge) -> None:
    judge = tiny_judge("llama")
    question = {"masked_out": HELD_OUT, "conditioning": TOLD, "summaries": SUMMARIES}
    plain = SelfReflect(judge).score(QUESTION.text, **question)
    both = SelfReflect(judge, reader="informed").score(QUESTION.text, **question)
    [good, *_] = measured(judge, list(SUMMARIES.values()))
    expected = replace(good, summary="good", question_id=both["good"].question_id)
    assert both["good"].information == expected
    assert both["good"].recovered == good.recovered
    for name, score in plain.items():
        assert score.recovered is None
        assert replace(both[name], information=None) == score
    with pytest.raises(ConfigError, match="limits"):
        SelfReflect(judge, reader="blind", limits=Limits.parse(1000))


@pytest.mark.parametrize(("model", "reader"), [("own", "blind"), ("other", "informed")])
def test_a_judge_of_its_own_answers_reads_blindly(tiny_judge, model: str, reader: str) -> None:
    judge = tiny_judge("llama")
    answers = AnswerSet(
        question_id=QUESTION.id,
        masked_out=HELD_OUT,
        conditioning=TOLD,
        model=judge.name if model == "own" else "other",
        revision=judge.lm.revision,
    )
    summary = Summary(question_id=QUESTION.id, name="s", text="Radishes.")
    [score] = SelfReflect(judge, reader="auto").score_records(QUESTION, answers, [summary])
    assert isinstance(score, Score)
    assert score.information.reader == reader


# --- the formulas


def test_the_share_is_a_ratio_of_sums_with_its_interval() -> None:
    result = compare([1.0, 2.0, 3.0], [2.0, 4.0, 6.0], "informed")
    assert (result.bits, result.bits_available, result.recovered) == (2.0, 4.0, 0.5)
    assert result.interval == pytest.approx((0.5, 0.5))  # the share of each answer is the same
    result = compare([4.0, 2.0, 0.0, 2.0], [4.0, 4.0, 4.0, 4.0], "informed")
    # available bits do not vary: the interval of the mean, 2 ± t * sqrt(8/3/4), divided by 4
    half = 3.182446 * math.sqrt(8 / 3 / 4) / 4
    assert result.interval == pytest.approx((0.5 - half, 0.5 + half), abs=1e-6)


def test_a_summary_can_mislead() -> None:
    result = compare([-1.0, -2.0, -1.5], [5.0, 6.0, 7.0], "informed")
    assert result.recovered == pytest.approx(-0.25)


@pytest.mark.parametrize(
    ("available", "reason"),
    [([-1.0, -2.0], "known"), ([0.0, 0.0], "known"), ([9.0, -8.0], "unclear"), ([5.0], "unclear")],
)
def test_without_clear_gain_there_is_no_share(available: list[float], reason: str) -> None:
    result = compare([1.0] * len(available), available, "informed")
    assert (result.recovered, result.interval, result.undefined) == (None, None, reason)


# --- tokens and words


def pieces(text: str) -> list[str]:
    """A tokenizer's view of a text: pieces with their leading spaces, longer words in two."""
    found = []
    for piece in re.findall(r"\s*\S+", text):
        cut = len(piece) - len(piece.strip()) + 2
        found += [piece[:cut], piece[cut:]] if piece[cut:] else [piece]
    return found


class Spelling:
    """A tokenizer whose ids index some pieces."""

    def __init__(self, parts: list[str]) -> None:
        self.parts = parts

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(self.parts[token] for token in tokens)


@given(st.lists(st.text(st.characters(categories=["L", "N", "P"]), min_size=1), min_size=1))
def test_each_token_belongs_to_its_word(words: list[str]) -> None:
    words = " ".join(words).split()
    parts = pieces(" ".join(words))
    expected = []
    for number, word in enumerate(words):
        expected += [number] * len(pieces(word))
    assert words_of_tokens(Spelling(parts), range(len(parts)), words) == expected


@given(st.text(min_size=1).filter(lambda text: text.split() != []))
def test_any_text_has_a_word_for_each_token(text: str) -> None:
    tokenizer = tiny.tokenizer()
    tokens = tokenizer(text, add_special_tokens=False).input_ids
    places = words_of_tokens(tokenizer, tokens, text.split())
    assert len(places) == len(tokens)
    assert all(0 <= place < len(text.split()) for place in places)
    assert places == sorted(places)


# --- a judge that believes what it is told

STATED = re.compile(r"(\w+) (\d+)%")


class Believer:
    """A judge that predicts each answer with the share that a summary states, and evenly without one.

    Answers shown to it count with their frequency.
    """

    def __init__(self, options: Sequence[str]) -> None:
        plain = tiny.tokenizer()
        self.tokenizer = plain.train_new_from_iterator(
            [*tiny.CORPUS, *list(options) * 9], 2000, new_special_tokens=[tiny.OPEN], show_progress=False
        )
        self.tokenizer.chat_template = plain.chat_template
        self.ids = {one: self.tokenizer(one, add_special_tokens=False).input_ids for one in options}
        assert all(len(ids) == 1 for ids in self.ids.values())
        size = len(self.tokenizer)
        linear = torch.nn.Linear(size, size, bias=False)
        linear.weight = torch.nn.Parameter(torch.eye(size), requires_grad=False)
        head = LMHead(linear, PretrainedConfig())
        self.judge = Judge(CausalLM(head, self.tokenizer, "believer", "", "cpu", "float32", None))
        self.judge.last_states = self.states

    def states(self, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
        return torch.stack([self.shares(self.tokenizer.decode(prompt)).log() for prompt in prompts])

    def shares(self, text: str) -> torch.Tensor:
        told = "\n".join(re.findall(r"What is known about the answer: (.*)\nGive one", text, re.DOTALL))
        weights = dict.fromkeys(self.ids, 1.0)
        stated = {one: float(share) for one, share in STATED.findall(told)}
        if stated:
            weights = {one: stated.get(one, 0.0) + 1e-6 for one in self.ids}
        elif told:
            weights = {one: told.count(one) + 1e-6 for one in self.ids}
        result = torch.full((len(self.tokenizer),), 1e-9)
        for one, weight in weights.items():
            result[self.ids[one][0]] = weight
        return result / result.sum()


def state(shares: dict[str, int]) -> str:
    return ", ".join(f"{one} {share}%" for one, share in shares.items())


def test_bits_are_those_of_the_closed_form_and_the_true_distribution_tells_most() -> None:
    judge = Believer(["radishes", "lettuce", "basil", "peas"]).judge
    drawn = ["radishes"] * 6 + ["lettuce"] * 3 + ["basil"]
    true = {"radishes": 60, "lettuce": 30, "basil": 10, "peas": 0}
    others = [{**true, "radishes": 60 - shift, "lettuce": 30 + shift} for shift in (-20, -10, -5, 5, 10, 20)]
    others += [{**true, "basil": 0, "radishes": 70}, dict.fromkeys(true, 25)]
    first, *worse = measured(judge, [state(true), *map(state, others)], drawn, drawn)
    entropy = -sum(share / 100 * math.log2(share / 100) for share in true.values() if share)
    assert first.bits == pytest.approx(2 - entropy, abs=1e-3)  # four even options are 2 bits
    assert first.recovered == pytest.approx(1, abs=1e-3)
    for shares, result in zip(others, worse, strict=True):
        expected = 2 + sum(
            true[one] / 100 * math.log2((shares[one] + 1e-6) / 100) for one in true if true[one]
        )
        assert result.bits == pytest.approx(expected, abs=1e-3)
        assert result.bits < first.bits
