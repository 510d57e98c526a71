"""Training in two stages: on examples, then by rewards of the confidence that a model states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from selfreflect.errors import ConfigError, DataError
from selfreflect.models.base import Message
from selfreflect.text import counted
from selfreflect.train.rewards.base import BatchColumns, Reward
from selfreflect.train.rewards.stated import GoldReward, ScoringRule, StatedBelief, StatedReward
from selfreflect.train.sayself import evaluation
from selfreflect.train.sayself.clusters import ClusteredQuestion
from selfreflect.train.sayself.comparison import OpenModel, adapter_asker
from selfreflect.train.sayself.evaluation import ask_texts, label_statements
from selfreflect.train.sayself.examples import Adapter, Variant, Workspace
from selfreflect.train.sayself.statement import begin_statement, parse_confidence, parse_statement
from selfreflect.train.trainers import (
    AdapterTraining,
    TrainingInput,
    TrainingPreset,
    changes,
    read_input,
    training_input,
)
from selfreflect.uncertainty.asking.asker import Asker
from selfreflect.uncertainty.correctness import Correctness
from selfreflect.uncertainty.question import NoValue


@dataclass(frozen=True, kw_only=True)
class SaySelfPreset:
    """Settings of all steps: how answers are sampled, and how a model is trained on them."""

    training: TrainingPreset
    num_answers: int = 50
    """Of each half: 100 answers are sampled in all."""
    max_new_tokens: int = 512
    temperature: float = 1.0
    top_p: float = 1.0
    reasoned: bool = True
    """Whether answers are sampled with their reasoning."""
    most_examples: int = 50_000
    most_words: int = 199
    """Of question and response together. Longer examples are left out."""
    most_questions: int = 3_000
    """Of the second stage."""
    most_question_words: int = 99
    """Of a question in the second stage."""

    def with_base(self, base: str | None) -> SaySelfPreset:
        """Train another model with the same settings; None keeps the preset's."""
        return self if base is None else replace(self, training=replace(self.training, model=base))

    def sampling(self) -> dict[str, Any]:
        """Return the settings of ``[answers]``."""
        names = ("num_answers", "max_new_tokens", "temperature", "top_p")
        return {"model": self.training.model} | {name: getattr(self, name) for name in names}


_PUBLISHED = TrainingPreset(
    name="published",
    model="mistralai/Mistral-7B-Instruct-v0.2",
    judge="",  # rewards compare with right answers
    device="cuda",
    lora_rank=64,
    lora_alpha=16,
    lora_dropout=0.1,
    epochs=3,
    batch=128,
    micro_batch=8,
    max_length=400,
    supervised_rate=7e-5,
    warmup=0.03,
    reinforcement_rate=1e-5,
    steps=750,
    questions=8,
    completions=8,
    max_new_tokens=8,  # a confidence
    temperature=0.7,
    top_k=50,
    kl=0.05,
    max_clipped=1.0,  # what follows a confidence may be cut off
    save_steps=50,
)

PRESETS = {
    "small": SaySelfPreset(
        training=replace(
            _PUBLISHED,
            name="small",
            model="smollm2",
            device="cpu",
            lora_rank=16,
            lora_alpha=32,
            lora_dropout=0.0,
            batch=8,
            max_length=256,
            supervised_rate=5e-4,
            warmup=0.0,
            reinforcement_rate=1e-4,
            steps=15,
            questions=2,
            temperature=1.0,
            top_k=0,
            save_steps=10,
        ),
        num_answers=10,
        max_new_tokens=32,
        temperature=0.7,
        top_p=0.9,
        reasoned=False,
    ),
    "published": SaySelfPreset(training=_PUBLISHED),
    "qwen": SaySelfPreset(
        training=replace(
            _PUBLISHED, name="qwen", model="Qwen/Qwen2.5-7B-Instruct", micro_batch=16, max_length=512
        )
    ),
}


def within_limits(rows: Sequence[dict[str, Any]], preset: SaySelfPreset) -> list[dict[str, Any]]:
    """Take the first examples that are short enough, as many as the preset says."""
    words = [len(f"{row['question']} {row['response']}".split()) for row in rows]
    short = [row for row, count in zip(rows, words, strict=True) if count <= preset.most_words]
    return short[: preset.most_examples]


