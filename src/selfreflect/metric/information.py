"""Usable information: the bits that a summary conveys to a judge about unseen answers.

For a test answer a, a question q, a summary s, and the distinct reference answers A, the judge J at
temperature 1 gives

    bits(s)   = log2 p_J(a | q, s) - log2 p_J(a | q, zero)
    bits(A)   = log2 p_J(a | q, A) - log2 p_J(a | q, zero)
    recovered = sum of bits(s) / sum of bits(A), over the test answers.

This is pointwise V-information (Xu et al. 2020, arXiv 2002.10689; Ethayarajh et al. 2022, arXiv 2110.08420)
with the judge as the family of predictors, and an empty summary as the null input, in the words in which
every summary is told; a judge that does not see q is told q for zero. ``recovered`` is the ignorance skill
score (Roulston and Smith 2002, Mon. Weather Rev. 130, 1653-1660).
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, cycle
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from selfreflect.metric.engine.logits import log_probabilities
from selfreflect.metric.engine.tree import PrefixTree, Prompt, build_tree
from selfreflect.metric.measure import Scored, TextLimits, Work
from selfreflect.metric.prompts import CannotScoreError, conversation_tokens, encode, encode_each
from selfreflect.metric.texts import (
    NONSENSE,
    ClosedAnswers,
    anchor_texts,
    answering,
    compared_texts,
    control_texts,
    distinct,
    normal_words,
    shared_phrase,
)
from selfreflect.records import (
    HIGHEST_SHARE,
    LOWEST_SHARE,
    RETRIED,
    AnswerSet,
    Control,
    Information,
    NothingToTell,
    Question,
    Reader,
    ReaderChoice,
    UnclearCause,
    WordBits,
    Zero,
)
from selfreflect.stats import defined, half_width, share_interval, student_quantile
from selfreflect.text import common_prefix

if TYPE_CHECKING:
    from selfreflect.metric.engine.engines import Engine
    from selfreflect.metric.scorer import SelfReflect
    from selfreflect.models.judge import Judge

Bits = npt.NDArray[np.float64]


# what 0 % means: the blind reader is told the question, so that repeating it is worth nothing
ZEROS: Mapping[Reader, Zero] = {"informed": "empty", "blind": "repeated"}

PACKAGING = frozenset('"`*_“”„«».,;:!?¿¡…。、，；：！？')
"""Punctuation around an answer, whose tokens count no bits. Otherwise the summary "Ankara" would lose a
quarter of the bits of "Ankara.", and "In Oslo." would gain some by its full stop."""

SLIGHT = 0.5
"""Bits per answer that are too few: half the bits of a choice between two. Below it, wording alone changes
the bits so much that shares would be erratic (benchmarks/RESULTS.md)."""

SLIGHT_SHARE = 0.1
"""Share of the possible bits that replaces ``SLIGHT`` for answers with little information: for yes or no, a
judge that knows the form of the answers lacks less than one bit."""

FORMAT_SHARE = 0.2
"""Share of closed answers' bits above which the answers count as conveyed by format, if texts without belief
convey that much."""

SHARED_PHRASE = 1 / 3
"""Minimum share of the available bits for which a shared phrase is recorded: of 17 questions above it, 15
gave one of several answers more than 65 %, or a wrong one more than 25 % (benchmarks/RESULTS.md)."""

ENOUGH = 20
"""Number of answers that is enough. If this many would make their gain clear, there are too few answers;
otherwise they differ too much.
"""


CONTEXTS = 12
"""Contexts of one question in one prefix tree, whose states are all in memory."""


def choose_reader(choice: ReaderChoice, judge: Judge, question: Question, answers: AnswerSet) -> Reader:
    """Choose the reader of a question's summaries.

    A judge that gave the answers itself knows them already, unless it had a context that it does not see when
    it judges; then only a blind reader can be told something.
    """
    if choice != "auto":
        return choice
    return "blind" if gave(judge, answers) and not question.context else "informed"


def gave(judge: Judge, answers: AnswerSet) -> bool:
    """Check whether the judge itself gave the answers."""
    # another revision of the same model may know other answers
    return (answers.model, answers.revision) == (judge.name, judge.lm.revision)


def measure(
    judge: Judge,
    engine: Engine,
    question: Question,
    answers: AnswerSet,
    summaries: Sequence[str],
    reader: Reader = "informed",
) -> dict[str, Information]:
    """Measure the bits that each text conveys to ``judge`` about the test answers.

    Returns:
        By text, without the summary's name. A text that does not fit the judge's window is ``unmeasured``.

    Raises:
        CannotScoreError: there is no test or no reference answer, or they do not fit the window.
    """
    prompts = AnswerPrompts(judge, question, answers, reader)
    contexts, errors = prompts.contexts(summaries)
    # tree after tree, so that the states of few contexts are in memory
    bits_of_contexts: list[list[Bits]] = []
    for tree in prompts.trees(contexts):
        [states] = engine.states([tree])
        bits_of_contexts += prompts.bits(engine, tree, states)
    bits = dict(zip(contexts, bits_of_contexts, strict=True))
    references = prompts.reference_bits(bits)
    not_finite = CannotScoreError(
        "backend", f"the predictions of judge {judge.name!r} are not finite numbers"
    )
    results = {}
    for text in dict.fromkeys(summaries):
        logs = bits.get(text if text.strip() else "")  # a blank summary is an empty one
        # a single infinite log-probability would make every sum infinite
        if logs and all(
            np.isfinite(values).all() for values in (*references.zero, *references.available, *logs)
        ):
            results[text] = prompts.information(references, logs)
        else:
            results[text] = unmeasured(judge, question, reader, errors.get(text, not_finite))
    return results


def unmeasured(judge: Judge, question: Question, reader: Reader, error: CannotScoreError) -> Information:
    """Make the record of a text with unmeasurable information."""
    return Information(
        question_id=question.id,
        summary="",
        reader=reader,
        zero=ZEROS[reader],
        anchor="distinct",
        bits=None,
        bits_available=None,
        recovered=None,
        undefined="unmeasured",
        why=str(error),
        kind=error.kind,
        **judge.origin,
    )


def nodes(
    judge: Judge, question: Question, answers: AnswerSet, summaries: Sequence[str], reader: Reader
) -> int:
    """Count the judge tokens that :func:`measure` uses, as nodes of prefix trees.

    Raises:
        CannotScoreError: as in :func:`measure`.
    """
    prompts = AnswerPrompts(judge, question, answers, reader)
    contexts, _ = prompts.contexts(summaries)
    return sum(tree.computed_tokens for tree in prompts.trees(contexts))


def information_of_work(metric: SelfReflect, choice: ReaderChoice) -> Callable[[Work], Scored]:
    """Return a function that measures one question's summaries and controls with the judge of ``metric``."""

    def measure_work(work: Work) -> Scored:
        judge, question, answers = metric.judge, work.question, work.answers
        texts = [*(summary.text for summary in work.summaries), *(text for _, text in work.controls)]
        reader = choose_reader(choice, judge, question, answers)
        tokens = 0
        try:
            # fewer answers are read under a budget; the same ones for all summaries of a question
            if work.limits is not None:
                # scores need a multiple of these tokens, and get the rest
                share = int(work.token_share * work.limits.tokens)
                # a summary that is added later must be measured on the answers that the first ones had
                counts = [sum(map(bool, record.answers)) for record in work.other_records]
                fewer, tokens = within_budget(
                    judge, question, answers, texts, reader, share, max(filter(None, counts), default=None)
                )
                # if all answers are blank, measure() gives that as the reason
                if not tokens and any(map(str.strip, answers.masked_out)):
                    why = f"the budget leaves {share} judge tokens, too few for a single answer"
                    raise CannotScoreError("over_budget", why)
                answers = fewer
            results = measure(judge, metric.engine, question, answers, texts, reader)
        except CannotScoreError as error:
            results, tokens = dict.fromkeys(texts, unmeasured(judge, question, reader, error)), 0
        records = [replace(results[summary.text], summary=summary.name) for summary in work.summaries]
        # a result that may be retried says nothing of the controls
        result = next((result for result in results.values() if result.kind not in RETRIED), None)
        names = ("reader", "zero", "bits_available") if result else ()
        facts = {name: getattr(result, name) for name in names}
        return Scored(records, _control_bits(work, results), facts, tokens)

    return measure_work


