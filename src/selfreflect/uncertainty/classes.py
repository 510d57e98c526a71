"""Classes of answers with the same meaning.

``exact`` and ``numeric`` compare a key of each answer, so they are transitive; ``same`` joins answers by
:mod:`selfreflect.sameness`, without a model. The others compare pairs: A may match B and B match C where A
does not match C. Then an answer joins the first class whose first answer it matches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from selfreflect.errors import ConfigError, unknown_name
from selfreflect.grouping import normal_form
from selfreflect.quantities import last_quantity
from selfreflect.sameness import same_classes
from selfreflect.sources.cells import is_percent, number_in
from selfreflect.store.journal import Journal, ModelReplies
from selfreflect.text import counted
from selfreflect.uncertainty.asking.asker import Asker, required
from selfreflect.uncertainty.question import AnsweredQuestion, with_answers
from selfreflect.uncertainty.relations import (
    Close,
    Entailment,
    Relation,
    SameMeaning,
    make_similarity,
    numeric_closeness,
)

Labels = NDArray[np.intp]
"""Class numbers of answers, in order of first occurrence; shape (M,)."""

THRESHOLDS = {"jaccard": 0.5, "rouge": 0.7, "embedding": 0.7}
"""Minimum similarity of answers that match."""
RULES = ("same", "exact", "numeric", *THRESHOLDS, "judge", "nli")
DEFAULT = "same"
WITHOUT_MODEL = ("same", "exact", "numeric", "jaccard", "rouge")
"""Rules that a schema may name for a field, without loading a model."""
_ROUNDING = 1e-9
PAIRS_PER_ANSWER = 2
"""Default maximum number of pairs per answer that a model compares."""
# Rules that join what is the same without a model, and never what contradicts.
_GUARDED = ("same", "embedding", "judge")

normalised = lru_cache(maxsize=2**18)(normal_form)


class ClassRule:
    """Rule that decides whether two answers are the same.

    Args:
        name: one of ``RULES``, with a threshold for those that compare similarities, as in ``jaccard:0.6``
            (from there on), and with a model for ``nli:MODEL``.
            ``numeric:1%`` joins numbers that differ by at most this part of the larger one.
        asker: the model that ``judge`` asks.
        bounded: whether ``judge`` asks about ``PAIRS_PER_ANSWER`` pairs at most for each answer, and only a
            model that gets two control pairs right.
        store: where verdicts of ``nli`` are kept.

    Raises:
        ConfigError: there is no such rule, the threshold is not in (0, 1], or ``judge`` or ``nli`` has no
            model.
        MissingExtraError: ``embedding`` without the ``embed`` extra.
    """

    def __init__(
        self,
        name: str = DEFAULT,
        asker: Asker | None = None,
        store: Journal[ModelReplies] | None = None,
        *,
        bounded: bool = False,
    ) -> None:
        self._kind, _, argument = name.partition(":")
        if self._kind not in RULES:
            raise unknown_name("class rule", self._kind, RULES)
        self._of_fields: dict[str, ClassRule] = {}
        self._name = self._kind
        self._relation: Relation | None = None
        if self._kind in THRESHOLDS:
            threshold = threshold_of(name, THRESHOLDS[self._kind])
            self._relation = Close(make_similarity(self._kind), threshold, guarded=self._kind in _GUARDED)
            self._name = f"{self._kind}:{threshold:g}, first"
        elif self._kind == "nli":
            self._relation = Entailment(argument, store)
            self._name = f"{name}, first"
        elif self._kind == "numeric" and argument:
            tolerance = threshold_of(f"numeric:{_share(argument)}", 1.0)
            # the rounding lets in numbers that differ by exactly the tolerance
            self._relation = Close(numeric_closeness, 1 - tolerance - _ROUNDING)
            self._name = f"{name}, first"
        elif argument:
            raise ConfigError(
                f"the class rule {self._kind!r} takes no threshold. Leave out what follows the colon"
            )
        elif self._kind == "judge":
            asker = required(asker, "the class rule 'judge'")
            self._relation = SameMeaning(asker, PAIRS_PER_ANSWER if bounded else None)
            self._name = f"judge {asker.model}, first"

    @property
    def name(self) -> str:
        """Name of the rule in use, with its threshold or model."""
        # a model that failed its controls was not asked
        is_unfit = self._relation is not None and self._relation.is_unfit
        return DEFAULT if is_unfit else self._name

    @property
    def undecided(self) -> int:
        """Number of pairs that the model left undecided, which count as different."""
        return 0 if self._relation is None else self._relation.undecided

    @property
    def caveats(self) -> list[str]:
        """Warnings about pairs that count as different without a model's decision."""
        if self._relation is None:
            return []
        lines = []
        if self._relation.is_unfit:
            lines.append(
                "answers were grouped without the model, because it failed a test: it was asked about two "
                "answers that mean the same and two that do not"
            )
        if self.undecided:
            pairs = counted(self.undecided, "pair")
            lines.append(f"{pairs} of answers count as different, because the model gave no clear verdict")
        if self._relation.left_out:
            pairs = counted(self._relation.left_out, "pair")
            lines.append(
                f"{pairs} of answers count as different, because the model is asked about at most "
                f"{PAIRS_PER_ANSWER} pairs for each answer"
            )
        return lines

    def prepare(self, questions: Iterable[AnsweredQuestion]) -> None:
        """Let a model-based rule process all answers at once.

        Raises:
            ConfigError, BackendError: the model of ``nli`` cannot be loaded.
        """
        if self._relation is not None:
            without_keys = (_without_keys(question) for question in questions if not question.classes)
            groups = [(question, _spellings(question, self._by_key(question))) for question in without_keys]
            self._relation.prepare(groups)

    def forget(self, limit: int) -> None:
        """Keep only the latest ``limit`` verdicts, and clear a larger text cache."""
        if normalised.cache_info().currsize > limit:
            normalised.cache_clear()
        if self._relation is not None:
            self._relation.forget(limit)

    def __call__(self, question: AnsweredQuestion) -> Labels:
        """Classify a question's answers, by the question's own rule if it has one."""
        if question.classes:
            if question.classes not in self._of_fields:
                self._of_fields[question.classes] = ClassRule(question.classes)
            # without its own rule, or this would never end
            return self._of_fields[question.classes](replace(question, classes=""))
        if question.keys:
            # the rule sorts only answers without a key
            rest = iter(self(_without_keys(question)).tolist())
            return number_classes([question.keys.get(text) or next(rest) for text in question.answers])
        labels = self._by_key(question)
        if self._relation is None or not len(labels):
            return labels
        related = self._relation((question, _spellings(question, labels)))
        return number_classes(group_related(related)[labels].tolist())

    def _by_key(self, question: AnsweredQuestion) -> Labels:
        """Classify answers by spelling, value or the rules for short answers, without asking a model."""
        class_of_alias = _alias_classes(question.aliases)
        forms = list(map(normalised, question.answers))
        if self._kind == "numeric":
            numbers = _numeric_keys(question.answers)
            return number_classes(
                [
                    class_of_alias.get(form, number or form)
                    for form, number in zip(forms, numbers, strict=True)
                ]
            )
        if self._kind not in _GUARDED:
            return number_classes([class_of_alias.get(form, form) for form in forms])
        labels = same_classes(question.text, question.answers)
        alias_of = {
            label: class_of_alias[form]
            for label, form in zip(labels, forms, strict=True)
            if form in class_of_alias
        }
        return number_classes([(alias_of[label],) if label in alias_of else label for label in labels])


