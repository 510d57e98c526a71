"""The same answer in other words: what joins, what contradicts, and what is left to a model."""

from __future__ import annotations

import json
import time
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreflect import sameness
from selfreflect.sameness import are_apart, contains_answer, same_answer, same_groups

QUESTIONS = json.loads((Path(__file__).parent / "data" / "same_answers.json").read_text())["questions"]
CAPITAL = "What is the capital of Turkey?"
LAMP = "Ist die Lampe wasserdicht?"


@pytest.mark.parametrize(
    ("question", "one", "other"),
    [
        (CAPITAL, "Ankara", "The capital of Turkey is Ankara."),
        (CAPITAL, "Ankara", "It's Ankara, which became the capital in 1923."),
        ("When was the first e-mail sent?", "1971", "It was sent in 1971 by Ray Tomlinson."),
        ("Is it open?", "Yes", "Yes, until 6"),
        ("Can I return it?", "No.", "You cannot return it."),
        ("Did it rain?", "It rained.", "Yes."),
        (LAMP, "Wasserdicht ist die Lampe nicht.", "Nein"),
        ("Who won?", "Ann, Bob, and Cem", "Cem, Ann and Bob"),
        ("Who won?", "It was not Ann, but Bob.", "Bob"),
        ("When?", "May 5, 2020", "2020-05-05"),
        ("How fast?", "40mph", "40 mph"),
        ("How much?", "CHF 1,200", "1200 CHF"),
        ("How far?", "5 km", "five kilometres"),
        ("How many?", "5 (in 2020)", "5"),
        ("How many?", "twenty-one", "21"),
        ("何日？", "2020年5月3日", "May 3, 2020"),
        ("He is right, isn't he?", "Yes", "Yes, he is right."),
        ("Who won?", "not Ann", "It wasn't Ann."),
        ("How much?", "£5m", "£5 million"),
        ("Which code?", "0xFF", "It is 0xff."),
        ("When?", "at 1:30 p.m.", "1:30 PM"),
        ("When?", "1:30", "1:30 pm"),
        ("How cold?", "minus five", "It is -5."),
        ("How long ago?", "5 days ago", "5 days"),
        ("Wie viele?", "einunddreißig", "31"),
        ("How many?", "5万", "50,000"),
        ("Who scored?", "Ann 5, Bob 3", "Ann: 5, Bob: 3"),
        ("日本の首都は？", "東京。", "東京"),
        ("Which department do I write to?", "IT", "Write to IT."),
        ("Which country?", "U.S.", "the US"),
        ("Which country?", "U.S.A.", "USA"),
        ("Which country?", "US", "USA"),
        ("Which country?", "the U.S.A.", "the United States"),
        ("Welches Land?", "Die Vereinigten Staaten von Amerika", "USA"),
        ("Which country?", "the United Kingdom", "the U.K."),
        ("Wer hat es erfunden?", "Anna hat es erfunden.", "Es wurde von Anna erfunden."),
        ("Wie viele?", "jeder fünfte", "1 von 5"),
        ("How many?", "every fifth", "20 %"),
        ("How often?", "every third day", "every 3 days"),
        ("How many?", "a third", "1/3"),
        ("Wie viele?", "zwei Drittel", "2/3"),
        ("How much?", "half of it", "50 %"),
        ("How many?", "zero", "none"),
        ("How many?", "a dozen", "12"),
        ("How many?", "two hundred and five", "205"),
        ("How many?", "one thousand two hundred", "1,200"),
        ("How many?", "two hundred and fifty thousand", "250,000"),
        ("Wie viele?", "ein hundert", "100"),
        ("How many?", "one million", "1,000,000"),
        ("How many?", "half a million", "500,000"),
        ("How many?", "two and a half", "2.5"),
        ("How many?", "one and a half million", "1.5 million"),
        ("How many?", "between one hundred and two hundred", "100-200"),
        ("How many?", "a hundred and one", "101"),
        ("How many came?", "no one", "zero"),
        ("When?", "nineteen eighty-four", "1984"),
        ("When?", "twenty twenty-one", "2021"),
        ("When?", "31/12/2020", "2020-12-31"),
        ("When?", "12/31/2020", "31 December 2020"),
        ("Which place?", "the third", "3rd"),
        ("Welcher Platz?", "dritter", "3."),
        ("Which century?", "the twenty-first century", "21st"),
        ("Which king?", "Henry VIII", "Henry the Eighth"),
        ("Which war?", "World War II", "World War Two"),
        ("When?", "half past six", "6:30"),
        ("Wann?", "halb sieben", "6:30 Uhr"),
        ("What is the split?", "fifty-fifty", "50:50"),
        ("Le magasin est-il ouvert ?", "Non", "Le magasin n'est pas ouvert."),
        ("Which version?", "3.0", "version 3"),
        ("How long?", "3.10 m", "3.1 m"),
        ("How likely?", "one in five", "20 %"),
        ("How many?", "½", "0.5"),
        ("Wie viele?", "einer von fünf", "1 von 5"),
        ("What is the score?", "2:1", "2 to 1"),
        ("Wann?", "9.30 Uhr", "9:30 am"),
        ("When?", "6 pm", "18:00"),
        ("Quelle est la capitale ?", "Ankara", "C'est Ankara."),
        ("¿Cuánto cuesta?", "35 euros", "treinta y cinco euros"),
    ],
)
def test_the_same_in_other_words(question: str, one: str, other: str) -> None:
    assert same_answer(question, one, other) is same_answer(question, other, one) is True