def _control_bits(work: Work, results: Mapping[str, Information]) -> dict[Control, float | None]:
    """Average the bits of each control over its texts; None if any text lacks a measurement."""
    bits: dict[Control, list[float | None]] = {}
    for control, text in work.controls:
        bits.setdefault(control, []).append(results[text].bits)
    return {
        control: fmean(defined(values)) if None not in values else None for control, values in bits.items()
    }


def nodes_of_work(judge: Judge, work: Work, choice: ReaderChoice) -> int:
    """Count the judge tokens for measuring summaries and controls; 0 if that is impossible."""
    texts = [*(summary.text for summary in work.summaries), *(text for _, text in work.controls)]
    reader = choose_reader(choice, judge, work.question, work.answers)
    try:
        return nodes(judge, work.question, work.answers, texts, reader) if texts else 0
    except CannotScoreError:
        return 0


def most_nodes(judge: Judge, limits: TextLimits) -> int:
    """Compute an upper bound on the judge tokens of a question whose texts are not written yet."""
    question = limits.question.text
    # only lengths are known yet: one letter stands for each text, and its tokens are added below
    letters = ["x"] * len(limits.reference_answers)
    longest = max(limits.reference_answers, default=0)
    texts = [(text, sum(limits.reference_answers)) for text in compared_texts(question, letters)]
    texts += [("x", length) for length in limits.summaries]
    if limits.controls:
        for control, text in control_texts(question, letters):
            texts.append((text, control.answers * longest))
    bound = 0
    for text, length in texts:
        # the reader is chosen once the answers exist, so the longer conversation counts
        prompts = [conversation_tokens(judge, answering(question, text, reader)) for reader in ZEROS]
        bound += max(prompts) + length + sum(limits.test_answers)
    return bound


