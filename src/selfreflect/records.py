"""The frozen records that every stage takes and gives. Schema and version live here and nowhere else.

Each record names the question it belongs to. On disk a record is one JSON object on one line, with these
fields and no others. Undefined values are ``None`` beside a :class:`Failure` that says why; they are never
NaN and never a guess.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import msgspec

SCHEMA_VERSION = 1
"""Raised when a field changes its meaning; a run directory of another version is refused."""

Stage = Literal["questions", "answers", "summaries", "scores"]
STAGES: tuple[Stage, ...] = ("questions", "answers", "summaries", "scores")

FailureKind = Literal[
    "no_answers",  # nothing to mask or to condition on
    "blank_summary",  # the strategy returned only white space
    "too_long",  # does not fit the window of the model or judge
    "unclosed_reasoning",  # the reasoning trace never ended, so there is no answer after it
    "cut_off",  # the token limit was reached before there was any usable text
    "over_budget",  # the token budget does not suffice for a single masked word
    "refused",  # the model declined, and its server says so
    "content_filter",  # the server's filter withheld text
    "empty",  # the server sent no completions, several times
    "backend",  # the model or its server failed
    "strategy",  # a user's strategy raised, or returned something that is not a text
]

RETRIED: tuple[FailureKind, ...] = ("backend", "empty", "strategy")
"""Kinds that another try may mend. The others follow from the texts and the settings, which a run directory
does not change."""


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all records: immutable, compared by value, unknown fields refused."""


class Question(Record, frozen=True, kw_only=True):
    """One question. ``text`` is kept exactly as the source gave it; the metric normalises its own copy."""

    id: str
    text: str
    kind: str = ""
    """What sort of question it is, where the source says so (``"one clear fact"``, a subject, …)."""
    gold: tuple[str, ...] = ()
    """Reference answers of the data set; the metric does not use them."""


class AnswerSet(Record, frozen=True, kw_only=True):
    """An answer distribution: samples for one question in two disjoint halves, and how they were drawn."""

    question_id: str
    masked_out: tuple[str, ...]
    """The first half: the masked-out task answers, whose words the judge has to fill in."""
    conditioning: tuple[str, ...]
    """The second half: the conditioning answers that the reference context shows to the judge."""
    model: str = ""
    revision: str = ""
    temperature: float | None = None
    top_p: float | None = None
    max_new_tokens: int | None = None
    seed: int | None = None
    truncated: int = 0
    """How many of the answers were cut off at ``max_new_tokens``."""
    refused: int = 0
    """How many of the answers are refusals that the server marked as such."""
    tokens: int = 0
    """Tokens generated for this set; 0 where the server counts none."""

    @property
    def answers(self) -> tuple[str, ...]:
        """All samples, in the order in which they were drawn."""
        return self.masked_out + self.conditioning


class Summary(Record, frozen=True, kw_only=True):
    """One string that claims to describe an answer distribution, made by strategy ``name``."""

    question_id: str
    name: str
    text: str
    model: str = ""
    revision: str = ""
    seed: int | None = None
    tokens: int = 0
    """Tokens generated for it, all steps and samples of the strategy together."""
    calls: int = 0
    """Completions drawn for it, all steps together."""


class Guess(msgspec.Struct, frozen=True, array_like=True):
    """A token that the judge held likely in place of a masked one, and its probability in both contexts at
    two temperatures.

    On disk a list of these five, since there are many.
    """

    token: str
    summary: float
    """After the summary, at temperature 1."""
    summary_flat: float
    """After the summary, at the judge's temperature, where distances are taken."""
    reference: float
    """After the conditioning answers, at temperature 1."""
    reference_flat: float


class WordDistance(Record, frozen=True, kw_only=True, omit_defaults=True):
    """How well one masked word of one masked-out answer was predicted from the summary."""

    answer: int
    """Index into the masked-out answers."""
    word: int
    """Index into ``answer.split()``."""
    text: str
    distances: tuple[float, ...]
    """Total variation in [0, 1], one for each judge token of the word; 0 is best."""
    guesses: tuple[tuple[Guess, ...], ...] = ()
    """For each judge token what was held likely instead, where the scorer was asked to keep it; the likeliest
    of either context first."""

    @property
    def mean(self) -> float:
        return sum(self.distances) / len(self.distances)


