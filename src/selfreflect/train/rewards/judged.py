"""Rewards from a judge that reads the completion as a summary of the model's answers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from selfreflect.errors import ConfigError, DataError, excerpt
from selfreflect.metric.inputs import Limits, checked_number
from selfreflect.models.base import ModelSpec
from selfreflect.records import (
    HIGHEST_SHARE,
    LOWEST_SHARE,
    AnswerSet,
    Failure,
    Question,
    ReaderChoice,
    Summary,
    halves,
    question_id,
)
from selfreflect.train.rewards.base import BatchColumns, Outcome, Reward, Unrewarded
from selfreflect.traits import traits_of

if TYPE_CHECKING:
    from selfreflect.metric.scorer import SelfReflect
    from selfreflect.models.judge import Judge

# The length penalty stops growing here, so that there is a least reward
MOST_WORDS = 500

# Shares below this count as this, so that there is a least reward
LEAST_SHARE = -1.0


class JudgeReward(Reward):
    """Base of rewards that score completions of a question together.

    The columns ``question``, ``answers`` (reference answers) and ``masked_answers`` are read; without
    the last, ``answers`` are halved as everywhere. ``question_id``, ``context``, ``model`` and
    ``revision`` (of the answers) are optional. The judge never sees the context.

    Args:
        judge: a name, as of ``--judge``, or a judge. A name is loaded on first use, in every process that
            gets a pickled copy; a judge is pickled as its name.
        answers, masked: columns with the reference and the test answers.
        scale: what the best completion gets, or the worst loses.
        length_penalty: lost for each of the first ``MOST_WORDS`` words.
        limits: how much of each question to measure, such as ``Limits.parse(20_000)``.
        model: of :class:`~selfreflect.models.base.ModelSpec`, such as ``device="cuda:1"`` or ``base_url=``.

    Raises:
        ConfigError: a setting makes no sense.
    """

    def __init__(
        self,
        judge: Judge | str | ModelSpec = "smollm2",
        *,
        answers: str = "answers",
        masked: str = "masked_answers",
        scale: float = 100.0,
        length_penalty: float = 0.0,
        failed: Literal["worst"] | float = "worst",
        limits: Limits | None = None,
        **model: Any,
    ) -> None:
        if not 0 < checked_number(scale, "scale") < math.inf:
            raise ConfigError(f"scale must be above 0, not {scale}")
        if not 0 <= checked_number(length_penalty, "length_penalty") < math.inf:
            raise ConfigError(
                f"length_penalty, subtracted for each word, must be 0 or more, not {length_penalty}"
            )
        self.scale = float(scale)
        self.length_penalty = float(length_penalty)
        self.answers = answers
        self.masked = masked
        self.limits = limits
        self.spec: ModelSpec | None = None
        self._judge: Judge | None = None
        self._metric: SelfReflect | None = None
        if isinstance(judge, str | ModelSpec):
            self.spec = ModelSpec.of(judge, **model)
        elif not hasattr(judge, "lm"):  # whose class would load torch
            raise ConfigError(
                f"a judge must be a name, or made like Judge.load('smollm2'), not {judge!r:.60}"
            )
        elif model:
            raise ConfigError(f"{', '.join(model)} can only be set for a judge that is given by name")
        else:
            self._judge = judge
        # of the least share and the longest text that is penalised
        self.worst = -self.scale - self.length_penalty * MOST_WORDS
        super().__init__(failed)

    def __getstate__(self) -> dict[str, Any]:
        """Copy the state without the loaded judge, which is loaded again by name."""
        state = self.__dict__ | {"_judge": None, "_metric": None}
        if self._judge is not None:
            lm = self._judge.lm
            if self._judge.last_states is not None:
                raise ConfigError(
                    f"give the judge {excerpt(lm.name)} by its name: a judge on a server cannot be pickled"
                )
            fields: dict[str, Any] = {"device": lm.device, "dtype": lm.dtype}
            state["spec"] = ModelSpec(lm.name, revision=lm.revision or None, **fields)
        return state

    @property
    def judge_name(self) -> str:
        """The judge's name as given."""
        return self._judge.name if self._judge is not None else self.spec.name if self.spec else ""

    @property
    def metric(self) -> SelfReflect:
        """The metric with the judge, loaded on first use. Raises JudgeError."""
        if self._metric is None:
            from selfreflect.metric.scorer import SelfReflect

            judge = self._judge or self.spec
            assert judge is not None
            self._metric = SelfReflect(judge, limits=self.limits, reader=None)
        return self._metric

    def prepare(self) -> None:
        """Load the judge. Raises JudgeError."""
        _ = self.metric

    def measure(self, question: Question, answers: AnswerSet, texts: Sequence[str]) -> dict[str, Outcome]:
        """Measure a question's distinct summaries by text, without the length penalty."""
        raise NotImplementedError

    def outcomes(self, texts: Sequence[str | Unrewarded], columns: BatchColumns) -> list[Outcome]:
        cases = self._cases(columns)
        # completions of one question share the work of its reference answers
        groups: dict[tuple[Question, AnswerSet], dict[str, None]] = {}
        for case, text in zip(cases, texts, strict=True):
            if isinstance(text, str):
                groups.setdefault(case, {})[text] = None
        by_case = {case: self.measure(*case, list(group)) for case, group in groups.items()}
        outcomes: list[Outcome] = []
        for case, text in zip(cases, texts, strict=True):
            if isinstance(text, Unrewarded):
                outcomes.append(text)
                continue
            outcome = by_case[case][text]
            if isinstance(outcome, float):
                outcome -= self.length_penalty * min(len(text.split()), MOST_WORDS)
            outcomes.append(outcome)
        return outcomes

    def _cases(self, columns: BatchColumns) -> list[tuple[Question, AnswerSet]]:
        """Collect the question and answers of each completion."""
        questions = columns.texts("question")
        contexts = columns.texts("context", "")
        ids = columns.texts("question_id", "")
        models, revisions = columns.texts("model", ""), columns.texts("revision", "")
        conditioning, masked = columns.lists(self.answers), columns.lists(self.masked, optional=True)
        cases = []
        for row, text in enumerate(questions):
            if not text.strip():
                raise DataError(f"the column 'question': row {row} is blank")
            first, second = masked[row], conditioning[row]
            if not first:
                try:
                    first, second = halves(second, ids[row] or question_id(text, contexts[row]))
                except ValueError as error:
                    raise DataError(f"the column {excerpt(self.answers)}, row {row}: {error}") from None
            context = contexts[row]
            question = Question(id=ids[row] or question_id(text, context), text=text, context=context)
            answers = AnswerSet(
                question_id=question.id,
                masked_out=first,
                conditioning=second,
                model=models[row],
                revision=revisions[row],
            )
            cases.append((question, answers))
        return cases


