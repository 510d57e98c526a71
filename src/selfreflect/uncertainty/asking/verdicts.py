"""Ask a model whether two answers mean the same, and whether an answer is correct."""

from __future__ import annotations

import re
from collections.abc import Sequence

from selfreflect.errors import excerpt
from selfreflect.models.base import Message
from selfreflect.store.replies import ModelReplies
from selfreflect.text import fill, numbered, quoted
from selfreflect.uncertainty.asking.asker import SAME_MEANING, Asker, Inquiry, reply_text
from selfreflect.uncertainty.asking.parsing import parse_either
from selfreflect.uncertainty.asking.prompts import described, prompts
from selfreflect.uncertainty.question import AnsweredQuestion, NoValue

_NO_IDEA = re.compile(r"\W*no\s+(?:idea|clue|opinion)\b", re.IGNORECASE)


def parse_verdict(text: str) -> bool | NoValue:
    """Read a reply that begins with Yes or No, and not with both. "No idea" is neither."""
    if _NO_IDEA.match(text):
        return NoValue("unparsed", f"neither Yes nor No: {excerpt(text, 80)}")
    return parse_either(text, "Yes", "No")


def judge_pairs(
    asker: Asker, pairs: Sequence[tuple[AnsweredQuestion, str, str]], step: str = SAME_MEANING
) -> list[bool | NoValue]:
    """Ask whether two answers to a question mean the same, one request for each pair."""
    inquiries = []
    for question, one, other in pairs:
        values = {"question": described(question), "one": quoted(one), "other": quoted(other)}
        inquiries.append(_inquiry(SAME_MEANING, values)._replace(step=step))
    return list(map(_verdict, asker.ask(inquiries)))


def judge_answers(asker: Asker, answers: Sequence[tuple[AnsweredQuestion, str]]) -> list[bool | NoValue]:
    """Ask whether an answer is correct, given the right answers of its question."""
    inquiries = []
    for question, answer in answers:
        values = {"question": described(question), "answer": quoted(answer), "gold": numbered(question.gold)}
        inquiries.append(_inquiry("correct", values))
    return list(map(_verdict, asker.ask(inquiries)))


def _inquiry(step: str, values: dict[str, str]) -> Inquiry:
    text = fill(prompts()[step]["user"], values).strip()
    return Inquiry(step, (Message(role="user", content=text),), max_new_tokens=16)


def _verdict(reply: ModelReplies) -> bool | NoValue:
    """A long reply may be cut off: its first word is the verdict."""
    if reply.failure is None and reply.finishes[0] == "length":
        return parse_verdict(reply.texts[0])
    text = reply_text(reply)
    return text if isinstance(text, NoValue) else parse_verdict(text)