def within_budget(
    judge: Judge,
    question: Question,
    answers: AnswerSet,
    summaries: Sequence[str],
    reader: Reader,
    tokens: int,
    max_answers: int | None = None,
) -> tuple[AnswerSet, int]:
    """Blank random test answers until :func:`measure` uses at most ``tokens`` nodes.

    The order in which answers are kept follows from the question's id alone.

    Args:
        max_answers: keep no more answers than this.

    Returns:
        The answers, all of them blank if one is too many, and the nodes that measuring takes.
    """
    # by id alone, so that a later summary meets the same answers
    order = _with_words(answers)
    random.Random(question.id).shuffle(order)
    order = order[:max_answers]

    @cache
    # building trees is the cost of an attempt, and bisection tries few
    def cost(count: int) -> int:
        return nodes(judge, question, _keep(answers, order[:count]), summaries, reader) if count else 0

    # cost grows with count, so bisection finds the largest that fits by building few trees
    count = bisect_right(range(1, len(order) + 1), tokens, key=cost)
    return _keep(answers, order[:count]), cost(count)


def _with_words(answers: AnswerSet) -> list[int]:
    """List the indices of test answers that are not blank."""
    return [index for index, answer in enumerate(answers.masked_out) if answer.strip()]


def _keep(answers: AnswerSet, indices: Sequence[int]) -> AnswerSet:
    """Blank all test answers except those at ``indices``."""
    subset = set(indices)
    # blanked, not removed: results are stored by the answer's place
    texts = [text if index in subset else "" for index, text in enumerate(answers.masked_out)]
    return replace(answers, masked_out=tuple(texts))


@dataclass(frozen=True)
class ReferenceBits:
    """Bits about test answers in the texts that summaries are compared with.

    Attributes:
        zero, available: bits of each token of each answer after the zero, and after the reference
            answers.
        room: bits that a text can tell at most, mean per answer: what the judge lacks after the zero, less
            the entropy of the answers.
        format: bits that texts without their belief tell of closed answers; None of other answers.
        judge_answered: whether the judge gave the answers itself, and sees all that it knew then.
    """

    zero: list[Bits]
    available: list[Bits]
    room: float
    format: float | None
    judge_answered: bool


