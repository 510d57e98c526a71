"""Runs made of chance: as large as wanted, with the shape of real ones and no model."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate, groupby

from selfreflect.metric.tasks import masked_words
from selfreflect.records import AnswerSet, Question, Score, Summary, WordDistance
from selfreflect.report.run_records import RunRecords
from selfreflect.stats import clustered_mean

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
) -> RunRecords:
    """A run whose answers have about ``words`` words: some kinds of answer to each question, most of them
    told in several ways."""
    chance = random.Random(0)
    common, rare = vocabulary(300, chance), vocabulary(6000, chance)
    weights = list(accumulate(1 / rank for rank in range(1, len(common) + 1)))
    records = RunRecords(label, strategies, {}, {}, {}, {}, ())

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
    return records
