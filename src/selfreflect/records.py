"""Frozen records that the stages exchange, one JSON object per line on disk.

An undefined value is ``None`` and has a :class:`Failure` that says why; it is never NaN and never a guess.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from selfreflect.logprobs import AnswerTokens, NoLogprobs
from selfreflect.text import one_liner

SCHEMA_VERSION = 1
"""Version of the fields' meaning; a run directory with another version is refused."""

Stage = Literal["questions", "answers", "summaries", "scores"]
STAGES: tuple[Stage, ...] = ("questions", "answers", "summaries", "scores")

UNNAMED_SUMMARY = "summary"
"""Default name of an item's only summary."""

ModelStage = Literal["answers", "summaries", "scores"]
"""A stage that needs a model."""

FailureKind = Literal[
    "no_answers",  # nothing to mask or nothing to condition on
    "blank_summary",  # the strategy returned only whitespace
    "too_long",  # exceeds the context window of the model or judge
    "unclosed_reasoning",  # the reasoning trace never ended, so no answer follows it
    "cut_off",  # the token limit was reached before any usable text
    "over_budget",  # the token budget does not suffice for a single masked word
    "refused",  # the model declined, according to its server
    "content_filter",  # the server's filter withheld text
    "empty",  # the server repeatedly sent no completions
    "backend",  # the model or its server failed
    "strategy",  # a user's strategy raised, or did not return a string
    "malformed",  # the reply lacks the form that the strategy asked for
]

Finish = Literal["stop", "length", "unclosed_reasoning", "refused", "content_filter"]
"""How a completion ended. Servers alone report ``refused`` (the text says why the model declined) and
``content_filter``."""

RETRIED: tuple[FailureKind, ...] = ("backend", "empty", "strategy")
"""Kinds of failures that a retry may resolve. The others follow from the texts and settings."""


class _RecordType(msgspec.StructMeta):
    def __dir__(self) -> list[str]:
        """List public attributes only, since ``help()`` would otherwise show those of every struct."""
        return [name for name in super().__dir__() if not name.startswith("_")]


# Ranges are checked when records are read and written, because a run directory may come from anybody.
# Up to here a float holds every integer.
_MOST = 2**53
Count: TypeAlias = Annotated[int, Meta(ge=0, le=_MOST)]
PositiveCount: TypeAlias = Annotated[int, Meta(ge=1, le=_MOST)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1 + 1e-6)]
"""A share, probability or distance, with tolerance for rounding."""
Number: TypeAlias = Annotated[float, Meta(ge=-1e9, le=1e9)]
Positive: TypeAlias = Annotated[float, Meta(ge=0, le=1e9)]


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, metaclass=_RecordType):
    """Base of all records: immutable, compared by value, without unknown fields."""

    _rare: ClassVar[tuple[str, ...]] = ()
    """Fields that are left out if empty, as they usually are."""

    def to_dict(self) -> dict[str, Any]:
        """Convert all fields to plain JSON values, leaving out rare fields that are empty."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        for name in self._rare:
            if not plain[name]:
                del plain[name]
        return plain


class _Shown(Record, frozen=True, kw_only=True):
    """A record with many fields, shown in brief in a Python session."""

    def _shown_fields(self) -> Iterator[tuple[str, object]]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return one_liner(type(self).__name__, self._shown_fields())

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:  # type: ignore[override]
        yield from self._shown_fields()


Verdict = bool | None
"""Verdict on an answer: right, wrong or neither."""


class Graded(NamedTuple):
    """A verdict on an answer."""

    answer: str | None
    """Text of the answer; None for the judged answer."""
    right: Verdict


Scalar = str | int | float | bool
"""The value of one cell of a user's file."""


class Question(Record, frozen=True, kw_only=True):
    """One question. ``text`` is exactly the source's; the metric normalises its own copy."""

    id: str
    text: str
    kind: str = ""
    """Category from the source (``"one clear fact"``, a subject, …), or empty."""
    gold: tuple[str, ...] = ()
    """The data set's reference answers. The metric does not use them."""
    context: str = ""
    """Evidence that the model and its strategies read with the question. The judge never sees it."""
    metadata: dict[str, Scalar] = {}
    """Further columns of the user's file, such as a topic, by which results can be broken down."""

    def __hash__(self) -> int:
        return hash((self.id, self.text, self.context))  # a dictionary has no hash


