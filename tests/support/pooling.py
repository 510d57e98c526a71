"""What ``vllm serve`` answers in pooling mode, from the states of a local model."""

from __future__ import annotations

import threading
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import torch
from fault_server import Action, Call, Handler, Script

from selfreflect.models.judge import Judge

Vectors = Callable[[torch.Tensor], torch.Tensor]


def last(states: torch.Tensor) -> torch.Tensor:
    return states[-1]


def mean(states: torch.Tensor) -> torch.Tensor:
    return states.mean(dim=0)


def constant(states: torch.Tensor) -> torch.Tensor:
    """As of a server that sends its padding."""
    return torch.zeros_like(states[-1])


def unit(states: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(states[-1], dim=0)


def pooling(
    judge: Judge,
    vector: Vectors = last,
    *,
    window: int | None = 2048,
    name: str | None = None,
    base64: bool = True,
) -> Script:
    """A server of ``judge``; ``vector`` is how it pools, ``name`` what it calls the model."""
    served, lock = name or judge.name, threading.Lock()

    def states(ids: list[int]) -> list[float] | str:
        with lock, torch.inference_mode():
            found = vector(judge.decoder(input_ids=torch.tensor([ids])).last_hidden_state[0].float())
        return b64encode(found.numpy().astype("<f4").tobytes()).decode() if base64 else found.tolist()

    def models(handler: Handler, call: Call) -> None:
        handler.give(
            200, {"object": "list", "data": [{"id": served, "object": "model", "max_model_len": window}]}
        )

    def embeddings(handler: Handler, call: Call) -> None:
        data = [
            {"index": place, "object": "embedding", "embedding": states(ids)}
            for place, ids in enumerate(call.body["input"])
        ]
        handler.give(
            200,
            {
                "object": "list",
                "model": served,
                "data": data[::-1],
                "usage": {"prompt_tokens": 1, "total_tokens": 1},
            },
        )

    def script(call: Call) -> Action:
        return models if call.path.endswith("/models") else embeddings

    return script


def prompts(calls: list[Call]) -> list[list[list[int]]]:
    """The token ids that were sent, call by call."""
    bodies: list[dict[str, Any]] = [call.body for call in calls if call.path.endswith("/embeddings")]
    return [body["input"] for body in bodies]
