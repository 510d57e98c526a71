"""Result of :func:`selfreflect.reflect`: answers, and the information that summaries recover."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from selfreflect.errors import optional
from selfreflect.grouping import group_indices
from selfreflect.records import (
    AnswerSet,
    Controls,
    Failure,
    Information,
    Question,
    Scalar,
    Score,
    metadata_headings,
)
from selfreflect.report.document import question_columns, question_table
from selfreflect.report.findings import value_sentence
from selfreflect.report.page.frame import templates
from selfreflect.report.results import best_first
from selfreflect.report.run_records import RunRecords
from selfreflect.report.words import Mark, MarkKind, marks, telling_answers
from selfreflect.text import counted, one_line, printable

if TYPE_CHECKING:
    import pandas as pd

_SHOWN_CLASSES = 5
_SHOWN_WORDS = 200
# Red, green and blue of a word's background.
_COLOURS: dict[MarkKind, str] = {"covered": "0,120,255", "missed": "255,170,0", "misleading": "220,0,160"}


@dataclass(frozen=True)
class AnswerClass:
    """Answers that are equal up to spelling."""

    text: str
    """The most frequent spelling."""
    count: int
    answers: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Reflection:
    """Answers to one question, with summaries and the information that these recover.

    Attributes:
        records: all of it as the records of a run with one question, from which reports can be made.
    """

    records: RunRecords

    @property
    def _question(self) -> Question:
        [question] = self.records.questions.values()
        return question

    @property
    def question(self) -> str:
        return self._question.text

    @property
    def context(self) -> str:
        """Text that the model read with the question."""
        return self._question.context

    @property
    def metadata(self) -> dict[str, Scalar]:
        """Further columns of the user's data."""
        return self._question.metadata

    @property
    def answer_set(self) -> AnswerSet | None:
        """The answers in two halves; None if drawing failed."""
        return self.records.answers.get(self._question.id)

    @property
    def answers(self) -> tuple[str, ...]:
        """All answers in sampling order, or shuffled if the user gave a list."""
        return self.answer_set.answers if self.answer_set else ()

    @property
    def classes(self) -> list[AnswerClass]:
        """Groups of equal answers, the largest first."""
        answers = self.answers
        classes = []
        for group in group_indices(answers):
            texts = tuple(answers[index] for index in group)
            classes.append(AnswerClass(texts[0], len(group), texts))
        return classes

    @property
    def summaries(self) -> dict[str, str]:
        """Summary texts by the name of the strategy or the user's name."""
        return {name: summary.text for (_, name), summary in self.records.summaries.items()}

    @property
    def scores(self) -> dict[str, Score]:
        """SelfReflect scores by summary name; ``.value`` is the number, 0 is perfect."""
        return {name: score for (_, name), score in self.records.scores.items()}

    @property
    def information(self) -> dict[str, Information]:
        """Information that each summary recovers, by name; ``.recovered`` is its share."""
        return {name: record for (_, name), record in self.records.information.items()}

    @property
    def controls(self) -> Controls | None:
        """Control texts for comparison, such as the empty summary."""
        return self.records.controls.get(self._question.id)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Failures with their reasons."""
        return tuple(self.records.failures)

    @property
    def measures(self) -> dict[str, dict[str, Any]]:
        """All numbers by summary name: ``score``, ``stderr``, ``bits``, ``bits_available``, ``recovered`` and
        its 95 % interval ``recovered_low`` to ``recovered_high``, ``undefined``, ``failure``; None where
        missing."""
        return {row["strategy"]: row for row in self._rows() if row["strategy"] is not None}

    def to_dict(self) -> dict[str, Any]:
        """Convert the result to plain JSON values."""
        return {
            "question": self.question,
            "context": self.context,
            "answers": list(self.answers),
            "classes": [{"text": group.text, "count": group.count} for group in self.classes],
            "summaries": list(self.measures.values()),
            "failures": list(map(msgspec.to_builtins, self.failures)),
        }

    def to_pandas(self) -> pd.DataFrame:
        """Build a data frame, one row per summary. Raises MissingExtraError if pandas is not installed."""
        return Reflections([self]).to_pandas()

    def _rows(self) -> list[dict[str, Any]]:
        """Build one row per summary without metadata, or one row with the failure."""
        rows = []
        headings = [column.heading for column in question_columns(self.records)]
        for cells in question_table(self.records).rows:
            rows.append(dict(zip(headings, cells, strict=False)))  # metadata come last
        if not rows:
            failure = next((f"{failure.kind}: {failure.message}" for failure in self.failures), None)
            rows = [{**dict.fromkeys(headings), "failure": failure}]
        for row in rows:
            for name in ("question_id", "question", "kind", "estimated_from", "summary_words"):
                row.pop(name)
        return rows

    def _results(self) -> Iterator[tuple[str, str, str]]:
        """Yield each summary's name, text and result in words, best first."""
        conditioning = len(self.answer_set.conditioning) if self.answer_set else None
        for outcome in best_first(self.records, self._question.id):
            sentences = []
            if outcome.information is not None:
                sentences.append(value_sentence(outcome.information, conditioning))
            if outcome.score is not None:
                sentences.append(f"Score {outcome.score.value:.4f}.")
            sentences += [f"{text}." for text in map(value_sentence, outcome.measurements) if text]
            if outcome.failure is not None:
                sentences.append(f"Failed: {outcome.failure.message}.")
            text = outcome.summary.text if outcome.summary else ""
            yield outcome.strategy, text, " ".join(sentences)

    def __repr__(self) -> str:
        lines = [f"Reflection({one_line(self.question, 80)!r}: {counted(len(self.answers), 'answer')})"]
        classes = [f"{group.count} x {one_line(group.text, 30)!r}" for group in self.classes[:_SHOWN_CLASSES]]
        if len(self.classes) > _SHOWN_CLASSES:
            classes.append("…")
        if classes:
            lines.append("  " + ", ".join(classes))
        for name, text, result in self._results():
            lines.append(f"  {one_line(name, 30)}: {one_line(text, 60)!r} {one_line(result)}")
        for failure in self.failures if not self.records.strategies else ():
            lines.append(f"  failed: {one_line(failure.message, 100)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = []
        for name, text, result in self._results():
            rows.append((name, text, result, _marked_words(self.information.get(name), text)))
        html = (
            templates()
            .get_template("reflection.html")
            .render(
                question=self.question,
                answers=len(self.answers),
                groups=self.classes[:_SHOWN_CLASSES],
                hidden=max(0, len(self.classes) - _SHOWN_CLASSES),
                rows=rows,
                failures=self.failures,
                colours=_COLOURS,
            )
        )
        # line ends of texts are <br>; what controls a terminal or turns text around is shown as an escape
        return printable(html.replace("\n", ""))


class Reflections(list[Reflection]):
    """Results for several questions: a list of :class:`Reflection` with a data frame."""

    def to_pandas(self) -> pd.DataFrame:
        """Build a data frame with one row per question and summary, including the user's columns.

        A question without a summary has one row, whose ``failure`` says why.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        with optional("A data frame of results", "pandas"):
            import pandas as pd
        own_headings = ["question", "context", "answers", "classes"]
        for reflection in self:
            own_headings += [column.heading for column in question_columns(reflection.records)]
        headings = metadata_headings((reflection._question for reflection in self), own_headings)
        rows = []
        for reflection in self:
            common: dict[str, Any] = {headings[name]: value for name, value in reflection.metadata.items()}
            common |= {"question": reflection.question, "context": reflection.context}
            common |= {"answers": len(reflection.answers), "classes": len(reflection.classes)}
            rows += [{**common, **row} for row in reflection._rows()]
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        lines = list(map(repr, self[:3]))
        if len(self) > 3:
            lines.append(f"… and {counted(len(self) - 3, 'other question')}; to_pandas() has them all")
        return "\n".join(lines) or "[]"

    def _repr_html_(self) -> str:
        parts = [reflection._repr_html_() for reflection in self[:3]]
        if len(self) > 3:
            rest = counted(len(self) - 3, "other question")
            parts.append(f"<p>… and {rest}; <code>to_pandas()</code> has them all</p>")
        return "<hr>".join(parts)


def _marked_words(information: Information | None, summary: str) -> list[tuple[str, Mark]]:
    """Mark the words of the test answer in which a summary covers, misses or loses the most bits."""
    if information is None or information.recovered is None:
        return []
    indices = telling_answers([(information.answers, summary)], 1)
    if not indices:
        return []
    words = information.answers[indices[0]]
    looks = marks(words, summary)
    if all(look.kind == "plain" for look in looks):
        return []
    return [(word.text, look) for word, look in zip(words[:_SHOWN_WORDS], looks, strict=False)]
