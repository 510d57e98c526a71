"""Records of a run whose usable information was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from selfreflect.records import AnswerSet, Control, Controls, Information, Question, Score, Summary, WordBits
from selfreflect.report.run_records import RunRecords

AVAILABLE = 10.0
"""Bits per answer that the conditioning answers tell, for every question."""

WORDS = (
    (WordBits("The", 0.1, 0.2), WordBits("car", 2.5, 3.0), WordBits("red", 7.0, 8.0)),
    (WordBits("The", 0.1, 0.2), WordBits("car", 0.5, 3.0), WordBits("blue", -8.0, 9.0)),
    (WordBits("The", 0.1, 0.2), WordBits("car", 2.5, 3.0), WordBits("red", 7.0, 8.0)),
)
"""A summary that says red and not blue: the first answer twice, the second once."""


def information(id_: str, name: str, bits: float | None, **changes: Any) -> Information:
    """What one summary tells; without ``bits`` the judge knows the answers already."""
    recovered = None if bits is None else bits / AVAILABLE
    fields: dict[str, Any] = {
        "reader": "informed",
        "zero": "empty",
        "anchor": "distinct",
        "bits": bits,
        "bits_available": AVAILABLE if bits is not None else -1.0,
        "recovered": recovered,
        "interval": None if recovered is None else (recovered - 0.15, recovered + 0.15),
        "undefined": "known" if bits is None else None,
        "answers": WORDS,
        "judge": "judge-1",
        "judge_dtype": "float32",
        **changes,
    }
    return Information(question_id=id_, summary=name, **fields)


def controls(id_: str, *, question: float = -1.0, answers: int = 10, **changes: Any) -> Controls:
    """Controls of which pasting tells 4 bits with one answer, 6 with two, 8 with five and 10 with all."""
    pasted = [(1, 4.0), (2, 6.0), (5, 8.0)]
    texts = [
        Control(name="empty", words=0, bits=0.0, score=0.086),
        Control(name="question", words=5, bits=question),
        Control(name="nonsense", words=6, bits=-0.8),
        *(Control(name="pasted", answers=k, words=20 * k, bits=bits) for k, bits in pasted if k < answers),
        Control(name="pasted", answers=answers, words=20 * answers, bits=AVAILABLE, score=0.068),
    ]
    fields = {
        "reader": "informed",
        "zero": "empty",
        "anchor": "distinct",
        "bits_available": AVAILABLE,
        "judge": "judge-1",
        **changes,
    }
    return Controls(question_id=id_, controls=tuple(texts), **fields)


def measured_run(
    bits: Mapping[str, Sequence[float | None]],
    *,
    scores: Mapping[str, Sequence[float | None]] | None = None,
    words: int = 30,
    controlled: bool = True,
    label: str = "",
    **changes: Any,
) -> RunRecords:
    """A run with questions q0, q1, …; ``bits`` maps a strategy to what its summaries tell, None for a
    question whose answers the judge knows."""
    ids = [f"q{number}" for number in range(max(map(len, bits.values())))]
    measured = {}
    for name, column in bits.items():
        for id_, value in zip(ids, column, strict=False):
            measured[id_, name] = information(id_, name, value, **changes)
    scored = {}
    for name, values in (scores or {}).items():
        for id_, score in zip(ids, values, strict=False):
            if score is not None:
                scored[id_, name] = Score(
                    question_id=id_,
                    summary=name,
                    value=score,
                    stderr=0.002,
                    token_tasks=8,
                    judge="judge-1",
                    judge_dtype="float32",
                )
    text = " ".join(["word"] * words)
    return RunRecords(
        label=label,
        strategies=tuple(bits),
        questions={id_: Question(id=id_, text=f"What is {id_}?") for id_ in ids},
        answers={
            id_: AnswerSet(
                question_id=id_,
                masked_out=("The car red", "The car blue"),
                conditioning=("The car red",) * 10,
            )
            for id_ in ids
        },
        summaries={key: Summary(question_id=key[0], name=key[1], text=text) for key in measured},
        scores=scored,
        failures=(),
        information=measured,
        controls={id_: controls(id_) for id_ in ids} if controlled else {},
    )
