"""Usable information: how many bits a summary tells a judge about answers that it has not seen.

For a held-out answer a, a question q, the conditioning answers A and a summary s, the judge J at temperature
1 gives

    bits(s)   = log2 p_J(a | q, s) - log2 p_J(a | q, "")
    bits(A)   = log2 p_J(a | q, A) - log2 p_J(a | q, "")
    recovered = sum of bits(s) / sum of bits(A), over the held-out answers.

This is pointwise V-information (Xu et al. 2020, arXiv 2002.10689; Ethayarajh et al. 2022, arXiv 2110.08420)
with the judge as the family of predictors, and an empty summary as the null input, in the words in which
every summary is told; ``recovered`` is the ignorance skill score (Roulston and Smith 2002, Mon. Weather Rev.
130, 1653-1660).
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, cycle
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from selfreflect.metric.engine.logits import log_probabilities
from selfreflect.metric.engine.tree import PrefixTree, Prompt, build_tree
from selfreflect.metric.prompts import SYSTEM, CannotScoreError, encode, encode_each
from selfreflect.models.base import Message
from selfreflect.records import (
    AnswerSet,
    Control,
    Information,
    NothingToTell,
    Question,
    Reader,
    ReaderChoice,
    Score,
    WordBits,
)
from selfreflect.stats import student_quantile
from selfreflect.text import common_prefix, normalise_question

if TYPE_CHECKING:
    from selfreflect.metric.engine.engines import Engine
    from selfreflect.models.judge import Judge

Bits = npt.NDArray[np.float64]

GIVE_ONE = "Give one answer to this question."
TOLD = "What is known about the answer: "
BLIND_QUESTION = "What do you think?"
BLIND_GIVE_ONE = "Give one answer."

NONSENSE = "18:08:33 37 ;; qx 2044 [ok] 7f 19"
"""A control: what tells nothing about any question."""

SLIGHT = 0.5
"""Bits per answer, half of what a judge lacks that is torn between two. Where the answers tell less, so much
changes with the mere wording that shares would be wild numbers (benchmarks/RESULTS.md)."""

SUBSETS = 2
"""Subsets of the conditioning answers over which controls of pasted answers are means
(benchmarks/RESULTS.md)."""

CONTEXTS = 12
"""Contexts of one question in one prefix tree, whose states are in memory at the same time."""


def choose_reader(choice: ReaderChoice, judge: Judge, question: Question, answers: AnswerSet) -> Reader:
    """Choose who reads the summaries of a question.

    A judge that gave the answers itself knows them already, unless it had a context that it does not see when
    it judges; then only a blind reader can be told something.
    """
    if choice != "auto":
        return choice
    own_answers = (answers.model, answers.revision) == (judge.name, judge.lm.revision)
    return "blind" if own_answers and not question.context else "informed"


def answering(question: str, context: str, reader: Reader) -> tuple[Message, ...]:
    """Write the turns after which the judge gives an answer.

    The informed reader is told in the user's turn: there the repeated question and nonsense tell next to
    nothing (benchmarks/RESULTS.md). The blind one, who does not see the question, has said it.

    Args:
        context: a summary; or answers, one per line; or nothing, the zero of the measure.
    """
    system = Message(role="system", content=SYSTEM)
    if reader == "blind":
        question_turn = Message(role="user", content=BLIND_QUESTION)
        request = Message(role="user", content=BLIND_GIVE_ONE)
        return (system, question_turn, Message(role="assistant", content=context), request)
    lines = (normalise_question(question), TOLD + context, GIVE_ONE)
    return (system, Message(role="user", content="\n".join(lines)))


def pasted(answers: Sequence[str]) -> str:
    """Join answers to a text that stands where a summary would."""
    return "\n".join(answers)


def pasted_subsets(answers: Sequence[str], count: int, subsets: int = SUBSETS) -> list[str]:
    """Paste ``count`` answers, from each of ``subsets`` evenly spread starts on; the first answer follows the
    last. One text if it is all answers.

    Every text of more answers begins with one of fewer. So chance in which answers come first hardly disturbs
    what more answers add; subsets that share nothing would be compared with twice that noise.
    """
    if count == len(answers):
        return [pasted(answers)]
    starts = dict.fromkeys(len(answers) * number // subsets for number in range(subsets))
    around = [*answers, *answers]
    return [pasted(around[start : start + count]) for start in starts]


def control_texts(question: str, conditioning: Sequence[str]) -> list[tuple[Control, str]]:
    """List the texts that summaries are compared with: nothing, the question, nonsense, and 1, 2, 5 and all
    conditioning answers, pasted.

    The texts of one control are several subsets of the answers; it is measured by the mean over them, since
    what one answer tells depends much on which one it is.
    """
    pairs: list[tuple[Literal["empty", "question", "nonsense"], str]] = [
        ("empty", ""),
        ("question", question),
        ("nonsense", NONSENSE),
    ]
    controls = [(Control(name=name, words=len(text.split())), text) for name, text in pairs]
    for count in sorted({1, 2, 5, len(conditioning)}):
        if 1 <= count <= len(conditioning):
            texts = pasted_subsets(conditioning, count)
            words = round(fmean(len(text.split()) for text in texts))
            control = Control(name="pasted", answers=count, subsets=len(texts), words=words)
            controls += [(control, text) for text in texts]
    return controls


def measure(
    judge: Judge,
    engine: Engine,
    question: Question,
    answers: AnswerSet,
    summaries: Sequence[str],
    reader: Reader = "informed",
) -> dict[str, Information]:
    """Measure what each text tells ``judge`` about the masked-out answers.

    Returns:
        By text, without the summary's name. A text that does not fit the judge's window is ``unmeasured``.

    Raises:
        CannotScoreError: there is no masked-out or no conditioning answer, or they do not fit the window.
    """
    prompts = AnswerPrompts(judge, question, answers, reader)
    contexts, errors = prompts.contexts(summaries)
    logs: list[list[Bits]] = []
    for tree in prompts.trees(contexts):
        [states] = engine.states([tree])
        logs += prompts.bits(engine, tree, states)
    bits = dict(zip(contexts, logs, strict=True))
    nothing, available = bits[""], bits[prompts.pasted]
    not_finite = CannotScoreError(
        "backend", f"the predictions of judge {judge.name!r} are not finite numbers"
    )
    results = {}
    for text in dict.fromkeys(summaries):
        told = bits.get(text) if text.strip() else nothing  # a blank summary is an empty one
        if told and all(np.isfinite(values).all() for values in (*nothing, *available, *told)):
            results[text] = prompts.information(nothing, told, available)
        else:
            results[text] = unmeasured(judge, question, reader, errors.get(text, not_finite))
    return results


def unmeasured(judge: Judge, question: Question, reader: Reader, error: CannotScoreError) -> Information:
    """What is recorded of a text whose information cannot be measured."""
    return Information(
        question_id=question.id,
        summary="",
        reader=reader,
        zero="empty",
        bits=None,
        bits_available=None,
        recovered=None,
        undefined="unmeasured",
        why=str(error),
        kind=error.kind,
        judge=judge.name,
        judge_revision=judge.lm.revision,
        judge_dtype=judge.lm.dtype,
    )


def nodes(
    judge: Judge, question: Question, answers: AnswerSet, summaries: Sequence[str], reader: Reader
) -> int:
    """Count the judge tokens, as nodes of prefix trees, that :func:`measure` takes.

    Raises:
        CannotScoreError: as in :func:`measure`.
    """
    prompts = AnswerPrompts(judge, question, answers, reader)
    contexts, _ = prompts.contexts(summaries)
    return sum(tree.computed_tokens for tree in prompts.trees(contexts))


def within_budget(
    judge: Judge,
    question: Question,
    answers: AnswerSet,
    summaries: Sequence[str],
    reader: Reader,
    tokens: int,
    most: int | None = None,
) -> tuple[AnswerSet, int]:
    """Blank random held-out answers until :func:`measure` takes at most ``tokens`` nodes.

    The order in which answers are kept follows from the question's id alone.

    Args:
        most: keep no more answers than this.

    Returns:
        The answers, all of them blank if one is too many, and the nodes that measuring takes.
    """
    order = _with_words(answers)
    random.Random(question.id).shuffle(order)
    order = order[:most]

    @cache
    def cost(count: int) -> int:
        return nodes(judge, question, _keep(answers, order[:count]), summaries, reader) if count else 0

    count = bisect_right(range(1, len(order) + 1), tokens, key=cost)
    return _keep(answers, order[:count]), cost(count)


def _with_words(answers: AnswerSet) -> list[int]:
    """The places of the masked-out answers that are not blank."""
    return [index for index, answer in enumerate(answers.masked_out) if answer.strip()]


def _keep(answers: AnswerSet, indices: Sequence[int]) -> AnswerSet:
    """Blank all masked-out answers but these."""
    subset = set(indices)
    texts = [text if index in subset else "" for index, text in enumerate(answers.masked_out)]
    return replace(answers, masked_out=tuple(texts))


def with_information(score: Score, information: Information) -> Score:
    """Add what a summary tells to its score, and to each of the score's words."""
    words = []
    for word in score.words:
        bits = information.answers[word.answer] if information.answers else ()
        if bits:
            own = bits[word.word]
            word = replace(word, bits=own.told, bits_available=own.available)
        words.append(word)
    return replace(score, words=tuple(words), information=information)