@pytest.mark.parametrize(
    ("question", "one", "other"),
    [
        (CAPITAL, "The capital of Turkey is Ankara.", "The capital of Turkey is not Ankara."),
        ("How many?", "268,000", "430,000"),
        ("How many?", "1.5 million", "1.5 billion"),
        ("How far?", "5 km", "5 miles"),
        ("How much?", "EUR 1200", "$1200"),
        ("What temperature?", "-5", "5"),
        ("When?", "May 5, 2020", "May 6, 2020"),
        ("Is it open?", "yes", "no"),
        ("Is it open?", "Yes, until 5", "Yes, until 6"),
        (LAMP, "Die Lampe, die Sie meinen, ist nicht wasserdicht.", "Ja"),
        ("Can I return it?", "You can't return it.", "You can return it."),
        ("How many?", "5 (in 2020)", "2020"),
        ("What happens to prices?", "They increase.", "They decrease."),
        ("Was machen die Preise?", "Die Preise steigen.", "Die Preise sinken."),
        ("When?", "in the 1980s", "in the 1990s"),
        ("How many?", "5M", "5 thousand"),
        ("When?", "May 1990", "June 1990"),
        ("When?", "1:30 pm", "1:30 am"),
        ("Which code?", "0x10", "0"),
        ("How much?", "£5m", "£5"),
        ("How cold?", "minus five", "five"),
        ("How many?", "twenty-one", "twenty"),
        ("How many?", "10 lakh", "10"),
        ("何日？", "2020年5月3日", "2020年3月5日"),
        ("人口は？", "1億5000万", "1億"),
        ("Сколько?", "5 тысяч", "5"),
        ("How much?", "5‰", "5"),
        ("Is it safe?", "It is unsafe.", "It is safe."),
        ("Ist das möglich?", "unmöglich", "möglich"),
        ("Which version?", "3.10", "3.1"),
        ("What do I install?", "Python 3.10", "Python 3.1"),
        ("How likely?", "1 in 5", "5 in 1"),
        ("How many?", "two thirds", "two"),
        ("How many?", "a third", "a quarter"),
        ("Who came?", "a third person", "1/3"),
        ("Où est-il ?", "Non", "Il est à Paris."),
        ("Which place?", "the third", "the fourth"),
        ("Which king?", "Henry VIII", "Henry VII"),
        ("When?", "half past six", "half past seven"),
        ("How many?", "none", "5"),
        ("How many?", "one hundred twenty", "20"),
        ("How many?", "two hundred and five", "206"),
        (CAPITAL, "Istanbul", "Ankara, not Istanbul"),
        ("How many?", "thirteen fourteen fifteen", "1314"),
        ("When?", "31/12/2020", "30/12/2020"),
        ("When?", "1/2/2020", "2020-02-03"),
        ("How likely?", "eins zu fünf", "fünf zu eins"),
        ("When?", "6 pm", "6:00"),
        ("Est-ce ouvert ?", "Oui, jusqu'à 6 heures", "Non, c'est fermé."),
    ],
)
def test_contradictions_are_no_question_for_a_model(question: str, one: str, other: str) -> None:
    assert same_answer(question, one, other) is same_answer(question, other, one) is False


