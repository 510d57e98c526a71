"""Estimators that ask a model about its confidence: P(True), self-evaluation and verbalised confidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from selfreflect.errors import excerpt
from selfreflect.models.base import Message
from selfreflect.store.journal import ModelReplies
from selfreflect.text import numbered, quoted
from selfreflect.uncertainty.asking.asker import (
    Asker,
    Inquiry,
    StatedGuess,
    described,
    failure_of,
    join_guesses,
    parse_either,
    parse_guesses,
    parse_probability,
    reply_text,
    truth_of_token,
    user_turn,
)
from selfreflect.uncertainty.classes import ClassRule
from selfreflect.uncertainty.question import AnsweredQuestion, NoValue

P_TRUE_TOKENS = 20
"""Number of likely first tokens to search for True and False, the most that servers return."""
P_TRUE_REPLIES = 10
"""Number of responses whose share of True is P(True) for models without token probabilities."""
SHOWN_SAMPLES = 10
"""Maximum number of samples shown for P(True)."""
GUESSES = 4

Guesses = tuple[StatedGuess, ...]
Outcome = float | Guesses | NoValue
Place = tuple[int, str]
"""Index of a question and name of an estimator."""


class Subject(NamedTuple):
    """A question with the answer to judge."""

    question: AnsweredQuestion
    answer: str


@dataclass(frozen=True)
class Interview:
    """An estimator's conversation with the model, in one or more turns, and the parser of its responses."""

    read: Callable[[Sequence[ModelReplies]], Outcome]
    texts: tuple[str, ...] = ("user",)
    """Names of the prompt's texts, one for each of our turns."""
    step: str = ""
    """Name of the step; by default the estimator's name, with the prompt text's name if there are several."""
    limits: Mapping[str, Any] = field(default_factory=lambda: {"max_new_tokens": 256})
    """Further settings of each inquiry."""

    def inquiry(self, name: str, subject: Subject, replies: Sequence[str]) -> Inquiry:
        """Write the next inquiry, after the model's responses to the earlier ones."""
        values = {
            "question": described(subject.question),
            "answer": quoted(subject.answer),
            "answers": numbered(subject.question.answers[:SHOWN_SAMPLES]),
            "k": str(GUESSES),
        }
        turns: list[Message] = []
        for text, reply in zip(self.texts, replies, strict=False):
            turns += [user_turn(name, values, text), Message(role="assistant", content=reply)]
        text = self.texts[len(replies)]
        turns.append(user_turn(name, values, text))
        step = self.step or (name if len(self.texts) == 1 else f"{name}, {text}")
        return Inquiry(step, tuple(turns), **self.limits)


def _probability_of_true(replies: Sequence[ModelReplies]) -> Outcome:
    """Compute the probability of True relative to False, if the two add up to at least half."""
    [reply] = replies
    if failure := failure_of(reply):
        return failure
    mass = {True: 0.0, False: 0.0}
    for token in reply.first_tokens:
        verdict = truth_of_token(token.text)
        if verdict is not None:
            mass[verdict] += math.exp(token.logprob)
    total = mass[True] + mass[False]
    # below a half the model mostly said something else, and the rest would be noise
    if total < 0.5:
        reason = f"the reply begins with True or False with a probability of {total:.2f}"
        return NoValue("unparsed", f"{reason}; it is {excerpt(reply.texts[0], 80)}")
    return mass[True] / total


def _share_of_true(replies: Sequence[ModelReplies]) -> Outcome:
    """Compute the share of True in decided responses, if these are at least half."""
    [reply] = replies
    if failure := failure_of(reply):
        return failure
    verdicts = [parse_either(text, "True", "False") for text in reply.texts]
    clear = [verdict for verdict in verdicts if not isinstance(verdict, NoValue)]
    # as for tokens: at least half of the replies must decide
    if 2 * len(clear) < len(verdicts):
        return next(verdict for verdict in verdicts if isinstance(verdict, NoValue))
    return sum(clear) / len(clear)


def _parsed(parse: Callable[..., Outcome], replies: Sequence[ModelReplies]) -> Outcome:
    texts = []
    for reply in replies:
        text = reply_text(reply)
        if isinstance(text, NoValue):
            return text
        texts.append(text)
    return parse(*texts)


_BY_TOKEN = Interview(_probability_of_true, limits={"max_new_tokens": 8, "first_tokens": P_TRUE_TOKENS})
INTERVIEWS = {
    "p_true": _BY_TOKEN,
    "p_true_samples": _BY_TOKEN,
    "self_evaluation": Interview(partial(_parsed, parse_probability)),
    "verbalized": Interview(partial(_parsed, parse_guesses)),
    "verbalized_top4": Interview(partial(_parsed, parse_guesses)),
    "verbalized_2s": Interview(partial(_parsed, join_guesses), ("guesses", "probabilities")),
}
"""Interviews by estimator name."""
_SAMPLED = {"n": P_TRUE_REPLIES, "temperature": 1.0, "max_new_tokens": 8}
BY_REPLIES = {
    name: Interview(_share_of_true, step=f"{name}, replies", limits=_SAMPLED)
    for name in ("p_true", "p_true_samples")
}
"""Interviews for models without token probabilities."""


