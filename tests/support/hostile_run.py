"""Records of a run in which every text and name is a text that would like to run."""

from __future__ import annotations

from collections.abc import Sequence

from selfreflect.records import (
    AnswerSet,
    Control,
    Controls,
    Failure,
    Guess,
    Information,
    Question,
    Score,
    Summary,
    WordBits,
    WordDistance,
)
from selfreflect.report.run_records import RunRecords


def hostile_run(payloads: Sequence[str]) -> RunRecords:
    """Make a question and a strategy for each payload, with words, guesses, bits, controls and failures."""
    run = RunRecords(payloads[0], list(payloads), {}, {}, {}, {}, [], {}, {})
    for payload in payloads:
        second = f"told: {payload}"
        size = len(second.split())
        run.questions[payload] = Question(id=payload, text=payload, kind=payload, context=payload)
        drawn = {"masked_out": (payload, second), "conditioning": (payload,), "model": payload}
        run.answers[payload] = AnswerSet(question_id=payload, **drawn)
        text = {"text": payload, "model": payload}
        run.summaries[payload, payload] = Summary(question_id=payload, name=payload, **text)
        guesses = ((Guess(payload[:1000], 0.5, 0.1, 0.5, 0.1),),)
        words = []
        for index in range(size):
            words.append(WordDistance(answer=1, word=index, text=payload, distances=(0.5,), guesses=guesses))
        run.scores[payload, payload] = Score(
            question_id=payload,
            summary=payload,
            value=0.5,
            stderr=0.1,
            token_tasks=size,
            judge=payload[:1000],
            answer_means=(None, 0.5),
            warnings=(payload,),
            words=tuple(words),
        )
        bits = tuple(WordBits(payload, -5.0, 9.0) for _ in range(size))
        run.information[payload, payload] = Information(
            question_id=payload,
            summary=payload,
            zero="empty",
            anchor="distinct",
            reader="informed",
            bits=None,
            bits_available=None,
            recovered=None,
            undefined="unmeasured",
            why=payload,
            answers=(bits[1:], bits),
            judge=payload[:1000],
        )
        nonsense = Control(name="nonsense", words=1, bits=3.0, score=0.1)
        run.controls[payload] = Controls(question_id=payload, controls=(nonsense,), bits_available=9.0)
        run.failures.append(Failure(question_id=payload, stage="answers", kind="backend", message=payload))
    return run
