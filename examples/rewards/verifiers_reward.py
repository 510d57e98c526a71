"""A reward for verifiers: a task whose data has the columns of `selfreflect dataset grpo`."""

import asyncio

import verifiers.v1 as vf

from selfreflect.train.rewards import SelfReflectReward

REWARD = SelfReflectReward("smollm2")  # or "vllm+http:NAME", base_url="http://..."


class Belief(vf.Task):
    @vf.reward
    async def faithful(self, trace):
        columns = {name: [getattr(self.data, name)] for name in ("question", "answers", "masked_answers")}
        [reward] = await asyncio.to_thread(REWARD, None, [trace.last_reply], **columns)
        return 0.0 if reward is None else reward
