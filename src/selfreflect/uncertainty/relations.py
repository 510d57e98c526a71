"""Relations between answers to a question: same meaning by pairs, and similarity.

No relation need be transitive.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations, islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from selfreflect.errors import ConfigError
from selfreflect.grouping import unified
from selfreflect.quantities import last_quantity
from selfreflect.records import dump_line
from selfreflect.sameness import are_apart, same_answer
from selfreflect.stats import Floats
from selfreflect.store.journal import Journal, ModelReplies, RepliesInMemory
from selfreflect.text import UNSPACED
from selfreflect.uncertainty.asking.asker import CONTROL, Asker, judge_pairs
from selfreflect.uncertainty.question import AnsweredQuestion, NoValue

if TYPE_CHECKING:
    from selfreflect.models.embed import EntailmentModel

Similarity = Callable[[Sequence[str]], Floats]
SIMILARITIES = ("jaccard", "rouge", "embedding")

_WORD = re.compile(rf"[{UNSPACED}]|[^\W_{UNSPACED}]+")


def words(text: str) -> list[str]:
    """Split a text into lower-case runs of letters and digits, or single unspaced characters."""
    return _WORD.findall(unified(text).lower())


def jaccard(texts: Sequence[str]) -> Floats:
    """Compute the Jaccard similarity of texts: shared words relative to all words of both.

    Texts without words have nothing in common.
    """
    vocabulary: dict[str, int] = {}
    cells = []
    for row, text in enumerate(texts):
        for word in set(words(text)):
            cells.append((row, vocabulary.setdefault(word, len(vocabulary))))
    present = np.zeros((len(texts), max(1, len(vocabulary))))
    if cells:
        present[tuple(zip(*cells, strict=True))] = 1
    overlap = present @ present.T
    sizes = present.sum(1)
    # at least 1, because two texts without words would divide by 0
    matrix: Floats = overlap / np.maximum(sizes[:, None] + sizes - overlap, 1)
    # a text equals itself, also one without words
    np.fill_diagonal(matrix, 1)
    return matrix


def rouge(texts: Sequence[str]) -> Floats:
    """Compute ROUGE-L F1: longest common subsequence relative to the mean length (Lin 2004)."""
    split = list(map(words, texts))
    matrix = np.eye(len(texts))
    for row, row_words in enumerate(split):
        for column in range(row):
            matrix[row, column] = matrix[column, row] = rouge_l(row_words, split[column])
    return matrix


def rouge_l(first: Sequence[str], second: Sequence[str]) -> float:
    """Compute ROUGE-L F1 of two lists of words; 0 if one is empty."""
    total = len(first) + len(second)
    return 2 * _common_subsequence(first, second) / total if total else 0.0


def _common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """Compute the length of the longest common subsequence, with table rows as integers' bits (Hyyrö 2004,
    "Bit-parallel LCS-length computation revisited")."""
    masks: dict[str, int] = {}
    for index, word in enumerate(first):
        masks[word] = masks.get(word, 0) | 1 << index
    full = (1 << len(first)) - 1
    row = full
    # a bit is 0 where the common subsequence grows by a word of the first text
    for word in second:
        matches = row & masks.get(word, 0)
        row = (row + matches | row - matches) & full
    return len(first) - row.bit_count()


def numeric_closeness(texts: Sequence[str]) -> Floats:
    """Compare the last numbers of texts: 1 minus their difference relative to the larger.

    Texts without a number, or with numbers in other units, have nothing in common.
    """
    numbers = [quantity.in_base if quantity else (None, "") for quantity in map(last_quantity, texts)]
    matrix = np.eye(len(texts))
    for (row, (first, unit)), (column, (second, second_unit)) in combinations(enumerate(numbers), 2):
        if first is not None and second is not None and unit == second_unit:
            largest = max(abs(first), abs(second)) or 1.0
            matrix[row, column] = matrix[column, row] = max(0.0, 1 - abs(first - second) / largest)
    return matrix


class EmbeddingSimilarity:
    """Cosine similarity of sentence embeddings, at least 0. Each distinct text is embedded once.

    Raises:
        MissingExtraError: the ``embed`` extra is not installed.
    """

    def __init__(self) -> None:
        from selfreflect.models.embed import SentenceEmbedder

        self._embed = SentenceEmbedder("Comparing answers by embeddings")
        self._vectors: dict[str, Floats] = {}

    def prepare(self, texts: Iterable[str]) -> None:
        """Embed many texts at once, which is much faster than per question."""
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if new:
            self._vectors.update(zip(new, self._embed(new).astype(np.float64), strict=True))

    def __call__(self, texts: Sequence[str]) -> Floats:
        matrix = self.between(texts, texts)
        np.fill_diagonal(matrix, 1)
        return matrix

    def between(self, rows: Sequence[str], columns: Sequence[str]) -> Floats:
        """Compare each text of one list with each of the other: shape (rows, columns)."""
        # an embedder takes no empty list
        if not rows or not columns:
            return np.zeros((len(rows), len(columns)))
        self.prepare([*rows, *columns])
        first, second = (np.array([self._vectors[text] for text in texts]) for texts in (rows, columns))
        matrix: Floats = np.clip(first @ second.T, 0, 1)
        return matrix


def prepare(similarity: Similarity | None, texts: Iterable[str]) -> None:
    """Let a model-based similarity process all texts at once."""
    if isinstance(similarity, EmbeddingSimilarity):
        similarity.prepare(texts)


def make_similarity(name: str) -> Similarity:
    """Make a similarity by its name in ``SIMILARITIES``."""
    if name == "embedding":
        return EmbeddingSimilarity()
    return {"jaccard": jaccard, "rouge": rouge}[name]


STORED_AT_ONCE = 256
"""Number of pairs whose verdicts are stored together, which limits the loss on interruption."""
_ENTAILED, _OTHER = "entailment", "other"

Group = tuple[AnsweredQuestion, Sequence[str]]
"""Question with distinctly spelled answers."""
Pair = tuple[AnsweredQuestion, str, str]
Key = tuple[str, str, str]
"""Digest of a question, with two answers."""


class Close:
    """Equality of answers by a similarity threshold.

    Args:
        guarded: whether answers that contradict each other or name different things never match. The
            question is not embedded: with it in front, more wrong pairs are close
            (``benchmarks/same_answers.py``).
    """

    undecided = left_out = 0
    is_unfit = False

    def __init__(self, similarity: Similarity, threshold: float, *, guarded: bool = False) -> None:
        self._similarity = similarity
        self._threshold = threshold
        self._guarded = guarded

    def prepare(self, groups: Sequence[Group]) -> None:
        prepare(self._similarity, (text for group in groups for text in group[1]))

    def __call__(self, group: Group) -> NDArray[np.bool_]:
        question, texts = group
        related: NDArray[np.bool_] = self._similarity(texts) >= self._threshold
        # embeddings overlook names, numbers and negations
        if self._guarded:
            for (row, first), (column, second) in combinations(enumerate(texts), 2):
                if related[row, column] and are_apart(question.text, first, second):
                    related[row, column] = related[column, row] = False
        return related

    def forget(self, limit: int) -> None:
        """Do nothing, as there are no verdicts."""


class Verdicts:
    """Equality of answers as decided by a model. Each pair is decided once.

    An answer is compared with the first answer of one class after another until it matches, because later
    pairs cannot change its class.

    Args:
        per_answer: how many pairs of a question and its fields are compared at most, for each of its
            answers; None for no limit. Pairs beyond it count as different.
    """

    def __init__(self, per_answer: int | None = None) -> None:
        self.undecided = 0
        self._per_answer = per_answer
        self._same: dict[Key, bool] = {}
        self._left_out: set[Key] = set()
        self._asked: Counter[str] = Counter()
        """Number of pairs asked about per question, if there is a limit."""

    @property
    def left_out(self) -> int:
        """Number of pairs left out because of the limit."""
        return len(self._left_out)

    def prepare(self, groups: Sequence[Group]) -> None:
        """Decide the new pairs, in batches across questions."""
        waiting = [self._rounds(group) for group in groups]
        # every question yields its next pairs, so that a batch spans all questions
        while waiting:
            batches = [(rounds, next(rounds, None)) for rounds in waiting]
            new = {_key_of(pair): pair for _, batch in batches for pair in batch or ()}
            new = {key: pair for key, pair in new.items() if key not in self._same}
            if new:
                for key, verdict in zip(new, self.decide(list(new.values())), strict=True):
                    self.undecided += verdict is None
                    self._same[key] = bool(verdict)
            waiting = [rounds for rounds, batch in batches if batch is not None]

    def _rounds(self, group: Group) -> Iterator[list[Pair]]:
        """Yield lists of pairs to decide, each after the verdicts on earlier lists."""
        question, texts = group
        while len(texts) > 1:
            first, *rest = texts
            yield self._within([(question, first, text) for text in rest])
            # what matches the first answer is settled; the rest forms further classes
            texts = [text for text in rest if not self._same.get(_key_of((question, first, text)))]

    def _within(self, pairs: Sequence[Pair]) -> list[Pair]:
        """Select the first pairs that need a model, and record those beyond the limit."""
        new = {_key_of(pair): pair for pair in pairs if _key_of(pair) not in self._same}
        new = {key: pair for key, pair in new.items() if self.is_open(pair)}
        if self._per_answer is None or not new:
            return list(new.values())
        # fields of objects are questions QUESTION#POINTER of their own, and there may be hundreds
        question = pairs[0][0]
        # the id of a field is QUESTION#/POINTER
        root = question.id.partition("#/")[0].removesuffix("#")
        limit = max(0, self._per_answer * len(question.answers) - self._asked[root])
        self._asked[root] += min(limit, len(new))
        # a pair that was beyond the limit may be within it now
        self._left_out.difference_update(islice(new, limit))
        self._left_out.update(islice(new, limit, None))
        return list(islice(new.values(), limit))

    def __call__(self, group: Group) -> NDArray[np.bool_]:
        self.prepare([group])
        question, texts = group
        related = np.eye(len(texts), dtype=bool)
        for (row, first), (column, second) in combinations(enumerate(texts), 2):
            is_same = self._same.get(_key_of((question, first, second)), False)
            related[row, column] = related[column, row] = is_same
        return related

    def forget(self, limit: int) -> None:
        """Forget all but the latest verdicts."""
        _keep_latest(self._same, limit)
        if len(self._left_out) > limit:
            self._left_out.clear()

    @property
    def is_unfit(self) -> bool:
        """Whether the model cannot compare answers and is not used."""
        return False

    def is_open(self, pair: Pair) -> bool:
        """Check whether a pair needs a model; other pairs count as different."""
        return True

    def decide(self, pairs: Sequence[Pair]) -> list[bool | None]:
        """Decide whether pairs of answers mean the same; None if undecided.

        Raises:
            ConfigError, BackendError: the model cannot be loaded, or has stopped working.
        """
        raise NotImplementedError


_CONTROL = AnsweredQuestion(id="", text="Who wrote the letter?")
CONTROLS: Sequence[tuple[Pair, bool]] = (
    ((_CONTROL, "My sister", "My sister did"), True),
    ((_CONTROL, "My sister", "The postman"), False),
)
"""Pairs with known meaning, to detect small models that give the same verdict on every pair."""


class SameMeaning(Verdicts):
    """Equality of answers as decided by a generator, except for contradictory answers.

    With a limit per answer, which is for models that nobody chose as a judge, the model must get
    ``CONTROLS`` right first; else it is not asked.
    """

    def __init__(self, asker: Asker, per_answer: int | None = None) -> None:
        super().__init__(per_answer)
        self._asker = asker
        # a judge that a user named is trusted; any other must pass the controls
        self._is_trusted: bool | None = True if per_answer is None else None

    @property
    def is_unfit(self) -> bool:
        """Whether the model failed the controls and is not used."""
        return self._is_trusted is False

    def is_open(self, pair: Pair) -> bool:
        question, first, second = pair
        if self.is_unfit or same_answer(question.text, first, second) is not None:
            return False
        if self._is_trusted is None:
            # asked once, at the first pair that needs the model
            verdicts = judge_pairs(self._asker, [pair for pair, _ in CONTROLS], CONTROL)
            # a model that says yes, or no, to everything fails one of them
            self._is_trusted = verdicts == [is_same for _, is_same in CONTROLS]
        return self._is_trusted

    def decide(self, pairs: Sequence[Pair]) -> list[bool | None]:
        verdicts = judge_pairs(self._asker, pairs)
        return [None if isinstance(verdict, NoValue) else verdict for verdict in verdicts]


class Entailment(Verdicts):
    """Equality of answers that entail each other after the question (Farquhar et al. 2024, Nature 630,
    625-630).

    The model is loaded for the first pair without a stored verdict.

    Args:
        store: where verdicts are kept; None keeps them for the life of this object.

    Raises:
        ConfigError: no model is named.
    """

    def __init__(self, model: str, store: Journal[ModelReplies] | None = None) -> None:
        super().__init__()
        if not model:
            raise ConfigError("the class rule nli needs a model, as in nli:DIRECTORY or nli:HUB-NAME")
        self._name = model
        self._model: EntailmentModel | None = None
        self._store = RepliesInMemory() if store is None else store

    def forget(self, limit: int) -> None:
        """Forget old verdicts, including unsaved ones."""
        super().forget(limit)
        if isinstance(self._store, RepliesInMemory):
            _keep_latest(self._store.records, limit)

    def decide(self, pairs: Sequence[Pair]) -> list[bool | None]:
        directions = []
        for question, *answers in pairs:
            # the question stands before both, so that "Ankara" is read as an answer to it
            first, second = (f"{question.text} {answer}".strip() for answer in answers)
            directions += [(first, second), (second, first)]
        entailments = self._entailed(directions)
        verdicts: list[bool | None] = []
        for there, back in zip(entailments[::2], entailments[1::2], strict=True):
            verdicts.append(None if there is None or back is None else there and back)
        return verdicts

    def _entailed(self, pairs: Sequence[tuple[str, str]]) -> list[bool | None]:
        """Check whether the first text of each pair entails the second; None if too long."""
        keys = list(map(self._digest, pairs))
        replies = self._store.records
        new = {key: pair for key, pair in zip(keys, pairs, strict=True) if key not in replies}
        missing = list(new.items())
        for start in range(0, len(missing), STORED_AT_ONCE):
            chunk = missing[start : start + STORED_AT_ONCE]
            # loading takes seconds and may not be needed: all verdicts may be stored
            if self._model is None:
                from selfreflect.models.embed import EntailmentModel

                self._model = EntailmentModel(self._name)
            verdicts = self._model.entails([pair for _, pair in chunk])
            records = [self._record(key, verdict) for (key, _), verdict in zip(chunk, verdicts, strict=True)]
            self._store.append_all(records)
        return [None if replies[key].failure else replies[key].texts == (_ENTAILED,) for key in keys]

    def _digest(self, pair: tuple[str, str]) -> str:
        return hashlib.sha256(dump_line([f"nli:{self._name}", *pair]).encode()).hexdigest()[:32]

    def _record(self, key: str, verdict: bool | None) -> ModelReplies:
        facts: dict[str, Any] = {"step": "nli", "request": key, "model": f"nli:{self._name}"}
        if verdict is None:
            message = "the pair is longer than the model reads"
            return ModelReplies(**facts, failure="too_long", message=message)
        return ModelReplies(**facts, texts=(_ENTAILED if verdict else _OTHER,), finishes=("stop",))


Relation = Close | Verdicts
"""Relation that decides which answers match."""


@lru_cache(maxsize=2**10)
def _digest_of(question: str, context: str) -> str:
    """Hash a question and its context."""
    return hashlib.sha256(dump_line([question, context]).encode()).hexdigest()


def _key_of(pair: Pair) -> Key:
    question, first, second = pair
    return _digest_of(question.text, question.context), first, second


def _keep_latest(verdicts: dict[Any, Any], limit: int) -> None:
    for key in list(islice(verdicts, max(0, len(verdicts) - limit))):
        del verdicts[key]