class AnswerPrompts:
    """Token ids of a question's test answers, after each context of the judge.

    Args:
        answers: with the reference answers that ``recovered`` is relative to.

    Raises:
        CannotScoreError: there is no test or no reference answer, or one does not fit the judge's
            window.
    """

    def __init__(self, judge: Judge, question: Question, answers: AnswerSet, reader: Reader) -> None:
        self.places = _with_words(answers)
        """Indices of the test answers that are not blank."""
        self.answers = [answers.masked_out[index].strip() for index in self.places]
        if not self.answers:
            raise CannotScoreError("no_answers", "there are no test answers with words in them")
        anchors = anchor_texts(answers.conditioning)
        if not anchors[0]:
            raise CannotScoreError("no_answers", "there are no reference answers with words in them")
        self.reader: Reader = reader
        self._judge = judge
        self._question = question
        # the judge did not see the context that it sees no more when it judges
        self._judge_answered = gave(judge, answers) and not question.context
        self._answer_count = len(answers.masked_out)
        alternatives = list(distinct(answers.conditioning))
        self._closed = ClosedAnswers(self.answers, alternatives)
        self._head, self._tail = shared_phrase(alternatives)
        self._zero = question.text if reader == "blind" else ""
        # _encode compares every later context with this one
        self._first: list[Prompt] = []
        self._first = self._encode(self._zero, "the question")
        self._is_content = [content_tokens(judge.chat.tokenizer, _tokens(prompt)) for prompt in self._first]
        self._ends = {self._zero: self._first}
        # without the plain anchor there is no scale, so here an error is raised; other texts may be left
        # out
        self._ends[anchors[0]] = self._encode(anchors[0], "the reference answers")
        further_texts = [*anchors[1:], *self._closed.texts.values()]
        # nonsense tells nothing, so what it gains here comes from the form of a closed answer alone
        if self._closed.texts:
            further_texts.append(NONSENSE)
        self._ends |= self._encode_each(further_texts)[0]
        self._anchors = [text for text in anchors if text in self._ends]

    def contexts(
        self, summaries: Sequence[str]
    ) -> tuple[dict[str, list[Prompt]], dict[str, CannotScoreError]]:
        """Encode the answers after the comparison texts and after each summary; a blank summary counts as
        empty.

        Returns:
            By text, and why a summary is left out: it does not fit the judge's window.
        """
        encoded, errors = self._encode_each([text if text.strip() else "" for text in summaries])
        return self._ends | encoded, errors

    def _encode_each(
        self, texts: Sequence[str]
    ) -> tuple[dict[str, list[Prompt]], dict[str, CannotScoreError]]:
        new_texts = [text for text in dict.fromkeys(texts) if text not in self._ends]
        return encode_each(new_texts, lambda text: self._encode(text, "the summary"))

    def trees(self, contexts: Mapping[str, list[Prompt]]) -> Iterator[PrefixTree]:
        """Build prefix trees of the contexts, in order.

        They share the instructions and the question. A server gets a tree for each, whose prefix is sent
        first, for its cache.
        """
        prompts = list(contexts.values())
        # a local judge is faster with many contexts in one pass
        size = CONTEXTS if self._judge.last_states is None else 1
        for start in range(0, len(prompts), size):
            yield build_tree(list(chain.from_iterable(prompts[start : start + size])))

    def _encode(self, context: str, subject: str) -> list[Prompt]:
        conversation = answering(self._question.text, context, self.reader)
        # bits are compared token by token, so a context must not change how the answer is split
        prompts = encode(
            self._judge, [conversation] * len(self.answers), self.answers, f"{subject} with an answer"
        )
        if self._first and list(map(_tokens, prompts)) != list(map(_tokens, self._first)):
            raise CannotScoreError(
                "backend",
                f"judge {self._judge.name!r} splits the same answer differently in two contexts, so its "
                "predictions cannot be compared",
            )
        return prompts

    def bits(self, engine: Engine, tree: PrefixTree, states: Any) -> list[list[Bits]]:
        """Compute the log2 probability of each answer token per context; 0 at the marks around an answer.

        Args:
            states: of ``tree``, shape (W, width).
        """
        pairs: list[tuple[int, int]] = []
        for rows, prompt in zip(tree.rows, cycle(self._first), strict=False):
            pairs += zip(rows, _tokens(prompt), strict=True)
        logs = log_probabilities(engine.head, states, np.array(pairs)) / math.log(2)
        ends = np.cumsum(list(map(len, tree.rows)))
        answers = np.split(logs, ends[:-1])
        for values, is_content in zip(answers, cycle(self._is_content), strict=False):
            # the judge reads the marks before the words that count; only their own bits are left out
            values[~is_content] = 0
        # the trees hold all answers after one text, then all after the next
        count = len(self.answers)
        return [answers[start : start + count] for start in range(0, len(answers), count)]

    def reference_bits(self, bits: Mapping[str, list[Bits]]) -> ReferenceBits:
        """Gather the bits of the comparison texts from the results of :meth:`bits`."""
        nothing = bits[self._zero]
        # the anchor is the form of the reference answers that tells most, with or without counts
        gains = {}
        for text, logs in bits.items():
            gains[text] = [float((log - zero).sum()) for log, zero in zip(logs, nothing, strict=True)]
        available = max(self._anchors, key=lambda text: math.fsum(gains[text]))
        # cross-entropy less entropy: no text can tell what varies between the answers at random
        lacking = -fmean(float(logs.sum()) for logs in nothing)
        counts = Counter(self.answers)
        entropy = -fmean(math.log2(counts[answer] / counts.total()) for answer in self.answers)
        of_format = None
        # a text that does not fit the window is missing, and the others alone could miss the format's part
        if self._closed.texts and {NONSENSE, *self._closed.texts.values()} <= gains.keys():
            of_format = max(self._closed.wrong_bits(gains), fmean(gains[NONSENSE]))
        return ReferenceBits(nothing, bits[available], lacking - entropy, of_format, self._judge_answered)

    def information(self, references: ReferenceBits, summary: list[Bits]) -> Information:
        """Compare the bits of a summary with those of the reference answers.

        Args:
            summary: the results of :meth:`bits` after the summary.
        """
        tokenizer = self._judge.chat.tokenizer
        words: list[tuple[WordBits, ...]] = [()] * self._answer_count
        of_summary = []
        of_answers = []
        of_phrase = []
        for index, answer in enumerate(self.answers):
            # relative to zero: what the judge knew before is no merit of a text
            gained = summary[index] - references.zero[index]
            gainable = references.available[index] - references.zero[index]
            of_summary.append(float(gained.sum()))
            of_answers.append(float(gainable.sum()))
            word_of = words_of_tokens(tokenizer, _tokens(self._first[index]), answer.split())
            told_words = np.bincount(word_of, gained, len(answer.split()))
            available_words = np.bincount(word_of, gainable, len(answer.split()))
            normal = normal_words(answer)
            # only words of this answer that belong to the phrase all reference answers share
            head = common_prefix(normal, self._head)
            tail = common_prefix(normal[head:][::-1], self._tail[::-1])
            of_phrase += [*available_words[:head], *available_words[len(normal) - tail :]]
            words[self.places[index]] = tuple(
                WordBits(text, round(float(told_bits), 4), round(float(available_bits), 4))
                for text, told_bits, available_bits in zip(
                    answer.split(), told_words, available_words, strict=True
                )
            )
        result = compare(
            of_summary,
            of_answers,
            self.reader,
            tuple(words),
            room=references.room,
            of_format=references.format,
            judge_answered=references.judge_answered,
        )
        phrase_share = None
        if result.recovered is not None:
            # other words may lose bits, so the phrase can hold more than all of them together
            part = math.fsum(of_phrase) / math.fsum(of_answers)
            phrase_share = min(part, 1.0) if part >= SHARED_PHRASE else None
        return replace(
            result,
            question_id=self._question.id,
            shared_phrase=phrase_share,
            **self._judge.origin,
        )