class AnswerPrompts:
    """The held-out answers of one question as token ids, after whatever the judge is told.

    Args:
        answers: with the conditioning answers that ``recovered`` is relative to.

    Raises:
        CannotScoreError: there is no held-out or no conditioning answer, or one does not fit the judge's
            window.
    """

    def __init__(self, judge: Judge, question: Question, answers: AnswerSet, reader: Reader) -> None:
        self.places = _with_words(answers)
        """Where the held-out answers that are not blank stand among all."""
        self.answers = [answers.masked_out[index].strip() for index in self.places]
        if not self.answers:
            raise CannotScoreError("no_answers", "there are no masked-out answers with words in them")
        if not answers.conditioning:
            raise CannotScoreError("no_answers", "there are no conditioning answers")
        self.reader: Reader = reader
        self._judge = judge
        self._question = question
        self._answer_count = len(answers.masked_out)
        self.pasted = pasted(answers.conditioning)
        self._empty = self._encode("", "the question")
        self._ends = {"": self._empty, self.pasted: self._encode(self.pasted, "the conditioning answers")}

    def contexts(
        self, summaries: Sequence[str]
    ) -> tuple[dict[str, list[Prompt]], dict[str, CannotScoreError]]:
        """Encode the answers after nothing, after the conditioning answers, and after each summary that is
        not blank.

        Returns:
            By text, and why a summary is left out: it does not fit the judge's window.
        """
        others = [text for text in summaries if text.strip() and text not in self._ends]
        encoded, errors = encode_each(others, lambda text: self._encode(text, "the summary"))
        return self._ends | encoded, errors

    def trees(self, contexts: Mapping[str, list[Prompt]]) -> Iterator[PrefixTree]:
        """Build trees of contexts, in their order.

        They share the instructions and the question. A server gets a tree for each, whose prefix is sent
        first, for its cache.
        """
        prompts = list(contexts.values())
        size = CONTEXTS if self._judge.last_states is None else 1
        for start in range(0, len(prompts), size):
            yield build_tree(list(chain.from_iterable(prompts[start : start + size])))

    def _encode(self, context: str, what: str) -> list[Prompt]:
        conversation = answering(self._question.text, context, self.reader)
        prompts = encode(
            self._judge, [conversation] * len(self.answers), self.answers, f"{what} with an answer"
        )
        if context and list(map(_tokens, prompts)) != list(map(_tokens, self._empty)):
            raise CannotScoreError(
                "backend",
                f"judge {self._judge.name!r} splits the same answer differently in two contexts, so its "
                "predictions cannot be compared",
            )
        return prompts

    def bits(self, engine: Engine, tree: PrefixTree, states: Any) -> list[list[Bits]]:
        """Logarithms to base 2 of the probability of each token, for each context of a tree and each answer.

        Args:
            states: of ``tree``, shape (W, width).
        """
        pairs: list[tuple[int, int]] = []
        for rows, prompt in zip(tree.rows, cycle(self._empty), strict=False):
            pairs += zip(rows, _tokens(prompt), strict=True)
        logs = log_probabilities(engine.head, states, np.array(pairs)) / math.log(2)
        ends = np.cumsum(list(map(len, tree.rows)))
        answers = np.split(logs, ends[:-1])
        count = len(self.answers)
        return [answers[start : start + count] for start in range(0, len(answers), count)]

    def information(self, nothing: list[Bits], summary: list[Bits], answers: list[Bits]) -> Information:
        """Compare what a summary and the conditioning answers tell, from the results of :meth:`bits` after
        nothing, the summary, and the answers."""
        tokenizer = self._judge.chat.tokenizer
        words: list[tuple[WordBits, ...]] = [()] * self._answer_count
        of_summary = []
        of_answers = []
        for index, answer in enumerate(self.answers):
            gained = summary[index] - nothing[index]
            gainable = answers[index] - nothing[index]
            of_summary.append(float(gained.sum()))
            of_answers.append(float(gainable.sum()))
            word_of = words_of_tokens(tokenizer, _tokens(self._empty[index]), answer.split())
            told_words = np.bincount(word_of, gained, len(answer.split()))
            available_words = np.bincount(word_of, gainable, len(answer.split()))
            words[self.places[index]] = tuple(
                WordBits(text, round(float(own), 4), round(float(most), 4))
                for text, own, most in zip(answer.split(), told_words, available_words, strict=True)
            )
        result = compare(of_summary, of_answers, self.reader, tuple(words))
        return replace(
            result,
            question_id=self._question.id,
            judge=self._judge.name,
            judge_revision=self._judge.lm.revision,
            judge_dtype=self._judge.lm.dtype,
        )