class SelfReflectReward(JudgeReward):
    """Share of the empty summary's SelfReflect score that a completion saves, times ``scale``, less a length
    penalty.

    0 is as good as an empty summary, ``scale`` is perfect, and ``-scale`` the least. Scores of all texts of a
    question lie within a few hundredths, so against a fixed scale a failure would dwarf their differences.
    All completions of a question are measured on the same words; the reference answers once.

    With the embedded judge a line of symbols often beats an honest summary: take
    :class:`InformationReward`, or a larger judge.
    """

    __name__ = "selfreflect_reward"

    def prepare(self) -> None:
        """Load the judge, and warn if it prefers texts without content. Raises JudgeError."""
        super().prepare()
        if note := traits_of(self.judge_name).reward_warning:
            warnings.warn(note, stacklevel=2)

    def measure(self, question: Question, answers: AnswerSet, texts: Sequence[str]) -> dict[str, Outcome]:
        if self._metric is None:
            self.prepare()
        # by their texts, which all differ
        summaries = [Summary(question_id=question.id, name=text, text=text) for text in ("", *texts)]
        outcomes: dict[str, Outcome] = {}
        empty, *results = self.metric.score_records(question, answers, summaries)
        for text, result in zip(texts, results, strict=True):
            if isinstance(result, Failure):
                outcomes[text] = Unrewarded(result.kind, result.message)
            elif isinstance(empty, Failure):
                outcomes[text] = Unrewarded(empty.kind, empty.message)
            elif empty.value <= 0:  # the answers change nothing that the judge expects
                outcomes[text] = None
            else:
                outcomes[text] = self.scale * max(LEAST_SHARE, 1 - result.value / empty.value)
        return outcomes


class InformationReward(JudgeReward):
    """Share of the reference answers' information that a completion recovers, times ``scale``, less a length
    penalty.

    0 is as good as an empty summary, or as the repeated question to a judge that does not see it; ``scale``
    is as good as the distinct reference answers. Shares below -1 or above 2 count as these. Where the
    answers tell the judge nothing that is clear, no completion of the question has a reward.

    Args:
        reader: whether the judge sees the question, see
            :func:`~selfreflect.metric.information.choose_reader`. ``"auto"`` needs the columns ``model`` and
            ``revision`` to know that the judge gave the answers itself.
    """

    __name__ = "information_reward"

    def __init__(
        self, judge: Judge | str | ModelSpec = "smollm2", *, reader: ReaderChoice = "auto", **options: Any
    ) -> None:
        if reader not in ("auto", "informed", "blind"):
            raise ConfigError(f"reader must be auto, informed or blind, not {excerpt(reader)}")
        if options.get("limits") is not None:
            raise ConfigError("limits apply to SelfReflectReward only: information reads each answer once")
        self.reader: ReaderChoice = reader
        super().__init__(judge, **options)

    def measure(self, question: Question, answers: AnswerSet, texts: Sequence[str]) -> dict[str, Outcome]:
        from selfreflect.metric.information import choose_reader, measure
        from selfreflect.metric.prompts import CannotScoreError

        judge, engine = self.metric.judge, self.metric.engine
        reader = choose_reader(self.reader, judge, question, answers)
        try:
            information = measure(judge, engine, question, answers, texts, reader)
        except CannotScoreError as error:
            return dict.fromkeys(texts, Unrewarded(error.kind, str(error)))
        outcomes: dict[str, Outcome] = {}
        for text, result in information.items():
            if result.undefined == "unmeasured":
                outcomes[text] = Unrewarded(result.kind or "unmeasured", result.why)
                continue
            share = result.recovered
            # a record has no share here, but a reward needs a number: the end of the range
            if result.cause == "out_of_range" and result.bits is not None and result.bits_available:
                share = min(max(result.bits / result.bits_available, LOWEST_SHARE), HIGHEST_SHARE)
            outcomes[text] = None if share is None else self.scale * share
        return outcomes
