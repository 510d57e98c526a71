"""Rewards for stated confidence, compared with gold answers or the model's samples."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from selfreflect.errors import ConfigError, DataError, excerpt
from selfreflect.grouping import normal_form
from selfreflect.metric.inputs import checked_number
from selfreflect.train.rewards.base import BatchColumns, Outcome, Reward, Unrewarded
from selfreflect.uncertainty.asking.asker import StatedGuess, parse_guesses, parse_probability
from selfreflect.uncertainty.classes import ClassRule
from selfreflect.uncertainty.correctness import Correctness
from selfreflect.uncertainty.question import AnsweredQuestion, NoValue

_LABEL = re.compile(r"(?<![\w-])[*_]{0,2}(answer|self-reflection|confidence)[*_]{0,2}\s*:", re.IGNORECASE)
_TAG = re.compile(r"<(answer|analysis|confidence)\s*>(.*?)</\1\s*>", re.IGNORECASE | re.DOTALL)
_PLAIN = re.compile(r"\d+(?:\.\d+)?")
_CERTAIN = re.compile(r"1(\.0*)?")
_EMPHASIS = " \t\r\n*_"


@dataclass(frozen=True)
class StatedBelief:
    """A model's parsed statement, with empty missing parts."""

    answer: str
    confidence: float | NoValue
    """Confidence in [0, 1], or the reason for its absence."""
    reasoning: str = ""
    reflection: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether both answer and confidence are present."""
        return bool(self.answer) and not isinstance(self.confidence, NoValue)


def parse_stated(text: str, out_of: int | None = None) -> StatedBelief:
    """Parse ``Answer: Paris`` and ``Confidence: 85%`` in either order.

    Each label must occur once; a section ends at the next label, and ``Self-reflection:`` is one, too. The
    confidence is read by :func:`~selfreflect.uncertainty.asking.asker.parse_probability`: ``85%``,
    ``0.85``, ``17/20``. Missing, several and ambiguous numbers and those outside [0, 1] are errors.

    Tags may stand in place of labels, as RLCR (arXiv 2507.16806) asks for: ``<answer>4</answer>
    <analysis>…</analysis> <confidence>0.8</confidence>``. In a tag a plain 1 is certainty.

    Args:
        out_of: the top of a scale for plain numbers: with 10, ``Confidence: 8`` is 0.8 and 11 is an error.
    """
    parts = [(tag[1], tag[2]) for tag in _TAG.finditer(text)]
    tagged = {name.lower() for name, _ in parts}
    # what a tag holds is its own, labels included
    untagged = _TAG.sub("\n", text)
    labels = list(_LABEL.finditer(untagged))
    ends = [label.start() for label in labels] + [len(untagged)]
    parts += [(label[1], untagged[label.end() : end]) for label, end in zip(labels, ends[1:], strict=True)]
    sections: dict[str, str] = {}
    for name, part in parts:
        if name.lower() in sections:
            several = f"several '{name.capitalize()}:' in one completion"
            return StatedBelief("", NoValue("unparsed", several))
        sections[name.lower()] = part.strip(_EMPHASIS)
    answer = sections.get("answer", "")
    if not answer:
        return StatedBelief("", NoValue("no_answer", f"no 'Answer:' in {excerpt(text, 80)}"))
    if "confidence" not in sections:
        return StatedBelief(answer, NoValue("no_confidence", f"no 'Confidence:' in {excerpt(text, 80)}"))
    if out_of is None and "confidence" in tagged and _CERTAIN.fullmatch(sections["confidence"]):
        return StatedBelief(answer, 1.0)
    return StatedBelief(answer, parse_confidence(sections["confidence"], out_of))


def parse_confidence(text: str, out_of: int | None = None) -> float | NoValue:
    """Parse a confidence in [0, 1]; plain numbers are on a scale up to ``out_of``, if given."""
    plain = _PLAIN.fullmatch(text.strip().rstrip("."))
    if out_of is None or plain is None:
        return parse_probability(text)
    value = float(plain[0]) / out_of
    if value > 1:
        return NoValue("out_of_range", f"{excerpt(text, 80)} is not between 0 and {out_of}")
    return value


ScoringRule = Literal["brier", "linear", "rlcr"]


def confidence_reward(correct: bool, confidence: float, rule: ScoringRule = "brier") -> float:
    """Compute the reward of a confidence f in [0, 1], given correctness y of 0 or 1.

    ``brier``: 1 - 2 (y - f)^2, as SaySelf's published code computes it; proper, so that stating one's true
    chance is best. ``linear``: f if correct, else -f; best at 0 or 1. ``rlcr``: y - (y - f)^2 (Damani et al.
    2025, arXiv 2507.16806), which also rewards being right.

    Raises:
        DataError: the confidence is outside [0, 1].
    """
    if not 0 <= confidence <= 1:
        raise DataError(f"a confidence is in [0, 1], not {confidence:g}")
    label = float(correct)
    if rule == "brier":
        return 1 - 2 * (label - confidence) ** 2
    if rule == "linear":
        return confidence if correct else -confidence
    return label - (label - confidence) ** 2


class StatedReward(Reward):
    """Base of rewards that compare a stated confidence with the answer's truth.

    Completions state ``Answer: ...`` and ``Confidence: ...``, or have tags with these names, see
    :func:`~selfreflect.train.rewards.stated.parse_stated`.

    Args:
        out_of: the top of the scale of plain numbers, such as 10.
        failed: see :class:`~selfreflect.train.rewards.base.Reward`.

    Raises:
        ConfigError: a setting makes no sense.
    """

    worst = -1.0
    reads_tags = True
    scoring: ScoringRule
    """Scoring rule of :meth:`grade`. A subclass with its own ``grade`` needs none."""

    def __init__(self, *, out_of: int | None = None, failed: Literal["worst"] | float = "worst") -> None:
        if out_of is not None and not checked_number(out_of, "out_of") > 0:
            raise ConfigError(f"out_of must be above 0, not {out_of}")
        self.out_of = out_of
        super().__init__(failed)

    def parse(self, text: str) -> StatedBelief:
        """Parse the answer and confidence of a completion."""
        return parse_stated(text, self.out_of)

    def grade(self, truth: float, confidence: float) -> float:
        """Compute the reward of a confidence in an answer."""
        return confidence_reward(bool(truth), confidence, self.scoring)

    def truths(self, answers: Sequence[str | None], columns: BatchColumns) -> list[float | None]:
        """Estimate each answer's truth in [0, 1]; None for undecidable questions."""
        raise NotImplementedError

    def outcomes(self, texts: Sequence[str | Unrewarded], columns: BatchColumns) -> list[Outcome]:
        statements = [text if isinstance(text, Unrewarded) else self.parse(text) for text in texts]
        answers = [
            None if isinstance(statement, Unrewarded) else statement.answer or None
            for statement in statements
        ]
        outcomes: list[Outcome] = []
        for truth, statement in zip(self.truths(answers, columns), statements, strict=True):
            if truth is None:
                outcomes.append(None)
            elif isinstance(statement, Unrewarded):
                outcomes.append(statement)
            elif isinstance(statement.confidence, NoValue):
                outcomes.append(Unrewarded(statement.confidence.reason, statement.confidence.message))
            else:
                outcomes.append(self.grade(truth, statement.confidence))
        return outcomes


