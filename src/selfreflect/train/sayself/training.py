"""Training in two stages: on examples, then by rewards of the confidence that a model states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from selfreflect.models.base import Message
from selfreflect.train.rewards.base import BatchColumns
from selfreflect.train.rewards.stated import ScoringRule, StatedBelief, StatedReward
from selfreflect.train.sayself.clusters import ClusteredQuestion
from selfreflect.train.sayself.comparison import OpenModel, adapter_asker
from selfreflect.train.sayself.evaluation import ask_texts, label_statements
from selfreflect.train.sayself.examples import Variant, Workspace
from selfreflect.train.sayself.statement import begin_statement, parse_confidence, parse_statement
from selfreflect.train.trainers import RECORD, Preset, Training
from selfreflect.uncertainty.asking.asker import Asker
from selfreflect.uncertainty.correctness import Correctness
from selfreflect.uncertainty.question import NoValue


def within_limits(rows: Sequence[dict[str, Any]], preset: Preset) -> list[dict[str, Any]]:
    """Take the first examples that are short enough, as many as the preset says."""
    words = [len(f"{row['question']} {row['response']}".split()) for row in rows]
    limit = preset.limits["words"]
    short = [row for row, count in zip(rows, words, strict=True) if count <= limit]
    return short[: preset.limits["examples"]]


def shorter_questions(questions: Sequence[ClusteredQuestion], preset: Preset) -> list[ClusteredQuestion]:
    """Take the first questions of the second stage that are short enough, as many as the preset says."""
    limit = preset.limits["question_words"]
    short = [item for item in questions if len(item.question.split()) <= limit]
    return short[: preset.limits["questions"]]


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


# Variants that state a confidence
REINFORCED = ("full", "no_rationale", "group")


@dataclass(frozen=True)
class TrainingPlan:
    """Settings of both stages of training."""

    out: Path
    preset: Preset
    reward: Literal[ScoringRule, "none"]
    """``none`` leaves out the second stage."""
    correctness: str
    judge: str | None = None
    """The model that the rule ``judge`` asks."""

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
    rows = within_limits(workspace.examples(variant), plan.preset)
    return Training(plan.preset, rows, workspace.adapter(variant, seed).folder, seed).run()


def reinforce(
    plan: TrainingPlan,
    variant: Variant,
    seed: int,
    open_models: Callable[[], AbstractContextManager[OpenModel]],
) -> str:
    """Do the second stage unless it is done, as :func:`fine_tune`."""
    workspace = Workspace(plan.out)
    folder = workspace.adapter(variant, seed, plan.reward).folder
    start = workspace.adapter(variant, seed)
    questions = shorter_questions(workspace.parts()["rl"], plan.preset)
    assert plan.reward != "none"  # the caller has asked plan.reinforces
    reward = StatedConfidenceReward(plan.reward)
    with open_models() as open_model:
        judge = open_model(plan.judge) if plan.correctness == "judge" else None
        label = Correctness(plan.correctness, judge)
        rows = reinforcement_rows(questions, adapter_asker(open_model, start), label)
    if len(rows) < plan.preset.step_questions and not (folder / RECORD).exists():
        return (
            f"{start.folder} states a confidence on {len(rows)} of the {len(questions)} questions for "
            "reinforcement, so that stage is left out. Train on more examples, or for more epochs."
        )
    return Training(plan.preset, rows, folder, seed, start=start.folder, reward=reward).run()
