"""What usable information is by its definition: proved on a judge whose predictions are known, and against
the oracle on the embedded model and on a judge behind vLLM's pooling server."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import oracle
import pytest
import tiny
import torch
from fault_server import FaultServer
from hypothesis import given, settings
from hypothesis import strategies as st
from pooling import pooling
from transformers import PretrainedConfig

from selfreflect.metric.engine.engines import RemoteEngine, TreeEngine, engine_for
from selfreflect.metric.information import measure
from selfreflect.metric.texts import pasted
from selfreflect.models.base import ModelSpec
from selfreflect.models.judge import Judge
from selfreflect.models.local.loading import CausalLM, load_causal_lm
from selfreflect.models.vllm.judge import LMHead
from selfreflect.records import AnswerSet, Information, Question, Reader

QUESTION = Question(id="q7", text="What should I plant?")
OPTIONS = ("red radishes", "red peas", "green peas", "green lettuce")
UNSTATED = 1e-3
"""What the judge believes of an option that a summary leaves out."""


class Believer:
    """A judge whose answers follow the counts that it is told, and are equally likely if it is told nothing.

    It knows whole answers; its predictions of tokens follow by the chain rule.

    Args:
        knows_form: the probability that it gives one of the options before it has been told any.
        doubt: the part of its belief that stays the same for every option.
    """

    def __init__(self, options: Sequence[str] = OPTIONS, knows_form: float = 1.0, doubt: float = 0.0) -> None:
        self.knows_form = knows_form
        self.doubt = doubt
        self.tokenizer = tiny.tokenizer()
        self.options = {option: self._ids(option) for option in options}
        self.opening = self._ids(f"{tiny.OPEN}assistant\n")
        size = len(self.tokenizer)
        linear = torch.nn.Linear(size, size, bias=False)
        linear.weight = torch.nn.Parameter(torch.eye(size), requires_grad=False)
        head = LMHead(linear, PretrainedConfig())
        self.judge = Judge(CausalLM(head, self.tokenizer, "believer", "", "cpu", "float32", None))
        self.judge.last_states = self.states

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False).input_ids
        return ids

    def states(self, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Logarithms of the next token's probabilities: the output matrix leaves them as they are."""
        return torch.stack([self._next_token(list(prompt)).log() for prompt in prompts]).float()

    def _next_token(self, prompt: list[int]) -> torch.Tensor:
        start = len(prompt) - prompt[::-1].index(self.opening[0]) - 1 + len(self.opening)
        written = prompt[start:]
        shares = beliefs(
            self.tokenizer.decode(prompt[:start]), tuple(self.options), self.knows_form, self.doubt
        )
        rest = 0.0 if written else 1 - sum(shares.values())
        result = torch.full((len(self.tokenizer),), 1e-15 + rest / len(self.tokenizer), dtype=torch.double)
        for option, ids in self.options.items():
            if ids[: len(written)] == written:
                result[ids[len(written)]] += shares[option]
        return result / result.sum()


def beliefs(
    text: str, options: Sequence[str] = OPTIONS, knows_form: float = 1.0, doubt: float = 0.0
) -> dict[str, float]:
    """Each option's share of the options in what the judge is told; "red peas (3 of 4)" counts thrice."""
    told = text.partition("What is known about the answer: ")[2].partition("\nGive one answer")[0]
    counts = {option: told.count(option) + UNSTATED for option in options}
    for option, more in re.findall(rf"({'|'.join(map(re.escape, options))}) \((\d+) of", told):
        counts[option] += int(more) - 1
    form = 1.0 if any(option in told for option in options) else knows_form
    total = sum(counts.values())
    return {
        option: form * (doubt / len(options) + (1 - doubt) * count / total)
        for option, count in counts.items()
    }


def state(counts: Sequence[int]) -> str:
    """A summary that states a distribution."""
    return "; ".join(" and ".join([option] * count) for option, count in zip(OPTIONS, counts, strict=True))


def drawn(counts: Sequence[int]) -> list[str]:
    answers = []
    for option, count in zip(OPTIONS, counts, strict=True):
        answers += [option] * count
    return answers


