"""What work will cost, before it is done: records in, numbers out. No model is run and nothing is read.

Every quantity has an expected value, where something is known of it, and an upper bound, where there is one.
A reply that a later step shows to the model again has not been written yet: in the bound it counts with its
token limit. Quoting it, or another tokenizer's way to split it, may add to that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from selfreflect.records import Record, Stage


class Amount(Record, frozen=True, kw_only=True):
    """Something that is counted. None where it is not known."""

    expected: float | None
    most: float | None

    def __add__(self, other: Amount) -> Amount:
        return Amount(expected=_both(self.expected, other.expected), most=_both(self.most, other.most))

    def scaled(self, factor: float | None) -> Amount:
        """Both values times ``factor``; not known where the factor is not."""
        return Amount(expected=_times(self.expected, factor), most=_times(self.most, factor))


NOTHING = Amount(expected=0, most=0)
UNKNOWN = Amount(expected=None, most=None)


class Call(Record, frozen=True, kw_only=True):
    """``n`` completions of one conversation."""

    kind: int
    """Index of how its tokens are drawn: calls of one kind have one token limit and are expected to give
    equally long replies."""
    n: int
    prompt: int
    """Tokens of the prompt, without earlier replies in it."""
    prompt_most: int
    """The same at most, where they cannot be counted."""
    shown: tuple[int, ...] = ()
    """Kinds of the earlier replies that the prompt shows again."""
    window: int | None = None
    """Tokens of prompt and completion at most, where the model says so; a longer prompt is refused."""


class Generation(Record, frozen=True, kw_only=True):
    """What calls add up to."""

    prompt: Amount = NOTHING
    completion: Amount = NOTHING

    def __add__(self, other: Generation) -> Generation:
        return Generation(prompt=self.prompt + other.prompt, completion=self.completion + other.completion)


class Trial(Record, frozen=True, kw_only=True):
    """A short calibration: completions drawn together, once to their first token and once for longer."""

    prompt_tokens: int
    first_seconds: float
    """Until every completion had its first token."""
    completions: int
    tokens: int
    stopped: int
    """Completions that ended by themselves."""
    seconds: float

    @property
    def prompt_seconds(self) -> float:
        """Seconds for each prompt token."""
        return self.first_seconds / max(1, self.prompt_tokens)

    @property
    def token_seconds(self) -> float:
        """Seconds for each completion token after the first ones."""
        return max(0.0, self.seconds - self.first_seconds) / max(1, self.tokens - self.completions)

    def expected_length(self, limit: int) -> float | None:
        """Tokens of a completion when up to ``limit`` are allowed; None if none ended by itself.

        As if every token were the last one with the same probability p, estimated from completions that were
            mostly cut off: of the
        tokens and ends seen, so many were ends. Then the mean of min(length, limit) is (1 - p) / p * (1 - (1
        - p)^limit).
        """
        if not self.stopped:
            return None
        end = self.stopped / (self.stopped + self.tokens)
        return (1 - end) / end * (1 - (1 - end) ** limit)


class Nodes(Record, frozen=True, kw_only=True):
    """Nodes of the judge's prefix trees for answers of one length. One more answer always adds the same."""

    reference: float
    """With one masked-out and one conditioning answer."""
    summary: float
    """With one masked-out answer, after a summary of next to no tokens."""
    masked: float
    """One more masked-out answer."""
    conditioning: float
    """One more conditioning answer."""

    def question(self, num_answers: int, summaries: Iterable[float]) -> float:
        """Reference and summaries of one question, ``summaries`` by their tokens."""
        masked = (num_answers - 1) * self.masked
        reference = self.reference + masked + (num_answers - 1) * self.conditioning
        return reference + sum(self.summary + masked + tokens for tokens in summaries)


