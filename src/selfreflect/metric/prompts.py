"""Masked words, the judge's conversations that fill them in, and their token ids.

The fixed strings define the metric: scores are comparable only with exactly these (Kirchhof et al., arXiv
2505.20295, and its scorer).
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from selfreflect.errors import JudgeError
from selfreflect.metric.engine.tree import Prompt
from selfreflect.models.base import Message
from selfreflect.models.chat import fewest_tokens
from selfreflect.records import AnswerSet, Failure, FailureKind, Question, Record
from selfreflect.text import UNSPACED, answer_list, normalise_question

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge

SYSTEM = "You are a friendly chatbot who always responds with short and concise answers.\n"

JUDGE_TEMPERATURE = 5.0
"""High temperature, so that synonyms count as nearly as good as the masked word."""

STOPWORDS = frozenset(
    (
        "the to of and is that in it you for this have on be not are with as if or they was but can my would "
        "what there at from an he one do about all will me by your any we so has"
    ).split()
)
"""The 44 words whose mean TF-IDF over 20 Newsgroups exceeds 0.012, without single letters and
contractions."""


class MaskedWord(Record, frozen=True, kw_only=True):
    """A masked-word task: the judge sees ``masked`` and predicts ``text``."""

    answer: int
    """Index into the test answers."""
    word: int
    """Words for the better side of zero."""
    text: str
    masked: str
    """The answer with ``_`` in place of the word."""


def is_stopword(word: str) -> bool:
    return word.strip(string.whitespace + string.punctuation).lower() in STOPWORDS


def masked_words(answers: Sequence[str]) -> list[MaskedWord]:
    """List the masked-word tasks: all words except stopwords, or all words of an answer without others."""
    tasks = []
    for answer, text in enumerate(answers):
        # as the published scorer splits: punctuation belongs to the word before it
        words = text.split()
        content = [index for index, word in enumerate(words) if not is_stopword(word)]
        # an answer of stopwords alone ("I do not") would have no task, and drop out of the mean
        for index in content or range(len(words)):
            masked = " ".join([*words[:index], "_", *words[index + 1 :]])
            tasks.append(MaskedWord(answer=answer, word=index, text=words[index], masked=masked))
    return tasks


class Context(Record, frozen=True, kw_only=True):
    """The judge's response to the question: a summary, or the reference answers."""

    question: str
    reply: str
    source: str
    """Name of the response in the task: ``answer`` or ``distribution of answers``."""

    def conversation(self, masked: str) -> tuple[Message, ...]:
        """Write the turns that ask the judge for the missing word of ``masked``."""
        task = (
            'We now show a text with a missing word "_". Fill in the missing word "_" only based on the '
            f"{self.source} you gave above: {masked}\n"
            'Please provide only the missing word "_", not the whole sentence.'
        )
        return (
            Message(role="system", content=SYSTEM),
            Message(role="user", content=self.question),
            Message(role="assistant", content=self.reply),
            Message(role="user", content=task),
        )


def summary_context(question: str, summary: str) -> Context:
    """Make the context of a summary."""
    return Context(question=normalise_question(question), reply=summary, source="answer")


def reference_context(question: str, conditioning: Sequence[str]) -> Context:
    """Make the reference context, with the reference answers in place of a summary."""
    # the published wording asks for as many samples as the list holds
    request = f"{normalise_question(question)}\nSample {len(conditioning)} answers to this question."
    return Context(question=request, reply=answer_list(conditioning), source="distribution of answers")


def count_list_breaks(conditioning: Sequence[str]) -> int:
    """Count the answers whose quotes or line ends break the ``x_i = '…'`` list.

    They are not escaped, for parity with the published scorer.
    """
    return sum("'" in answer or "\n" in answer for answer in conditioning)


@dataclass(frozen=True)
class QuestionPrompts:
    """Prompt parts that all summaries of a question share."""

    question: Question
    words: list[MaskedWord]
    answer_count: int
    """Number of test answers, including blank ones."""
    reference: list[Prompt]
    """Prompts of ``words`` after the reference answers."""
    warnings: tuple[str, ...]

    @property
    def sizes(self) -> list[int]:
        """Number of token tasks of each word, in any context."""
        return [prompt.tasks for prompt in self.reference]


_UNSPACED = re.compile(f"[{UNSPACED}]{{2}}")


