"""Train a model with a reward for what it says of its own answers, on rows of `selfreflect dataset grpo`.

The judge may run in this process, on another GPU (--judge-device cuda:1), or on a vLLM server, which is the
only way where rewards run in processes that see no GPU: --judge vllm+http:NAME --judge-url URL.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from common import Rows, parser, run

from selfreflect.errors import ConfigError, excerpt
from selfreflect.models.backend import bare_name
from selfreflect.train import rewards
from selfreflect.train.folder import data_facts
from selfreflect.train.rewards.base import Reward
from selfreflect.train.rewards.judged import JudgeReward
from selfreflect.train.trainers import AdapterTraining, TrainingPreset, reinforcement_arguments
from selfreflect.traits import traits_of

JUDGED: dict[str, Callable[..., Reward]] = {
    "information": rewards.InformationReward,
    "selfreflect": rewards.SelfReflectReward,
}
STATED: dict[str, Callable[[], Reward]] = {
    "brier": rewards.BrierReward,
    "rlcr": rewards.RLCRReward,
    "log": rewards.LogReward,
    "consistency": rewards.ConsistencyReward,
    "multi": rewards.MultiAnswerBrier,
    "multi-answers": partial(rewards.MultiAnswerBrier, "answers"),
}


def chosen_reward(arguments: argparse.Namespace, preset: TrainingPreset, rows: Rows) -> Reward:
    """Make the reward. Raises ConfigError."""
    if arguments.reward in STATED:
        return STATED[arguments.reward]()
    facts = data_facts(arguments.data) if arguments.data.is_dir() else {}
    scorer = str(facts.get("judge", "")).partition(", ")[0]  # its settings follow, such as a budget
    judge = arguments.judge or scorer or preset.judge
    if scorer and bare_name(judge) != bare_name(scorer) and not arguments.other_judge:
        raise ConfigError(
            f"the run's summaries were scored by {excerpt(scorer)}, not by {excerpt(judge)}, so rewards "
            "cannot be compared with its scores. Leave --judge out, or add --other-judge if it is meant."
        )
    settings: dict[str, Any] = {"length_penalty": arguments.length_penalty}
    settings |= {"device": arguments.judge_device} if arguments.judge_device else {}
    settings |= {"base_url": arguments.judge_url} if arguments.judge_url else {}
    if arguments.reward == "information":
        # a judge that gave the answers itself knows them, unless it had a context
        own = facts.get("model") == judge and not any(row.get("context") for row in rows)
        settings["reader"] = arguments.reader or ("blind" if own else "informed")
    return JUDGED[arguments.reward](judge, **settings)


def options() -> argparse.ArgumentParser:
    """Make the options of this recipe."""
    made = parser(__doc__)
    made.add_argument("--reward", choices=[*JUDGED, *STATED], default="information")
    made.add_argument("--judge", help="default: the one that scored the run, else the preset's")
    made.add_argument(
        "--other-judge",
        action="store_true",
        help="--judge is not the one that scored the run, and that is meant",
    )
    made.add_argument("--judge-device", help="such as cuda:1")
    made.add_argument("--judge-url", help="address of a judge vllm+http:NAME")
    made.add_argument("--reader", choices=["informed", "blind"], help="of information")
    made.add_argument("--length-penalty", type=float, default=0.0, help="lost for each word")
    return made


def main() -> int:
    arguments = options().parse_args()

    def settings(preset: TrainingPreset, rows: Rows) -> dict[str, Any]:
        scaling = chosen_reward(arguments, preset, rows).scaling
        return reinforcement_arguments(preset, arguments.out, arguments.seed, scaling)

    def teacher(preset: TrainingPreset, rows: Rows) -> dict[str, Any]:
        reward = chosen_reward(arguments, preset, rows)
        facts: dict[str, Any] = {"reward": arguments.reward, "judge": None}
        if isinstance(reward, JudgeReward):
            facts["judge"] = reward.judge_name
            if arguments.reward == "selfreflect" and (note := traits_of(reward.judge_name).reward_warning):
                facts["reward_warning"] = note
        return facts

    def train(training: AdapterTraining, rows: Rows) -> None:
        if warning := teacher(training.preset, rows).get("reward_warning"):
            print(warning, file=sys.stderr)
        training.reinforce(rows, chosen_reward(arguments, training.preset, rows))

    return run("grpo", arguments, settings, train, teacher)


if __name__ == "__main__":
    sys.exit(main())
