"""Runs of a few questions with given scores, without a model."""

from selfreflect.records import AnswerSet, Failure, Question, Score, Summary
from selfreflect.report.run_records import RunRecords


def score(question_id, strategy, value, **fields):
    fields = {"stderr": 0.01, "token_tasks": 8, "judge": "judge-1", "judge_dtype": "float32", **fields}
    return Score(question_id=question_id, summary=strategy, value=value, **fields)


def run(values, *, questions=4, label="", failures=(), lengths=None, model="writer", **fields):
    """A run with questions q0, q1, …; ``values`` maps a strategy to the scores of the first questions, None
    for a missing one."""
    ids = [f"q{number}" for number in range(questions)]
    pairs = [
        (id_, name, value) for name, column in values.items() for id_, value in zip(ids, column, strict=False)
    ]
    text = {name: " ".join(["word"] * (lengths or {}).get(name, 3)) for name in values}
    return RunRecords(
        label=label,
        strategies=tuple(values),
        questions={id_: Question(id=id_, text=f"What is {id_}?", kind="fact") for id_ in ids},
        answers={
            id_: AnswerSet(question_id=id_, masked_out=("Paris",), conditioning=("Lyon",)) for id_ in ids
        },
        summaries={
            (id_, name): Summary(question_id=id_, name=name, text=text[name], model=model)
            for id_, name, value in pairs
        },
        scores={
            (id_, name): score(id_, name, value, **fields) for id_, name, value in pairs if value is not None
        },
        failures=failures,
    )


def failure(question_id, stage="scores", kind="too_long", name="", message="it is too long"):
    return Failure(question_id=question_id, stage=stage, kind=kind, name=name, message=message)
