"""Base of rewards: trainers' signature, batch columns, and failures.

A failure never gets more than any other completion could. Trainers that add up several rewards count a
missing one as 0, which would make a failure the best of its group where rewards are negative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from selfreflect.errors import ConfigError, DataError, excerpt
from selfreflect.metric.inputs import checked_number, checked_texts
from selfreflect.models.reasoning import UnclosedReasoningError, split_reasoning

TrainerCompletion = str | Sequence[Mapping[str, Any]]
"""Text, or the messages that the model wrote in a conversation."""


@dataclass(frozen=True)
class Unrewarded:
    """Reason for a completion's worst reward."""

    kind: str
    message: str


Outcome = float | Unrewarded | None
"""Reward or reason for its absence; None if no completion of the question can be rewarded."""


class Reward:
    """Reward function with TRL's signature for GRPO and RLOO, which can be pickled.

    Args:
        failed: what a completion gets that cannot be rewarded: ``"worst"``, the least that any can get, or a
            number that is not above it.

    Raises:
        ConfigError: a setting makes no sense.
    """

    __name__ = "reward"
    reads_tags = False
    """Whether tags such as ``<answer>`` are kept in the text."""

    worst: float
    """Minimum reward of a completion, set before this class's ``__init__``."""

    def __init__(self, failed: Literal["worst"] | float = "worst") -> None:
        if failed != "worst" and checked_number(failed, "failed") > self.worst:
            raise ConfigError(
                f"failed={failed} would reward failures better than other completions, whose reward can be "
                f"{self.worst:g}",
                code="failed",
                remedy="Use 'worst', or a number of at most that.",
            )
        self.failed: float = self.worst if failed == "worst" else float(failed)

    @property
    def criterion(self) -> str:
        """Name of the reward, including options that affect which completions it rewards."""
        return self.__name__

    def prepare(self) -> None:
        """Load the reward's models and data, so that errors occur before training."""

    def outcomes(self, texts: Sequence[str | Unrewarded], columns: BatchColumns) -> list[Outcome]:
        """Reward each completion, or explain why that is impossible."""
        raise NotImplementedError

    def __call__(
        self,
        prompts: Sequence[Any] | None,
        completions: Sequence[TrainerCompletion],
        completion_ids: Sequence[Any] | None = None,
        *,
        trainer_state: Any = None,
        log_extra: Callable[[str, list[Any]], object] | None = None,
        log_metric: Callable[[str, float], object] | None = None,
        **columns: Sequence[Any],
    ) -> list[float | None]:
        """Reward each completion; higher is better.

        Args:
            completions: texts, or conversations, of which the last message of the assistant counts. Reasoning
                traces are removed.
            log_metric: gets the shares of completions that failed, and that cannot be rewarded.
            log_extra: gets the kind of each failure.
            columns: of the data set, one value for each completion.

        Returns:
            A number for each completion; None for all of a question that no completion can be rewarded for.

        Raises:
            DataError: a column is missing, or has another length than ``completions``.
        """
        if prompts is not None and len(prompts) != len(completions):
            raise DataError(f"{len(prompts)} prompts for {len(completions)} completions")
        texts = [said(completion, unwrap=not self.reads_tags) for completion in completions]
        outcomes = self.outcomes(texts, BatchColumns(len(texts), columns)) if texts else []
        # a trainer counts None as 0 where it adds up rewards, so a failure gets a number
        kinds = [outcome.kind if isinstance(outcome, Unrewarded) else "" for outcome in outcomes]
        if log_metric is not None and outcomes:
            log_metric(f"{self.__name__}/failed", sum(map(bool, kinds)) / len(outcomes))
            log_metric(f"{self.__name__}/undefined", outcomes.count(None) / len(outcomes))
        if log_extra is not None and any(kinds):
            log_extra(f"{self.__name__}/failure", kinds)
        return [self.failed if isinstance(outcome, Unrewarded) else outcome for outcome in outcomes]


def said(completion: TrainerCompletion, *, unwrap: bool = True) -> str | Unrewarded:
    """Extract the text of a completion or its last assistant message, without reasoning."""
    text = completion if isinstance(completion, str) else _last_content(completion)
    try:
        visible = split_reasoning(text, unwrap=unwrap).visible
    except UnclosedReasoningError as error:
        return Unrewarded("unclosed_reasoning", str(error))
    return visible or Unrewarded("blank", "the completion is blank")


def _last_content(messages: Any) -> str:
    """Extract the text of the last assistant message; empty for a mere tool call."""
    if not isinstance(messages, list | tuple) or not all(
        isinstance(message, Mapping) for message in messages
    ):
        raise DataError(f"a completion must be a text or a list of messages, not {excerpt(messages)}")
    content: Any = None
    for message in messages:
        if message.get("role", "assistant") == "assistant":
            content = message.get("content")
    if isinstance(content, list | tuple):  # parts, as of messages with pictures
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    return content if isinstance(content, str) else ""


class BatchColumns:
    """Columns of a batch, with one value per completion.

    Args:
        count: of completions.
    """

    def __init__(self, count: int, columns: Mapping[str, Any]) -> None:
        self.count = count
        self._columns = columns

    def __contains__(self, name: str) -> bool:
        return self._columns.get(name) is not None

    def values(self, name: str) -> list[Any]:
        """Read a value per completion. Raises DataError if the column is missing or its length differs."""
        if name not in self:
            names = ", ".join(sorted(self._columns)) or "none"
            raise DataError(
                f"the reward needs the column {excerpt(name)} of the data set, which has: {names}",
                code="missing_column",
                remedy="Trainers drop columns unless remove_unused_columns=False.",
                column=name,
            )
        values = self._columns[name]
        if isinstance(values, str) or not hasattr(values, "__len__"):
            problem = f"the column {excerpt(name)} must have a value for each completion"
            raise DataError(problem, code="column_length", column=name)
        if len(values) != self.count:
            problem = f"the column {excerpt(name)} has {len(values)} values for {self.count} completions"
            raise DataError(problem, code="column_length", column=name)
        return list(values)

    def texts(self, name: str, default: str | None = None) -> list[str]:
        """Read a text per completion, or ``default`` for missing ones."""
        if default is not None and name not in self:
            return [default] * self.count
        texts = []
        for row, value in enumerate(self.values(name)):
            value = default if value is None else value
            if not isinstance(value, str):
                problem = f"the column {excerpt(name)}: row {row} is not a text but {excerpt(value)}"
                raise DataError(problem, code="no_text", column=name)
            texts.append(value)
        return texts

    def lists(self, name: str, *, optional: bool = False, single: bool = False) -> list[tuple[str, ...]]:
        """Read a list of texts per completion, empty for None.

        Args:
            optional: without the column there are none.
            single: one text or number counts as a list of one.
        """
        if optional and name not in self:
            return [()] * self.count
        lists = []
        for row, value in enumerate(self.values(name)):
            texts = _spelled(value)
            texts = [texts] if single and isinstance(texts, str) else texts
            where = f"the column {excerpt(name)}, row {row}"
            lists.append(() if texts is None else checked_texts(texts, where))
        return lists


def _spelled(value: Any) -> Any:
    """Write numbers as text, even in lists, with NaN as missing."""
    if hasattr(value, "tolist"):  # of NumPy
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_spelled(entry) for entry in value]
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return str(int(value)) if value.is_integer() else str(value)
    return str(value) if isinstance(value, int) else value