def measured(
    judge: Judge,
    summaries: Sequence[str],
    held_out: Sequence[str],
    told: Sequence[str],
    reader: Reader = "informed",
) -> list[Information]:
    answers = AnswerSet(question_id=QUESTION.id, masked_out=tuple(held_out), conditioning=tuple(told))
    results = measure(judge, engine_for(judge), QUESTION, answers, summaries, reader)
    return [results[summary] for summary in summaries]


@pytest.fixture(scope="module")
def believer() -> Judge:
    return Believer().judge


COUNTS = st.lists(st.integers(0, 5), min_size=4, max_size=4).filter(any)


@pytest.mark.parametrize(("knows_form", "part"), [(1 / 2, 1 / 2), (1 / 8, 3 / 4), (0.8, None)])
def test_the_part_of_the_bits_in_a_shared_phrase_is_recorded_from_a_third_on(
    knows_form: float, part: float | None
) -> None:
    # two of four plants: one bit says which, and -log2(knows_form) bits that something is sown
    options = [f"sow {plant}" for plant in ("radishes", "peas", "lettuce", "basil")]
    answers = options[:2] * 2
    [result] = measured(Believer(options, knows_form).judge, [pasted(options[:2])], answers, answers)
    assert result.bits == pytest.approx(1 - math.log2(knows_form), abs=0.04)
    assert result.shared_phrase == (part and pytest.approx(part, abs=0.02))
    assert (result.anchor, "shared_phrase" in result.to_dict()) == ("distinct", part is not None)


@settings(max_examples=40, deadline=None)
@given(true=COUNTS, stated=COUNTS)
def test_bits_are_those_of_the_closed_form_and_a_false_distribution_costs_its_divergence(
    believer: Judge, true: list[int], stated: list[int]
) -> None:
    answers = drawn(true)
    right, other = measured(believer, [state(true), state(stated)], answers, answers)
    gain = 0.0
    divergence = 0.0
    for count, before, after in zip(
        true, beliefs(told(state(true))).values(), beliefs(told(state(stated))).values(), strict=True
    ):
        share = count / len(answers)
        gain += share * math.log2(before * len(OPTIONS))
        divergence += share * math.log2(before / after)
    assert right.bits == pytest.approx(gain, abs=1e-4)
    assert right.bits - other.bits == pytest.approx(divergence, abs=1e-4)
    assert divergence >= -1e-5  # of two statements the true one tells more: a proper score


def told(text: str) -> str:
    return f"What is known about the answer: {text}"


@settings(max_examples=20, deadline=None)
@given(counts=COUNTS, stated=COUNTS)
def test_words_get_the_bits_of_the_chain_rule(believer: Judge, counts: list[int], stated: list[int]) -> None:
    answers = drawn(counts)
    [result] = measured(believer, [state(stated)], answers, answers)
    shares = beliefs(told(state(stated)))
    assert result.bits == pytest.approx(
        sum(word.told for words in result.answers for word in words) / len(answers), abs=2e-4
    )
    for answer, words in zip(answers, result.answers, strict=True):
        colour, plant = answer.split()
        of_colour = sum(share for option, share in shares.items() if option.startswith(colour))
        assert [word.text for word in words] == [colour, plant]
        assert words[0].told == pytest.approx(math.log2(of_colour * 2), abs=2e-4)
        # two options are left once the colour is known, green or red
        assert words[1].told == pytest.approx(math.log2(shares[answer] / of_colour * 2), abs=2e-4)


@settings(max_examples=20, deadline=None)
@given(counts=COUNTS)
def test_what_is_available_is_what_the_answers_tell_with_how_often_each_came(
    believer: Judge, counts: list[int]
) -> None:
    answers = drawn(counts)
    [result] = measured(believer, [pasted(answers)], answers, answers)
    assert result.bits == pytest.approx(result.bits_available, abs=0.02)  # so much is left unstated
    if result.undefined is None:
        assert result.recovered == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("yes", "no", "settings", "undefined"),
    [
        (17, 3, {}, None),  # 0.39 bits, all that can be told of such answers
        (10, 10, {}, "known"),
        (20, 0, {}, None),
        (20, 0, {"knows_form": 0.01}, None),  # "No." would tell nothing
        (20, 0, {"knows_form": 0.01, "doubt": 0.8}, "format"),  # "No." tells nearly as much
        (17, 3, {"knows_form": 0.01, "doubt": 0.8}, "format"),
    ],
)
def test_of_yes_and_no_a_judge_must_learn_more_than_their_form(yes, no, settings, undefined) -> None:
    answers = ["Yes."] * yes + ["No."] * no
    judge = Believer(("Yes.", "No."), **settings).judge
    [result] = measured(judge, [pasted(answers)], answers, answers)
    assert result.undefined == undefined
    assert result.recovered == (None if undefined else pytest.approx(1, abs=0.05))


