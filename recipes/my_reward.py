"""The reward that grpo.yaml names. Change it to train for something else."""

from selfreflect.train.rewards import InformationReward

reward = InformationReward("smollm2")
