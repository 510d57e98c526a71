"""Runs made of chance: as large as wanted, with the shape of real ones and no model."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate, groupby
from pathlib import Path

from selfreflect.metric.prompts import masked_words
from selfreflect.records import (
    AnswerSet,
    Control,
    Controls,
    Information,
    Question,
    Score,
    Summary,
    WordBits,
    WordDistance,
)
from selfreflect.report.run_records import RunRecords
from selfreflect.stats import clustered_mean
from selfreflect.store.run import Run

STRATEGIES = ("greedy", "basic", "cot", "sample_and_summarize")


def vocabulary(size: int, chance: random.Random) -> list[str]:
    syllables = [
        a + b for a in "b c d f g k l m n p r s t v st tr".split() for b in "a e i o u ai er on".split()
    ]
    return ["".join(chance.choices(syllables, k=chance.randint(1, 4))) for _ in range(size)]


def synthetic_run(
    questions: int,
    *,
    strategies: Sequence[str] = STRATEGIES,
    num_answers: int = 10,
    words: int = 14,
    label: str = "synthetic",
    informed: bool = False,
) -> RunRecords:
    """A run whose answers have about ``words`` words: some kinds of answer to each question, most of them
    told in several ways. If ``informed``, with the bits of every word."""
    chance = random.Random(0)
    bits_chance = random.Random(1)
    common, rare = vocabulary(300, chance), vocabulary(6000, chance)
    weights = list(accumulate(1 / rank for rank in range(1, len(common) + 1)))
    records = RunRecords(label, strategies, {}, {}, {}, {}, (), {}, {})

    def text(topic: list[str], length: int) -> str:
        mixed = [
            chance.choice(topic) if chance.random() < 0.4 else chance.choices(common, cum_weights=weights)[0]
            for _ in range(max(1, length))
        ]
        return " ".join(mixed).capitalize() + "."

    for number in range(questions):
        id_, topic = f"q{number}", chance.sample(rare, 20)
        modes = [text(topic, round(chance.expovariate(1 / words))) for _ in range(4)]
        drawn = [
            chance.choice(modes)
            if chance.random() < 0.3
            else text(topic, round(chance.expovariate(1 / words)))
            for _ in range(2 * num_answers)
        ]
        answers = AnswerSet(
            question_id=id_,
            masked_out=tuple(drawn[:num_answers]),
            conditioning=tuple(drawn[num_answers:]),
            tokens=400,
        )
        records.questions[id_] = Question(
            id=id_, text=text(topic, 10), kind=chance.choice(("fact", "opinion"))
        )
        records.answers[id_] = answers
        available = [[bits_chance.gauss(2, 3) for _ in answer.split()] for answer in answers.masked_out]
        masked = [(task, chance.betavariate(2, 20)) for task in masked_words(answers.masked_out)]
        for place, name in enumerate(strategies):
            summary = text(topic, chance.randint(10, 30) + 10 * place)
            records.summaries[id_, name] = Summary(question_id=id_, name=name, text=summary, tokens=40)
            distances = tuple(
                WordDistance(
                    answer=task.answer,
                    word=task.word,
                    text=task.text,
                    distances=tuple(
                        min(1.0, base * chance.lognormvariate(0, 0.4))
                        for _ in range(chance.choice((1, 1, 2)))
                    ),
                )
                for task, base in masked
            )
            by_answer = [
                [d for word in same for d in word.distances]
                for _, same in groupby(distances, key=lambda word: word.answer)
            ]
            value, stderr = clustered_mean(by_answer)
            records.scores[id_, name] = Score(
                question_id=id_,
                summary=name,
                value=value,
                stderr=stderr,
                token_tasks=sum(len(word.distances) for word in distances),
                judge="judge",
                judge_dtype="float32",
                answer_means=tuple(sum(values) / len(values) for values in by_answer),
                words=distances,
            )
            if informed:
                records.information[id_, name] = _information(id_, name, answers, available, bits_chance)
    return records


def _information(
    id_: str, name: str, answers: AnswerSet, available: list[list[float]], chance: random.Random
) -> Information:
    """Bits that are about half of those available."""
    words = tuple(
        tuple(
            WordBits(text, round(chance.gauss(most / 2, 2), 4), round(most, 4))
            for text, most in zip(answer.split(), bits, strict=True)
        )
        for answer, bits in zip(answers.masked_out, available, strict=True)
    )
    told = sum(word.told for answer in words for word in answer) / len(words)
    most = sum(word.available for answer in words for word in answer) / len(words)
    share = told / most if most > 0 else None
    return Information(
        question_id=id_,
        summary=name,
        zero="empty",
        anchor="distinct",
        reader="informed",
        bits=told,
        bits_available=most,
        recovered=share,
        interval=None if share is None else (share - 0.1, share + 0.1),
        undefined="known" if share is None else None,
        answers=words,
        judge="judge",
        judge_dtype="float32",
    )


def save(run: RunRecords, path: Path) -> Path:
    """Write a run directory."""
    with Run.open(path, {}) as stored:
        for records in (run.questions, run.answers, run.summaries, run.scores, run.information, run.controls):
            stored.append_all(list(records.values()))
    return path


def informed_run() -> RunRecords:
    """Two questions with a good and a bad summary, and the controls of the first: of 10 bits that the answers
    tell, the good one tells 6, the bad one loses 1, and nonsense tells 1."""
    run = RunRecords("informed", ("good", "bad"), {}, {}, {}, {}, (), {}, {})
    for id_ in ("q0", "q1"):
        run.questions[id_] = Question(id=id_, text=f"What colour, {id_}?", context="Anna: red. Tom: blue.")
        run.answers[id_] = AnswerSet(
            question_id=id_, masked_out=("It was red.", "Blue"), conditioning=("Red.", "Blue.")
        )
        words = {
            "good": ((0.1, 0.2), (0.1, 0.1), (7.2, 7.9), (4.6, 11.8)),
            "bad": ((0.1, 0.2), (0.1, 0.1), (-6.6, 7.9), (4.4, 11.8)),
        }
        for name, value, share in (("good", 0.07, 0.6), ("bad", 0.09, -0.1)):
            bits = tuple(WordBits("", *pair) for pair in words[name])
            run.summaries[id_, name] = Summary(question_id=id_, name=name, text=f"The {name} one.")
            run.scores[id_, name] = Score(
                question_id=id_,
                summary=name,
                value=value,
                stderr=0.001,
                token_tasks=2,
                judge="j",
                answer_means=(value, value),
                words=(
                    WordDistance(answer=0, word=2, text="red.", distances=(value,)),
                    WordDistance(answer=1, word=0, text="Blue", distances=(value,)),
                ),
            )
            run.information[id_, name] = Information(
                question_id=id_,
                summary=name,
                zero="empty",
                anchor="distinct",
                reader="informed",
                bits=10 * share,
                bits_available=10.0,
                recovered=share,
                interval=(share - 0.05, share + 0.05),
                answers=(bits[:3], bits[3:]),
                judge="j",
            )
    run.controls["q0"] = Controls(
        question_id="q0",
        zero="empty",
        anchor="distinct",
        reader="informed",
        bits_available=10.0,
        controls=(
            Control(name="empty", words=0, bits=0.0, score=0.08),
            Control(name="nonsense", words=8, bits=1.0),
            Control(name="pasted", answers=1, words=1, bits=5.0),
            Control(name="pasted", answers=2, words=2, bits=10.0, score=0.06),
        ),
    )
    return run