def compare(
    gains: Sequence[float],
    available: Sequence[float],
    reader: Reader,
    words: tuple[tuple[WordBits, ...], ...] = (),
    *,
    room: float = math.inf,
    of_format: float | None = None,
    judge_answered: bool = False,
) -> Information:
    """Combine the bits of all test answers into a record that does not name question, summary and judge yet.

    Args:
        room, of_format, judge_answered: as in :class:`ReferenceBits`.
    """
    # fsum: sums of hundreds of small gains would depend on their order
    bits = math.fsum(gains) / len(gains)
    bits_available = math.fsum(available) / len(available)
    undefined, cause = nothing_to_tell(available, room, of_format, judge_answered)
    recovered = None
    interval = None
    if undefined is None:
        recovered = bits / bits_available
        residuals = [gain - recovered * gainable for gain, gainable in zip(gains, available, strict=True)]
        interval = share_interval(recovered, residuals, bits_available)
        # a share of next to nothing is noise, however large it looks
        if not LOWEST_SHARE <= recovered <= HIGHEST_SHARE:
            recovered, interval, undefined, cause = None, None, "unclear", "out_of_range"
    return Information(
        question_id="",
        summary="",
        reader=reader,
        zero=ZEROS[reader],
        anchor="distinct",
        bits=bits,
        bits_available=bits_available,
        recovered=recovered,
        interval=interval,
        undefined=undefined,
        cause=cause,
        answers=words,
    )


