"""What a file says of its questions, before and after `selfreflect convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from command import written

from selfreflect.sources.items import read_item_file, to_plain
from selfreflect.uncertainty.reading import read_answered_questions


def known(path: Path) -> list[Any]:
    """What is read of each question, without the order of its answers, which `convert` shuffles."""
    questions = []
    for question in read_answered_questions(path).questions:
        verdicts = [
            (name, str(text), right)
            for name, pairs in question.grades.items()
            for text, right in pairs
            if right is not None
        ]
        answers = sorted(question.answers or filter(None, [question.answer]))
        judged = question.answer if answers[1:] else None  # of a single answer both are the same
        labels = (question.confidence, question.correct, sorted(verdicts))
        questions.append((question.text, question.context, question.gold, answers, judged, *labels))
    return questions


def assert_converted_alike(path: Path) -> list[Any]:
    """Write the items of a file, and check that the same is read of what is written. Returns that."""
    items = read_item_file(path, allow_few=True).items
    converted = written(path.with_name("converted.json"), [to_plain(item) for item in items])
    assert known(converted) == known(path)
    return known(converted)
