"""Named settings of all steps: how answers are sampled, and how both stages train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from selfreflect.sayself.clusters import ClusteredQuestion
from selfreflect.train.presets import TrainingPreset


@dataclass(frozen=True, kw_only=True)
class SaySelfPreset:
    """How answers are sampled for training, and how a model is trained on them."""

    training: TrainingPreset
    num_answers: int = 50
    """Of each half: 100 answers are sampled in all."""
    max_new_tokens: int = 512
    temperature: float = 1.0
    top_p: float = 1.0
    reasoned: bool = True
    """Whether answers are sampled with their reasoning."""
    most_examples: int = 50_000
    most_words: int = 199
    """Of question and response together. Longer examples are left out."""
    most_questions: int = 3_000
    """Of the second stage."""
    most_question_words: int = 99
    """Of a question in the second stage."""

    def with_base(self, base: str | None) -> SaySelfPreset:
        """Train another model with the same settings; None keeps the preset's."""
        return self if base is None else replace(self, training=replace(self.training, model=base))

    def sampling(self) -> dict[str, Any]:
        """The settings of ``[answers]``."""
        names = ("num_answers", "max_new_tokens", "temperature", "top_p")
        return {"model": self.training.model} | {name: getattr(self, name) for name in names}


_PUBLISHED = TrainingPreset(
    name="published",
    model="mistralai/Mistral-7B-Instruct-v0.2",
    judge="",  # rewards compare with right answers
    device="cuda",
    lora_rank=64,
    lora_alpha=16,
    lora_dropout=0.1,
    epochs=3,
    batch=128,
    micro_batch=8,
    max_length=400,
    supervised_rate=7e-5,
    warmup=0.03,
    reinforcement_rate=1e-5,
    steps=750,
    questions=8,
    completions=8,
    max_new_tokens=8,  # a confidence
    temperature=0.7,
    top_k=50,
    kl=0.05,
    max_clipped=1.0,  # what follows a confidence may be cut off
    save_steps=50,
)

PRESETS = {
    "small": SaySelfPreset(
        training=replace(
            _PUBLISHED,
            name="small",
            model="smollm2",
            device="cpu",
            lora_rank=16,
            lora_alpha=32,
            lora_dropout=0.0,
            batch=8,
            max_length=256,
            supervised_rate=5e-4,
            warmup=0.0,
            reinforcement_rate=1e-4,
            steps=15,
            questions=2,
            temperature=1.0,
            top_k=0,
            save_steps=10,
        ),
        num_answers=10,
        max_new_tokens=32,
        temperature=0.7,
        top_p=0.9,
        reasoned=False,
    ),
    "published": SaySelfPreset(training=_PUBLISHED),
    "qwen": SaySelfPreset(
        training=replace(
            _PUBLISHED, name="qwen", model="Qwen/Qwen2.5-7B-Instruct", micro_batch=16, max_length=512
        )
    ),
}


def within_limits(rows: Sequence[dict[str, Any]], preset: SaySelfPreset) -> list[dict[str, Any]]:
    """The first examples that are short enough, as many as the preset takes."""
    words = [len(f"{row['question']} {row['response']}".split()) for row in rows]
    short = [row for row, count in zip(rows, words, strict=True) if count <= preset.most_words]
    return short[: preset.most_examples]


def shorter_questions(
    questions: Sequence[ClusteredQuestion], preset: SaySelfPreset
) -> list[ClusteredQuestion]:
    """The first questions of the second stage that are short enough, as many as the preset takes."""
    short = [one for one in questions if len(one.question.split()) <= preset.most_question_words]
    return short[: preset.most_questions]
