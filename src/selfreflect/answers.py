"""The answers stage: sample an answer distribution for every question, in two disjoint halves."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal

from msgspec.structs import replace

from selfreflect.models.base import (
    Completion,
    Generator,
    Refusal,
    Reply,
    Request,
    Sample,
    Sampling,
    Watch,
    as_drawn,
    seed_for,
)
from selfreflect.prompts import Prompts
from selfreflect.records import AnswerSample, AnswerSet, Failure, Question, dump_line


def draw_answers(
    questions: Sequence[Question],
    generator: Generator,
    *,
    num_answers: int,
    prompts: Prompts,
    sampling: Sampling,
    seed: int = 0,
    thinking: bool = False,
    logprobs: bool = False,
    top_logprobs: int = 0,
    stored_samples: Mapping[str, Sequence[AnswerSample]] | None = None,
    watch: Watch | None = None,
) -> Iterator[AnswerSample | AnswerSet | Failure]:
    """Sample ``2 * num_answers`` answers per question, the first half as test answers.

    All questions go to the generator at once, and results come as it finishes them. Seeds depend only on the
    question's id, so neither batching nor resuming a run changes the answers.

    Before its answer set, a question gives an answer sample for each answer that is there while others are
    still to come, if the generator tells.

    Args:
        logprobs: also store the log-probabilities of each answer's tokens, if the generator gives them.
        top_logprobs: how many of the largest log-probabilities to store for each of these tokens.
        stored_samples: by the id of a question, samples that were drawn before. Those of the same request
            to the same model are not drawn again.
        watch: is told of the requests and of each event.
    """
    stored_samples = stored_samples or {}
    requests = [
        Request(
            messages=prompts.messages(question),
            sampling=sampling,
            n=2 * num_answers,
            seed=seed_for(seed, question.id, "answers"),
            thinking=thinking,
            logprobs=logprobs,
            top_logprobs=top_logprobs,
            label=question.id,
        )
        for question in questions
    ]
    # stored answers are used only where nothing about the request has changed
    digests = [_digest(request, generator) for request in requests]
    for index, question in enumerate(questions):
        samples = _of_request(stored_samples.get(question.id, ()), requests[index], digests[index])
        requests[index] = replace(requests[index], samples=samples)
    for index, event in as_drawn(generator, requests, watch):
        if isinstance(event, Sample):
            yield _answer_sample(questions[index], event, digests[index])
        else:
            yield _record(questions[index], requests[index], event, generator, seed)


def _digest(request: Request, generator: Generator) -> str:
    """Hash a request together with the model and all settings."""
    fields = request.to_dict()
    # a label names a request in messages and changes no answer
    del fields["label"]
    fields["earlier"] = fields.pop("samples")  # its name in older directories
    # digests in older directories lack these
    for name in ("logprobs", "top_logprobs", "first_tokens"):
        if not fields[name]:
            del fields[name]
    identity = dump_line([fields, generator.name, generator.revision])
    return hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _of_request(answers: Iterable[AnswerSample], request: Request, digest: str) -> tuple[Sample, ...]:
    """Select the stored answers to this request, in sampling order."""
    samples = []
    for answer in answers:
        # an earlier run may have asked for more answers
        if answer.request == digest and answer.index < request.n:
            completion = Completion(
                text=answer.text, finish=answer.finish, tokens=answer.tokens, logprobs=answer.logprobs
            )
            samples.append(
                Sample(index=answer.index, completion=completion, closes_trace=answer.closes_trace)
            )
    return tuple(sorted(samples, key=lambda sample: sample.index))


def _answer_sample(question: Question, sample: Sample, digest: str) -> AnswerSample:
    return AnswerSample(
        question_id=question.id,
        index=sample.index,
        text=sample.completion.text,
        finish=sample.completion.finish,
        tokens=sample.completion.tokens,
        closes_trace=sample.closes_trace,
        logprobs=sample.completion.logprobs,
        request=digest,
    )


ONLY_REASONING = "only_reasoning"
"""Failure code of an answer that is only unfinished reasoning; other questions probably fail alike."""

# Ways to end that leave no answer. Dropping such completions would change the distribution, so
# the question fails instead.
_UNUSABLE: dict[Literal["unclosed_reasoning", "content_filter"], str] = {
    "unclosed_reasoning": "never ended their reasoning; allow more new tokens or switch thinking off",
    "content_filter": "were withheld by the server's content filter",
}


def _record(
    question: Question, request: Request, reply: Reply | Refusal, generator: Generator, seed: int
) -> AnswerSet | Failure:
    failed = partial(Failure, question_id=question.id, stage="answers")
    if isinstance(reply, Refusal):
        return failed(kind=reply.kind, message=reply.message, code=reply.code)
    for kind, problem in _UNUSABLE.items():
        if count := reply.ends[kind]:
            message = f"{count} of {len(reply.completions)} answers {problem}"
            only_reasons = reply.ends["unclosed_reasoning"] == len(reply.completions)
            return failed(kind=kind, message=message, code=ONLY_REASONING if only_reasons else "")
    if not any(map(str.strip, reply.texts)):
        return failed(kind="no_answers", message=f"all {len(reply.texts)} answers are blank")
    return answer_set(question, request, reply, generator, request.n // 2, seed)


def answer_set(
    question: Question, request: Request, reply: Reply, generator: Generator, half: int, seed: int = 0
) -> AnswerSet:
    """Make the record of sampled answers; the first ``half`` are test answers."""
    sampling = request.sampling
    logprobs = (
        [completion.logprobs or "not_returned" for completion in reply.completions]
        if request.logprobs
        else ()
    )
    return AnswerSet(
        question_id=question.id,
        masked_out=reply.texts[:half],
        conditioning=reply.texts[half:],
        model=generator.name,
        revision=generator.revision,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        max_new_tokens=sampling.max_new_tokens,
        seed=seed,
        truncated=reply.ends["length"],
        refused=reply.ends["refused"],
        tokens=reply.tokens,
        logprobs=tuple(logprobs),
    )