@pytest.mark.parametrize(
    ("question", "one", "other"),
    [
        ("When is the meeting?", "March 5", "April 5"),
        ("When?", "before 1990", "after 1990"),
        ("When?", "May 1990", "1990"),
        ("When?", "5 days ago", "in 5 days"),
        ("Which way?", "Rome → Milan", "Milan → Rome"),
        ("Which way?", "Rome, then Milan", "Milan, then Rome"),
        ("Which is larger?", "x > y", "y > x"),
        ("Who?", "by Ann", "for Ann"),
        ("By how much?", "It increased to 5 %.", "It increased by 5 %."),
        ("Who won?", "not Ann", "Not Bob"),
        ("Who won?", "Ann except Bob", "either Ann or Bob"),
        ("Who won?", "Ann without Bob", "neither Ann nor Bob"),
        ("Which?", "A and B", "B"),
        ("Which?", "I and II", "II"),
        ("How strong?", "5 mA", "5 A"),
        ("Which gas?", "CO", "Co"),
        ("How much?", "the second half", "half"),
        ("What is the split?", "5:5", "half and half"),
        ("Which sum?", "x+y", "x"),
        ("Which?", "5 × 3", "5+3"),
        ("Is it true?", "It is not false.", "no"),
        ("How many?", "less than five", "five"),
        ("How much?", "5 squared", "5"),
        ("Which formula?", "p ∧ q", "p ∨ q"),
        ("Which formula?", "¬p", "p"),
        ("Which power?", "e^x", "e^-x"),
        ("いつ？", "2020年5月", "2020年"),
        ("When?", "May 5, 1990", "May 1990"),
        ("When?", "1/2/2020", "2020-02-01"),
        (CAPITAL, "Ankara", "It is Ankara, not Istanbul."),
        ("How many?", "5 apples and 3 pears", "3 apples and 5 pears"),
        ("Where?", "(1, 2)", "(2, 1)"),
        ("Which interval?", "[1, 2)", "[1, 2]"),
        ("What is the sum?", "2x + 1", "2x - 1"),
        ("When?", "1994", "in the 1990s"),
        ("When?", "May 5, 1994", "in the 1990s"),
        ("What happens to prices?", "They increase a lot.", "They decrease."),
        ("How old must I be?", "über 18", "unter 18"),
        ("How many?", "5 men", "5 women"),
        ("How often?", "2 per day", "2 per week"),
        ("Which blood type?", "O+", "O-"),
        ("How strong?", "100W", "100V"),
        ("How fast?", "40mph", "40 kph"),
        ("Which gate?", "Gate 7a", "Gate 7b"),
        ("Which house?", "7a", "7"),
        ("How much?", "10 mg", "10 drops"),
        ("How large?", "5 m2", "5 m"),
        ("Which car?", "a 5-door car", "a 5-seat car"),
        ("Which grade?", "B", "B+"),
        ("Is it safe?", "No", "It isn't dangerous"),
        ("Can I park here?", "No problem!", "No."),
        ("Was kostet es?", "1.000 €", "1 €"),
        ("Which way?", "to Paris", "from Paris"),
        ("Who?", "his father", "her father"),
        ("What is 2^5?", "2⁵", "25"),
        ("When is the fair?", "In May or June.", "June."),
        (CAPITAL, "Ankara", "Istanbul"),
        ("Which city?", "Paris", "Paris or Lyon"),
        ("Which city?", "Paris", "Paris, Texas"),
        ("Which city?", "York", "New York"),
        ("Which colour is the light?", "red", "light red"),
        ("Is the light red or green?", "red", "green"),
        ("Who won?", "Ann beat Bob", "Bob beat Ann"),
        ("Who won?", "Ann, not Bob", "Bob, not Ann"),
        ("Who wrote it?", "Tolkien", "J.R.R. Tolkien"),
        ("What?", "It is.", "I think so."),
        ("Which country?", "US", "us"),
        ("Which department?", "It is IT.", "It is it."),
        ("How strong?", "5 mW", "5 MW"),
        ("How large?", "5 Mb", "5 MB"),
        ("What?", "Ankara", ""),
    ],
)
def test_what_is_neither_is_left_open(question: str, one: str, other: str) -> None:
    assert same_answer(question, one, other) is same_answer(question, other, one) is None