class GoldReward(StatedReward):
    """Base of rewards that accept answers close enough to any in the column ``gold``.

    Where a question has no gold answer, no completion of it has a reward.

    Args:
        correctness: which answers are correct, as of ``selfreflect uncertainty --correctness``, but for
            ``judge`` and ``human``.
        gold: the column with a list of gold answers, or with one.
        options: of :class:`StatedReward`.

    Raises:
        ConfigError: a setting makes no sense.
    """

    def __init__(self, correctness: str = "exact", *, gold: str = "gold", **options: Any) -> None:
        self.gold = gold
        self.is_correct = GoldMatch(correctness)
        super().__init__(**options)

    @property
    def criterion(self) -> str:
        return f"{self.__name__} by {self.is_correct.correctness}"

    def truths(self, answers: Sequence[str | None], columns: BatchColumns) -> list[float | None]:
        return self.is_correct(answers, columns.lists(self.gold, single=True))


class GoldMatch:
    """Picklable rule of correctness by gold answers.

    Raises:
        ConfigError: there is no such function, or it asks a model or a person.
    """

    def __init__(self, correctness: str) -> None:
        if correctness.partition(":")[0] in ("judge", "human", "graded"):
            raise ConfigError(
                f"a reward needs a correctness function that compares with gold answers, not {correctness!r}"
            )
        self.correctness = correctness
        self._function: Correctness | None = Correctness(correctness)

    def __getstate__(self) -> dict[str, Any]:
        """Copy the state without the sentence similarity model."""
        return self.__dict__ | {"_function": None}

    def __call__(self, answers: Sequence[str | None], gold: Sequence[tuple[str, ...]]) -> list[float | None]:
        """Label answers: 1 if correct, 0 if wrong or missing, None without gold."""
        if self._function is None:
            self._function = Correctness(self.correctness)
        questions = [AnsweredQuestion("", gold=texts) for texts in gold]
        labels = self._function.label_all(questions, answers)
        return [float(bool(label)) if texts else None for label, texts in zip(labels, gold, strict=True)]