def shorter_questions(
    questions: Sequence[ClusteredQuestion], preset: SaySelfPreset
) -> list[ClusteredQuestion]:
    """Take the first questions of the second stage that are short enough, as many as the preset says."""
    short = [item for item in questions if len(item.question.split()) <= preset.most_question_words]
    return short[: preset.most_questions]


class StatedConfidenceReward(StatedReward):
    """Reward of the end of a statement that the prompt has begun, up to ``Confidence:``.

    So only the confidence is trained, and every token before it is masked. A model that is rewarded for its
    answer, too, learns that a wrong answer with confidence 0 is as good as a right one with 1. The column
    ``correct`` says whether the answer in the prompt is right.
    """

    def __init__(self, scoring: ScoringRule = "brier") -> None:
        self.scoring = scoring
        self.__name__ = f"confidence_{scoring}"
        super().__init__()

    def parse(self, text: str) -> StatedBelief:
        return StatedBelief("", parse_confidence(text))

    def truths(self, answers: Sequence[str | None], columns: BatchColumns) -> list[float | None]:
        return [float(bool(correct)) for correct in columns.values("correct")]


class StatementReward(GoldReward):
    """Reward of a whole statement, whose own answer is compared with the column ``gold``.

    Every token is trained. With ``brier`` a wrong answer with confidence 0 is then worth as much as a right
    one with 1; ``rlcr`` also pays for being right.

    Args:
        correctness: see :class:`~selfreflect.train.rewards.stated.GoldReward`.
    """

    def __init__(self, scoring: ScoringRule = "rlcr", correctness: str = "squad_f1") -> None:
        self.scoring = scoring
        self.__name__ = f"statement_{scoring}"
        super().__init__(correctness)

    def parse(self, text: str) -> StatedBelief:
        statement = parse_statement(text)
        if statement.answer or isinstance(statement.confidence, NoValue):
            return statement
        return StatedBelief("", NoValue("no_answer", "a confidence is stated and no answer"))


def reinforcement_rows(
    questions: Sequence[ClusteredQuestion], asker: Asker, correctness: Correctness
) -> list[dict[str, Any]]:
    """Let a fine-tuned model answer questions, and cut its statements before the number.

    Whether an answer is correct is read from the answer alone. (The published code also searches the question
    and the reflection for the right answer, so that naming it anywhere counts.)

    Returns:
        Rows with ``question_id``, ``prompt`` (chat messages, the last one a statement that ends with
        ``Confidence:``) and ``correct``. Left out are statements without an answer or a confidence, and
        questions without a right answer.
    """
    texts = ask_texts(questions, asker)
    statements = [
        StatedBelief("", text) if isinstance(text, NoValue) else parse_statement(text) for text in texts
    ]
    labels = label_statements(questions, statements, correctness)
    rows = []
    for question, text, statement, label in zip(questions, texts, statements, labels, strict=True):
        if isinstance(text, NoValue) or not statement.is_complete or label is None:
            continue
        turns = (
            Message(role="user", content=question.asked),
            Message(role="assistant", content=begin_statement(text)),
        )
        prompt = [{"role": turn.role, "content": turn.content} for turn in turns]
        rows.append({"question_id": question.id, "prompt": prompt, "correct": label})
    return rows


def question_rows(questions: Sequence[ClusteredQuestion]) -> list[dict[str, Any]]:
    """Make rows to train whole statements on: ``question_id``, ``prompt`` (the question alone) and ``gold``.

    Questions without a right answer are left out.
    """
    rows = []
    for question in questions:
        if question.gold:
            turn = {"role": "user", "content": question.asked}
            rows.append({"question_id": question.id, "prompt": [turn], "gold": list(question.gold)})
    return rows


REINFORCED = ("full", "no_rationale", "group")
"""Variants that state a confidence."""