class StageCost(Record, frozen=True, kw_only=True):
    """What one stage would still take."""

    stage: Stage
    model: str
    """Its name, and where it is served; without credentials."""
    to_do: int
    """Answer sets, summaries or scores."""
    calls: Amount = NOTHING
    """Conversations that are sent; at most one for each completion, where a server gives no more at a
    time."""
    completions: Amount = NOTHING
    prompt_tokens: Amount = NOTHING
    completion_tokens: Amount = NOTHING
    judge_tokens: Amount = NOTHING
    """Nodes of prefix trees."""
    seconds: Amount = UNKNOWN
    money: Amount | None = None
    """In the currency of the prices; None where none are given."""


def generation(
    calls: Sequence[Call], limits: Sequence[int], lengths: Mapping[int, float | None], *, reread: bool
) -> Generation:
    """Tokens of ``calls``; ``limits`` and expected ``lengths`` of completions by kind.

    ``reread``: the model may read the prompt anew for each completion, as behind a server that gives one at a
    time.
    """
    return sum((_one(call, limits, lengths, reread) for call in calls), Generation())


def _one(call: Call, limits: Sequence[int], lengths: Mapping[int, float | None], reread: bool) -> Generation:
    known = [lengths.get(kind) for kind in call.shown]
    told = None if None in known else sum(length for length in known if length is not None)
    room = (
        limits[call.kind]
        if call.window is None
        else max(0, min(limits[call.kind], call.window - call.prompt))
    )
    length = lengths.get(call.kind)
    return Generation(
        prompt=Amount(
            expected=None if told is None else _fitting(call.prompt + told, call.window),
            most=_fitting(call.prompt_most + sum(limits[kind] for kind in call.shown), call.window)
            * (call.n if reread else 1),
        ),
        completion=Amount(
            expected=None if length is None else call.n * min(length, room), most=call.n * room
        ),
    )


def _fitting(tokens: float, window: int | None) -> float:
    """A prompt that fills the window is refused."""
    return tokens if window is None else min(tokens, window - 1)


def time_of(found: Generation, prompt_seconds: float | None, token_seconds: float | None) -> Amount:
    """Seconds, from those for each prompt token and each completion token."""
    return found.prompt.scaled(prompt_seconds) + found.completion.scaled(token_seconds)


def money_of(found: Generation, input_per_million: float, output_per_million: float) -> Amount:
    return found.prompt.scaled(input_per_million / 1e6) + found.completion.scaled(output_per_million / 1e6)


def limited_nodes(nodes: Amount, budget: int | None, rounds: bool) -> Amount:
    """One question's nodes under a budget of tokens, which is never exceeded.

    In ``rounds`` what words share is computed anew in each round, and how many there will be depends on the
    distances: without a budget there is then no bound, and what is expected is that every word is scored, in
    one round.
    """
    if budget is not None:
        return Amount(
            expected=_least(nodes.expected, budget),
            most=budget if nodes.most is None else min(nodes.most, budget),
        )
    return Amount(expected=nodes.expected, most=None) if rounds else nodes


def extended(points: Sequence[tuple[float, Nodes]], tokens: float) -> Nodes:
    """The nodes for answers of so many ``tokens``, from those for three shorter lengths.

    Each masked word of an answer needs what follows it anew, so nodes are a quadratic function of the length:
    Lagrange's polynomial.
    """
    weights = [
        math.prod(
            (tokens - other) / (own - other) for place, (other, _) in enumerate(points) if place != index
        )
        for index, (own, _) in enumerate(points)
    ]

    def at(part: str) -> float:
        return sum(
            weight * float(getattr(nodes, part)) for weight, (_, nodes) in zip(weights, points, strict=True)
        )

    return Nodes(
        reference=at("reference"), summary=at("summary"), masked=at("masked"), conditioning=at("conditioning")
    )


def total(costs: Sequence[StageCost], part: Callable[[StageCost], Amount | None]) -> Amount:
    """One quantity over all stages; stages without it count nothing."""
    return sum((amount for cost in costs if (amount := part(cost)) is not None), NOTHING)


def _both(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


def _times(a: float | None, factor: float | None) -> float | None:
    return 0 if a == 0 else None if a is None or factor is None else a * factor


def _least(a: float | None, b: float) -> float | None:
    return None if a is None else min(a, b)