Halving = Literal[
    "",  # the order of sampling; also in records of earlier versions, which cut every list in the middle
    "shuffled",  # a list of answers, shuffled by seed and question
    "given",  # two halves that the user gave
]
"""How answers were split into halves."""


class AnswerSet(_Shown, frozen=True, kw_only=True):
    """An answer distribution: two disjoint halves of samples, and how they were sampled.

    Attributes:
        masked_out: the first half: the test answers, whose words the judge fills in.
        conditioning: the second half: the reference answers, shown to the judge in the reference context.
        model, revision, temperature, top_p, max_new_tokens, seed: how they were sampled, if that is known.
        truncated: number of answers cut off at ``max_new_tokens``.
        refused: number of answers that the server marked as refusals.
        tokens: generated for this set; 0 if the server does not report them.
        logprobs: for each answer the log-probabilities of its tokens, or why there are none; empty if nobody
            asked for them.
        halved: how the answers came into their halves.
        grades: by grader, for each answer whether it is right; None for a verdict that says neither.
        further_grades: by grader, verdicts on other texts, such as a judged part of an answer.

    Raises:
        ValueError: ``logprobs`` or ``grades`` are those of other answers.
    """

    question_id: str
    masked_out: tuple[str, ...]
    conditioning: tuple[str, ...]
    model: str = ""
    revision: str = ""
    temperature: Positive | None = None
    top_p: Share | None = None
    max_new_tokens: Count | None = None
    seed: int | None = None
    truncated: Count = 0
    refused: Count = 0
    tokens: Count = 0
    logprobs: tuple[AnswerTokens | NoLogprobs, ...] = ()
    halved: Halving = ""
    grades: dict[str, tuple[Verdict, ...]] = {}
    further_grades: dict[str, tuple[Graded, ...]] = {}

    _rare: ClassVar[tuple[str, ...]] = ("logprobs", "halved", "grades", "further_grades")

    def __post_init__(self) -> None:
        if self.logprobs and len(self.logprobs) != len(self.answers):
            raise ValueError(
                f"there are {len(self.answers)} answers, but log-probabilities of {len(self.logprobs)}"
            )
        for answer, tokens in zip(self.answers, self.logprobs, strict=False):
            _check_spelling(answer, tokens)
        for name, verdicts in self.grades.items():
            if len(verdicts) != len(self.answers):
                raise ValueError(f"{len(self.answers)} answers have {len(verdicts)} grades by {name!r}")

    def __hash__(self) -> int:
        return hash((self.question_id, self.masked_out, self.conditioning))  # a dictionary has no hash

    @property
    def answers(self) -> tuple[str, ...]:
        """All samples, in sampling order."""
        return self.masked_out + self.conditioning

    def _shown_fields(self) -> Iterator[tuple[str, object]]:
        from selfreflect.grouping import group_indices

        answers = self.answers
        groups = group_indices(answers)
        yield "answers", len(answers)
        yield "kinds", len(groups)
        for group in groups[:3]:
            yield f"{len(group)}x", answers[group[0]]
        yield "model", self.model or None
        yield "truncated", self.truncated or None


def _check_spelling(answer: str, tokens: AnswerTokens | NoLogprobs | None) -> None:
    if isinstance(tokens, AnswerTokens) and "".join(tokens.texts) != answer:
        raise ValueError(f"the tokens {tokens.texts[:9]!r} do not spell their answer")


