"""Thresholds on comparisons, such as ``worse > 0``: one name, one comparison and one number, nothing else."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from selfreflect.errors import ConfigError, DataError, excerpt, nearest

COUNTS = ("better", "worse", "unclear", "untestable")
"""How many strategies differ clearly from the baseline, or do not; and those with too few questions to tell,
which are unclear, too."""
QUESTIONS = ("n", "wins", "ties", "losses")
"""How many questions each strategy's comparison with the baseline is about."""
SHARES = ("difference", "low", "high", "p_value")
"""Numbers of the same comparison that may be written as shares of 1, or in percent."""
NAMES = (*COUNTS, *SHARES, *QUESTIONS)
RECOVERED = "recovered."
"""In front of a name: what summaries tell, in place of SelfReflect scores."""

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
class Threshold:
    """A condition on comparisons. The right side is a number or another name."""

    text: str
    left: str
    operator: str
    right: str

    def breaches(self, lines: Sequence[Mapping[str, Any]]) -> list[str]:
        """Say where the condition holds.

        Args:
            lines: the JSON lines of ``selfreflect compare``.

        Raises:
            DataError: there is nothing to compare, or a number is not defined.
        """
        if not lines:
            raise DataError(f"--fail-if {excerpt(self.text)}: there is only one strategy, nothing to compare")
        breaches = []
        for line in lines:
            left, right = self._value(self.left, line, lines), self._value(self.right, line, lines)
            if not _OPERATORS[self.operator](left, right):
                continue
            sentence = f"{self.text} holds: {_value_text(self.left, left)}"
            if _is_name(self.right):
                sentence += f", {_value_text(self.right, right)}"
            if not any(
                side.removeprefix(RECOVERED) in (*QUESTIONS, *SHARES) for side in (self.left, self.right)
            ):
                return [sentence]  # a count is of all strategies
            breaches.append(f"{sentence} for {line['strategy']} of {line['run']}")
        return breaches

    def untestable(self, lines: Sequence[Mapping[str, Any]]) -> list[str]:
        """Say where the condition cannot hold because there are too few questions to tell.

        A condition on "untestable", "unclear" or "n" looks at that itself, so it says nothing.

        Args:
            lines: as for :meth:`breaches`.
        """
        name = self.left.removeprefix(RECOVERED)
        if name in ("untestable", "unclear", "n"):
            return []
        prefix = RECOVERED if self.left.startswith(RECOVERED) else ""
        sentences = []
        for line in lines:
            part = self._measured(self.left, line)
            if not part["testable"]:
                sentences.append(
                    f"{self.text} cannot be told for {line['strategy']} of {line['run']}: "
                    f"{part['sentence']}. To fail there, add --fail-if '{prefix}untestable > 0'"
                )
        return sentences

    def _value(self, side: str, line: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> float:
        if not _is_name(side):
            return _number(side)
        name = side.removeprefix(RECOVERED)
        if name == "untestable":
            return sum(not self._measured(side, one)["testable"] for one in lines)
        if name in COUNTS:
            return [self._measured(side, one)["verdict"] for one in lines].count(name)
        value: float | None = self._measured(side, line)[name]
        if value is None:
            raise DataError(
                f"--fail-if {excerpt(self.text)}: {side} is not defined for {excerpt(line['strategy'])}: "
                f"{self._measured(side, line)['sentence']}"
            )
        return value

    def _measured(self, side: str, line: Mapping[str, Any]) -> Mapping[str, Any]:
        """The part of a line that a name is about."""
        if not side.startswith(RECOVERED):
            return line
        if "recovered" not in line:
            raise DataError(
                f"--fail-if {excerpt(self.text)}: what summaries tell was not measured in all of these runs"
            )
        part: Mapping[str, Any] = line["recovered"]
        return part


def parse_threshold(text: str) -> Threshold:
    """Read one condition.

    Raises:
        ConfigError: it is not one; the message says what is possible.
    """
    match = _SYNTAX.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"--fail-if {excerpt(text)} is not understood. Write a name, one of {' '.join(_OPERATORS)}, and "
            "a number, such as 'worse > 0'."
        )
    left, sign, right = match.groups()
    names = [*NAMES, *(RECOVERED + name for name in NAMES)]
    for side in (left, right):
        if side not in names and (side == left or _NUMBER.fullmatch(side) is None):
            raise ConfigError(
                f"--fail-if {excerpt(text)}: there is no {excerpt(side)}.{nearest(side, names)} Names are "
                f"{', '.join(NAMES)}; and these after {RECOVERED!r}, for what summaries tell."
            )
    if not _is_name(right):
        _check_unit(text, left, right)
    return Threshold(text.strip(), left, sign, right)


def _is_name(side: str) -> bool:
    return side.removeprefix(RECOVERED) in NAMES


def _number(side: str) -> float:
    """A number as it is compared: ``5%`` is 0.05."""
    return float(side.removesuffix("%")) / (100 if side.endswith("%") else 1)


def _check_unit(text: str, name: str, number: str) -> None:
    """Refuse a percentage where something is counted, and a share that must be meant in percent."""
    if name.removeprefix(RECOVERED) not in SHARES:
        if number.endswith("%"):
            what = "strategies" if name.removeprefix(RECOVERED) in COUNTS else "questions"
            raise ConfigError(
                f"--fail-if {excerpt(text)}: {name} counts {what} and is no share of them. Write a whole "
                f"number, such as '{name} > 0'."
            )
    elif abs(_number(number)) >= 1 and not number.endswith("%"):
        raise ConfigError(
            f"--fail-if {excerpt(text)}: {name} is a share of 1, and {excerpt(number)} of it would be "
            f"{100 * _number(number):g}%. Write {excerpt(number + '%')} if you mean percent, or "
            f"'{100 * _number(number):g}%' if you mean that."
        )


def _value_text(name: str, value: float) -> str:
    """What a name stands for, in both units in which a share can be written."""
    percent = f" ({100 * value:g}%)" if name.removeprefix(RECOVERED) in SHARES else ""
    return f"{name} is {value:g}{percent}"
