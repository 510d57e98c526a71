"""Words that a summary covers, misses or misleads about; shares that do not count; notebook pages."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured import WORDS, information, measured_run
from synthetic import informed_run

from selfreflect.cli.show import print_question
from selfreflect.metric.measure import measure_named
from selfreflect.records import NothingToTell, Question, UnclearCause, WordBits
from selfreflect.report.compare import summary_table
from selfreflect.report.findings import show_case_note, value_sentence
from selfreflect.report.overview import overview
from selfreflect.report.page.view import question_view
from selfreflect.report.reflection import Reflection
from selfreflect.report.words import FULL, PLAIN_BELOW, mark, marks
from selfreflect.stats import student_quantile

bits = st.floats(-60, 60)

INFORMATION = measure_named("information")


@pytest.mark.parametrize(
    ("told", "available", "kind", "size"),
    [
        (7.2, 7.9, "covered", 7.2),
        (0.5, 8.1, "missed", 7.6),
        (-6.6, 4.9, "misleading", 6.6),
        (-3.7, 12.0, "misleading", 3.7),  # a false statement, not just a gap
        (0.3, 0.4, "plain", 0.3),  # neither covers it
        (-0.5, 0.4, "plain", 0.0),
        (5.0, 8.0, "covered", 5.0),  # the larger part counts
        (3.0, 8.0, "missed", 5.0),
        (-1.0, 6.0, "missed", 6.0),
        (5.7, -6.5, "covered", 5.7),
        (-5.0, -5.0, "plain", 0.0),  # a rare answer: the answers themselves make it less likely
        (-9.0, -5.0, "misleading", 4.0),
    ],
)
def test_a_word_is_marked_by_what_the_summary_and_the_answers_tell(told, available, kind, size):
    marked = mark(WordBits("word", told, available))
    assert marked.kind == kind
    assert marked.bits == pytest.approx(size)


@given(bits, bits)
def test_marks_are_bits_and_strengths_are_shares(told, available):
    marked = mark(WordBits("word", told, available))
    assert 0 <= marked.strength <= 1
    assert marked.strength == pytest.approx(min(marked.bits / FULL, 1))
    assert (marked.kind == "plain") == (marked.bits < PLAIN_BELOW)


@given(bits, bits)
def test_a_summary_that_tells_what_the_answers_tell_neither_misses_nor_misleads(told, available):
    assert mark(WordBits("word", available, available)).kind in ("plain", "covered")
    better = max(told, available)
    assert mark(WordBits("word", better, available)).kind in ("plain", "covered")


@pytest.mark.parametrize(
    ("word", "summary", "kind"),
    [
        ("Ankara.", "Ankara", "covered"),
        ("Ankara.", "The capital of Turkey is **ANKARA**!", "covered"),
        ("Ankara", "I would say Ankara's old town", "covered"),
        ("安卡拉。", "首都是安卡拉", "covered"),
        ("Ankara.", "Ankaraspor won", "missed"),
        ("Ankara.", "Istanbul", "missed"),
        ("Ankara.", "", "missed"),
        ("5", "15 or 25", "missed"),
    ],
)
def test_a_word_that_stands_in_the_summary_is_never_missed(word, summary, kind):
    [label] = marks([WordBits(word, 0.5, 8.0)], summary)
    assert label.kind == kind


def test_a_word_of_the_summary_can_mislead_and_can_be_plain():
    labels = marks([WordBits("red", -6.0, 3.0), WordBits("red", 0.3, 0.4)], "not red")
    assert [label.kind for label in labels] == ["misleading", "plain"]


ANSWERS = ((WordBits("a", 17.0, 18.0),), (WordBits("b", 18.0, 18.2),), (), (WordBits("c", 17.5, 18.1),))


def doubtful(told: float = 17.5, available: float = 18.1, undefined: str = "unclear"):
    lost = {"recovered": None, "interval": None, "bits": told, "bits_available": available}
    whole = information("q0", "greedy", 5.0, answers=ANSWERS)
    return msgspec.structs.replace(whole, **lost, undefined=undefined)


def test_every_reason_has_words():
    for reason in (*get_args(NothingToTell), *get_args(UnclearCause)):
        assert reason in INFORMATION.reasons
        assert "no share:" not in value_sentence(doubtful(undefined=reason), 3)


def test_a_share_that_does_not_count_has_its_interval_and_its_reason():
    found = INFORMATION.doubtful(doubtful())
    share = 17.5 / 18.1
    assert found.value == pytest.approx(share)
    residuals = [17.0 - share * 18.0, 18.0 - share * 18.2, 17.5 - share * 18.1]
    mean = sum(residuals) / 3
    stderr = (sum((one - mean) ** 2 for one in residuals) / 2 / 3) ** 0.5
    half = student_quantile(0.975, 2) * stderr / 18.1
    assert found.text == f"(97 %, {100 * (share - half):.0f} to {100 * (share + half):.0f} %) unclear"
    stored = msgspec.structs.replace(doubtful(), interval=(-0.5, 1.5))
    assert INFORMATION.doubtful(stored).text == "(97 %, -50 to 150 %) unclear"


@pytest.mark.parametrize(
    "nothing", [doubtful(available=-1.0), doubtful(available=0.0), information("q0", "greedy", 5.0)]
)
def test_without_available_bits_or_with_a_share_nothing_is_doubtful(nothing):
    assert INFORMATION.doubtful(nothing) is None


def test_a_wild_share_is_never_printed():
    assert "%" not in INFORMATION.doubtful(doubtful(told=27.37, available=1.0)).text
    record = msgspec.structs.replace(doubtful(told=-1.8, available=0.6), cause="out_of_range")
    assert INFORMATION.doubtful(record).brief == "(-1.8 of 0.6 bits)"


def test_tables_and_pages_show_the_value_in_brackets(capsys):
    run = measured_run({"greedy": [5.6], "basic": [5.0]})
    run = replace(run, information={**run.information, ("q0", "greedy"): doubtful()})
    text = INFORMATION.doubtful(doubtful()).text
    assert text.startswith("(97 %")
    assert text.endswith("unclear")
    assert [row[-2:] for row in summary_table(run).rows] == [("(97 %) unclear", 0.5)]
    view = question_view(run.questions["q0"], run.answers["q0"], run.outcomes("q0"))
    shown = {one["name"]: one["information"]["tentative"] for one in view["summaries"]}
    assert shown == {"greedy": {"text": text, "recovered": pytest.approx(17.5 / 18.1)}, "basic": None}
    alone = replace(run, strategies=["greedy"])
    print_question(alone, "q0")
    assert text in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("judge", "model", "question", "warned"),
    [
        ("smollm2", "smollm2", "What should I plant first?", False),
        ("smollm2", "openai:strong", "What should I plant first?", True),
        ("smollm2", "", "What should I plant first?", True),
        ("smollm2", "smollm2", "Wie lange gilt die Garantie?", True),
        ("smollm2", "smollm2", "土耳其的首都是哪里?", True),
        ("a/larger", "openai:strong", "Wie lange gilt die Garantie?", False),
    ],
)
def test_numbers_of_a_small_judge_on_other_texts_are_said_first_to_show_how_it_works(
    judge, model, question, warned
):
    run = measured_run({"greedy": [5.6]}, judge=judge)
    answers = {id_: msgspec.structs.replace(one, model=model) for id_, one in run.answers.items()}
    run = replace(run, answers=answers, questions={"q0": Question(id="q0", text=question)})
    assert bool(show_case_note(run)) == warned
    assert (overview(run).notes[0] == show_case_note(run)) == warned
    assert bool(show_case_note(run, named_models_only=True)) == (warned and model != "")


@pytest.mark.parametrize(("answers", "words"), [(WORDS, 1), (((WordBits("car", 0.1, 0.2),),), 0)])
def test_words_are_shown_where_a_summary_tells_or_misses_any(
    answers: tuple[tuple[WordBits, ...], ...], words: int
) -> None:
    run = informed_run()
    [id_, *_] = run.questions
    own = run.information[id_, "good"]
    one = replace(
        run,
        questions={id_: run.questions[id_]},
        answers={id_: run.answers[id_]},
        summaries={(id_, "good"): run.summaries[id_, "good"]},
        information={(id_, "good"): type(own)(**{**own.to_dict(), "answers": answers})},
        scores={},
    )
    assert Reflection(one)._repr_html_().count("car") == words
