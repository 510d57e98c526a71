"""The rule that tells questions from what should be answered once."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.server.kinds import kind_of

PROMPTS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize(
    "name", ["prompt_kinds.json", "prompt_kinds_new.json", "prompt_kinds_languages.json"]
)
def test_most_prompts_of_ten_kinds_are_told_apart(name: str) -> None:
    rows = json.loads((PROMPTS / name).read_text(encoding="utf-8"))
    assert len({row["kind"] for row in rows}) == 10
    sampled = [row["reflect"] for row in rows if kind_of(row["prompt"]) == "question"]
    assert sum(sampled) / len(sampled) >= 0.9
    assert sum(sampled) / sum(row["reflect"] for row in rows) >= 0.9


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Hi! Thanks for your help.", "small_talk"),
        ("Hi! Thanks. What is the capital of Oz?", "question"),
        ("Could you please write a poem?", "long_text"),
        ("What is the capital of Oz? Write only the name.", "question"),
        ("The ferry leaves at six. Translate the above into German.", "rewrite"),
        ("WRITE A FUNCTION that adds two numbers", "code"),
        ("Übersetze ins Englische: Guten Tag", "rewrite"),
        ("capital of Oz", "question"),
        ("The ferry leaves at six.", "statement"),
        ("法国的首都是哪里", "question"),
        ("17 * 23 =", "question"),
        ("heyyy", "small_talk"),
        ("Vielen Dank für die tolle Antwort zu Peru", "statement"),
        ("hmm", "statement"),
        ("You are to decide whether 91 is prime.", "statement"),
        ("### Task:\nGenerate a title for the chat.\n### Chat:\nUSER: What is the capital of Oz?", "ideas"),
        ("You are a guide. Continue the text in <text>.\n<text>Why is the sky?</text>", "long_text"),
        ("Given the chat, rephrase the last question: What is it?", "rewrite"),
        ("<doc>It closes at six.</doc>\nWhen does it close?", "question"),
        ("The cell's powerhouse is the\nA. nucleus\nB. mitochondrion", "question"),
        ("", "small_talk"),
        ("👋", "small_talk"),
    ],
)
def test_the_order_or_the_question_decides(text: str, kind: str) -> None:
    assert kind_of(text) == kind


@given(st.text(max_size=200))
def test_any_text_has_a_kind_whatever_stands_around_it(text: str) -> None:
    assert kind_of(text) == kind_of(f"  {text}\n ")


@pytest.mark.parametrize(
    "part", ["a", "? ", "1 ", "(", "\n", "hi ", "<a ", "SELECT ", "é", "def x", "in, ", "you are "]
)
@pytest.mark.parametrize("around", ["", "Tell me about it.\n"])
def test_a_long_text_takes_no_time(part: str, around: str) -> None:
    began = time.perf_counter()
    kind_of(around + part * 500_000 + around)
    assert time.perf_counter() - began < 2


def test_blank_lines_and_indents_do_not_hide_code() -> None:
    assert kind_of("Explain this.\n\n\n   def area(side):\n\n  return side") == "code"
    assert kind_of("Fast?\nSELECT SELECT name FROM towns") == "code"
    assert kind_of("Is SELECT a word?") == "question"
