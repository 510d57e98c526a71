"""Which answers to a question mean the same, pair by pair. Such a relation need not be transitive."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import combinations, islice
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from selfreflect.errors import ConfigError
from selfreflect.records import dump_line
from selfreflect.sameness import are_apart, same_answer
from selfreflect.store.journal import Journal
from selfreflect.store.replies import ModelReplies, RepliesInMemory
from selfreflect.uncertainty.asking.asker import Asker
from selfreflect.uncertainty.asking.verdicts import judge_pairs
from selfreflect.uncertainty.question import AnsweredQuestion, NoValue
from selfreflect.uncertainty.similarity import Similarity, prepare

if TYPE_CHECKING:
    from selfreflect.models.nli import EntailmentModel

STORED_AT_ONCE = 256
"""Pairs whose verdicts are written together, so that an interruption loses at most these."""
_ENTAILED, _OTHER = "entailment", "other"

Group = tuple[AnsweredQuestion, Sequence[str]]
"""A question, and answers to it that are spelled differently."""


class Relation(Protocol):
    """Says which answers match."""

    undecided: int
    """Pairs without a verdict so far. They count as different."""

    def prepare(self, groups: Sequence[Group]) -> None:
        """See all answers at once, which is faster where a model is asked."""

    def __call__(self, group: Group) -> NDArray[np.bool_]:
        """Compare n answers: a symmetric matrix, shape (n, n), true on its diagonal."""

    def forget(self, most: int) -> None:
        """Forget all but the latest verdicts on pairs, in a program that runs for weeks."""


class Close:
    """Answers match whose similarity reaches a threshold.

    Args:
        guarded: whether answers that contradict each other or name different things never match. The
            question is not embedded: with it in front, more wrong pairs are close
            (``benchmarks/same_answers.py``).
    """

    undecided = 0

    def __init__(self, similarity: Similarity, threshold: float, *, guarded: bool = False) -> None:
        self._similarity = similarity
        self._threshold = threshold
        self._guarded = guarded

    def prepare(self, groups: Sequence[Group]) -> None:
        prepare(self._similarity, (text for group in groups for text in group[1]))

    def __call__(self, group: Group) -> NDArray[np.bool_]:
        question, texts = group
        related: NDArray[np.bool_] = self._similarity(texts) >= self._threshold
        if self._guarded:
            for (row, one), (column, other) in combinations(enumerate(texts), 2):
                if related[row, column] and are_apart(question.text, one, other):
                    related[row, column] = related[column, row] = False
        return related

    def forget(self, most: int) -> None:
        """Keep nothing."""


class Verdicts:
    """Answers match if a model says so. Each pair is decided once, in the order of the answers."""

    def __init__(self) -> None:
        self.undecided = 0
        self._same: dict[tuple[str, str, str], bool] = {}

    def prepare(self, groups: Sequence[Group]) -> None:
        """Decide all pairs that are new, as one batch."""
        new = {}
        for question, texts in groups:
            digest = _digest_of(question)
            for one, other in combinations(texts, 2):
                key = (digest, one, other)
                if key not in self._same:
                    new[key] = (question, one, other)
        if not new:
            return
        for key, verdict in zip(new, self.decide(list(new.values())), strict=True):
            self.undecided += verdict is None
            self._same[key] = bool(verdict)

    def __call__(self, group: Group) -> NDArray[np.bool_]:
        self.prepare([group])
        question, texts = group
        digest = _digest_of(question)
        related = np.eye(len(texts), dtype=bool)
        for (row, one), (column, other) in combinations(enumerate(texts), 2):
            related[row, column] = related[column, row] = self._same[digest, one, other]
        return related

    def forget(self, most: int) -> None:
        """Forget all but the latest verdicts; a forgotten pair is decided anew."""
        _keep_latest(self._same, most)

    def decide(self, pairs: Sequence[tuple[AnsweredQuestion, str, str]]) -> list[bool | None]:
        """Say of pairs of answers whether they mean the same; None where the model does not say.

        Raises:
            ConfigError, BackendError: the model cannot be loaded, or has stopped working.
        """
        raise NotImplementedError


class SameMeaning(Verdicts):
    """Ask a generator whether two answers mean the same, unless they contradict each other."""

    def __init__(self, asker: Asker) -> None:
        super().__init__()
        self._asker = asker

    def decide(self, pairs: Sequence[tuple[AnsweredQuestion, str, str]]) -> list[bool | None]:
        open_pairs = [pair for pair in pairs if same_answer(pair[0].text, pair[1], pair[2]) is None]
        verdicts = dict(zip(map(_texts, open_pairs), judge_pairs(self._asker, open_pairs), strict=True))
        results: list[bool | None] = []
        for pair in pairs:
            verdict = verdicts.get(_texts(pair), False)
            results.append(None if isinstance(verdict, NoValue) else verdict)
        return results


class Entailment(Verdicts):
    """Answers match if each entails the other, with the question before both (Farquhar et al. 2024, Nature
    630, 625-630).

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

    def forget(self, most: int) -> None:
        """Forget all but the latest verdicts that no file keeps, too."""
        super().forget(most)
        if isinstance(self._store, RepliesInMemory):
            _keep_latest(self._store.records, most)

    def decide(self, pairs: Sequence[tuple[AnsweredQuestion, str, str]]) -> list[bool | None]:
        both = []
        for question, one, other in pairs:
            first, second = f"{question.text} {one}".strip(), f"{question.text} {other}".strip()
            both += [(first, second), (second, first)]
        entailed = self._entailed(both)
        verdicts: list[bool | None] = []
        for there, back in zip(entailed[::2], entailed[1::2], strict=True):
            verdicts.append(None if there is None or back is None else there and back)
        return verdicts

    def _entailed(self, pairs: Sequence[tuple[str, str]]) -> list[bool | None]:
        """Whether the first text of each pair entails the second; None for a pair that is too long."""
        keys = list(map(self._digest, pairs))
        stored = self._store.records
        new = {key: pair for key, pair in zip(keys, pairs, strict=True) if key not in stored}
        missing = list(new.items())
        for start in range(0, len(missing), STORED_AT_ONCE):
            chunk = missing[start : start + STORED_AT_ONCE]
            if self._model is None:
                from selfreflect.models.nli import EntailmentModel

                self._model = EntailmentModel(self._name)
            verdicts = self._model.entails([pair for _, pair in chunk])
            records = [self._record(key, verdict) for (key, _), verdict in zip(chunk, verdicts, strict=True)]
            self._store.append_all(records)
        return [None if stored[key].failure else stored[key].texts == (_ENTAILED,) for key in keys]

    def _digest(self, pair: tuple[str, str]) -> str:
        return hashlib.sha256(dump_line([f"nli:{self._name}", *pair]).encode()).hexdigest()[:32]

    def _record(self, key: str, verdict: bool | None) -> ModelReplies:
        facts: dict[str, Any] = {"step": "nli", "request": key, "model": f"nli:{self._name}"}
        if verdict is None:
            message = "the pair is longer than the model reads"
            return ModelReplies(**facts, failure="too_long", message=message)
        return ModelReplies(**facts, texts=(_ENTAILED if verdict else _OTHER,), finishes=("stop",))


def _texts(pair: tuple[AnsweredQuestion, str, str]) -> tuple[str, str, str]:
    return _digest_of(pair[0]), pair[1], pair[2]


def _digest_of(question: AnsweredQuestion) -> str:
    """Stands for the texts of a question, which may be long."""
    return hashlib.sha256(dump_line([question.text, question.context]).encode()).hexdigest()


def _keep_latest(verdicts: dict[Any, Any], most: int) -> None:
    for key in list(islice(verdicts, max(0, len(verdicts) - most))):
        del verdicts[key]
