"""What the tests of OpenAI-compatible servers share: requests and commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from command import written

from selfreflect.models.base import Message, Refusal, Reply, Request, Sampling
from selfreflect.models.openai.client import RetryPolicy
from selfreflect.models.openai.endpoint import endpoint
from selfreflect.models.openai.generator import OpenAIGenerator

KEY = "sk-very-secret-0123456789"
QUICK = RetryPolicy(tries=4, first=0.001, longest=0.002)


def generator(url: str, **options: Any) -> OpenAIGenerator:
    return OpenAIGenerator("m", endpoint(url), **{"retries": QUICK, "timeout": 20.0, **options})


def ask(text: str = "Who?", n: int = 1, seed: int = 5, **options: Any) -> Request:
    return Request(
        messages=(Message(role="user", content=text),),
        sampling=Sampling(max_new_tokens=9),
        n=n,
        seed=seed,
        **options,
    )


def only(url: str, request: Request | None = None, **options: Any) -> Reply | Refusal:
    [result] = generator(url, **options).generate([request or ask()])
    return result


def questions(path: Path, count: int) -> Path:
    return written(path, "\n".join(f"Who is number {number}?" for number in range(count)))


def command(out: Path, url: str, asked: Path, *more: object) -> list[str]:
    sizes = "--num-answers 2 --max-new-tokens 5"
    text = f"answers --questions {asked} --model openai:m --base-url {url} {sizes} --out {out}"
    return [*text.split(), *map(str, more)]