@dataclass(frozen=True)
class TrainingPlan:
    """Settings of both stages of training."""

    out: Path
    preset: SaySelfPreset
    reward: Literal[ScoringRule, "none"]
    """``none`` leaves out the second stage."""
    correctness: str
    judge: str | None = None
    """The model that the rule ``judge`` asks."""
    whole: bool = False
    """Whether the second stage trains all tokens, not those of the confidence alone."""

    @property
    def stage(self) -> str:
        """Suffix of the second stage's folder."""
        return f"{self.reward}-all" if self.whole else self.reward

    def reinforces(self, variant: Variant) -> bool:
        """Return whether a variant has the second stage."""
        return self.reward != "none" and variant in REINFORCED


def fine_tune(plan: TrainingPlan, variant: Variant, seed: int) -> str:
    """Do the first stage unless it is done, and return what happened in a sentence.

    Raises:
        ConfigError: it was done, or begun, with other input.
        DataError: training changed nothing.
    """
    workspace = Workspace(plan.out)
    adapter = workspace.adapter(variant, seed)
    preset = plan.preset.training
    rows = within_limits(workspace.examples(variant), plan.preset)
    if _is_done(adapter, training_input(rows, preset)):
        return f"{adapter.folder}: done"
    resume = adapter.prepare_resume()
    AdapterTraining(preset.model, adapter.folder, preset, seed, resume=resume).fine_tune(rows)
    return _outcome(adapter)


def reinforce(
    plan: TrainingPlan,
    variant: Variant,
    seed: int,
    open_models: Callable[[], AbstractContextManager[OpenModel]],
) -> str:
    """Do the second stage unless it is done, as :func:`fine_tune`."""
    workspace = Workspace(plan.out)
    adapter = workspace.adapter(variant, seed, plan.stage)
    start = workspace.adapter(variant, seed)
    questions = shorter_questions(workspace.parts()["rl"], plan.preset)
    preset = plan.preset.training
    assert plan.reward != "none"  # the caller has asked plan.reinforces
    reward: Reward = StatedConfidenceReward(plan.reward)
    if plan.whole:
        reward = StatementReward(plan.reward, plan.correctness)
        preset = replace(preset, max_new_tokens=evaluation.MAX_TOKENS)
        rows = question_rows(questions)
    else:
        with open_models() as open_model:
            judge = open_model(plan.judge) if plan.correctness == "judge" else None
            label = Correctness(plan.correctness, judge)
            rows = reinforcement_rows(questions, adapter_asker(open_model, start), label)
    if _is_done(adapter, training_input(rows, preset, start.folder, reward)):
        return f"{adapter.folder}: done"
    if len(rows) < preset.questions:
        return (
            f"{start.folder} states a confidence on {len(rows)} of the {len(questions)} questions for "
            "reinforcement, so that stage is left out. Train on more examples, or for more epochs."
        )
    resume = adapter.prepare_resume()
    training = AdapterTraining(
        preset.model, adapter.folder, preset, seed, adapter=start.folder, resume=resume
    )
    training.reinforce(rows, reward)
    return _outcome(adapter)


def _is_done(adapter: Adapter, now: TrainingInput) -> bool:
    """Return whether this training has ended. Raises ConfigError if one with another input has, or was
    interrupted; DataError if it changed nothing."""
    differences = changes(read_input(adapter.folder), now)
    if differences:
        raise ConfigError(
            f"{adapter.folder} was trained with other input: {', '.join(differences)}",
            code="other_input",
            remedy="Move or delete that folder to train anew.",
            folder=str(adapter.folder),
        )
    if adapter.record is None:
        return False
    _outcome(adapter)  # it learned as little as when it was trained
    return True


def _outcome(adapter: Adapter) -> str:
    """Say how far training moved the weights."""
    record = adapter.record
    assert record is not None  # training has just written it
    change = record["metrics"]["change"]
    if change == 0:
        raise DataError(f"{adapter.folder}: training changed no weight, so nothing was learned")
    rows = f"{counted(record['rows'], 'row')}; " if "rows" in record else ""  # earlier versions did not count
    return f"{adapter.folder}: {rows}the weights moved by {change:.3g}."