class BrierReward(GoldReward):
    """Brier reward 1 - 2 (y - f)² for confidence f in an answer of correctness y.

    SaySelf's code has this reward (Xu et al. 2024, arXiv 2405.20974).

    A wrong answer on purpose, with confidence 0, gets as much as a right one with confidence 1. So use it
    where the answer is not trained, only the confidence; else :class:`RLCRReward`.
    """

    __name__ = "brier_reward"
    scoring = "brier"


class RLCRReward(GoldReward):
    """Reward y - (y - f)² for confidence f in an answer of correctness y (Damani et al. 2025, arXiv
    2507.16806).

    A correct answer with any confidence gets at least as much as a wrong one with any.
    """

    __name__ = "rlcr_reward"
    scoring = "rlcr"


class LogReward(GoldReward):
    """Logarithmic reward: ln f for a correct answer, ln (1 - f) for a wrong one, times ``scale`` (Rewarding
    Doubt, arXiv 2503.02623).

    Args:
        clip: confidences are taken as at least this and at most 1 less this, for a least reward. The
            paper's code takes 0.001, and scale 10 with -30 for what cannot be read, which a confident mistake
            would undercut.
    """

    __name__ = "log_reward"

    def __init__(
        self, correctness: str = "exact", *, clip: float = 0.001, scale: float = 1.0, **options: Any
    ) -> None:
        if not 0 < checked_number(clip, "clip") < 0.5:
            raise ConfigError(f"clip must be between 0 and 0.5, not {clip}")
        if not 0 < checked_number(scale, "scale") < math.inf:
            raise ConfigError(f"scale must be above 0, not {scale}")
        self.clip = clip
        self.scale = scale
        self.worst = scale * math.log(clip)
        super().__init__(correctness, **options)

    def grade(self, truth: float, confidence: float) -> float:
        clipped = min(max(confidence, self.clip), 1 - self.clip)
        return self.scale * math.log(clipped if truth else 1 - clipped)