@pytest.mark.parametrize(
    ("question", "one", "other", "is_apart"),
    [
        ("How hot may it get?", "at least 50 degrees", "at most 50 degrees", True),
        ("Which grade?", "B", "B+", True),
        (CAPITAL, "Ankara", "Istanbul", True),
        ("Who won?", "Ann beat Bob", "Bob beat Ann", True),
        ("Wer gewann?", "Hans schlug Peter", "Peter schlug Hans", True),
        ("Wer kommt?", "Ann kommt am Montag", "Am Montag kommt Ann", False),
        ("What does it smell of?", "pine and moss", "moss and pines", False),
        ("Is the port open?", "support", "port", False),
    ],
)
def test_no_similarity_joins_what_differs_in_a_limit_a_sign_or_a_name(
    question: str, one: str, other: str, is_apart: bool
) -> None:
    assert are_apart(question, one, other) is are_apart(question, other, one) is is_apart


@pytest.mark.parametrize(
    ("answer", "gold", "is_right"),
    [
        ("The capital of Turkey is Ankara.", "Ankara", True),
        ("Ankara, not Istanbul", "Ankara", True),
        ("It is not Istanbul but Ankara.", "Ankara", True),
        ("I am not sure, but Ankara", "Ankara", True),
        ("Ankara, and it has 5 million people.", "Ankara", True),
        ("It is not Ankara.", "Ankara", False),
        ("Ankara is not the capital of Turkey.", "Ankara", False),
        ("Das ist nicht Ankara.", "Ankara", False),
        ("anywhere except Ankara", "Ankara", False),
        ("Ankara or Istanbul", "Ankara", False),
        ("Ankara/Istanbul", "Ankara", False),
        ("Ankara and Istanbul", "Ankara", False),
        ("The candidates are Istanbul, Izmir and Ankara.", "Ankara", False),
        ("Ankara" + " word" * 70, "Ankara", False),
        ("comparison", "Paris", False),
        ("Simon and Garfunkel wrote it", "Simon and Garfunkel", True),
        ("3 + 4 = 7", "7", True),
        ("3 + 4 = 7", "3", False),
        ("There are 72 clips, altogether.", "72", True),
        ("15", "5", False),
        ("between 1970 and 1971", "1971", False),
        ("Yes, it is", "Yes", True),
        ("No, not yes", "Yes", False),
        ("東京です", "東京", True),
        ("in June 1990", "May 1990", False),
        ("Room 7a", "7", False),
        ("two thirds", "2", False),
        ("A and B", "B", False),
        ("The answer is A.", "A", True),
        ("in June 1990", "1990", True),
        (" ", " ", False),
        ("They told us.", "US", False),
        ("It is HR.", "IT", False),
        ("Python 3.10", "3.1", False),
        ("3 of 5", "5", False),
        # an abstention is neither yes nor no
        ("Not enough information", "no", False),
        ("No answer", "no", False),
        ("It is not known", "no", False),
        ("No, it is not.", "no", True),
        # negations and choices in other scripts
        ("不是北京", "北京", False),
        ("是北京", "北京", True),
        ("東京ではない", "東京", False),
        ("東京か大阪", "東京", False),
        ("東京", "京", False),
        ("서울입니다", "서울", True),
        ("서울 또는 부산", "서울", False),
        ("ไม่ใช่กรุงเทพ", "กรุงเทพ", False),
        ("ليست القاهرة", "القاهرة", False),
    ],
)
def test_a_right_answer_stands_whole_and_alone(answer: str, gold: str, is_right: bool) -> None:
    assert contains_answer(CAPITAL, answer, gold) is is_right