class CannotScoreError(Exception):
    """An undefined score, which the stage turns into a :class:`~selfreflect.records.Failure`."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind

    def failure(self, question: Question, name: str = "") -> Failure:
        return Failure(question_id=question.id, stage="scores", kind=self.kind, message=str(self), name=name)


def prepare(judge: Judge, question: Question, answers: AnswerSet) -> QuestionPrompts:
    """Mask the words of a question's test answers, and encode their prompts after the reference answers.

    Raises:
        CannotScoreError: there is nothing to mask or to condition on, or it does not fit the judge's window.
    """
    if not answers.conditioning:
        raise CannotScoreError("no_answers", "there are no reference answers")
    for answer in answers.masked_out:
        # before every word of it makes a text of that size
        _refuse_oversized(judge, [answer], "a test answer")
    words = masked_words(answers.masked_out)
    if not words:
        raise CannotScoreError("no_answers", "there are no test answers with words in them")
    warnings = []
    if breaks := count_list_breaks(answers.conditioning):
        # stored with every score, in these words since the first version
        warnings.append(
            f"{breaks} of {len(answers.conditioning)} conditioning answers hold a quote or line end that "
            "breaks the judge's list"
        )
    # the paper's tasks need spaces; there are few of them here, and each is a whole sentence
    if unspaced := sum(bool(_UNSPACED.search(answer)) for answer in answers.masked_out):
        warnings.append(
            f"{unspaced} of {len(answers.masked_out)} test answers are in a script without spaces: a whole "
            "sentence is masked as one word"
        )
    context = reference_context(question.text, answers.conditioning)
    return QuestionPrompts(
        question=question,
        words=words,
        answer_count=len(answers.masked_out),
        reference=encode_words(judge, context, words, "the reference answers"),
        warnings=tuple(warnings),
    )


def summary_prompts(judge: Judge, question: QuestionPrompts, summary: str) -> list[Prompt]:
    """Encode one prompt per masked word of the question after a summary.

    Raises:
        CannotScoreError: it does not fit the judge's window, or makes it split a word into other tokens.
    """
    context = summary_context(question.question.text, summary)
    prompts = encode_words(judge, context, question.words, "the summary")
    # distances pair the i-th token of a word in two contexts
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
    """Encode prompts for each text, and collect the errors of texts that cannot be encoded."""
    prompts: dict[str, list[Prompt]] = {}
    errors: dict[str, CannotScoreError] = {}
    for text in dict.fromkeys(texts):
        try:
            prompts[text] = encode_one(text)
        except CannotScoreError as error:
            errors[text] = error
    return prompts, errors


def encode_words(judge: Judge, context: Context, words: Sequence[MaskedWord], subject: str) -> list[Prompt]:
    """Encode a prompt for each masked word in a context; see :func:`encode`."""
    conversations = [context.conversation(word.masked) for word in words]
    return encode(judge, conversations, [word.text for word in words], f"{subject} with a masked word")


def encode(
    judge: Judge, conversations: Sequence[Sequence[Message]], words: Sequence[str], subject: str
) -> list[Prompt]:
    """Encode one or more conversations, each continued by its word.

    ``subject`` names them in messages.

    Raises:
        CannotScoreError: one does not fit the judge's window, or its tokenizer or template cannot take it.
    """
    lengths = []
    for turns, word in zip(conversations, words, strict=True):
        lengths.append((sum(len(message.content) for message in turns), len(word)))
    # characters, because tokenising every conversation only to refuse it takes minutes
    longest = lengths.index(max(lengths))
    texts = [message.content for message in conversations[longest]]
    _refuse_oversized(judge, [*texts, words[longest]], subject)
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
                f"{subject} needs {size} tokens, but the window of judge {judge.name!r} holds {window}",
            )
    return [Prompt(ids=ids, first=first) for ids, first in tasks]


def conversation_tokens(judge: Judge, conversation: Sequence[Message]) -> int:
    """Count the tokens of a conversation before the judge's next turn."""
    [ids] = judge.chat.encode([judge.chat.render(conversation)])
    return len(ids)


def _refuse_oversized(judge: Judge, texts: Sequence[str], subject: str) -> None:
    """Refuse overlong texts without tokenising them, which takes minutes for 50 MB."""
    window = judge.lm.window
    if window is None:
        return
    tokens = fewest_tokens(texts)
    if tokens > window:
        raise CannotScoreError(
            "too_long",
            f"{subject} needs {tokens} tokens or more, but the window of judge {judge.name!r} holds {window}",
        )
