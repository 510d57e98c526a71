from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from measured import WORDS, measured_run

from selfreflect.cli.show import ONE_GROUP, marked_words, print_question, unsure_answer
from selfreflect.logprobs import AnswerTokens
from selfreflect.records import AnswerSet, WordBits


def shown(records, capsys):
    """What is printed of the first question, as one line."""
    print_question(records, "q0")
    return " ".join(capsys.readouterr().out.split())


def test_a_summary_is_introduced_by_what_it_tells_and_its_place(capsys):
    text = shown(measured_run({"greedy": [5.6]}, scores={"greedy": [0.0749]}), capsys)
    assert (
        "greedy This summary recovers 56 % of the information in ten sampled answers (95 % CI 41 to 71 %)."
        in text
    )
    assert (
        "SelfReflect score 0.0749 ± 0.0020: 62 % of the way from the empty summary (0.0860) to ten pasted "
        "answers (0.0680)" in text
    )
    assert text.endswith(
        "controls: empty 0 %, question repeated -10 %, nonsense -8 %, 1 answer pasted 40 %, "
        "2 answers pasted 60 %, 5 answers pasted 80 %, all answers pasted 100 %"
    )


def test_words_have_signs_and_a_legend_where_there_are_no_colours(capsys):
    text = shown(measured_run({"greedy": [5.6]}), capsys)
    assert "+covered by the summary, -missed by it, !misleading: less believable after it, plain: " in text
    assert "The +car +red" in text
    assert "The -car !blue" in text
    assert text.count("The +car +red") == 1  # a repeated answer is shown once


def test_words_have_colours_of_different_looks_on_a_terminal():
    line = marked_words(WORDS[1], "", signs=False)
    assert line.plain == "The car blue"
    styles = {line.plain[span.start : span.end]: str(span.style) for span in line.spans if span.style}
    assert styles == {"car": "yellow underline", "blue": "bold magenta reverse"}


def test_long_answers_are_cut_and_no_word_controls_the_terminal():
    line = marked_words(
        [WordBits("\x1b[31mred\n", 9.0, 9.0), *[WordBits("x", 0.0, 0.0)] * 99], "", signs=True
    )
    assert line.plain.endswith("x …")
    assert len(line.plain.split()) <= 32
    assert "\x1b" not in line.plain
    assert "\n" not in line.plain


SURE, SPLIT, OPEN = (-0.01, -6.0, -7.0), (-0.2, -2.0, -5.0), (-1.4, -1.4, -1.4)


@pytest.mark.parametrize(
    ("top", "marked"),
    [
        ((SURE, SPLIT, SURE, OPEN, SURE), "It ~is ~~\\x1b[31mOslo <b>."),
        ((), "It ~is ~~\\x1b[31mOslo ~~~<b>."),  # by the words' own probabilities
        ((SURE, SPLIT[:2], SURE, OPEN, SURE), "It ~is ~~\\x1b[31mOslo ~~~<b>."),
    ],
)
def test_unsure_words_have_signs_or_lines(top, marked, capsys):
    texts = ("It", " is", " \x1b[31mOs", "lo\n", "<b>.")
    answer = "".join(texts)
    tokens = AnswerTokens(texts, (-0.01, -0.5, -0.8, -0.1, -5.0), None, top)
    answers = AnswerSet(
        question_id="q0",
        masked_out=(answer,),
        conditioning=("Bern", "x " * 400),
        logprobs=(tokens, "not_returned", AnswerTokens(("x ",) * 400, (-9.0,) * 400)),
    )
    text = shown(replace(measured_run({"greedy": [5.6]}), answers={"q0": answers}), capsys)
    assert f"~1.5, ~~2, ~~~4 and more 1 x {marked} 1 x Bern 1 x ~~~x ~~~x" in text
    assert text.count("~~~x") < 40
    line = unsure_answer(answers, answer, signs=False)
    assert line.plain == marked.replace("~", "")
    styles = [str(span.style) for span in line.spans if span.style]
    assert len(styles) == len(set(styles)) == marked.count(" ~")
    assert all("underline" in style for style in styles)


def test_where_all_answers_agree_the_rest_is_their_wording(capsys):
    records = measured_run({"greedy": [5.6]})
    assert ONE_GROUP not in shown(records, capsys)
    answers = msgspec.structs.replace(
        records.answers["q0"], masked_out=("Ankara.", "It is Ankara."), conditioning=("Ankara",)
    )
    assert ONE_GROUP in shown(replace(records, answers={**records.answers, "q0": answers}), capsys)


def test_where_nothing_can_be_told_one_line_says_so_and_no_number_follows(capsys):
    records = measured_run({"greedy": [None], "basic": [None]}, scores={"greedy": [0.08]})
    text = shown(records, capsys)
    assert text.count("The judge already knows these answers") == 1
    assert "%" not in text.replace("62 % of the way", "").partition("Summaries")[0]
    assert "greedy score 0.0800 ± 0.0020: 33 % of the way" in text
    assert "controls" not in text


def test_a_summary_that_was_not_measured_says_why(capsys):
    records = measured_run({"greedy": [5.6], "basic": [5.0]})
    lost = msgspec.structs.replace(
        records.information["q0", "basic"],
        recovered=None,
        interval=None,
        undefined="unmeasured",
        why="too long.",
    )
    text = shown(replace(records, information={**records.information, ("q0", "basic"): lost}), capsys)
    assert "basic How much this summary recovers was not measured: too long." in text
