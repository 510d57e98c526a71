"""Generators on token ids, and the generator of a local model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from selfreflect.logprobs import (
    AnswerTokens,
    LikelyToken,
    NoLogprobs,
    answer_tokens,
    first_token,
    likely_tokens,
)
from selfreflect.models.base import Completion, ModelSpec, Refusal, Reply, Request, Sample, StreamingGenerator
from selfreflect.models.chat import ChatTokenizer, ends_in_trace, fewest_tokens
from selfreflect.models.local.decode import Draw, PromptStates, decode
from selfreflect.models.local.loading import CausalLM, load_causal_lm
from selfreflect.models.local.step import why_slow
from selfreflect.models.reasoning import UnclosedReasoningError, split_answer


class TokenGenerator(StreamingGenerator):
    """Base of generators that turn requests into token prompts, and drawn tokens into responses.

    ``facts`` are what a manifest says of the model, its name and revision included; ``window`` is the number
    of positions that it has.
    """

    def __init__(
        self,
        tokenizer: Any,
        facts: dict[str, str],
        window: int | None,
        vocabulary: int | None = None,
    ) -> None:
        self.name = facts["name"]
        self.revision = facts["revision"]
        self.facts = facts
        self.chat = ChatTokenizer(tokenizer, vocabulary=vocabulary)
        self.window = window

    def stream_samples(self, requests: Sequence[Request]) -> Iterator[tuple[int, Sample | Reply | Refusal]]:
        """Yield each request's completions as they end, then its result, with the request's index."""
        refusals: dict[int, Refusal] = {}
        texts = []
        for index, request in enumerate(requests):
            # What can never fit is not rendered: that would take minutes and gigabytes for 50 MB.
            tokens = max(1, fewest_tokens([message.content for message in request.messages]))
            refusal = self._refusal(tokens, f"{tokens} tokens or more")
            if refusal is not None:
                refusals[index] = refusal
                texts.append("")
            else:
                texts.append(self.chat.render(request.messages, thinking=request.thinking))
        prompts = self.chat.encode(texts)
        draws: dict[int, list[Draw]] = {}
        for index, prompt in enumerate(prompts):
            if index in refusals:
                continue
            refusal = self._refusal(len(prompt), f"{len(prompt)} tokens")
            if refusal is not None:
                refusals[index] = refusal
            else:
                draws[index] = self._draws(requests[index], tuple(prompt))
        yield from refusals.items()
        samples = {index: list(requests[index].samples) for index in draws}
        failures: dict[int, str] = {}
        # all completions were drawn before an interruption
        for index in draws:
            if len(samples[index]) == requests[index].n:
                yield index, _reply(samples[index], len(prompts[index]))
        for index, draw in self._decode(draws):
            sample = self._sample(draw, requests[index], texts[index])
            samples[index].append(sample)
            if draw.failure:
                failures.setdefault(index, draw.failure)
            if len(samples[index]) < requests[index].n:
                if not draw.failure:
                    yield index, sample
            elif index in failures:
                yield index, Refusal(kind="backend", message=failures[index])
            else:
                yield index, _reply(samples[index], len(prompts[index]))

    @abstractmethod
    def _decode(self, draws: Mapping[int, Sequence[Draw]]) -> Iterator[tuple[int, Draw]]:
        """Draw the completions, and yield each with its request's index as it ends."""

    def _refusal(self, tokens: int, size: str) -> Refusal | None:
        """Refuse an empty or overlong prompt; None if it fits."""
        if tokens == 0:
            message = f"the conversation has no tokens, so model {self.name!r} has nothing to continue"
            return Refusal(kind="backend", message=message)
        if self.window is None or tokens < self.window:
            return None
        message = (
            f"the prompt has {size}, but the window of model {self.name!r} holds {self.window}; shorten the "
            "question or its context, or use a model with a larger window"
        )
        return Refusal(kind="too_long", message=message)

    def _draws(self, request: Request, prompt: tuple[int, ...]) -> list[Draw]:
        """Make the draws for a request's missing completions."""
        limit = request.sampling.max_new_tokens
        if self.window is not None:
            # fewer tokens where the window ends
            limit = min(limit, self.window - len(prompt))
        # Sample i has the seed of the request plus i, so asking for more samples keeps the first ones.
        seeds = [request.seed + index for index in request.missing]
        draws = [Draw(prompt=prompt, sampling=request.sampling, seed=seed, limit=limit) for seed in seeds]
        if request.logprobs or request.first_tokens:
            for draw in draws:
                draw.likelihoods = []
                draw.likeliest = request.ranks
        return draws

    def _sample(self, draw: Draw, request: Request, rendered: str) -> Sample:
        """Make the completion of a finished draw, at its index in the response."""
        in_trace = ends_in_trace(rendered)
        completion = _completion(self.chat.tokenizer, draw.tokens, in_trace=in_trace, stopped=draw.stopped)
        if request.logprobs:
            tokens = self._answer_tokens(completion.text, draw, request.top_logprobs)
            completion = replace(completion, logprobs=tokens)
        if request.first_tokens:
            likely = self._first_tokens(completion.text, draw)[: request.first_tokens]
            completion = replace(completion, first_tokens=likely)
        return Sample(index=draw.seed - request.seed, completion=completion)

    def _answer_tokens(self, answer: str, draw: Draw, ranks: int) -> AnswerTokens | NoLogprobs:
        likelihoods = draw.likelihoods or []
        if not likelihoods and draw.tokens:
            return "not_returned"
        logprobs = [likelihood.logprob for likelihood in likelihoods]
        divergences = [likelihood.divergence for likelihood in likelihoods]
        texts = token_texts(self.chat.tokenizer, draw.tokens)
        top = [[value for _, value in likelihood.likeliest] for likelihood in likelihoods]
        entropies = [likelihood.entropy for likelihood in likelihoods] if ranks else []
        return answer_tokens(answer, texts, logprobs, divergences, top=top, entropies=entropies, ranks=ranks)

    def _first_tokens(self, text: str, draw: Draw) -> tuple[LikelyToken, ...]:
        """List the likeliest tokens at the start of the text."""
        index = first_token(text, token_texts(self.chat.tokenizer, draw.tokens))
        likelihoods = draw.likelihoods or []
        if index is None or index >= len(likelihoods):
            return ()
        tokens = []
        for token, logprob in likelihoods[index].likeliest:
            [piece] = token_texts(self.chat.tokenizer, [token])
            tokens.append((piece or "", logprob))
        return likely_tokens(tokens)