def _alias_classes(aliases: Iterable[Iterable[str]]) -> dict[str, int]:
    """Number the classes of normalised spellings, merging lists that share any."""
    class_of: dict[str, int] = {}
    for number, texts in enumerate(aliases):
        forms = set(map(normalised, texts))
        # lists that share a spelling become one class
        joined = {class_of[form] for form in forms & class_of.keys()}
        forms |= {form for form, of_form in class_of.items() if of_form in joined}
        class_of |= dict.fromkeys(forms, number)
    return class_of


def _without_keys(question: AnsweredQuestion) -> AnsweredQuestion:
    """Keep the answers without a predetermined key."""
    if not question.keys:
        return question
    texts = enumerate(question.answers)
    remaining = with_answers(question, [index for index, text in texts if text not in question.keys])
    return replace(remaining, keys={})


def _numeric_keys(answers: Sequence[str]) -> list[tuple[str, str] | None]:
    """Read the last quantity of each answer.

    One without a unit joins its value if that has one unit alone.
    """
    last_quantities = list(map(last_quantity, answers))
    units: dict[tuple[float | None, str], set[tuple[str, str]]] = {}
    for quantity in last_quantities:
        if quantity is not None and quantity.unit:
            units.setdefault((quantity.value, quantity.text), set()).add(quantity.key)
    keys = []
    for quantity in last_quantities:
        key, unit_keys = None if quantity is None else quantity.key, set[tuple[str, str]]()
        if quantity is not None and not quantity.unit:
            # with several units it is not known which one is meant
            unit_keys = units.get((quantity.value, quantity.text), unit_keys)
        keys.append(next(iter(unit_keys)) if len(unit_keys) == 1 else key)
    return keys


def _share(text: str) -> str:
    """Convert a percentage to a share."""
    try:
        return f"{number_in(text):.12g}" if is_percent(text) else text
    except ValueError:
        return text


def members_of(labels: Labels) -> list[list[int]]:
    """List the indices of each class's answers."""
    members: list[list[int]] = [[] for _ in range(int(labels.max(initial=-1)) + 1)]
    for index, label in enumerate(labels.tolist()):
        members[label].append(index)
    return members


def _spellings(question: AnsweredQuestion, labels: Labels) -> list[str]:
    """Return the first answer of each class."""
    return [question.answers[members[0]] for members in members_of(labels)]


def threshold_of(name: str, default: float) -> float:
    """Parse the number after the colon of ``name:0.6``.

    Raises:
        ConfigError: it is not a number in (0, 1].
    """
    _, colon, argument = name.partition(":")
    try:
        value = float(argument) if colon else default
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise ConfigError(f"{name!r}: the threshold after the colon must be a number in (0, 1]")
    return value


def group_related(related: NDArray[np.bool_]) -> Labels:
    """Assign each answer to the first class whose first answer it is related to.

    Args:
        related: shape (n, n), true on the diagonal.
    """
    labels = np.full(len(related), -1, dtype=np.intp)
    size = 0
    for start in range(len(related)):
        if labels[start] >= 0:
            continue
        labels[related[start] & (labels < 0)] = size
        size += 1
    return labels


def number_classes(keys: Sequence[object]) -> Labels:
    """Number keys in order of first appearance; equal keys get the same number."""
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.intp)
