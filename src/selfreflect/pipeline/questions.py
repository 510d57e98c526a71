"""Which questions a run directory still takes from its source, and what has changed there since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import msgspec

from selfreflect.errors import ConfigError, StoreError, excerpt
from selfreflect.records import Question
from selfreflect.sources.questions import QuestionSet, is_file, load_questions
from selfreflect.store.run import Run
from selfreflect.text import counted

NO_QUESTIONS = (
    "name the questions: --questions FILE, or --questions bundled for the 64 questions of this package"
)

_EXAMPLES = 3
"""Questions of each kind that an error shows."""

_ALIKE = 0.6
"""Similarity from which a question in the place of another one is an edited version of it."""


@dataclass(frozen=True)
class NewQuestions:
    """Questions to store, and what the manifest records of their source."""

    questions: Sequence[Question]
    source: dict[str, Any]
    updated: Sequence[Question] = ()
    """Stored questions whose other columns, such as the gold answers or a topic, are now these."""
    note: str = ""
    """What is not taken over from the source, for people."""


@dataclass(frozen=True)
class QuestionChanges:
    """How the questions of a source differ from those of a run."""

    new: Sequence[Question]
    gone: Sequence[Question]
    edited: Sequence[tuple[Question, Question]]
    """Earlier and present version: with the same id, or in the same place."""

    def describe(self) -> str:
        """How many there are of each, and lines with a few of them."""
        lines = [f"{len(self.new)} new, {len(self.gone)} gone, {len(self.edited)} edited:"]
        lines += [f"new: {excerpt(question.text, 80)}" for question in self.new[:_EXAMPLES]]
        lines += [f"gone: {excerpt(question.text, 80)}" for question in self.gone[:_EXAMPLES]]
        for before, after in self.edited[:_EXAMPLES]:
            lines.append(f"edited: {excerpt(before.text, 80)} -> {excerpt(after.text, 80)}")
        return "\n  ".join(lines)


def has_all_questions(run: Run) -> bool:
    """Whether the run has all questions of its source, as that was when it was read."""
    source = run.manifest.sources.get("questions", {})
    return bool(source) and len(run.questions) == source.get("count")


def new_questions(
    run: Run, settings: dict[str, Any], *, explicit: bool = True, add: bool = False
) -> NewQuestions | None:
    """The questions that the run lacks; None if it has all that it should have.

    Args:
        settings: of :func:`~selfreflect.sources.questions.load_questions`.
        explicit: whether the user named the source. If not, a run keeps to the questions that it has.
        add: take in questions that the source did not hold when the run was made, and what its other columns
            hold now.

    Raises:
        ConfigError: the run is empty and no source was named.
        StoreError: the source holds other questions than when the run was made and ``add`` is not set, or a
            question to add has the id of another one.
    """
    recorded = run.manifest.sources.get("questions", {})
    if not explicit and not recorded and not run.questions:
        raise ConfigError(NO_QUESTIONS)
    if not add and not explicit and (has_all_questions(run) or (run.questions and not recorded)):
        return None
    if not add and has_all_questions(run) and not is_file(settings["source"]):
        return None
    question_set = load_questions(**settings)
    source = msgspec.to_builtins(question_set)
    del source["questions"]
    note = ""
    if with_images := source.pop("with_images"):
        source["with_images"] = with_images
        note = f"{counted(with_images, 'question')} with a picture left out: the model would not see it"
    if not add:
        _check_revision(run, recorded, question_set)
    missing = [one for one in question_set.questions if one.id not in run.questions]
    if not recorded:
        return NewQuestions(missing, {**source, "count": len(question_set.questions)}, note=note)
    if add:
        return _additions(run, question_set, source)
    if recorded.get("sha256", "") == question_set.sha256:
        return None if has_all_questions(run) else NewQuestions(missing, recorded)
    changes = compare_questions(run, question_set.questions)
    if changes.new or changes.gone or changes.edited:
        raise StoreError(
            f"{excerpt(settings['source'], 200)} no longer holds the questions of {run.path}: "
            f"{changes.describe()}\nNothing was changed. Leave out --questions to go on with the questions "
            "in the directory, or pass --add-questions to take in new ones as well (both versions of an "
            "edited question then count), or start over with another --out or with --fresh."
        )
    updated, columns = _other_columns(run, question_set.questions)
    if not updated:
        return None
    names = ", ".join(map(excerpt, columns))
    note = (
        f"{len(updated)} questions have other values now in {names}; the directory keeps the earlier ones. "
        "--add-questions takes the new ones over, and nothing is drawn again"
    )
    return NewQuestions((), recorded, note=note)


def _check_revision(run: Run, recorded: Mapping[str, Any], question_set: QuestionSet) -> None:
    """Raise StoreError if a data set on the hub is no longer the one that the run began with."""
    before = recorded.get("revision", "")
    if before and question_set.revision and before != question_set.revision:
        raise StoreError(
            f"the data set {excerpt(question_set.dataset)} has changed since {run.path} was made: it was "
            f"revision {excerpt(before)}, and is {excerpt(question_set.revision)} now. Use another --out, or "
            "--add-questions to take in what is new there."
        )


def _other_columns(run: Run, questions: Sequence[Question]) -> tuple[list[Question], list[str]]:
    """Stored questions as the source has them now, where more than text and context differs, and the names of
    what differs."""
    present: dict[tuple[str, str], list[Question]] = {}
    for question in questions:
        present.setdefault((question.text, question.context), []).append(question)
    updated = []
    columns: dict[str, None] = {}
    for question in run.questions.values():
        alike = present.get((question.text, question.context))
        if not alike:
            continue
        now = msgspec.structs.replace(alike.pop(0), id=question.id)
        if now != question:
            updated.append(now)
            columns |= dict.fromkeys(_differing(question, now))
    return updated, list(columns)


def _differing(before: Question, after: Question) -> list[str]:
    names = [name for name in ("kind", "gold") if getattr(before, name) != getattr(after, name)]
    for name in {**before.metadata, **after.metadata}:
        if before.metadata.get(name) != after.metadata.get(name):
            names.append(name)
    return names


def _additions(run: Run, question_set: QuestionSet, source: dict[str, Any]) -> NewQuestions | None:
    changes = compare_questions(run, question_set.questions)
    questions = [*changes.new, *(after for _, after in changes.edited)]
    for question in questions:
        if question.id in run.questions:
            raise StoreError(
                f"{excerpt(question.text, 80)} cannot be added to {run.path}: it has the id "
                f"{excerpt(question.id)} of {excerpt(run.questions[question.id].text, 80)}, whose answers "
                "are stored there. Give it another id, or use another --out."
            )
    updated, _ = _other_columns(run, question_set.questions)
    if not questions and not updated:
        return None
    recorded = dict(run.manifest.sources["questions"])
    earlier = [*recorded.pop("earlier", []), recorded]
    count = len(run.questions) + len(questions)
    return NewQuestions(questions, {**source, "count": count, "earlier": earlier}, updated)


def compare_questions(run: Run, questions: Sequence[Question]) -> QuestionChanges:
    """Compare the questions of a source with those of a run, by text and context.

    Where questions were added to a run, a source is not expected to hold all of them.
    """
    new = _without(questions, run.questions.values())
    missing = _without(run.questions.values(), questions)
    edited = _edited(list(run.questions.values()), questions, missing, new)
    before = {one.id for one, _ in edited}
    after = {one.id for _, one in edited}
    new = [one for one in new if one.id not in after]
    missing = [one for one in missing if one.id not in before]
    if run.manifest.sources.get("questions", {}).get("earlier"):
        missing = []
    return QuestionChanges(new, missing, edited)


def _without(questions: Iterable[Question], others: Iterable[Question]) -> list[Question]:
    """The questions that ``others`` lack; one that comes twice must be there twice."""
    left = Counter((one.text, one.context) for one in others)
    missing = []
    for question in questions:
        key = (question.text, question.context)
        if left[key] > 0:
            left[key] -= 1
        else:
            missing.append(question)
    return missing


def _edited(
    earlier: Sequence[Question], present: Sequence[Question], missing: list[Question], new: list[Question]
) -> list[tuple[Question, Question]]:
    """Pairs of ``missing`` and ``new``: those with one id, then those alike in the same place."""
    by_id = {one.id: one for one in new}
    missing_by_id = {one.id: one for one in missing}
    pairs = {id_: (one, by_id[id_]) for id_, one in missing_by_id.items() if id_ in by_id}
    places = SequenceMatcher(None, [one.id for one in earlier], [one.id for one in present], autojunk=False)
    for tag, start, end, first, last in places.get_opcodes():
        if tag != "replace":
            continue
        for before, after in zip(earlier[start:end], present[first:last], strict=False):
            is_pair = before.id in missing_by_id and after.id in by_id and before.id not in pairs
            if is_pair and _similarity(before, after) >= _ALIKE:
                pairs[before.id] = (before, after)
    return list(pairs.values())


def _similarity(before: Question, after: Question) -> float:
    return SequenceMatcher(None, before.text[:500], after.text[:500]).ratio()