class ConsistencyReward(StatedReward):
    """Reward 1 - |f - p| for confidence f, with p the share of the model's samples that agree. It needs no
    gold answers, and does not depend on chance in the trained model's sampling.

    An answer that no sample gives, with confidence 0, gets the whole reward. So use it where the answer is
    not trained, only the confidence.

    Args:
        answers: the column with the samples.
        classes: which answers say the same, as of ``selfreflect uncertainty --classes``, without a model.
    """

    __name__ = "consistency_reward"
    worst = 0.0

    def __init__(self, *, answers: str = "answers", classes: str = "exact", **options: Any) -> None:
        if classes.partition(":")[0] not in ("exact", "numeric", "jaccard", "rouge"):
            raise ConfigError(f"classes must be exact, numeric, jaccard or rouge, not {excerpt(classes)}")
        self.answers = answers
        self.rule = ClassRule(classes)
        super().__init__(**options)

    def grade(self, truth: float, confidence: float) -> float:
        return 1 - abs(confidence - truth)

    def truths(self, answers: Sequence[str | None], columns: BatchColumns) -> list[float | None]:
        truths: list[float | None] = []
        for samples, answer in zip(columns.lists(self.answers), answers, strict=True):
            if not samples:
                truths.append(None)
            elif answer is None:
                truths.append(0.0)
            else:
                labels = self.rule(AnsweredQuestion("", answers=(*samples, answer)))
                # the answer was sorted with the samples, as the last
                truths.append(float((labels[:-1] == labels[-1]).mean()))
        return truths


class MultiAnswerBrier(Reward):
    """Coverage less the squared errors of several confidences, as in lines ``Paris | 60%``.

    For answers k of confidence f_k the reward is min(1, sum of y_k) - sum of (y_k - f_k)²: RLCR's reward for
    several answers in one reply (after arXiv 2603.24844). An answer that is listed twice, but for spelling,
    is a failure.

    Args:
        against: ``"gold"``: y is 1 for a correct answer. ``"answers"``: y is the share of the model's own
            samples that are equal but for spelling, so no gold answers are needed.
        most: more lines than this are a failure, so that there is a least reward.
        correctness: of ``"gold"``, see :class:`GoldMatch`.
        column: with the gold answers, or with the samples; default: what ``against`` says.
    """

    __name__ = "multi_answer_brier"

    def __init__(
        self,
        against: Literal["gold", "answers"] = "gold",
        *,
        most: int = 10,
        correctness: str = "exact",
        column: str | None = None,
        failed: Literal["worst"] | float = "worst",
    ) -> None:
        if against not in ("gold", "answers"):
            raise ConfigError(f"against must be gold or answers, not {excerpt(against)}")
        if not checked_number(most, "most") >= 1:
            raise ConfigError(f"most must be 1 or more, not {most}")
        self.against = against
        self.most = most
        self.column = column or against
        self.is_correct = GoldMatch(correctness)
        # with every answer wrong and stated as certain
        self.worst = -float(most)
        super().__init__(failed)

    def outcomes(self, texts: Sequence[str | Unrewarded], columns: BatchColumns) -> list[Outcome]:
        references = columns.lists(self.column, single=self.against == "gold")
        outcomes: list[Outcome] = []
        for text, answers in zip(texts, references, strict=True):
            guesses = self._guesses(text)
            if not answers:
                outcomes.append(None)
            elif isinstance(guesses, Unrewarded):
                outcomes.append(guesses)
            else:
                truths = self._truths(guesses, answers)
                errors = [(y - guess.probability) ** 2 for y, guess in zip(truths, guesses, strict=True)]
                outcomes.append(min(1.0, math.fsum(truths)) - math.fsum(errors))
        return outcomes

    def _guesses(self, text: str | Unrewarded) -> Sequence[StatedGuess] | Unrewarded:
        if isinstance(text, Unrewarded):
            return text
        guesses = parse_guesses(text)
        if isinstance(guesses, NoValue):
            return Unrewarded(guesses.reason, guesses.message)
        if len({normal_form(guess.text) for guess in guesses}) < len(guesses):
            return Unrewarded("repeated", f"an answer is listed twice in {excerpt(text, 80)}")
        if len(guesses) > self.most:
            return Unrewarded("too_many", f"{len(guesses)} answers are listed, more than {self.most}")
        return guesses

    def _truths(self, guesses: Sequence[StatedGuess], answers: Sequence[str]) -> list[float]:
        texts = [guess.text for guess in guesses]
        if self.against == "gold":
            return [truth or 0.0 for truth in self.is_correct(texts, [tuple(answers)] * len(texts))]
        forms = list(map(normal_form, answers))
        return [forms.count(normal_form(text)) / len(forms) for text in texts]
