"""Questions with stored answers from a run, as estimators of uncertainty take them."""

from __future__ import annotations

from selfreflect.report.run_records import RunRecords
from selfreflect.sources.files import is_text_list
from selfreflect.sources.item_rows import list_in
from selfreflect.uncertainty.question import AnsweredQuestion, NoValue, not_blank, token_fields

GOLD = "gold"
"""The field of a file with the right answer, unless --gold names another."""
GREEDY = "greedy"
"""The strategy whose measures are estimators, too: the model's own most likely answer."""


def run_questions(run: RunRecords, scoring: RunRecords, gold: str) -> list[AnsweredQuestion]:
    """The questions of a run that have answers, with the right ones from the field ``gold``, and what the
    judge of ``scoring`` said of the greedy answer. Blank answers are left out. Questions are in their order:
    that of answers changes if a command is interrupted."""
    result = []
    for question in run.questions.values():
        answers = run.answers.get(question.id)
        if answers is None or not answers.answers:
            continue
        said = not_blank(answers.answers)
        right = question.metadata.get(gold, question.gold if gold == GOLD else ())
        spellings = list_in(right) if isinstance(right, str) and right.startswith("[") else None
        if not is_text_list(spellings):  # "[0, 1]" may be an interval
            spellings = None
        texts = right if isinstance(right, tuple) else tuple(spellings or [str(right)])
        greedy = run.summaries.get((question.id, GREEDY))
        result.append(
            AnsweredQuestion(
                id=question.id,
                text=question.text,
                context=question.context,
                answers=tuple(answers.answers[place] for place in said),
                gold=texts,
                greedy=None if greedy is None else greedy.text,
                values=_measured_values(scoring, question.id),
                **token_fields([answers.logprobs[place] for place in said] if answers.logprobs else ()),
            )
        )
    return result


def _measured_values(run: RunRecords, question: str) -> dict[str, float | NoValue]:
    """What the run says of the greedy answer, by name of the estimator."""
    values: dict[str, float | NoValue] = {}
    score = run.scores.get((question, GREEDY))
    if score is not None:
        values["greedy_distance"] = score.value
    information = run.information.get((question, GREEDY))
    if information is not None:
        missing = NoValue("not_measured", f"the information of the greedy answer is {information.undefined}")
        values["greedy_bits"] = missing if information.bits is None else information.bits
        values["greedy_recovered"] = missing if information.recovered is None else information.recovered
    return values