def nothing_to_tell(
    available: Sequence[float], room: float, of_format: float | None, judge_answered: bool
) -> tuple[NothingToTell | None, UnclearCause | None]:
    """Explain why shares are undefined for these bits; None if they are defined.

    What the answers tell is clear if the one-sided 95 % bound of its mean is above 0, and if it is more than
    slight: answers that are all equal have no error at all.

    Args:
        available: bits of each test answer told by the reference answers.
        room, of_format, judge_answered: as in :class:`ReferenceBits`.
    """
    mean = math.fsum(available) / len(available)
    half = half_width(available, 0.95)
    # where a yes or no is at stake, half a bit is a lot
    slight = min(SLIGHT, max(0.0, SLIGHT_SHARE * room))
    if mean > slight and mean > half:
        is_format = of_format is not None and of_format >= FORMAT_SHARE * mean
        return ("format" if is_format else None), None
    if mean <= slight and judge_answered:
        return "known", None
    if mean + half < -slight:
        return "worse", None
    # that little is told must be clear, too
    if abs(mean) <= slight and half <= max(SLIGHT, room / 4):
        return "known", None
    deviation = float(np.std(available, ddof=1)) if len(available) > 1 else 0.0
    of_enough = student_quantile(0.95, ENOUGH - 1) * deviation / math.sqrt(ENOUGH)
    return "unclear", ("few_answers" if mean > max(slight, of_enough) else "different_answers")


def content_tokens(tokenizer: Any, tokens: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Mask an answer's tokens without the punctuation around it; all tokens if there is only punctuation."""
    content = [
        index
        for index, token in enumerate(tokens)
        if not PACKAGING.issuperset(tokenizer.decode([token]).strip())
    ]
    counts = np.zeros(len(tokens), dtype=bool)
    counts[content[0] if content else 0 : content[-1] + 1 if content else None] = True
    return counts


def words_of_tokens(tokenizer: Any, tokens: Sequence[int], words: Sequence[str]) -> list[int]:
    """Assign each token of an answer to the word that contains its first letter.

    Positions are counted in letters of the decoded answer, without spaces: some tokenizers normalise letters,
    and many add, drop and merge spaces.
    """
    decoded = tokenizer.decode(tokens).split()
    letters = "".join(decoded)
    ends = np.cumsum(list(map(len, decoded if len(decoded) == len(words) else words)))
    indices = []
    before = 0
    start = 0
    for index in range(len(tokens)):
        text = "".join(tokenizer.decode(tokens[start:index]).split())
        complete = common_prefix(text, letters[before:])  # part of a character is decoded as U+FFFD
        so_far = before + complete
        indices.append(min(int(np.searchsorted(ends, so_far, side="right")), len(words) - 1))
        whole = complete == len(text) and not text.endswith("\ufffd")
        if whole and so_far in ends:  # begin again at each word: texts to decode stay short
            before, start = so_far, index
    return indices


def _tokens(prompt: Prompt) -> tuple[int, ...]:
    return prompt.ids[prompt.first :]
