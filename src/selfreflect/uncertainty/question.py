"""Questions with stored answers, labels, tokens and scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from selfreflect.logprobs import WHY, AnswerTokens, NoLogprobs, TokenValues, stored_values
from selfreflect.records import Graded, Scalar


@dataclass(frozen=True)
class NoValue:
    """Reason for an estimator's missing value."""

    reason: Literal[
        "too_few_samples",
        "no_logprobs",
        "no_tokens",
        "no_top_logprobs",  # the largest ones at each token
        "too_few_ranks",  # a list of them is shorter than others, or too short
        "not_fitted",  # an estimator whose weights are fitted on labels, and none are given
        "no_entropies",  # of predictions over the whole vocabulary
        "not_sampled",  # the judged answer is not among the answers with known tokens
        "no_self_certainty",  # which needs predictions of the whole vocabulary
        "no_relevance",  # of tokens, which needs a model of sentence similarity
        "no_confidence",
        "not_measured",
        "no_model",  # an estimator that asks a model, and none is named
        "no_greedy",  # the greedy answer that was measured is not stored
        "no_answer",  # there is no answer to ask about
        "no_reply",  # the model failed or declined
        "cut_off",  # its reply reached the limit of tokens
        "unparsed",  # its reply is not in the form that was asked for
        "no_number",
        "several_numbers",
        "ambiguous_number",
        "out_of_range",
        "not_guessed",  # the judged answer is not among the model's guesses
        "no_number_in_column",
        "no_hedge",  # a text without a known word of probability
        "several_hedges",
        "unknown_hedge",
    ]
    message: str


class LabelledClaim(NamedTuple):
    """A claim with a person's verdict on it."""

    text: str
    correct: bool | None


def _none() -> Mapping[str, Any]:
    """Return one empty mapping that all questions share, to save memory."""
    return _NONE


_NONE: Mapping[str, Any] = {}
NO_TOKENS = TokenValues()


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """A question with its samples. Only ``id`` and either answers or a confidence are needed."""

    id: str
    text: str = ""
    context: str = ""
    """Text that the model reads with the question."""
    answers: tuple[str, ...] = ()
    """Samples, in sampling order."""
    classes: str = ""
    """Class rule from a schema for these answers, instead of the common rule."""
    group: str = ""
    """Group of dependent questions, such as the fields of an answer."""
    gold: tuple[str, ...] = ()
    """Spellings of the right answer."""
    aliases: tuple[tuple[str, ...], ...] = ()
    """Groups of spellings of one answer, known without the right answer; each group is one class."""
    keys: Mapping[str, str] = field(default_factory=_none)
    """Identities of answers that no rule compares, such as numbers of a structured answer: answers and right
    answers with equal keys are the same, and different from all others."""
    answer: str | None = None
    """Answer judged correct or wrong, if other than the modal one."""
    greedy: str | None = None
    """Model's most likely answer, from a run's strategy ``greedy``."""
    token_values: TokenValues = NO_TOKENS
    """Log-probabilities of the answers, with their tokens."""
    missing_logprobs: str = ""
    """Reason for missing log-probabilities, if requested."""
    confidence: float | None = None
    """Confidence in [0, 1], stated by the model or computed elsewhere."""
    length: float | None = None
    """Length of the judged answer, in any unit."""
    correct: bool | None = None
    """A person's label."""
    grades: Mapping[str, tuple[Graded, ...]] = field(default_factory=_none)
    """Verdicts in the file by grader, the grader with the most verdicts first."""
    model: str = ""
    """Model that drew the answers; empty if unknown, with the next two None."""
    temperature: float | None = None
    top_p: float | None = None
    columns: Mapping[str, Scalar] = field(default_factory=_none)
    """Further columns of the file, which ``column:NAME`` uses as estimators."""
    values: Mapping[str, float | NoValue] = field(default_factory=_none)
    """Values of estimators that were measured before, for example by a run's judge."""
    claims: tuple[LabelledClaim, ...] = ()
    """Claims of long answers."""


def with_answers(question: AnsweredQuestion, indices: Sequence[int]) -> AnsweredQuestion:
    """Keep only the answers at ``indices``, with their tokens' values."""
    answers = tuple(question.answers[index] for index in indices)
    return replace(question, answers=answers, token_values=question.token_values.choose(indices))


def not_blank(texts: Sequence[str]) -> list[int]:
    """List the indices of texts that are not blank."""
    return [index for index, text in enumerate(texts) if text.strip()]


def sample_sizes(questions: Iterable[AnsweredQuestion]) -> list[int]:
    """List the distinct numbers of answers per question, in order."""
    return sorted({len(question.answers) for question in questions})


def list_lengths(questions: Iterable[AnsweredQuestion]) -> list[int]:
    """List the distinct numbers of likely tokens per token, in order.

    Answers whose tokens have different numbers are left out: no estimator reads them.
    """
    answers = [answer for question in questions for answer in question.token_values.top_logprobs]
    numbers = [{len(ranks) for ranks in answer} for answer in answers]
    return sorted(set().union(*(lengths for lengths in numbers if len(lengths) == 1)))


def has_gold(questions: Iterable[AnsweredQuestion]) -> bool:
    """Check whether any question has a right answer."""
    return any(question.gold for question in questions)


def graded_by(questions: Sequence[AnsweredQuestion]) -> list[str]:
    """List the graders of questions, most verdicts first."""
    counts: Counter[str] = Counter()
    for question in questions:
        for name, verdicts in question.grades.items():
            counts[name] += sum(verdict.right is not None for verdict in verdicts)
    return [name for name, count in counts.most_common() if count]


def token_fields(records: Sequence[AnswerTokens | NoLogprobs]) -> dict[str, Any]:
    """Derive a question's token fields from its answers' stored log-probabilities."""
    if not records:
        return {}
    # estimators compare all answers, so one without tokens leaves the question without any
    for tokens in records:
        if not isinstance(tokens, AnswerTokens):
            return {"missing_logprobs": f"an answer has no log-probabilities: {WHY[tokens]}"}
        if not tokens.texts:
            return {"missing_logprobs": "an answer is blank, so it has no tokens"}
    return {"token_values": stored_values(records)}
