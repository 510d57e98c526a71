"""The metric as text: which words are masked, and the conversation in which the judge fills them in.

The fixed strings define the metric: scores are comparable only with exactly these (Kirchhof et al., arXiv
2505.20295, and its scorer).
"""

from __future__ import annotations

import string
from collections.abc import Sequence

from selfreflect.models.base import Message
from selfreflect.records import Record
from selfreflect.text import answer_list, normalise_question

SYSTEM = "You are a friendly chatbot who always responds with short and concise answers.\n"

JUDGE_TEMPERATURE = 5.0
"""High, so that synonyms of the masked word count as nearly as good as the word itself."""

STOPWORDS = frozenset(
    (
        "the to of and is that in it you for this have on be not are with as if or they was but can my would "
        "what there at from an he one do about all will me by your any we so has"
    ).split()
)
"""The 44 words, no single letters or contractions, whose mean TF-IDF over 20 Newsgroups exceeds 0.012."""


class MaskedWord(Record, frozen=True, kw_only=True):
    """One masked-word task: the judge sees ``masked`` and has to predict ``text``."""

    answer: int
    """Index into the masked-out answers."""
    word: int
    """Index into ``answer.split()``."""
    text: str
    masked: str
    """The answer with ``_`` in place of the word."""


def is_stopword(word: str) -> bool:
    return word.strip(string.whitespace + string.punctuation).lower() in STOPWORDS


def masked_words(answers: Sequence[str], *, every: bool = False) -> list[MaskedWord]:
    """All masked-word tasks, in order: each word that is not a stopword, or every word of an answer that has
    only stopwords. ``every`` masks stopwords too, which is not the metric but an ablation of it."""
    tasks = []
    for answer, text in enumerate(answers):
        words = text.split()
        content = [index for index, word in enumerate(words) if every or not is_stopword(word)]
        for index in content or range(len(words)):
            masked = " ".join([*words[:index], "_", *words[index + 1 :]])
            tasks.append(MaskedWord(answer=answer, word=index, text=words[index], masked=masked))
    return tasks


class Context(Record, frozen=True, kw_only=True):
    """What the judge has said about the question: a summary, or the conditioning answers (the reference)."""

    question: str
    reply: str
    source: str
    """What the task calls the reply: ``answer`` or ``distribution of answers``."""

    def conversation(self, masked: str) -> tuple[Message, ...]:
        """The turns that end before the judge names the missing word of ``masked``."""
        task = (
            'We now show a text with a missing word "_". Fill in the missing word "_" only based on the '
            f"{self.source} you gave above: {masked}\n"
            'Please provide only the missing word "_", not the whole sentence.'
        )
        return self.turns(task)

    def turns(self, task: str) -> tuple[Message, ...]:
        """The turns that end with a task on the reply."""
        return (
            Message(role="system", content=SYSTEM),
            Message(role="user", content=self.question),
            Message(role="assistant", content=self.reply),
            Message(role="user", content=task),
        )


def summary_context(question: str, summary: str) -> Context:
    """The context whose predictions are scored."""
    return Context(question=normalise_question(question), reply=summary, source="answer")


def reference_context(question: str, conditioning: Sequence[str]) -> Context:
    """The context that a faithful summary should be as good as: the conditioning answers themselves."""
    request = f"{normalise_question(question)}\nSample {len(conditioning)} answers to this question."
    return Context(question=request, reply=answer_list(conditioning), source="distribution of answers")


def count_list_breaks(conditioning: Sequence[str]) -> int:
    """How many answers break the ``x_i = '…'`` list by a quote or line end, which stays so for parity."""
    return sum("'" in answer or "\n" in answer for answer in conditioning)