# --- against the oracle, on judges as people have them

DATA = Path(__file__).parents[1] / "data"
ITEMS = {item["id"]: item for item in json.loads((DATA / "parity_items.json").read_text(encoding="utf-8"))}
CORNER = "empty_and_blank_answers"


def assert_equal_to_oracle(judge: Judge, lm: CausalLM, item: dict, reader: Reader) -> None:
    held_out, told = item["masked_out_task_answers"], item["conditioning_answers"]
    question = Question(id=item["id"], text=item["question"])
    answers = AnswerSet(question_id=question.id, masked_out=tuple(held_out), conditioning=tuple(told))
    summaries = item["summaries"]
    results = measure(judge, engine_for(judge), question, answers, list(summaries.values()), reader)
    for summary in summaries.values():
        bits, available = oracle.information(
            lm.model, lm.tokenizer, question.text, held_out, told, summary, reader == "blind"
        )
        assert results[summary].bits == pytest.approx(bits, abs=1e-4)
        assert results[summary].bits_available == pytest.approx(available, abs=1e-4)


@pytest.fixture(scope="module")
def embedded() -> Judge:
    return Judge.load("smollm2", device="cpu", dtype="float32")


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "reader"),
    [
        # by default a blind reader is that of the tiny judges below
        (CORNER, "informed"),
        pytest.param(CORNER, "blind", marks=pytest.mark.slow),
        *(
            pytest.param(name, reader, marks=pytest.mark.slow)
            for name in ITEMS
            for reader in ("informed", "blind")
            if name != CORNER
        ),
    ],
)
def test_bits_of_the_embedded_judge(embedded: Judge, name: str, reader: Reader) -> None:
    assert type(engine_for(embedded)) is TreeEngine
    lm = load_causal_lm(ModelSpec("smollm2", device="cpu"), library=True)
    assert_equal_to_oracle(embedded, lm, ITEMS[name], reader)


@pytest.mark.slow
def test_the_embedded_judge_knows_its_own_answers_unless_they_come_from_a_context(embedded: Judge) -> None:
    root = DATA.parents[1]
    demo = json.loads((root / "src/selfreflect/data/demo_items.json").read_text("utf-8"))
    everyday = json.loads((root / "benchmarks/everyday_items.json").read_text("utf-8"))
    with_context = [row for row in demo if row.get("context")]
    everyday += [row for row in demo if not row.get("context")]
    assert (len(with_context), len(everyday)) == (8, 5)
    for rows, verdicts in ((everyday, {"known", "worse", "different_answers"}), (with_context, {None})):
        for row in rows:
            held_out, told = row["masked_out_task_answers"], row["conditioning_answers"]
            question = Question(id=row["id"], text=row["question"])
            answers = AnswerSet(question_id=row["id"], masked_out=tuple(held_out), conditioning=tuple(told))
            results = measure(embedded, engine_for(embedded), question, answers, ["", pasted(told)])
            assert {result.reason for result in results.values()} <= verdicts, row["id"]
            assert results[""].bits == 0


@pytest.mark.parametrize("reader", ["informed", "blind"])
@pytest.mark.parametrize("architecture", ["llama", "gemma2", "granite"])
def test_bits_of_a_judge_behind_a_pooling_server(
    tiny_judge: Callable[..., Judge], architecture: str, reader: Reader
) -> None:
    local = tiny_judge(architecture)
    with FaultServer(pooling(local)) as server:
        judge = Judge.load(f"vllm+http:{local.name}", base_url=server.url, device="cpu")
        assert type(engine_for(judge)) is RemoteEngine
        assert_equal_to_oracle(judge, local.lm, ITEMS[CORNER], reader)
