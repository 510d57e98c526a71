"""Measures of a summary that need no judge: they count its words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from selfreflect.records import AnswerSet, Information, Question, Score, Summary


class LengthMeasures:
    """Measures a summary by its number of words, and tells no bits of one that is a reflection alone."""

    def __init__(self) -> None:
        self.questions: list[Question] = []
        self.texts: list[str] = []

    def measure(self, question: Question, answers: AnswerSet, summaries: Sequence[Summary]) -> list[Any]:
        self.questions.append(question)
        results: list[Any] = []
        for summary in summaries:
            assert question.id == answers.question_id == summary.question_id
            self.texts.append(summary.text)
            length = len(summary.text.split())
            facts = {"question_id": question.id, "summary": summary.name}
            bits = None if summary.name == "reflection" else float(length)
            results.append(
                Information(**facts, reader="blind", bits=bits, bits_available=9.0, recovered=None)
            )
            results.append(
                Score(
                    **facts,
                    value=length / 10,
                    stderr=None,
                    token_tasks=1,
                    judge="j",
                    judge_revision="",
                    judge_dtype="float32",
                    temperature=1.0,
                    answer_means=(None,),
                    words=(),
                )
            )
        return results
