"""Both measures together: what is wanted is measured, with controls, and a budget holds for all."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from statistics import fmean

import pytest
from msgspec.structs import replace

from selfreflect.metric.information import choose_reader, measure, nodes, within_budget
from selfreflect.metric.inputs import Limits
from selfreflect.metric.measure import Measures
from selfreflect.metric.scorer import SelfReflect
from selfreflect.metric.texts import NONSENSE, pasted, pasted_subsets
from selfreflect.models.judge import Judge
from selfreflect.records import AnswerSet, Controls, Failure, Information, Question, Summary

QUESTION = Question(id="q7", text="What should I plant?")
ANSWERS = AnswerSet(
    question_id="q7",
    masked_out=("Radishes grow fast.", "Lettuce, or peas", "It is not clear", "Basil in a pot"),
    conditioning=("basil or peas", "Radishes", "Peas climb a net"),
)
SUMMARIES = [
    Summary(question_id="q7", name="good", text="Radishes, lettuce or peas."),
    Summary(question_id="q7", name="same", text="Radishes, lettuce or peas."),
    Summary(question_id="q7", name="wrong", text="An oak forest, of course."),
]

TinyJudge = Callable[..., Judge]


class Counting:
    """An engine that counts the nodes it computes."""

    def __init__(self, inner) -> None:
        self.inner = inner
        self.head = inner.head
        self.nodes = 0

    def states(self, trees):
        self.nodes += sum(tree.computed_tokens for tree in trees)
        return self.inner.states(trees)


class Failing(Counting):
    """An engine whose numbers are none."""

    def states(self, trees):
        return [states * float("nan") for states in self.inner.states(trees)]


def kinds(results) -> list[str]:
    return [type(result).__name__ for result in results]


def test_one_call_gives_scores_information_and_controls(tiny_judge: TinyJudge) -> None:
    metric = SelfReflect(tiny_judge("llama"))
    results = Measures(metric).measure(QUESTION, ANSWERS, SUMMARIES)
    assert kinds(results) == ["Score"] * 3 + ["Information"] * 3 + ["Controls"]
    assert results[:3] == metric.score_records(QUESTION, ANSWERS, SUMMARIES)
    texts = [summary.text for summary in SUMMARIES]
    alone = measure(metric.judge, metric.engine, QUESTION, ANSWERS, texts)
    for result, summary in zip(results[3:6], SUMMARIES, strict=True):
        assert isinstance(result, Information)
        assert result.summary == summary.name
        assert result.bits == pytest.approx(alone[summary.text].bits, abs=1e-4)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_pasted_subsets_of_more_answers_begin_with_those_of_fewer(count: int) -> None:
    answers = [f"answer {number}" for number in range(7)]
    assert pasted_subsets(answers, 7) == ["\n".join(answers)]
    texts = pasted_subsets(answers, count)
    for text, start in zip(texts, (0, 3), strict=False):
        lines = text.split("\n")
        assert len(set(lines)) == count
        assert lines[0] == answers[start]
        assert text.startswith(pasted_subsets(answers, 1)[texts.index(text)])
    assert len(texts) == (1 if count == 7 else 2)


def test_controls_are_scored_like_summaries_of_the_same_text(tiny_judge: TinyJudge) -> None:
    metric = SelfReflect(tiny_judge("llama"))
    *_, controls = Measures(metric).measure(QUESTION, ANSWERS, SUMMARIES)
    assert isinstance(controls, Controls)
    names = [(control.name, control.answers) for control in controls.controls]
    assert names == [
        ("empty", 0),
        ("question", 0),
        ("nonsense", 0),
        ("pasted", 1),
        ("pasted", 2),
        ("pasted", 3),
    ]
    every = pasted(ANSWERS.conditioning)
    texts = [[""], [QUESTION.text], [NONSENSE]]
    texts += [pasted_subsets(ANSWERS.conditioning, count) for count in (1, 2, 3)]
    told = measure(metric.judge, metric.engine, QUESTION, ANSWERS, list(chain.from_iterable(texts)))
    anchors = [Summary(question_id="q7", name=text, text=text) for text in ("", every)]
    scores = {score.summary: score for score in metric.score_records(QUESTION, ANSWERS, anchors)}
    for control, subsets in zip(controls.controls, texts, strict=True):
        assert control.subsets == len(subsets)
        assert control.words == round(fmean(len(text.split()) for text in subsets))
        assert control.bits == pytest.approx(fmean(told[text].bits for text in subsets), abs=1e-4)
        anchor = scores.get(subsets[0])
        assert control.score == (pytest.approx(anchor.value, abs=1e-6) if anchor else None)
    most = controls.find("pasted", 3)
    assert most is not None
    assert most.bits == pytest.approx(controls.bits_available, abs=1e-5)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"wanted_names": ["selfreflect"]}, ["Score"] * 3 + ["Controls"]),
        ({"wanted_names": ["information"]}, ["Information"] * 3 + ["Controls"]),
        ({"controls": False}, ["Score"] * 3 + ["Information"] * 3),
    ],
)
def test_only_what_is_wanted_is_measured(tiny_judge: TinyJudge, wanted, expected) -> None:
    measures = Measures(SelfReflect(tiny_judge("llama")), **wanted)
    results = measures.measure(QUESTION, ANSWERS, SUMMARIES)
    assert kinds(results) == expected
    if isinstance(results[-1], Controls):
        assert (results[-1].reader is None) == (wanted == {"wanted_names": ["selfreflect"]})
        assert (results[-1].temperature is None) == (wanted == {"wanted_names": ["information"]})


def test_a_later_strategy_costs_only_itself(tiny_judge: TinyJudge) -> None:
    measures = Measures(SelfReflect(tiny_judge("llama")))
    results = measures.measure(
        QUESTION, ANSWERS, SUMMARIES, missing={"information": SUMMARIES[:1]}, controls=False
    )
    assert kinds(results) == ["Information"]


@pytest.mark.parametrize("budget", [900, 1200, 2500, 10**6])
def test_both_measures_together_stay_within_a_budget_of_tokens(tiny_judge: TinyJudge, budget: int) -> None:
    metric = SelfReflect(tiny_judge("llama"), limits=Limits.parse(budget))
    counting = Counting(metric.engine)
    metric.engine = counting
    results = Measures(metric).measure(QUESTION, ANSWERS, SUMMARIES)
    assert counting.nodes <= budget
    assert kinds(results) == ["Score"] * 3 + ["Information"] * 3  # and no controls
    measured = [sum(bool(words) for words in one.answers) for one in results if isinstance(one, Information)]
    assert len(set(measured)) == 1  # the same answers for all summaries
    assert measured[0] == {900: 0, 1200: 2}.get(budget, 4)


def test_a_budget_leaves_out_no_more_answers_than_it_must(tiny_judge: TinyJudge) -> None:
    judge = tiny_judge("llama")
    texts = [summary.text for summary in SUMMARIES]
    answers = replace(ANSWERS, masked_out=(" ", *ANSWERS.masked_out))
    whole = nodes(judge, QUESTION, answers, texts, "informed")
    for budget, count in ((whole, 4), (whole - 1, 3), (10, 0)):
        some, spent = within_budget(judge, QUESTION, answers, texts, "informed", budget)
        assert spent <= budget
        assert sum(bool(text.strip()) for text in some.masked_out) == count
        assert len(some.masked_out) == 5
        if count:
            assert spent == nodes(judge, QUESTION, some, texts, "informed")


def test_a_later_summary_rests_on_the_answers_that_a_budget_left_for_earlier_ones(
    tiny_judge: TinyJudge,
) -> None:
    measures = Measures(SelfReflect(tiny_judge("llama"), limits=Limits.parse(1200)))

    def places(results) -> set[tuple[int, ...]]:
        of_each = [one.answers for one in results if isinstance(one, Information)]
        return {tuple(index for index, words in enumerate(one) if words) for one in of_each}

    results = measures.measure(QUESTION, ANSWERS, SUMMARIES)
    earlier = {"information": [one for one in results if isinstance(one, Information)]}
    [first] = places(results)
    later = [Summary(question_id="q7", name="later", text="Basil")]
    [alone] = places(measures.measure(QUESTION, ANSWERS, later))
    assert len(alone) > len(first)  # one summary leaves room for more
    assert places(measures.measure(QUESTION, ANSWERS, later, other_records=earlier)) == {first}


def test_a_budget_too_small_for_one_answer_is_typed(tiny_judge: TinyJudge) -> None:
    metric = SelfReflect(tiny_judge("llama"), limits=Limits.parse(20))
    results = Measures(metric).measure(QUESTION, ANSWERS, SUMMARIES[:1])
    score, information = results
    assert isinstance(score, Failure)
    assert "a budget of 20 tokens" in score.message
    assert isinstance(information, Information)
    assert (information.undefined, information.bits) == ("unmeasured", None)
    assert "budget" in information.why


def test_a_question_that_cannot_be_measured_says_why_for_each_summary(tiny_judge: TinyJudge) -> None:
    blank = AnswerSet(question_id="q7", masked_out=(" ",), conditioning=("Radishes.",))
    results = Measures(SelfReflect(tiny_judge("llama"))).measure(QUESTION, blank, SUMMARIES[:1])
    failure, information, controls = results
    assert isinstance(failure, Failure)
    assert isinstance(information, Information)
    assert information.undefined == "unmeasured"
    assert "no test answers" in information.why
    assert isinstance(controls, Controls)
    assert {(control.bits, control.score) for control in controls.controls} == {(None, None)}
    assert controls.reader is not None  # so that it is not tried again


def test_predictions_that_are_no_numbers_leave_room_for_another_try(tiny_judge: TinyJudge) -> None:
    metric = SelfReflect(tiny_judge("llama"))
    metric.engine = Failing(metric.engine)
    information, controls = Measures(metric, wanted_names=["information"]).measure(
        QUESTION, ANSWERS, SUMMARIES[:1]
    )
    assert isinstance(information, Information)
    assert (information.undefined, information.kind) == ("unmeasured", "backend")
    assert isinstance(controls, Controls)
    assert controls.reader is None  # they count as not measured


@pytest.mark.parametrize(
    ("model", "context", "choice", "reader"),
    [
        ("own", "", "auto", "blind"),
        ("own", "It was red.", "auto", "informed"),
        ("other", "", "auto", "informed"),
        ("other", "", "blind", "blind"),
        ("own", "", "informed", "informed"),
    ],
)
def test_a_judge_of_its_own_answers_reads_blindly(
    tiny_judge: TinyJudge, model: str, context: str, choice, reader: str
) -> None:
    judge = tiny_judge("llama")
    name = judge.name if model == "own" else "other"
    answers = AnswerSet(
        question_id="q7",
        masked_out=ANSWERS.masked_out,
        conditioning=ANSWERS.conditioning,
        model=name,
        revision=judge.lm.revision,
    )
    question = Question(id="q7", text=QUESTION.text, context=context)
    assert choose_reader(choice, judge, question, answers) == reader
    results = Measures(SelfReflect(judge), wanted_names=["information"], reader=choice).measure(
        question, answers, SUMMARIES
    )
    readers = {result.reader for result in results if isinstance(result, Information | Controls)}
    assert readers == {reader}