class Sampled(Record, frozen=True, kw_only=True):
    """How a score was estimated from a random subset of the masked words, because a limit was set."""

    words_scored: int
    words_total: int
    tokens_scored: int
    """Token tasks of the scored words."""
    tokens_total: int
    stderr: float | None
    """Standard error against the exact score, from the choice of words alone. None where a single word was
    scored."""
    stopped: Literal["budget", "standard_error", "race", "paired"]
    """The limit that was reached; ``"paired"`` where earlier scores of the question have no more words
    either."""
    budget: str | None = None
    """Judge tokens or seconds per question, as asked for. With seconds the number of words depends on the
    machine."""
    standard_error: float | None = None
    """The ``stderr`` that every summary of the question was to reach."""
    race: float | None = None
    """The confidence that was asked of an order."""
    seed: int = 0
    """With the question's id it determines which words come first."""
    ordered: tuple[str, ...] = ()
    """Summaries that the race found to be certainly better or certainly worse than this one."""


class Score(Record, frozen=True, kw_only=True):
    """The SelfReflect score of one summary: 0 is perfect, 1 is worst, lower is better."""

    question_id: str
    summary: str
    """The name of the summary (its strategy)."""
    value: float
    stderr: float | None
    """Standard error over masked-out answers, the sampling unit (tokens of one answer are not independent).
    None for one answer.

    An estimate's holds both the answers and the choice of words.
    """
    token_tasks: int
    """Token tasks that were scored."""
    judge: str
    judge_revision: str = ""
    judge_dtype: str = ""
    temperature: float = 5.0
    compat: str = ""
    """``"published"`` when tokenised with the published scorer's extra BOS, else empty."""
    answer_means: tuple[float | None, ...] = ()
    """Mean distance of each masked-out answer's token tasks, in order; None for an answer that has none, or
    none that was scored."""
    words: tuple[WordDistance, ...] = ()
    warnings: tuple[str, ...] = ()
    """What a reader should know about the input, such as answers whose quotes break the list the judge is
    shown."""
    estimate: Sampled | None = None
    """Present where not all masked words were scored: then ``value`` is an estimate, and ``words`` holds the
    scored ones only."""


class Failure(Record, frozen=True, kw_only=True):
    """Something that could not be computed, and why. It takes the place of the record it prevented."""

    question_id: str
    stage: Stage
    kind: FailureKind
    message: str
    name: str = ""
    """The strategy or summary concerned, where there is one."""


R = TypeVar("R", bound=Record)

_SURROGATE = re.compile("[\ud800-\udfff]")


def question_id(text: str) -> str:
    """A stable id for a question whose source gives none: ``q-`` and 12 hex digits of the SHA-256 of its
    text."""
    return "q-" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def halves(samples: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split samples into (masked-out, conditioning): the first half and the second half, in order; an odd one
    goes to the second.

    Raises:
        ValueError: with fewer than two samples, since each half needs at least one.
    """
    if len(samples) < 2:
        raise ValueError(
            f"an answer distribution needs at least 2 answers, one for each half; this one has {len(samples)}"
        )
    middle = len(samples) // 2
    return tuple(samples[:middle]), tuple(samples[middle:])


def dump_line(value: Any) -> str:
    """One line of strict JSON (no NaN), without its line end. Readable UTF-8, except that lone surrogates
    force ASCII escapes."""
    plain = msgspec.to_builtins(value)
    line = json.dumps(plain, ensure_ascii=False, allow_nan=False)
    return json.dumps(plain, allow_nan=False) if _SURROGATE.search(line) else line


def from_plain(kind: type[R], value: Any) -> R:
    """Build a record from parsed JSON.

    Raises:
        ValueError: names the offending field, for example ``Expected `str`, got `int` - at `$.text```.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