class AnswerSample(Record, frozen=True, kw_only=True):
    """One answer to a question whose other answers are still to be drawn.

    Raises:
        ValueError: ``logprobs`` are those of another answer.
    """

    question_id: str
    index: Count
    """Index among the question's answers."""
    text: str
    finish: Finish
    tokens: Count = 0
    closes_trace: bool = False
    """Whether the answer ended a reasoning trace that the prompt had begun."""
    logprobs: AnswerTokens | NoLogprobs | None = None
    request: str
    """Digest of the request and the model. Answers to any other request are not used."""

    def __post_init__(self) -> None:
        _check_spelling(self.text, self.logprobs)


class SamplingCheck(Record, frozen=True, kw_only=True):
    """Check of a server's sampling, by two responses to one request and by the model's answers."""

    model: str
    base_url: str = ""
    temperature: Positive
    top_p: Share
    replies: Literal["differ", "identical", "unknown"]
    """``"unknown"`` if a response was blank or refused, or the temperature too low to tell."""
    questions: Count = 0
    """Number of questions that the model answered at a temperature above 0."""
    identical_questions: Count = 0
    """Number of these questions with identical answers."""
    accepted: bool = False
    """Whether the user continued despite a warning before the first question."""
    seconds: Positive | None = None
    """Duration of the first two responses, in records of earlier versions."""
    tokens: Count = 0
    """Tokens of the first two responses, in records of earlier versions."""

    @property
    def is_suspect(self) -> bool:
        """Whether all answers may be one repeated text rather than a distribution."""
        if self.replies == "differ":
            return False
        if not self.questions:
            return self.replies == "identical"
        # an easy question gets the same answer every time, so that one or two of them show nothing
        enough = self.replies == "identical" or self.questions >= 3
        return enough and self.identical_questions >= 0.9 * self.questions


class StatedParts(Record, frozen=True, kw_only=True):
    """Parts of a summary that states its own confidence."""

    answer: str
    reflection: str = ""
    """The model's doubts in its own words."""
    confidence: Share


class Summary(Record, frozen=True, kw_only=True):
    """A summary of an answer distribution, written by the strategy ``name``."""

    question_id: str
    name: str
    text: str
    model: str = ""
    revision: str = ""
    seed: int | None = None
    tokens: Count = 0
    """Tokens generated, over all steps and samples of the strategy."""
    calls: Count = 0
    """Completions sampled, over all steps."""
    truncated: bool = False
    """Whether the token limit cut off the last step, a single completion."""
    parts: StatedParts | msgspec.UnsetType = msgspec.UNSET
    """Parts of a summary with stated confidence; absent for other strategies."""


class Guess(msgspec.Struct, frozen=True, array_like=True):
    """A likely token at a masked word, with its probability in both contexts at two temperatures. Stored as a
    list of these five values, because there are many of them."""

    token: str
    summary: Share
    """Probability after the summary, at temperature 1."""
    summary_flat: Share
    """Probability after the summary, at the judge's temperature, as used for distances."""
    reference: Share
    """Probability after the reference answers, at temperature 1."""
    reference_flat: Share


