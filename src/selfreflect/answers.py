"""The answers stage: draws an answer distribution for every question, in the two disjoint halves that the metric needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from selfreflect.models.base import Generator, Refusal, Reply, Request, Sampling, seed_for
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
    """Sample ``2 * num_answers`` answers to each question: the first half is masked, the second half conditions.

    Questions are sent in batches of ``batch_questions``; results come in order, each batch as soon as it is done. Seeds depend on the
    question's id alone, so neither batching nor a resumed run changes the answers.
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
        for question, request, reply in zip(batch, requests, generator.generate(requests), strict=True):
            yield _record(question, request, reply, generator, seed)


def _record(question: Question, request: Request, reply: Reply | Refusal, generator: Generator, seed: int) -> AnswerSet | Failure:
    if isinstance(reply, Refusal):
        return Failure(question_id=question.id, stage="answers", kind=reply.kind, message=reply.message)
    unclosed = sum(completion.finish == "unclosed_reasoning" for completion in reply.completions)
    if unclosed:
        message = (
            f"{unclosed} of {len(reply.completions)} answers never ended their reasoning; allow more new tokens or switch thinking off"
        )
        return Failure(question_id=question.id, stage="answers", kind="unclosed_reasoning", message=message)
    texts = tuple(completion.text for completion in reply.completions)
    if not any(text.strip() for text in texts):
        return Failure(question_id=question.id, stage="answers", kind="no_answers", message=f"all {len(texts)} answers are blank")
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
        tokens=reply.tokens,
    )