@pytest.mark.parametrize("answers", [["no", "not enough information"], ["½", "-½"]])
def test_an_abstention_is_no_no_and_a_sign_counts(answers: list[str]) -> None:
    assert len(same_groups(answers, "Is it so?")) == 2


def test_precision_comes_before_recall_on_labelled_logs_in_two_languages() -> None:
    joined = right = same = 0
    for question in QUESTIONS:
        answers = [(text, place) for place, texts in enumerate(question["classes"]) for text in texts]
        for (one, first), (other, second) in combinations(answers, 2):
            found = same_answer(question["question"], one, other) is True
            joined += found
            right += found and first == second
            same += first == second
    assert right == joined
    assert right / same > 0.8


def test_two_answers_share_a_class_where_the_rule_says_the_same() -> None:
    texts = [text for question in QUESTIONS for texts in question["classes"] for text in texts]
    texts += ["yes", "no", "none", "Yes, a lot", "It is open", "not at all", "Yes, until 6"]
    texts += ["0", "Ann(my friend since May)", "Ann, who is tall"]
    for question in ["", "Is it open on weekends?", "How many are there?", CAPITAL]:
        for place, one in enumerate(texts):
            for other in texts[place + 1 :: 7] + texts[-9:]:
                is_same = same_answer(question, one, other) is True
                assert (len(same_groups([one, other], question)) == 1) == is_same, (question, one, other)


def test_a_class_never_holds_a_contradiction() -> None:
    answers = ["Yes, until 5", "Yes", "Yes, until 6", "No"]
    assert same_groups(answers, "Is it open?") == [[0, 1], [2], [3]]


def test_of_many_different_answers_each_is_compared_with_the_frequent_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sameness, "MOST_COMPARED", 2)
    answers = ["Oslo", "It is Oslo.", "Rome", "It is Rome.", "Ankara", "Ankara", "It is Ankara."]
    assert same_groups(answers, "Which city?") == [[4, 5, 6], [0, 1], [2], [3]]


@given(
    st.lists(st.text(st.sampled_from("aB 1-5,.no't()\n\ud800"), max_size=12), max_size=8), st.text(max_size=9)
)
def test_any_answers_are_sorted_and_equal_ones_stay_together(answers: list[str], question: str) -> None:
    groups = same_groups(answers, question)
    assert sorted(index for group in groups for index in group) == list(range(len(answers)))
    home = {index: place for place, group in enumerate(groups) for index in group}
    assert all(home[a] == home[b] for a, b in combinations(home, 2) if answers[a] == answers[b])


@pytest.mark.parametrize(
    "text", ["a" + " " * 100_000 + "b", "安卡拉" * 5_000, "a (" * 20 + "\n" * 100_000 + "b"]
)
def test_a_model_that_repeats_itself_is_compared_in_seconds(text: str) -> None:
    started = time.perf_counter()
    assert same_answer("Which?", text, f"{text} x") is None
    assert not contains_answer("Which?", text, "Oslo")
    assert time.perf_counter() - started < 5
