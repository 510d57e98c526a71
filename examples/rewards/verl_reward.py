"""A reward for verl: custom_reward_function.path=verl_reward.py, custom_reward_function.name=compute_score.

Rows need the columns of `selfreflect dataset grpo` in ``extra_info``.
"""

from selfreflect.train.rewards import SelfReflectReward

REWARD = SelfReflectReward("smollm2")  # or "vllm+http:NAME", base_url="http://..."
COLUMNS = ("question_id", "question", "context", "answers", "masked_answers")


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    columns = {name: [extra_info[name]] for name in COLUMNS if name in extra_info}
    [reward] = REWARD(None, [solution_str], **columns)
    return 0.0 if reward is None else reward