def compare(
    gains: Sequence[float],
    available: Sequence[float],
    reader: Reader,
    words: tuple[tuple[WordBits, ...], ...] = (),
) -> Information:
    """Put the bits of each held-out answer together, without naming question, summary and judge.

    The interval is that of a ratio of means by linearisation, with Student's t (Cochran 1977, Sampling
    Techniques, 6.3). What the answers tell is clear if the one-sided 95 % bound of its mean is above 0, and
    if it is more than slight: answers that are all equal have no error at all.
    """
    bits = math.fsum(gains) / len(gains)
    bits_available = math.fsum(available) / len(available)
    undefined: NothingToTell | None = None
    recovered = None
    interval = None
    if bits_available <= SLIGHT:
        undefined = "known"
    elif bits_available <= _half_width(available, 0.95):
        undefined = "unclear"
    else:
        recovered = bits / bits_available
        residuals = [own - recovered * most for own, most in zip(gains, available, strict=True)]
        half = _half_width(residuals, 0.975) / bits_available
        if math.isfinite(half):
            interval = (recovered - half, recovered + half)
    return Information(
        question_id="",
        summary="",
        reader=reader,
        zero="empty",
        bits=bits,
        bits_available=bits_available,
        recovered=recovered,
        interval=interval,
        undefined=undefined,
        answers=words,
    )