class WordDistance(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Distance between the judge's two predictions of a masked word."""

    answer: Count
    """Index into the test answers."""
    word: Count
    """Index into ``answer.split()``."""
    text: str
    distances: tuple[Share, ...]
    """Total variation in [0, 1] for each judge token of the word; 0 is best."""
    guesses: tuple[tuple[Guess, ...], ...] = ()
    """Likely tokens for each judge token, if kept, by highest probability in either context."""
    bits: Number | None = None
    """Bits that the summary conveys about the word, if measured. Only in memory, like ``bits_available``."""
    bits_available: Number | None = None
    """Bits that the reference answers convey about the word."""

    @property
    def mean(self) -> float:
        return sum(self.distances) / len(self.distances)


class Sampled(Record, frozen=True, kw_only=True):
    """A score estimated from a random subset of the masked words."""

    words_scored: PositiveCount
    words_total: PositiveCount
    tokens_scored: PositiveCount
    """Number of token tasks in the scored words."""
    tokens_total: PositiveCount
    stderr: Positive | None
    """Standard error due to the choice of words. None if only one word was scored."""
    stopped: Literal["budget", "standard_error", "race", "paired"]
    """Limit that was reached; ``"paired"`` is the number of words in the question's earlier scores."""
    budget: str | None = None
    """Judge tokens or seconds per question, as written by the user."""
    standard_error: Positive | None = None
    """The requested ``stderr`` for every summary of the question."""
    race: Share | None = None
    """The requested confidence of the order."""
    seed: int = 0
    """Seed of the order of words, combined with the question's id."""
    ordered: tuple[str, ...] = ()
    """Summaries that the race ranked above or below this one."""

    @property
    def text(self) -> str:
        """The sample size, as ``120 of 840 words``."""
        return f"{self.words_scored} of {self.words_total} words"


Reader = Literal["informed", "blind"]
"""Whether the judge sees the question when its usable information is measured."""
ReaderChoice = Literal["auto", "informed", "blind"]

Zero = Literal[
    "empty",  # an empty summary, in the words in which every summary is told
    "repeated",  # the question in a summary's place, for a reader that does not see it otherwise
    "question",  # the question alone, in records of earlier versions
]
"""Text at 0 % of usable information."""
Anchor = Literal[
    "distinct",  # each distinct reference answer once, with counts where a judge gains from them
    "pasted",  # all reference answers, repetitions included, in records of earlier versions
]
"""Text at 100 % of usable information."""
Scale = Literal["question", "pasted", "distinct"]
"""Scale on which one version measured shares. Shares on different scales are never mixed."""
SCALES: tuple[Scale, ...] = ("question", "pasted", "distinct")
"""Scales from the oldest to today's."""
TODAYS_SCALE: Scale = SCALES[-1]


def latest_scale(scales: Iterable[Scale]) -> Scale:
    """Find the newest scale, or today's if there is none."""
    return max(scales, key=SCALES.index, default=TODAYS_SCALE)


NothingToTell = Literal[
    "known",  # the reference answers hardly help the judge: it knows the answers already
    "worse",  # with them it predicts the test answers worse
    "format",  # they help, but mostly by how closed answers are written: "Yes." and "No." tell the same
    "unclear",  # whether and how much they help cannot be said; ``cause`` says why
    "unmeasured",  # it could not be measured, for example since a text does not fit the judge's window
]
UnclearCause = Literal[
    "few_answers",  # twenty that differ as much would suffice
    "different_answers",  # what is told of each differs so much that more answers would hardly help
    "out_of_range",  # the share is below -100 % or above 200 %
]


LOWEST_SHARE, HIGHEST_SHARE = -1.0, 2.0
"""Range of valid shares; values outside are mostly noise of the available bits."""


class WordBits(msgspec.Struct, frozen=True, array_like=True):
    """Bits about one word of a test answer. Stored as a list of these values."""

    text: str
    told: Number
    """Bits from the summary."""
    available: Number
    """Bits from the reference answers."""


def _scale(zero: Zero, anchor: Anchor) -> Scale:
    return "question" if zero == "question" else anchor


class Information(_Shown, frozen=True, kw_only=True):
    """Information in a summary about test answers, in bits; see :mod:`selfreflect.metric.information`.

    Attributes:
        summary: the name of the summary (its strategy).
        bits: told by the summary, mean per test answer; below 0 if it misleads.
        bits_available: told by the reference answers, mean per test answer.
        recovered: the share of the available bits that the summary tells; None if ``undefined``.
        interval: 95 % interval of ``recovered`` over answers.
        undefined: why there is no share, see :data:`NothingToTell`.
        cause: why it is ``unclear``; None in records of earlier versions.
        why: the reason if it is ``unmeasured``.
        kind: of that reason; of those in :data:`RETRIED` the next run tries again. None in records of earlier
            versions.
        reader: whether the judge sees the question.
        zero: what ``bits`` and ``bits_available`` are relative to.
        anchor: the text that ``bits_available`` are told by.
        shared_phrase: the part of ``bits_available`` in words of a phrase that all distinct conditioning
            answers share, and in which they differ in few words; None if it is less than a third.
        answers: the words of each test answer, in order; none of an answer that is blank or was left out.
    """

    question_id: str
    summary: str
    reader: Reader
    bits: Number | None
    bits_available: Number | None
    recovered: Number | None
    interval: tuple[Number, Number] | None = None
    undefined: NothingToTell | None = None
    cause: UnclearCause | None = None
    why: str = ""
    kind: FailureKind | None = None
    zero: Zero = "question"
    anchor: Anchor = "pasted"
    shared_phrase: Number | None = None
    answers: tuple[tuple[WordBits, ...], ...] = ()
    judge: str = ""
    judge_revision: str = ""
    judge_dtype: str = ""

    _rare: ClassVar[tuple[str, ...]] = ("cause", "shared_phrase")

    def __post_init__(self) -> None:
        if self.recovered is not None and self.bits_available is not None and self.bits_available <= 0:
            raise ValueError("a share needs a positive number of available bits")

    @property
    def scale(self) -> Scale:
        """Scale of the share, by its zero and anchor."""
        return _scale(self.zero, self.anchor)

    @property
    def reason(self) -> NothingToTell | UnclearCause | None:
        """Reason for the missing share."""
        return self.cause or self.undefined

    def _shown_fields(self) -> Iterator[tuple[str, object]]:
        for name in ("summary", "recovered", "interval", "undefined", "bits", "bits_available", "reader"):
            yield name, getattr(self, name)
        yield "judge", self.judge or None


class Control(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A control text in the place of a summary, for comparison with summaries of the question."""

    name: Literal["empty", "question", "nonsense", "pasted"]
    """``"question"`` repeats the question; ``"pasted"`` joins distinct reference answers, or in records of
    earlier versions any of them."""
    answers: Count = 0
    """Number of pasted answers."""
    subsets: PositiveCount = 1
    """Number of subsets over which ``words`` and ``bits`` are means."""
    words: Count
    """Length of the text."""
    bits: Number | None = None
    """Bits that the text conveys, mean per test answer; None if not measured."""
    score: Share | None = None
    """SelfReflect score. Only the anchors of scores have one: the empty text, and all reference answers with
    their repetitions."""


class MergedAnswers(Record, frozen=True, kw_only=True):
    """Answers to a question that the user merged by hand."""

    question_id: str
    merged: tuple[tuple[str, ...], ...] = ()
    """Texts whose groups were merged, for each merge."""


class Controls(Record, frozen=True, kw_only=True):
    """All controls of one question."""

    question_id: str
    controls: tuple[Control, ...]
    reader: Reader | None = None
    """Reader of the bits; None if not measured."""
    zero: Zero = "question"
    """Text at 0 bits."""
    anchor: Anchor = "pasted"
    """Text that conveys ``bits_available``."""
    temperature: Positive | None = None
    """Temperature of the judge for scores; None if not measured."""
    bits_available: Number | None = None
    """Bits that all reference answers convey, mean per test answer."""
    judge: str = ""
    judge_revision: str = ""
    judge_dtype: str = ""

    @property
    def scale(self) -> Scale:
        """Scale of the shares, by zero and anchor."""
        return _scale(self.zero, self.anchor)

    @property
    def most_answers(self) -> int:
        """Number of answers in the largest pasted control; 0 if there is none."""
        return max((control.answers for control in self.controls), default=0)

    def find(self, name: str, answers: int = 0) -> Control | None:
        """Look up a control by name and number of answers."""
        for control in self.controls:
            if (control.name, control.answers) == (name, answers):
                return control
        return None

    def without_bits(self) -> Controls:
        """Keep only controls that have scores, without their bits."""
        with_scores = [control for control in self.controls if control.score is not None]
        controls = tuple(msgspec.structs.replace(control, bits=None) for control in with_scores)
        return msgspec.structs.replace(self, controls=controls, reader=None, bits_available=None)

    def completed_by(self, earlier: Controls) -> Controls:
        """Add the scores or bits that only ``earlier`` has. Controls keep the numbers of answers of the bits,
        since bits may be means over other subsets."""
        of_bits = self if self.reader is not None else earlier
        of_scores = self if self.temperature is not None else earlier
        controls = []
        for control in of_bits.controls:
            answers = control.answers
            if answers == of_bits.most_answers:  # all: an earlier version counted repetitions
                answers = of_scores.most_answers
            control_of_score = of_scores.find(control.name, answers if control.answers else 0) or control
            controls.append(msgspec.structs.replace(control, score=control_of_score.score))
        return msgspec.structs.replace(of_bits, controls=tuple(controls), temperature=of_scores.temperature)


class Score(_Shown, frozen=True, kw_only=True):
    """The SelfReflect score of one summary: 0 is perfect, 1 is worst, lower is better.

    Attributes:
        summary: the name of the summary (its strategy).
        value: the score.
        stderr: standard error over test answers, the sampling unit (tokens of one answer are not
            independent); for an estimate it covers the choice of words too. None for a single answer.
        token_tasks: how many tokens the judge filled in.
        judge, judge_revision, judge_dtype: the model that scored.
        temperature: the judge's.
        compat: ``"published"`` if tokenised with the published scorer's extra BOS, else empty.
        answer_means: mean distance of each test answer, in order; None without scored token tasks.
        words: the distance of every masked word, and what the summary tells of it.
        warnings: problems of the input, such as quotes in an answer that break the list shown to the judge.
        estimate: set if only some masked words were scored; ``words`` holds only these.
        information: what the summary tells the judge about the test answers, if it was measured. Only
            in memory: run directories keep it as a record of its own.
    """

    question_id: str
    summary: str
    value: Share
    stderr: Positive | None
    token_tasks: Count
    judge: str
    judge_revision: str = ""
    judge_dtype: str = ""
    temperature: Positive = 5.0
    compat: str = ""
    answer_means: tuple[Share | None, ...] = ()
    words: tuple[WordDistance, ...] = ()
    warnings: tuple[str, ...] = ()
    estimate: Sampled | None = None
    information: Information | None = None

    @property
    def recovered(self) -> float | None:
        """Bits as a share of the reference answers' bits; None if undefined or not measured."""
        return None if self.information is None else self.information.recovered

    def with_information(self, information: Information) -> Score:
        """Add the summary's information to the score and to each word."""
        words = []
        for word in self.words:
            bits = information.answers[word.answer] if information.answers else ()
            if bits:
                told, available = bits[word.word].told, bits[word.word].available
                word = msgspec.structs.replace(word, bits=told, bits_available=available)
            words.append(word)
        return msgspec.structs.replace(self, words=tuple(words), information=information)

    def _shown_fields(self) -> Iterator[tuple[str, object]]:
        for name in ("summary", "value", "stderr", "recovered", "judge"):
            yield name, getattr(self, name)
        yield "words", len(self.words)
        if self.estimate is not None:
            yield "words_total", self.estimate.words_total


class Measurement(Record, frozen=True, kw_only=True):
    """A measure's value for one summary; see :mod:`selfreflect.metric.measure`.

    Attributes:
        value: in the unit of the measure; None if ``undefined``.
        interval: 95 % interval of the value.
        parts: further numbers by name, such as those that a ratio is made of.
        undefined: why there is no value: a word of the measure's ``reasons``; empty if there is one.
        why: the reason in a sentence, if the word does not say it all.
        measure, question_id, summary: whose value this is; the caller of the measure fills them in.

    Raises:
        ValueError: there is a value and a reason why there is none, or neither.
    """

    value: Number | None
    interval: tuple[Number, Number] | None = None
    parts: dict[str, Number | None] = {}
    undefined: str = ""
    why: str = ""
    measure: str = ""
    question_id: str = ""
    summary: str = ""
    judge: str = ""

    def __post_init__(self) -> None:
        if (self.value is None) != bool(self.undefined):
            raise ValueError("a measurement has either a value or a reason why it is undefined")


SummaryResult: TypeAlias = Score | Information | Measurement
"""Result of a measure for one summary."""


class Failure(Record, frozen=True, kw_only=True):
    """Reason why a record could not be computed, stored in its place."""

    question_id: str
    stage: Stage
    kind: FailureKind
    message: str
    name: str = ""
    """Strategy or summary concerned, if any."""
    code: str = ""
    """Code of the underlying error, such as ``"unreachable"``, if any."""

    _rare: ClassVar[tuple[str, ...]] = ("code",)


RECORD_SETS: dict[type[Record], tuple[str, Callable[[Any], Any]]] = {
    Question: ("questions", attrgetter("id")),
    AnswerSet: ("answers", attrgetter("question_id")),
    MergedAnswers: ("merged", attrgetter("question_id")),
    Summary: ("summaries", attrgetter("question_id", "name")),
    Score: ("scores", attrgetter("question_id", "summary")),
    Information: ("information", attrgetter("question_id", "summary")),
    Measurement: ("measurements", attrgetter("measure", "question_id", "summary")),
    Controls: ("controls", attrgetter("question_id")),
    Failure: ("failures", attrgetter("stage", "question_id", "name")),
}
"""Name and key of each kind of record that a run holds. The name is also the name of its file."""


R = TypeVar("R", bound=Record)

_SURROGATE = re.compile("[\ud800-\udfff]")


def question_id(text: str, context: str = "") -> str:
    """Derive a question's stable id: ``q-`` and 12 hex digits of a SHA-256.

    It digests the text, or the two digests of text and context.
    """
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    if context:
        second = hashlib.sha256(context.encode("utf-8", "surrogatepass"))
        # of two digests, since a text and its context joined could be those of another question
        digest = hashlib.sha256(digest.digest() + second.digest())
    return "q-" + digest.hexdigest()[:12]


def metadata_headings(
    questions: Iterable[Question], others: Iterable[str], clean: Callable[[str], str] = str
) -> dict[str, str]:
    """Name the metadata columns of a table: by ``clean`` name, or ``metadata.NAME`` if that is taken."""
    headings: dict[str, str] = {}
    names = set(others)
    for name in dict.fromkeys(chain.from_iterable(question.metadata for question in questions)):
        heading = clean(name)
        while heading in names:
            heading = f"metadata.{heading}"
        names.add(heading)
        headings[name] = heading
    return headings


def shuffled(answers: Sequence[str], question_id: str, seed: int = 0) -> list[int]:
    """Shuffle answers by seed and question, and return their indices.

    Logs are often sorted or grouped, so the result is the same for every order of the list.
    """
    order = sorted(range(len(answers)), key=lambda index: answers[index])
    # with a separator, or seed 1 and question 23 would be shuffled as seed 12 and question 3
    random.Random(f"{seed}\x1f{question_id}\x1fhalves".encode("utf-8", "surrogatepass")).shuffle(order)
    return order


def halves(
    answers: Sequence[str], question_id: str, seed: int = 0
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Shuffle answers and split them into (test, reference); an odd answer joins the reference half.

    Raises:
        ValueError: fewer than two answers.
    """
    if len(answers) < 2:
        raise ValueError(
            f"an answer distribution needs at least 2 answers, one for each half; this one has {len(answers)}"
        )
    texts = tuple(answers[index] for index in shuffled(answers, question_id, seed))
    middle = len(texts) // 2
    return texts[:middle], texts[middle:]


def dump_line(value: Any, *, is_compact: bool = False) -> str:
    """Encode a value as one line of strict JSON (no NaN), without a line end.

    Text stays readable, but a lone surrogate, which UTF-8 cannot hold, turns the line into ASCII escapes.

    Args:
        is_compact: no spaces between values.
    """
    plain = value.to_dict() if isinstance(value, Record) else msgspec.to_builtins(value)
    separators = (",", ":") if is_compact else None
    line = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=separators)
    if _SURROGATE.search(line):
        return json.dumps(plain, allow_nan=False, separators=separators)
    return line


def from_plain(kind: type[R], value: Any) -> R:
    """Convert parsed JSON to a record.

    Raises:
        ValueError: names the offending field, for example ``Expected `str`, got `int` - at `$.text```.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
