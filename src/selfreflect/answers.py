"""The answers stage: draws an answer distribution for every question, in the two disjoint halves that the
metric needs."""

from __future__ import annotations

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
    """Sample ``2 * num_answers`` answers to each question: the first half is masked, the second half
    conditions.

    Questions are sent in batches of ``batch_questions``; results come in order, each batch as soon as it is
    done, or within it as they are done from a generator that streams. Seeds depend on the question's id
    alone, so neither batching nor a resumed run changes the answers.
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
"""Ends of a completion that leave no answer. A distribution without them would be another one, so the
question has none."""


def _record(
    question: Question, request: Request, reply: Reply | Refusal, generator: Generator, seed: int
) -> AnswerSet | Failure:
    if isinstance(reply, Refusal):
        return Failure(question_id=question.id, stage="answers", kind=reply.kind, message=reply.message)
    for kind, what in _UNUSABLE.items():
        count = sum(completion.finish == kind for completion in reply.completions)
        if count:
            message = f"{count} of {len(reply.completions)} answers {what}"
            return Failure(question_id=question.id, stage="answers", kind=kind, message=message)
    texts = tuple(completion.text for completion in reply.completions)
    if not any(text.strip() for text in texts):
        return Failure(
            question_id=question.id,
            stage="answers",
            kind="no_answers",
            message=f"all {len(texts)} answers are blank",
        )
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
        truncated=sum(completion.finish == "length" for completion in reply.completions),
        refused=sum(completion.finish == "refused" for completion in reply.completions),
        tokens=reply.tokens,
    )