def _reply(samples: Sequence[Sample], prompt_tokens: int) -> Reply:
    in_order = sorted(samples, key=lambda sample: sample.index)
    return Reply(completions=tuple(sample.completion for sample in in_order), prompt_tokens=prompt_tokens)


def _completion(tokenizer: Any, tokens: Sequence[int], *, in_trace: bool, stopped: bool) -> Completion:
    """Make a completion of generated tokens, without the reasoning trace and special tokens.

    ``in_trace``: the prompt ends inside a trace. ``stopped``: the model ended by itself.
    """
    raw = tokenizer.decode(tokens, skip_special_tokens=False)
    try:
        visible = split_answer(raw, in_trace).visible
    except UnclosedReasoningError:
        return Completion(text="", finish="unclosed_reasoning", tokens=len(tokens))
    if visible == raw.strip():
        visible = tokenizer.decode(tokens, skip_special_tokens=True)
    else:
        # some models write their reasoning tags as special tokens, which must be there to find the trace
        for token in tokenizer.added_tokens_decoder.values():
            if token.special:
                visible = visible.replace(token.content, "")
    return Completion(text=visible.strip(), finish="stop" if stopped else "length", tokens=len(tokens))


def token_texts(tokenizer: Any, tokens: Sequence[int]) -> list[str | None]:
    """Find the text that each generated token adds; None for special tokens.

    Of several tokens that are one character together, the last one has it, and the others are empty.
    """
    texts: list[str | None] = []
    start = stop = 0  # text is known up to `stop`; `start` is one step before it
    for end in range(1, len(tokens) + 1):
        # Some tokenizers leave out the space before the first token of a text, so there is one before it.
        before = tokenizer.decode(tokens[start:stop], skip_special_tokens=True)
        text = tokenizer.decode(tokens[start:end], skip_special_tokens=True)
        if text == before:
            texts.append(None)
        # part of a character: its last token has the text
        elif text.endswith("\ufffd") and end < len(tokens):
            texts.append("")
        else:
            texts.append(text[len(before) :])
            start, stop = stop, end
    return texts