def _half_width(values: Sequence[float], probability: float) -> float:
    """Half the width of Student's interval of the mean; infinite for a single value."""
    if len(values) < 2:
        return math.inf
    stderr = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return student_quantile(probability, len(values) - 1) * stderr


def words_of_tokens(tokenizer: Any, tokens: Sequence[int], words: Sequence[str]) -> list[int]:
    """Assign each token of an answer to the word that its first letter is in.

    Positions are counted in letters of the decoded answer, without spaces: some tokenizers normalise letters,
    and many add, drop and merge spaces.
    """
    decoded = tokenizer.decode(tokens).split()
    letters = "".join(decoded)
    ends = np.cumsum(list(map(len, decoded if len(decoded) == len(words) else words)))
    places = []
    before = 0
    start = 0
    for index in range(len(tokens)):
        text = "".join(tokenizer.decode(tokens[start:index]).split())
        complete = common_prefix(text, letters[before:])  # part of a character is decoded as U+FFFD
        so_far = before + complete
        places.append(min(int(np.searchsorted(ends, so_far, side="right")), len(words) - 1))
        whole = complete == len(text) and not text.endswith("\ufffd")
        if whole and so_far in ends:  # begin again at each word: texts to decode stay short
            before, start = so_far, index
    return places


def _tokens(prompt: Prompt) -> tuple[int, ...]:
    return prompt.ids[prompt.first :]
