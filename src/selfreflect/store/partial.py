"""Answers of questions whose other answers are still to be drawn: one file for each question, which goes when
the question has all."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from selfreflect.records import AnswerSample
from selfreflect.store.journal import Journal, refuse_links, store_errors

FOLDER = "partial"


class PartialAnswers:
    """The folder ``partial/`` of a run directory. An append survives a kill, but does not wait for the disk.

    Args:
        run: the run directory.
    """

    def __init__(self, run: Path) -> None:
        self._folder = run / FOLDER
        self._journals: dict[str, Journal[AnswerSample]] = {}

    @property
    def files(self) -> list[Path]:
        """Those that exist. Raises StoreError if the folder is a link."""
        return sorted(self._checked_folder().glob("*.jsonl"))

    def of(self, question: str) -> tuple[AnswerSample, ...]:
        """The answers of a question, in the order in which they ended. What is read is checked again against
        the id: another question's file may have been put there."""
        if not self._path(question).exists():
            return ()
        samples = self._journal(question).records.values()
        return tuple(sample for sample in samples if sample.question_id == question)

    def append(self, sample: AnswerSample) -> None:
        """Add an answer; it takes the place of one with the same number.

        Raises:
            StoreError: the disk refuses.
        """
        journal = self._journal(sample.question_id)
        if not journal.path.exists():
            with store_errors(self._folder):
                self._folder.mkdir(exist_ok=True)
        journal.append_all([sample])
        journal.close()  # thousands of questions may be open

    def remove(self, questions: Collection[str]) -> None:
        """Forget the answers of these questions."""
        if not self._checked_folder().exists():
            return
        for question in questions:
            self._journals.pop(question, None)
            path = self._path(question)
            with store_errors(path):
                path.unlink(missing_ok=True)
        with suppress(OSError):  # others are left
            self._folder.rmdir()

    def _journal(self, question: str) -> Journal[AnswerSample]:
        if question not in self._journals:
            self._journals[question] = Journal(
                self._path(question),
                AnswerSample,
                lambda sample: str(sample.index),
                lambda sample: True,
                durable=False,
            )
        return self._journals[question]

    def _path(self, question: str) -> Path:
        """The file of a question. Its id may hold anything, and is no file name."""
        name = hashlib.sha256(question.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return self._checked_folder() / f"{name}.jsonl"

    def _checked_folder(self) -> Path:
        """The folder. Raises StoreError if it is a link."""
        return refuse_links(self._folder.parent, self._folder)
