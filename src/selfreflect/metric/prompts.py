"""The contexts of one question as prompts for the judge, or why there can be no score. Tokens, no tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from selfreflect.errors import JudgeError
from selfreflect.metric.engine.tree import Prompt
from selfreflect.metric.tasks import (
    Context,
    MaskedWord,
    listing_breaks,
    masked_words,
    reference_context,
    summary_context,
)
from selfreflect.models.base import Message
from selfreflect.records import AnswerSet, Failure, FailureKind, Question, Summary

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge


_CHARACTERS_PER_TOKEN = 256
"""More than those of any token in a text that means something."""


@dataclass(frozen=True)
class QuestionPrompts:
    """What all summaries of one question share."""

    question: Question
    context: str
    """What the judge is told in the reference context, whatever word is masked."""
    words: list[MaskedWord]
    answers: int
    """Masked-out answers, blank ones too."""
    reference: list[Prompt]
    """One for each of ``words``, after the conditioning answers."""
    warnings: tuple[str, ...]

    @property
    def sizes(self) -> list[int]:
        """Token tasks of each word, in whatever context."""
        return _sizes(self.reference)


class CannotScoreError(Exception):
    """Undefined score: becomes a Failure at the one boundary of the stage."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind

    def record(self, question: Question, summary: Summary) -> Failure:
        return Failure(
            question_id=question.id, stage="scores", kind=self.kind, message=str(self), name=summary.name
        )


def prepare(judge: Judge, question: Question, answers: AnswerSet) -> QuestionPrompts:
    """The words of a question and their prompts in the reference context.

    Raises:
        CannotScoreError: there is nothing to mask or to condition on, or the conditioning answers do not fit
            the judge's window.
    """
    if not answers.conditioning:
        raise CannotScoreError("no_answers", "there are no conditioning answers")
    for answer in answers.masked_out:
        # before every word of it makes a text of that size
        _refuse_oversized(judge, [answer], "a masked-out answer")
    words = masked_words(answers.masked_out)
    if not words:
        raise CannotScoreError("no_answers", "there are no masked-out answers with words in them")
    breaks = listing_breaks(answers.conditioning)
    warning = f"{breaks} of {len(answers.conditioning)} conditioning answers hold a quote or line end that breaks the judge's list"
    context = reference_context(question.text, answers.conditioning)
    return QuestionPrompts(
        question=question,
        context=f"{context.question}\n{context.said}",
        words=words,
        answers=len(answers.masked_out),
        reference=_prompts(judge, context, words, "the conditioning answers"),
        warnings=(warning,) if breaks else (),
    )


def summary_prompts(judge: Judge, task: QuestionPrompts, summary: Summary) -> list[Prompt]:
    """One prompt for each word of the question, after a summary.

    Raises:
        CannotScoreError: the summary does not fit the judge's window, or makes it split a word into other
            tokens.
    """
    prompts = _prompts(
        judge, summary_context(task.question.text, summary.text), task.words, f"summary {summary.name!r}"
    )
    if _sizes(prompts) != task.sizes:
        raise CannotScoreError(
            "backend",
            f"judge {judge.name!r} splits the same word differently in two contexts, so its predictions cannot be compared",
        )
    return prompts


def encode(
    judge: Judge, conversations: Sequence[Sequence[Message]], words: Sequence[str], what: str
) -> list[Prompt]:
    """Each conversation continued by its word; at least one.

    Args:
        what: names the texts for messages, such as ``"summary 'greedy' with a masked-out task"``.

    Raises:
        CannotScoreError: one does not fit the judge's window, or the judge's tokenizer or template cannot
            take it.
    """
    sizes = [
        (sum(len(message.content) for message in turns), len(word))
        for turns, word in zip(conversations, words, strict=True)
    ]
    longest = sizes.index(max(sizes))
    _refuse_oversized(judge, [*(message.content for message in conversations[longest]), words[longest]], what)
    # far too long texts are refused at once
    _fitting(judge, [conversations[longest]], [words[longest]], what)
    return _fitting(judge, conversations, words, what)


def _refuse_oversized(judge: Judge, texts: Sequence[str], what: str) -> None:
    """Refuse without tokenising what cannot fit: it would take minutes and gigabytes for a text of 50 MB."""
    window = judge.lm.window
    if window is None:
        return
    tokens = max(
        sum(len(text) for text in texts) // _CHARACTERS_PER_TOKEN, sum(len(text.split()) for text in texts)
    )
    if tokens > window:
        raise CannotScoreError(
            "too_long",
            f"{what} needs {tokens} tokens or more, but the window of judge {judge.name!r} holds {window}",
        )


def _fitting(
    judge: Judge, conversations: Sequence[Sequence[Message]], words: Sequence[str], what: str
) -> list[Prompt]:
    try:
        tasks = judge.encode_tasks(conversations, words)
    except JudgeError as error:
        raise CannotScoreError("backend", str(error)) from error
    needed, window = max(len(ids) for ids, _ in tasks), judge.lm.window
    if window is not None and needed > window:
        raise CannotScoreError(
            "too_long", f"{what} needs {needed} tokens, but the window of judge {judge.name!r} holds {window}"
        )
    return [Prompt(ids=ids, first=first) for ids, first in tasks]


def _prompts(judge: Judge, context: Context, words: Sequence[MaskedWord], what: str) -> list[Prompt]:
    conversations = [context.conversation(word.masked) for word in words]
    return encode(judge, conversations, [word.text for word in words], f"{what} with a masked-out task")


def _sizes(prompts: Sequence[Prompt]) -> list[int]:
    return [len(prompt.ids) - prompt.first for prompt in prompts]
