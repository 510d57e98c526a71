"""Thresholds on comparisons, such as ``worse > 0``: one name, one comparison and one number, nothing else."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from selfreflect.errors import ConfigError, DataError, excerpt, nearest
from selfreflect.metric.measure import measure_names
from selfreflect.report.measures import SELFREFLECT, view_of

COUNTS = ("better", "worse", "unclear", "untestable")
"""How many strategies differ clearly from the baseline, or do not; and those with too few questions to tell,
which are unclear, too."""
QUESTIONS = ("n", "wins", "ties", "losses")
"""How many questions each strategy's comparison with the baseline is about."""
SHARES = ("difference", "low", "high", "p_value")
"""Numbers of the same comparison that may be written as shares of 1, or in percent."""
NAMES = (*COUNTS, *SHARES, *QUESTIONS)


def prefixes() -> list[str]:
    """List what may stand before a name and a dot: a measure other than SelfReflect scores."""
    return [view.key for view in map(view_of, measure_names()) if view is not SELFREFLECT]


_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_SYNTAX = re.compile(r"\s*([\w.]+)\s*(<=|>=|==|!=|<|>)\s*(\S+)\s*")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]{1,3})?%?", re.IGNORECASE)


@dataclass(frozen=True)
class Side:
    """One side of a condition: a name, or a number."""

    text: str

    @property
    def prefix(self) -> str:
        """The measure that a name is about; empty for SelfReflect scores."""
        prefix, _, name = self.text.rpartition(".")
        return prefix if prefix in prefixes() and name in NAMES else ""

    @property
    def name(self) -> str:
        """The name without the measure; empty for a number."""
        name = self.text.removeprefix(f"{self.prefix}.")
        return name if name in NAMES else ""

    @property
    def number(self) -> float:
        """A number as it is compared: ``5%`` is 0.05."""
        return float(self.text.removesuffix("%")) / (100 if self.text.endswith("%") else 1)


@dataclass(frozen=True)
class Threshold:
    """A condition on comparisons. The right side is a number or another name."""

    text: str
    left: Side
    operator: str
    right: Side

    def breaches(self, lines: Sequence[Mapping[str, Any]]) -> list[str]:
        """Say where the condition holds.

        Args:
            lines: the JSON lines of ``selfreflect compare``.

        Raises:
            DataError: there is nothing to compare, or a number is not defined.
        """
        if not lines:
            raise DataError(
                f"condition {excerpt(self.text)}: there is only one strategy, nothing to compare",
                code="nothing_to_compare",
            )
        breaches = []
        for line in lines:
            left, right = self._value(self.left, line, lines), self._value(self.right, line, lines)
            if not _OPERATORS[self.operator](left, right):
                continue
            sentence = f"{self.text} holds: {_value_text(self.left, left)}"
            if self.right.name:
                sentence += f", {_value_text(self.right, right)}"
            if not {self.left.name, self.right.name} & {*QUESTIONS, *SHARES}:
                return [sentence]  # a count is of all strategies
            breaches.append(f"{sentence} for {line['strategy']} of {line['run']}")
        return breaches

    def untestable(self, lines: Sequence[Mapping[str, Any]]) -> list[str]:
        """Say where the condition cannot hold because there are too few questions to tell.

        A condition on "untestable", "unclear" or "n" looks at that itself, so it says nothing.

        Args:
            lines: as for :meth:`breaches`.
        """
        if self.left.name in ("untestable", "unclear", "n"):
            return []
        prefix = self.left.prefix and f"{self.left.prefix}."
        sentences = []
        for line in lines:
            part = self._part(self.left, line)
            if not part["testable"]:
                sentences.append(
                    f"{self.text} cannot be told for {line['strategy']} of {line['run']}: "
                    f"{part['sentence']}. To fail there, add --fail-if '{prefix}untestable > 0'"
                )
        return sentences

    def _value(self, side: Side, line: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> float:
        if not side.name:
            return side.number
        if side.name == "untestable":
            return sum(not self._part(side, line)["testable"] for line in lines)
        if side.name in COUNTS:
            return [self._part(side, line)["verdict"] for line in lines].count(side.name)
        value: float | None = self._part(side, line)[side.name]
        if value is None:
            raise DataError(
                f"condition {excerpt(self.text)}: {side.text} is not defined for "
                f"{excerpt(line['strategy'])}: {self._part(side, line)['sentence']}"
            )
        return value

    def _part(self, side: Side, line: Mapping[str, Any]) -> Mapping[str, Any]:
        """Select the part of a line that a name is about."""
        if not side.prefix:
            # a name alone is about what was measured, where no question has a SelfReflect score
            measured = [line[prefix] for prefix in prefixes() if line.get(prefix, {}).get("n")]
            return measured[0] if len(measured) == 1 and not line["n"] else line
        if side.prefix not in line:
            raise DataError(
                f"condition {excerpt(self.text)}: {side.prefix!r} was not measured in all of these runs"
            )
        part: Mapping[str, Any] = line[side.prefix]
        return part


def parse_threshold(text: str) -> Threshold:
    """Read one condition.

    Raises:
        ConfigError: it is not one; the message says what is possible.
    """
    match = _SYNTAX.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"condition {excerpt(text)} is not understood. Write a name, one of {' '.join(_OPERATORS)}, and "
            "a number, such as 'worse > 0'."
        )
    left, right = Side(match[1]), Side(match[3])
    for side in (left, right):
        if not side.name and (side is left or _NUMBER.fullmatch(side.text) is None):
            names = [*NAMES, *(f"{prefix}.{name}" for prefix in prefixes() for name in NAMES)]
            before = " or ".join(f"{prefix}." for prefix in prefixes())
            raise ConfigError(
                f"condition {excerpt(text)}: there is no {excerpt(side.text)}.{nearest(side.text, names)} "
                f"Names are {', '.join(NAMES)}; and these after {before}"
            )
    if not right.name:
        _check_unit(text, left, right)
    return Threshold(text.strip(), left, match[2], right)


def _check_unit(text: str, name: Side, number: Side) -> None:
    """Refuse a percentage where something is counted, and a share that must be meant in percent."""
    if name.name not in SHARES:
        if number.text.endswith("%"):
            unit = "strategies" if name.name in COUNTS else "questions"
            raise ConfigError(
                f"condition {excerpt(text)}: {name.text} counts {unit} and is no share of them. Write a "
                f"whole number, such as '{name.text} > 0'."
            )
    elif abs(number.number) >= 1 and not number.text.endswith("%"):
        percent = f"{100 * number.number:g}%"
        raise ConfigError(
            f"condition {excerpt(text)}: {name.text} is a share of 1, and {excerpt(number.text)} of it would "
            f"be {percent}. Write {excerpt(number.text + '%')} if you mean percent, or '{percent}' if you "
            "mean that."
        )


def _value_text(side: Side, value: float) -> str:
    """Write the value of a name, a share in both units."""
    percent = f" ({100 * value:g}%)" if side.name in SHARES else ""
    return f"{side.text} is {value:g}{percent}"
