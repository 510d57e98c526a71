"""The answers stage: sample an answer distribution for every question, in two disjoint halves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from selfreflect.models.base import Generator, Refusal, Reply, Request, Sampling, as_done, seed_for
from selfreflect.prompts import Prompts
from selfreflect.records import AnswerSet, Failure, Question


def draw_answers(
    questions: Sequence[Question],
    generator: Generator,
    *,
    num_answers: int,
    prompts: Prompts,
    sampling: Sampling,
    seed: int = 0,
    thinking: bool = False,
    batch_questions: int = 8,
) -> Iterator[AnswerSet | Failure]:
    """Sample ``2 * num_answers`` answers per question: the first half is masked, the second conditions.

    Questions are sent in batches of ``batch_questions``. Batches come in order; within a batch, results come
    as the generator finishes them. Seeds depend only on the question's id, so neither batching nor resuming a
    run changes the answers.
    """
    for start in range(0, len(questions), batch_questions):
        batch = questions[start : start + batch_questions]
        requests = [
            Request(
                messages=prompts.messages(question),
                sampling=sampling,
                n=2 * num_answers,
                seed=seed_for(seed, question.id, "answers"),
                thinking=thinking,
            )
            for question in batch
        ]
        for index, reply in as_done(generator, requests):
            yield _record(batch[index], requests[index], reply, generator, seed)


_UNUSABLE: dict[Literal["unclosed_reasoning", "content_filter"], str] = {
    "unclosed_reasoning": "never ended their reasoning; allow more new tokens or switch thinking off",
    "content_filter": "were withheld by the server's content filter",
}
"""Ways to end that leave no answer. Dropping such completions would change the distribution, so the question
fails instead."""


def _record(
    question: Question, request: Request, reply: Reply | Refusal, generator: Generator, seed: int
) -> AnswerSet | Failure:
    if isinstance(reply, Refusal):
        return Failure(question_id=question.id, stage="answers", kind=reply.kind, message=reply.message)
    ends = Counter(completion.finish for completion in reply.completions)
    for kind, problem in _UNUSABLE.items():
        if ends[kind]:
            message = f"{ends[kind]} of {len(reply.completions)} answers {problem}"
            return Failure(question_id=question.id, stage="answers", kind=kind, message=message)
    texts = tuple(completion.text for completion in reply.completions)
    if not any(text.strip() for text in texts):
        message = f"all {len(texts)} answers are blank"
        return Failure(question_id=question.id, stage="answers", kind="no_answers", message=message)
    half = request.n // 2
    return AnswerSet(
        question_id=question.id,
        masked_out=texts[:half],
        conditioning=texts[half:],
        model=generator.name,
        revision=generator.revision,
        temperature=request.sampling.temperature,
        top_p=request.sampling.top_p,
        max_new_tokens=request.sampling.max_new_tokens,
        seed=seed,
        truncated=ends["length"],
        refused=ends["refused"],
        tokens=reply.tokens,
    )
