"""Train a model in two stages: on the examples, then by rewards for the confidence that it states."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from selfreflect.errors import ConfigError, DataError
from selfreflect.sayself import evaluation
from selfreflect.sayself.comparison import OpenModel, adapter_asker
from selfreflect.sayself.examples import Variant
from selfreflect.sayself.presets import SaySelfPreset, shorter_questions, within_limits
from selfreflect.sayself.reinforcement import question_rows, reinforcement_rows
from selfreflect.sayself.rewards import StatedConfidenceReward, StatementReward
from selfreflect.sayself.workspace import Adapter, Workspace
from selfreflect.text import counted
from selfreflect.train.inputs import TrainingInput, changes, read_input, training_input
from selfreflect.train.rewards.base import Reward
from selfreflect.train.rewards.stated import ScoringRule
from selfreflect.train.trainers import AdapterTraining
from selfreflect.uncertainty.correctness import Correctness

REINFORCED = ("full", "no_rationale", "group")
"""Variants that state a confidence."""


@dataclass(frozen=True)
class TrainingPlan:
    """What both stages of training need to know."""

    out: Path
    preset: SaySelfPreset
    reward: Literal[ScoringRule, "none"]
    """``none`` leaves out the second stage."""
    correctness: str
    judge: str | None = None
    """The model that the rule ``judge`` asks."""
    whole: bool = False
    """Whether the second stage trains all tokens, not those of the confidence alone."""
    fresh: bool = False
    """Whether adapters are trained anew whose examples or settings have changed."""

    @property
    def stage(self) -> str:
        """What tells the second stage's folder from others."""
        return f"{self.reward}-all" if self.whole else self.reward

    def reinforces(self, variant: Variant) -> bool:
        """Whether a variant has the second stage."""
        return self.reward != "none" and variant in REINFORCED


def fine_tune(plan: TrainingPlan, variant: Variant, seed: int) -> str:
    """Do the first stage unless it is done, and return what happened in a sentence.

    Raises:
        ConfigError: it was done, or begun, with other input, and the plan is not to train anew.
        DataError: training changed nothing.
    """
    workspace = Workspace(plan.out)
    adapter = workspace.adapter(variant, seed)
    if _is_of_earlier_version(adapter):
        return f"{adapter.folder}: done"
    preset = plan.preset.training
    rows = within_limits(workspace.examples(variant), plan.preset)
    if _is_done(plan, adapter, training_input(rows, preset)):
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
    if _is_of_earlier_version(adapter):
        return f"{adapter.folder}: done"
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
    if _is_done(plan, adapter, training_input(rows, preset, start.folder, reward)):
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


def _is_of_earlier_version(adapter: Adapter) -> bool:
    """Whether a training has ended that does not say with what input. So its rows, for which a model may have
    to be asked, are not needed."""
    return adapter.record is not None and not read_input(adapter.folder)


def _is_done(plan: TrainingPlan, adapter: Adapter, now: TrainingInput) -> bool:
    """Whether this training has ended. Raises ConfigError if one with another input has, or was interrupted,
    unless the plan is to train anew; DataError if it changed nothing."""
    differences = changes(read_input(adapter.folder), now)
    if differences and not plan.fresh:
        raise ConfigError(
            f"{adapter.folder} was trained with other input: {', '.join(differences)}. Give --fresh to train "
            "anew, which moves it to a folder backup-TIME."
        )
    if differences:
        adapter.set_aside()
    if adapter.record is None:
        return False
    _outcome(adapter)  # it learned as little as when it was trained
    return True


def _outcome(adapter: Adapter) -> str:
    """How far training moved the weights."""
    record = adapter.record
    assert record is not None  # training has just written it
    change = record["metrics"]["change"]
    if change == 0:
        raise DataError(f"{adapter.folder}: training changed no weight, so nothing was learned")
    rows = f"{counted(record['rows'], 'row')}; " if "rows" in record else ""  # earlier versions did not count
    return f"{adapter.folder}: {rows}the weights moved by {change:.3g}."
