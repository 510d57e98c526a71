"""Rewards for completions that describe a model's beliefs, in the signature of TRL's trainers.

    reward = InformationReward("smollm2", scale=100)
    reward(prompts, completions, question=..., answers=...)  # a number for each completion

Of a judge (``judged``): :class:`InformationReward`, :class:`SelfReflectReward`. Of a stated confidence
(``stated``): :class:`BrierReward`, :class:`RLCRReward`, :class:`LogReward`, :class:`ConsistencyReward`,
:class:`MultiAnswerBrier`.
"""

from selfreflect.train.rewards.judged import InformationReward, SelfReflectReward
from selfreflect.train.rewards.stated import (
    BrierReward,
    ConsistencyReward,
    LogReward,
    MultiAnswerBrier,
    RLCRReward,
)

__all__ = [
    "BrierReward",
    "ConsistencyReward",
    "InformationReward",
    "LogReward",
    "MultiAnswerBrier",
    "RLCRReward",
    "SelfReflectReward",
]
