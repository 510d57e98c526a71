"""Times the package's generation against transformers' own."""

from __future__ import annotations

import torch

from gpu_parts.setting import Setting
from selfreflect.bench import allocated, peak, reset_peak
from selfreflect.models.base import Message, Sampling
from selfreflect.models.chat import ChatTokenizer
from selfreflect.models.judge import Judge
from selfreflect.models.local.decode import Draw, decode


def time_generation(setting: Setting, shape: str) -> None:
    """Draw samples of one prompt, all of the same length, with no token that ends one."""
    judge = setting.judge(shape)
    memory = allocated(setting.device)
    chat = ChatTokenizer(judge.lm.tokenizer)
    question = Message(role="user", content="What should a beginner plant first in a small garden?")
    [prompt] = chat.encode([chat.render([question])])
    setting.write("prompt", len(prompt), "tokens")
    sizes = setting.sizes
    for name, draw in (("selfreflect", _ours), ("transformers", _theirs)):
        draw(judge, prompt, sizes.samples, 2)  # loads kernels
        allocated(setting.device)
        watched = reset_peak(setting.device)
        tokens = sizes.samples * sizes.new_tokens
        seconds = setting.seconds(lambda draw=draw: draw(judge, prompt, sizes.samples, sizes.new_tokens))
        per_step = seconds / sizes.new_tokens
        setting.write(
            f"{name}, {sizes.samples} samples", tokens / seconds, "tokens/s", seconds_per_step=per_step
        )
        if watched:
            above = max(0, peak(setting.device) - memory)
            setting.write(f"{name}, memory above the weights", above / 1e9, "GB")


def _ours(judge: Judge, prompt: list[int], samples: int, limit: int) -> None:
    draws = [Draw(tuple(prompt), Sampling(), seed=seed, limit=limit) for seed in range(samples)]
    for _ in decode(judge.lm.model, draws, frozenset(), pad_id=0):
        pass
    assert all(len(draw.tokens) == limit for draw in draws)


@torch.inference_mode()
def _theirs(judge: Judge, prompt: list[int], samples: int, limit: int) -> None:
    model = judge.lm.model
    ids = torch.tensor([prompt], device=model.device)
    options = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "pad_token_id": 0}
    drawn = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        num_return_sequences=samples,
        min_new_tokens=limit,
        max_new_tokens=limit,
        **options,
    )
    assert drawn.shape == (samples, len(prompt) + limit)
