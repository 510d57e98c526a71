"""The contexts of one question as token ids for the judge, or why there can be no score."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from selfreflect.errors import JudgeError
from selfreflect.metric.engine.tree import Prompt
from selfreflect.metric.tasks import (
    Context,
    MaskedWord,
    count_list_breaks,
    masked_words,
    reference_context,
    summary_context,
)
from selfreflect.models.base import Message
from selfreflect.models.chat import fewest_tokens
from selfreflect.records import AnswerSet, Failure, FailureKind, Question

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge


@dataclass(frozen=True)
class QuestionPrompts:
    """What all summaries of one question share."""

    question: Question
    words: list[MaskedWord]
    answer_count: int
    """Masked-out answers, blank ones too."""
    reference: list[Prompt]
    """One for each of ``words``, after the conditioning answers."""
    warnings: tuple[str, ...]

    @property
    def sizes(self) -> list[int]:
        """Token tasks of each word, in any context."""
        return [prompt.tasks for prompt in self.reference]


class CannotScoreError(Exception):
    """A score is undefined. Becomes a :class:`~selfreflect.records.Failure` at the boundary of the stage."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind

    def failure(self, question: Question, name: str = "") -> Failure:
        return Failure(question_id=question.id, stage="scores", kind=self.kind, message=str(self), name=name)


def prepare(judge: Judge, question: Question, answers: AnswerSet) -> QuestionPrompts:
    """Mask the words of a question's answers and encode their prompts after the conditioning answers.

    Raises:
        CannotScoreError: there is nothing to mask or to condition on, or it does not fit the judge's window.
    """
    if not answers.conditioning:
        raise CannotScoreError("no_answers", "there are no conditioning answers")
    for answer in answers.masked_out:
        # before every word of it makes a text of that size
        _refuse_oversized(judge, [answer], "a masked-out answer")
    words = masked_words(answers.masked_out)
    if not words:
        raise CannotScoreError("no_answers", "there are no masked-out answers with words in them")
    warnings = []
    if breaks := count_list_breaks(answers.conditioning):
        warnings.append(
            f"{breaks} of {len(answers.conditioning)} conditioning answers hold a quote or line end that "
            "breaks the judge's list"
        )
    context = reference_context(question.text, answers.conditioning)
    return QuestionPrompts(
        question=question,
        words=words,
        answer_count=len(answers.masked_out),
        reference=encode_words(judge, context, words, "the conditioning answers"),
        warnings=tuple(warnings),
    )


def summary_prompts(judge: Judge, question: QuestionPrompts, summary: str) -> list[Prompt]:
    """Encode one prompt for each word of the question, after a summary.

    Raises:
        CannotScoreError: it does not fit the judge's window, or makes it split a word into other tokens.
    """
    context = summary_context(question.question.text, summary)
    prompts = encode_words(judge, context, question.words, "the summary")
    if [prompt.tasks for prompt in prompts] != question.sizes:
        raise CannotScoreError(
            "backend",
            f"judge {judge.name!r} splits the same word differently in two contexts, so its predictions "
            "cannot be compared",
        )
    return prompts


def encode_each(
    texts: Iterable[str], encode_one: Callable[[str], list[Prompt]]
) -> tuple[dict[str, list[Prompt]], dict[str, CannotScoreError]]:
    """The prompts after each text, and why some texts have none."""
    prompts: dict[str, list[Prompt]] = {}
    errors: dict[str, CannotScoreError] = {}
    for text in dict.fromkeys(texts):
        try:
            prompts[text] = encode_one(text)
        except CannotScoreError as error:
            errors[text] = error
    return prompts, errors


def encode_words(judge: Judge, context: Context, words: Sequence[MaskedWord], what: str) -> list[Prompt]:
    """Encode the tasks of some words, as :func:`encode` does."""
    conversations = [context.conversation(word.masked) for word in words]
    return encode(judge, conversations, [word.text for word in words], f"{what} with a masked-out task")


def encode(
    judge: Judge, conversations: Sequence[Sequence[Message]], words: Sequence[str], what: str
) -> list[Prompt]:
    """Encode each conversation continued by its word; there is at least one. ``what`` names them in messages.

    Raises:
        CannotScoreError: one does not fit the judge's window, or its tokenizer or template cannot take it.
    """
    lengths = []
    for turns, word in zip(conversations, words, strict=True):
        lengths.append((sum(len(message.content) for message in turns), len(word)))
    longest = lengths.index(max(lengths))
    texts = [message.content for message in conversations[longest]]
    _refuse_oversized(judge, [*texts, words[longest]], what)
    window = judge.lm.window
    tasks: list[tuple[tuple[int, ...], int]] = []
    # The longest first: texts that are far too long are refused at once.
    for indices in ([longest], range(len(words))):
        try:
            tasks = judge.encode_tasks([conversations[i] for i in indices], [words[i] for i in indices])
        except JudgeError as error:
            raise CannotScoreError("backend", str(error)) from error
        size = max(len(ids) for ids, _ in tasks)
        if window is not None and size > window:
            raise CannotScoreError(
                "too_long",
                f"{what} needs {size} tokens, but the window of judge {judge.name!r} holds {window}",
            )
    return [Prompt(ids=ids, first=first) for ids, first in tasks]


def _refuse_oversized(judge: Judge, texts: Sequence[str], what: str) -> None:
    """Refuse what cannot fit without tokenising it, which would take minutes and gigabytes for 50 MB."""
    window = judge.lm.window
    if window is None:
        return
    tokens = fewest_tokens(texts)
    if tokens > window:
        raise CannotScoreError(
            "too_long",
            f"{what} needs {tokens} tokens or more, but the window of judge {judge.name!r} holds {window}",
        )