class AskedEstimates(NamedTuple):
    """A model's statements about questions."""

    values: Mapping[str, list[float | NoValue]]
    """Values by estimator name, one per question."""
    by_replies: frozenset[str] = frozenset()
    """Estimators of ``BY_REPLIES`` with shares of responses as values, for all questions."""


def ask_estimates(
    names: Sequence[str],
    questions: Sequence[AnsweredQuestion],
    judged: Sequence[str | None],
    rule: ClassRule,
    asker: Asker,
) -> AskedEstimates:
    """Ask a model for the values of the estimators ``names``.

    All requests of a step are one batch, over all questions and estimators. Verbalised confidence is that of
    the judged answer: the highest probability of the guesses in its class. Where a model does not tell the
    probabilities of its tokens for one question, P(True) of every question is the share of True in replies,
    so that no column mixes two measures. It is from the start where ``asker`` samples P(True).

    Args:
        judged: the answer of each question that is judged; None where there is none.

    Raises:
        BackendError: the model has stopped working. What it replied before is kept.
    """
    subjects: dict[int, Subject] = {}
    for index, (question, answer) in enumerate(zip(questions, judged, strict=True)):
        if answer is not None:
            subjects[index] = Subject(question, answer)
    by_replies = frozenset(BY_REPLIES.keys() & names) if asker.samples_p_true else frozenset()
    interviews = {name: (BY_REPLIES if name in by_replies else INTERVIEWS)[name] for name in names}
    replies = _interview(interviews, subjects, asker)
    by_token = BY_REPLIES.keys() - by_replies
    untold = frozenset(
        name for (_, name), transcript in replies.items() if name in by_token and _is_untold(transcript)
    )
    # one question without token probabilities turns the whole column into shares of replies
    if untold:
        again = {name: BY_REPLIES[name] for name in sorted(untold)}
        interviews |= again
        replies |= _interview(again, subjects, asker)
        by_replies |= untold
    outcomes = {key: interviews[key[1]].read(transcript) for key, transcript in replies.items()}
    confidences = _in_judged_answers(outcomes, subjects, rule)
    no_answer = NoValue("no_answer", "the record has no answer to ask about")
    values = {
        name: [confidences.get((index, name), no_answer) for index in range(len(questions))] for name in names
    }
    return AskedEstimates(values, by_replies)


def _is_untold(replies: Sequence[ModelReplies]) -> bool:
    """Check whether a response lacks its first token's probabilities."""
    [reply] = replies
    return reply.failure is None and bool(reply.texts[0]) and not reply.first_tokens


def _interview(
    interviews: Mapping[str, Interview], subjects: Mapping[int, Subject], asker: Asker
) -> dict[Place, list[ModelReplies]]:
    """Ask all estimators' inquiries about all subjects."""
    pending: dict[Place, list[ModelReplies]] = {
        (index, name): [] for index in subjects for name in interviews
    }
    for step in range(max((len(interview.texts) for interview in interviews.values()), default=0)):
        keys, inquiries = [], []
        for (index, name), replies in pending.items():
            texts = list(map(reply_text, replies))
            whole = [text for text in texts if not isinstance(text, NoValue)]
            # a step needs the whole replies of all steps before it
            if step < len(interviews[name].texts) and len(whole) == len(texts):
                keys.append((index, name))
                inquiries.append(interviews[name].inquiry(name, subjects[index], whole))
        for key, reply in zip(keys, asker.ask(inquiries), strict=True):
            pending[key].append(reply)
    return pending


def _in_judged_answers(
    outcomes: Mapping[Place, Outcome], subjects: Mapping[int, Subject], rule: ClassRule
) -> dict[Place, float | NoValue]:
    """Convert guesses to the confidence in the judged answer."""
    values: dict[Place, float | NoValue] = {}
    guesses: dict[Place, Guesses] = {}
    questions: dict[Place, AnsweredQuestion] = {}
    for key, outcome in outcomes.items():
        if isinstance(outcome, tuple):
            question, answer = subjects[key[0]]
            guesses[key] = outcome
            # guesses are sorted into classes together with the judged answer
            questions[key] = replace(question, answers=(answer, *(guess.text for guess in outcome)))
        else:
            values[key] = outcome
    rule.prepare(list(questions.values()))
    for key, question in questions.items():
        values[key] = _of_judged(guesses[key], rule(question).tolist())
    return values


def _of_judged(guesses: Guesses, classes: Sequence[int]) -> float | NoValue:
    """Find the highest probability among guesses in the judged answer's class."""
    probabilities = [
        guess.probability for guess, label in zip(guesses, classes[1:], strict=True) if label == classes[0]
    ]
    return (
        # several guesses may mean the judged answer; the surest of them counts
        max(probabilities)
        if probabilities
        else NoValue("not_guessed", "the judged answer is not among the model's guesses")
    )
