from __future__ import annotations

from pathlib import Path

import pytest

from selfreflect.metric.prompts import (
    STOPWORDS,
    count_list_breaks,
    is_stopword,
    masked_words,
    reference_context,
    summary_context,
)
from selfreflect.models.base import Message

SYSTEM = "You are a friendly chatbot who always responds with short and concise answers.\n"


def masked(*answers: str) -> list[tuple[str, str]]:
    return [(word.text, word.masked) for word in masked_words(answers)]


def test_the_stopwords_are_the_44_published_ones():
    lines = (
        (Path(__file__).parents[1] / "data" / "stopwords.tsv").read_text(encoding="utf-8").splitlines()[1:]
    )
    assert len(lines) == 44
    assert {line.split("\t")[0] for line in lines} == STOPWORDS


@pytest.mark.parametrize(
    "word", ["the", "The", "THE,", '"(is)".', "'to", "not!?", "`of`", "_it_", "\tyou\x0b"]
)
def test_case_and_ascii_punctuation_do_not_hide_a_stopword(word):
    assert is_stopword(word)


@pytest.mark.parametrize(
    "word",
    [
        *("a", "A", "I", "i,"),  # the list was made of words of two letters and more
        *("it's", "don't", "I'm", "can't", "you'll"),
        *("“the”", "the…", "«is»", "—not", "the。"),  # only ASCII punctuation is stripped
        *("t-he", "to/of", "isn", "theme"),
        *("_", "--", "42", ""),
    ],
)
def test_everything_else_is_content(word):
    assert not is_stopword(word)


def test_each_content_word_is_masked_once_with_its_punctuation():
    assert masked("Start with radishes, they grow (quickly).") == [
        ("Start", "_ with radishes, they grow (quickly)."),
        ("radishes,", "Start with _ they grow (quickly)."),
        ("grow", "Start with radishes, they _ (quickly)."),
        ("(quickly).", "Start with radishes, they grow _"),
    ]


def test_one_letter_words_and_contractions_are_masked():
    assert [text for text, _ in masked("I can't have a vitamin")] == ["I", "can't", "a", "vitamin"]


def test_every_word_is_masked_where_all_are_stopwords():
    assert masked("It is not.") == [("It", "_ is not."), ("is", "It _ not."), ("not.", "It is _")]
    assert [text for text, _ in masked("You")] == ["You"]


def test_one_content_word_is_enough_to_spare_the_stopwords():
    assert masked("It is not clear") == [("clear", "It is not _")]


def test_any_white_space_separates_words_and_one_space_joins_them():
    assert masked("  red\n\tgreen\u00a0blue\u3000") == [
        ("red", "_ green blue"),
        ("green", "red _ blue"),
        ("blue", "red green _"),
    ]


def test_equal_words_are_masked_one_at_a_time():
    assert masked("no no") == [("no", "_ no"), ("no", "no _")]


def test_a_word_that_looks_like_the_gap_is_a_word():
    assert masked("not _ sure") == [("_", "not _ sure"), ("sure", "not _ _")]


def test_blank_answers_are_skipped_and_keep_their_number():
    words = masked_words(["", "red wine", " \n\t", "\u2003", "It is"])
    assert [(word.answer, word.word, word.text) for word in words] == [
        (1, 0, "red"),
        (1, 1, "wine"),
        (4, 0, "It"),
        (4, 1, "is"),
    ]


def test_equal_answers_are_separate_tasks():
    assert [(word.answer, word.text) for word in masked_words(["Red.", "Red."])] == [(0, "Red."), (1, "Red.")]


def test_the_conversation_about_a_summary():
    turns = summary_context("What grows fast?", "Radishes {do}.\n").conversation("They _ {quickly}")
    assert turns == (
        Message(role="system", content=SYSTEM),
        Message(role="user", content="Question: What grows fast?"),
        Message(role="assistant", content="Radishes {do}.\n"),
        Message(
            role="user",
            content='We now show a text with a missing word "_". Fill in the missing word "_" only based on '
            'the answer you gave above: They _ {quickly}\nPlease provide only the missing word "_", '
            "not the whole sentence.",
        ),
    )


def test_the_conversation_about_the_conditioning_answers():
    turns = reference_context("What grows fast?", ["Radishes", "It's cress", ""]).conversation("_ do")
    assert turns == (
        Message(role="system", content=SYSTEM),
        Message(role="user", content="Question: What grows fast?\nSample 3 answers to this question."),
        Message(role="assistant", content="x_1 = 'Radishes'\nx_2 = 'It's cress'\nx_3 = ''"),
        Message(
            role="user",
            content='We now show a text with a missing word "_". Fill in the missing word "_" only based on '
            'the distribution of answers you gave above: _ do\nPlease provide only the missing word "_", '
            "not the whole sentence.",
        ),
    )


@pytest.mark.parametrize("count", [1, 10, 50])
def test_the_number_of_samples_is_the_number_of_conditioning_answers(count):
    context = reference_context("Why?", ["x"] * count)
    assert context.question == f"Question: Why?\nSample {count} answers to this question."
    assert context.reply.splitlines()[-1] == f"x_{count} = 'x'"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Why", "Question: Why?"),
        ("Why?", "Question: Why?"),
        ("Question: Why?", "Question: Why?"),
        ("Question:Why?", "Question: Question:Why?"),
        ("question: why", "Question: question: why?"),
        ("Why\n", "Question: Why?"),
        ("Why?\n", "Question: Why?"),
        ("Why\n\n", "Question: Why\n?"),
        ("Why? ", "Question: Why? ?"),
        ("Which?\nA. one\nAnswer:", "Question: Which?\nA. one\nAnswer:?"),
        ("", "Question: ?"),
    ],
)
def test_how_a_question_is_shown(text, shown):
    assert summary_context(text, "s").question == shown
    assert reference_context(text, ["r"]).question == f"{shown}\nSample 1 answers to this question."


def test_answers_that_break_the_list_are_counted_once_each():
    assert (
        count_list_breaks(["It's 'so'\nindeed", "fine", 'a "double" quote', "two\nlines", "’typographic’"])
        == 2
    )
