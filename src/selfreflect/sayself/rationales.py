"""Let a model describe, in the first person, what the answers to a question disagree about."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from selfreflect.records import Record
from selfreflect.sayself.clusters import ClusteredQuestion
from selfreflect.sayself.prompts import listed_clusters, user_message
from selfreflect.sayself.statement import SURE, has_marker
from selfreflect.store.replies import ModelReplies
from selfreflect.text import quoted
from selfreflect.uncertainty.asking.asker import Asker, Inquiry

MAX_SENTENCES = 3
FEWEST_WORDS = 6
MAX_TOKENS = 96

_SENTENCE = re.compile(r"[^.!?]+(?:[.!?]+|$)")
_FIRST_PERSON = re.compile(r"\b(?:I|I'm|I've|I'd|my|me|myself)\b")
_NUMBER_WORDS = (
    "two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty hundred half"
)
_LEAKS = re.compile(
    rf"\d+|%|\b(?:{'|'.join(_NUMBER_WORDS.split())}|per\s?cent(?:ages?)?|probabilit\w+|shares?|"
    r"confidence scores?|samples?|sampled|clusters?|frequen\w+|(?:these|those|different|possible|other) "
    r"(?:answers|responses)|responses?|the list)\b",
    re.IGNORECASE,
)
"""What a reflection must not mention: numbers, and that there were samples."""

Origin = Literal[
    "fixed",  # all answers agree
    "model",
    "repaired",  # some sentences were left out
    "second",  # the model was asked again
    "dropped",  # nothing usable was written
]


class Rationale(Record, frozen=True, kw_only=True):
    """What is said of the doubts about a question; empty if ``dropped``."""

    question_id: str
    text: str
    origin: Origin
    problem: str = ""
    """What was wrong with the first text, if anything."""


def find_problem(text: str) -> str:
    """Say why a text cannot be a reflection; empty if it can."""
    sentences = _sentences(text)
    if not sentences:
        return "it is blank"
    if len(sentences) > MAX_SENTENCES:
        return f"it has {len(sentences)} sentences, and {MAX_SENTENCES} are allowed"
    if has_marker(text):
        return "it holds a marker of the statement, such as 'Confidence:'"
    leak = _LEAKS.search(text)
    if leak:
        return f"it mentions {leak[0].lower()!r}"
    if len(text.split()) < FEWEST_WORDS:
        return f"it has fewer than {FEWEST_WORDS} words"
    if not _FIRST_PERSON.search(text):
        return "it is not in the first person"
    return ""


def repair(text: str) -> str:
    """Keep the first sentences that mention nothing they must not; empty if that is no reflection."""
    sentences = [one for one in _sentences(text) if not (_LEAKS.search(one) or has_marker(one))]
    shorter = " ".join(sentences[:MAX_SENTENCES])
    return "" if find_problem(shorter) else shorter


def _sentences(text: str) -> list[str]:
    return [sentence.strip() for sentence in _SENTENCE.findall(" ".join(text.split())) if sentence.strip()]


def write_rationales(questions: Sequence[ClusteredQuestion], asker: Asker) -> list[Rationale]:
    """Write one rationale for each question, asking about those whose answers fall into several clusters.

    A text that leaks numbers or samples loses those sentences. Where nothing is left, the model is asked once
    more, in other words; then the question is dropped.

    Raises:
        BackendError: the model has stopped working. Its replies are kept.
    """
    unsure = [question for question in questions if len(question.clusters) > 1]
    first = asker.ask(list(map(_inquiry, unsure)))
    rationales = {
        question.id: _judged(question, reply) for question, reply in zip(unsure, first, strict=True)
    }
    again = [question for question in unsure if rationales[question.id].origin == "dropped"]
    second = asker.ask(list(map(_second_inquiry, again)))
    for question, reply in zip(again, second, strict=True):
        earlier = rationales[question.id]
        later = _judged(question, reply)
        if later.origin != "dropped":
            rationales[question.id] = Rationale(
                question_id=question.id, text=later.text, origin="second", problem=earlier.problem
            )
    for question in questions:
        if question.id not in rationales:
            rationales[question.id] = Rationale(question_id=question.id, text=SURE, origin="fixed")
    return [rationales[question.id] for question in questions]


def _judged(question: ClusteredQuestion, reply: ModelReplies) -> Rationale:
    if reply.failure is not None:
        problem = f"the model gave no reply ({reply.failure})"
        return Rationale(question_id=question.id, text="", origin="dropped", problem=problem)
    text = reply.texts[0]
    if reply.finishes[0] == "length":  # its last sentence is not whole
        text = text[: max(map(text.rfind, ".!?"), default=-1) + 1]
    text = " ".join(text.split())
    problem = find_problem(text)
    if not problem:
        return Rationale(question_id=question.id, text=text, origin="model")
    shorter = repair(text)
    origin: Origin = "repaired" if shorter else "dropped"
    return Rationale(question_id=question.id, text=shorter, origin=origin, problem=problem)


def _inquiry(question: ClusteredQuestion) -> Inquiry:
    values = {
        "question": quoted(question.asked),
        "responses": listed_clusters(question),
    }
    return Inquiry("rationale", (user_message("rationale", values),), max_new_tokens=MAX_TOKENS)


def _second_inquiry(question: ClusteredQuestion) -> Inquiry:
    answers = " and ".join(quoted(cluster.answer) for cluster in question.clusters[:2])
    values = {"question": quoted(question.asked), "answers": answers}
    return Inquiry("second rationale", (user_message("rationale_again", values),), max_new_tokens=MAX_TOKENS)