class HFGenerator(TokenGenerator):
    """Generator with one local model. ``batch_size`` sequences are decoded together, which does not change
    the texts; None for 64 on a CPU and 256 on a GPU."""

    def __init__(self, lm: CausalLM, *, batch_size: int | None = None) -> None:
        super().__init__(lm.tokenizer, lm.facts, lm.window, lm.vocabulary)
        self.lm = lm
        self.batch_size = batch_size or (64 if lm.device == "cpu" else 256)
        self.on_step: Callable[[int, int], None] = lambda tokens, ended: None
        """Callback with the numbers of tokens just drawn and of sequences that they ended."""
        self._computed = PromptStates(lm.model)
        self._stop_ids = _stop_ids(lm)
        self._pad_id = lm.tokenizer.pad_token_id
        if self._pad_id is None:
            # padding is masked, so any id will do
            self._pad_id = min(self._stop_ids, default=0)

    @classmethod
    def load(
        cls, model: str | ModelSpec = "smollm2", progress: Callable[[str], None] | None = None, **fields: Any
    ) -> HFGenerator:
        """Load a model by alias (``smollm2``), hub name or local directory.

        Args:
            progress: called with a line at each step that takes a while.
            fields: of :class:`~selfreflect.models.base.ModelSpec`, such as ``device="cpu"``.

        Raises:
            BackendError: the model cannot be loaded.
        """
        spec = ModelSpec.of(model, **fields)
        lm = load_causal_lm(spec, progress)
        reason = why_slow(lm.model)
        if reason:  # the library can continue sequences without C code
            lm = load_causal_lm(spec, library=True)
        if progress and reason:
            progress(f"generation is slower without its C code: {reason}")
        return cls(lm, batch_size=spec.batch_size)

    def _decode(self, draws: Mapping[int, Sequence[Draw]]) -> Iterator[tuple[int, Draw]]:
        """Draw in batches across requests, with one sampling setting and similar prompt lengths."""
        queue = [(index, draw) for index, prompt_draws in draws.items() for draw in prompt_draws]
        # prompts of similar length waste little padding, and equal ones are neighbours
        queue.sort(key=lambda one: (repr(one[1].sampling), len(one[1].prompt), one[1].prompt))
        for _, draws_alike in groupby(queue, key=lambda one: one[1].sampling):
            alike = list(draws_alike)
            for start in range(0, len(alike), self.batch_size):
                batch = alike[start : start + self.batch_size]
                batch_draws = [draw for _, draw in batch]
                for step in decode(self.lm.model, batch_draws, self._stop_ids, self._pad_id, self._computed):
                    self.on_step(step.tokens, len(step.ended))
                    for position in step.ended:
                        yield batch[position]


def _stop_ids(lm: CausalLM) -> frozenset[int]:
    """Collect the end-of-sequence ids of the generation config and the tokenizer."""
    config = getattr(lm.model, "generation_config", None)
    eos = getattr(config, "eos_token_id", None)
    ids = eos if isinstance(eos, list) else [eos]
    return frozenset(i for i in [*ids, lm.tokenizer.eos_token_id] if i is not None)
