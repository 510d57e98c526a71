"""Conditions of ``--fail-if``: on one version, such as ``recovered < 60%``, or on comparisons, ``worse > 0``.

A condition is a name, one comparison and a number, nothing else. Names are those of measures, by their key in
JSON lines or by their name in the registry, and of counts.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from selfreflect.errors import ConfigError, DataError, excerpt, nearest
from selfreflect.metric.measure import measure_names
from selfreflect.report.compare import Contender
from selfreflect.report.document import comparison_line
from selfreflect.report.measures import SELFREFLECT, MeasureView, run_measures, view_of
from selfreflect.report.results import StrategyResult, strategy_results
from selfreflect.report.run_records import RunRecords
from selfreflect.text import counted, one_line

COUNTS = ("better", "worse", "unclear", "untestable")
"""How many strategies differ clearly from the baseline, or do not; and those with too few questions to tell,
which are unclear, too."""
QUESTIONS = ("n", "wins", "ties", "losses")
"""How many questions each strategy's comparison with the baseline is about."""
SHARES = ("difference", "low", "high", "p_value")
"""Numbers of the same comparison that may be written as shares of 1, or in percent."""
NAMES = (*COUNTS, *SHARES, *QUESTIONS)

OF_QUESTIONS = ("undefined", "failures", "missing")
"""Questions of one version: those with an undefined value, those that failed, and those without a result."""

_QUOTED = 5
"""Questions that a sentence names."""

_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_SYNTAX = re.compile(r"\s*(any\s+)?([\w.]+)\s*(<=|>=|==|!=|<|>)\s*(\S+)(?:\s+(\S+))?\s*")
_NUMBER = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]{1,3})?)(\D*)", re.IGNORECASE)


def _views() -> dict[str, MeasureView]:
    """Map what a measure may be called, its key in JSON lines or its name, to the measure."""
    views = [view_of(name) for name in measure_names()]
    return {view.key: view for view in views} | {view.name: view for view in views}


@dataclass(frozen=True)
class Side:
    """One side of a condition: a name, or a number."""

    text: str

    @property
    def view(self) -> MeasureView:
        """The measure that the name of a comparison is about: SelfReflect scores without a prefix."""
        prefix, _, name = self.text.rpartition(".")
        return _views().get(prefix, SELFREFLECT) if name in NAMES else SELFREFLECT

    @property
    def prefix(self) -> str:
        """The key of the measure in a line of JSON; empty for SelfReflect scores."""
        return "" if self.view is SELFREFLECT else self.view.key

    @property
    def name(self) -> str:
        """The name without the measure; empty for a number."""
        prefix, _, name = self.text.rpartition(".")
        return name if name in NAMES and (not prefix or prefix in _views()) else ""

    @property
    def is_share(self) -> bool:
        """Whether its values are shares of 1: those of other packages are what their unit says."""
        is_share = self.view.is_share or self.view.is_bundled
        return self.name == "p_value" or (self.name in SHARES and is_share)

    @property
    def number(self) -> float:
        """A number as it is compared: ``5%`` is 0.05."""
        return float(self.text.removesuffix("%")) / (100 if self.text.endswith("%") else 1)


Pairs = Sequence[tuple[Contender | None, Contender]]
"""Each version with its baseline, if it has one."""


class Condition(Protocol):
    """A condition of ``--fail-if``."""

    @property
    def text(self) -> str: ...

    def breaches(self, pairs: Pairs) -> list[str]:
        """Say where the condition holds. Raises DataError if a number is not defined."""

    def untestable(self, pairs: Pairs) -> list[str]:
        """Say where the condition does not hold only because too little was measured."""


@dataclass(frozen=True)
class Threshold:
    """A condition on comparisons with a baseline. The right side is a number or another name."""

    text: str
    left: Side
    operator: str
    right: Side

    def breaches(self, pairs: Pairs) -> list[str]:
        return self.line_breaches(_lines(pairs))

    def untestable(self, pairs: Pairs) -> list[str]:
        """Say where the condition cannot hold because there are too few questions to tell.

        A condition on "untestable", "unclear" or "n" looks at that itself, so it says nothing.
        """
        if self.left.name in ("untestable", "unclear", "n"):
            return []
        prefix = self.left.prefix and f"{self.left.prefix}."
        sentences = []
        for line in _lines(pairs):
            part = self._part(self.left, line)
            if not part["testable"]:
                sentences.append(
                    f"{self.text} cannot be told for {line['strategy']} of {line['run']}: "
                    f"{part['sentence']}. To fail there, add --fail-if '{prefix}untestable > 0'"
                )
        return sentences

    def line_breaches(self, lines: Sequence[Mapping[str, Any]]) -> list[str]:
        """Say where the condition holds.

        Args:
            lines: the JSON lines of ``selfreflect compare``.

        Raises:
            DataError: a number is not defined.
        """
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
                f"{excerpt(line['strategy'])}: {self._part(side, line)['sentence']}",
                code="undefined_number",
            )
        return value

    def _part(self, side: Side, line: Mapping[str, Any]) -> Mapping[str, Any]:
        """Select the part of a line that a name is about."""
        if not side.prefix:
            # a name alone is about what was measured, where no question has a SelfReflect score
            keys = {view.key for view in _views().values()}
            measured = [part for key, part in line.items() if key in keys and part and part.get("n")]
            return measured[0] if len(measured) == 1 and not line["n"] else line
        if side.prefix not in line:
            raise DataError(
                f"condition {excerpt(self.text)}: {side.prefix!r} was not measured in all of these runs",
                code="not_measured",
            )
        part: Mapping[str, Any] = line[side.prefix]
        return part


def _lines(pairs: Pairs) -> list[dict[str, Any]]:
    return [comparison_line(base, candidate) for base, candidate in pairs if base is not None]


@dataclass(frozen=True)
class Level:
    """A condition on each version by itself: on a mean, on any question, or on a count of questions."""

    text: str
    view: MeasureView | None
    """The measure; None for a count over all measures."""
    part: str
    """``mean``, or a count of :data:`OF_QUESTIONS`."""
    is_any: bool
    """Whether one question suffices."""
    operator: str
    number: float
    is_share: bool
    """Whether ``number`` is a share of the questions where it is a count."""

    def breaches(self, pairs: Pairs) -> list[str]:
        breaches = []
        for _, side in pairs:
            breaches += self._any(side) if self.is_any else self._whole(side)
        return breaches

    def untestable(self, pairs: Pairs) -> list[str]:
        """Say how many questions of a version have no value that could hold."""
        if self.view is None or self.part in OF_QUESTIONS:
            return []
        sentences = []
        for _, side in pairs:
            undefined = len(self.view.undefined(side.run, side.strategy))
            result = self._result(side)
            for name, count in {"undefined": undefined, "missing": result.missing}.items():
                if count:
                    sentences.append(
                        f"{self.text} says nothing of {count} of {counted(result.due, 'question')} of "
                        f"{subject_of(side)} without a value. To fail there, add --fail-if '{name} > 0'"
                    )
        return sentences

    def _result(self, side: Contender) -> StrategyResult:
        return next(result for result in strategy_results(side.run) if result.strategy == side.strategy)

    def _whole(self, side: Contender) -> list[str]:
        result = self._result(side)
        if self.part in OF_QUESTIONS:
            count = self._count(side, result)
            value = count / max(1, result.due) if self.is_share else float(count)
            shown = f"{count} of {result.due}"
        else:
            value = self._mean(side, result)
            assert self.view is not None
            shown = self.view.text(value)
        if not _OPERATORS[self.operator](value, self.number):
            return []
        return [f"{self.text} holds: it is {shown} for {subject_of(side)}"]

    def _mean(self, side: Contender, result: StrategyResult) -> float:
        assert self.view is not None
        self._check_measured(side)
        estimate = result.estimate(self.view)
        if estimate.mean is None:
            raise DataError(
                f"condition {excerpt(self.text)}: not defined for {subject_of(side)}, on "
                f"{counted(estimate.n, 'question')} with a value",
                code="undefined_number",
            )
        return estimate.mean

    def _check_measured(self, side: Contender) -> None:
        if self.view not in run_measures(side.run):
            assert self.view is not None
            raise DataError(
                f"condition {excerpt(self.text)}: {self.view.name!r} was not measured for {subject_of(side)}",
                code="not_measured",
                remedy="{scores.measures} chooses what is measured.",
            )

    def _count(self, side: Contender, result: StrategyResult) -> int:
        if self.part == "failures":
            return result.failures
        if self.part == "missing":
            return result.missing
        if self.view is not None:
            self._check_measured(side)
        views = run_measures(side.run) if self.view is None else [self.view]
        return len(set().union(*(view.undefined(side.run, side.strategy) for view in views)))

    def _any(self, side: Contender) -> list[str]:
        assert self.view is not None
        self._check_measured(side)
        values = self.view.of_strategy(side.run, side.strategy)
        found = {}
        for id_ in values.values:
            value = values.of_question(id_)
            if value is not None and _OPERATORS[self.operator](value, self.number):
                found[id_] = value
        if not found:
            return []
        # the questions that break the condition the most first
        order = sorted(found, key=lambda id_: -abs(found[id_] - self.number))
        texts = [
            f"{self.view.text(found[id_])} for {excerpt(one_line(side.run.questions[id_].text, 60))}"
            for id_ in order[:_QUOTED]
        ]
        rest = f" and {len(order) - _QUOTED} more" if len(order) > _QUOTED else ""
        return [
            f"{self.text} holds on {len(found)} of {counted(len(values.values), 'question')} of "
            f"{subject_of(side)}: {', '.join(texts)}{rest}"
        ]


def subject_of(side: Contender) -> str:
    """Name a strategy and its run, or the system whose replies a file holds."""
    name = one_line(side.run.display_name(side.strategy), 60)
    label = one_line(side.run.label, 60)
    return name if name == label else f"{name} of {label}"


def parse_conditions(texts: Sequence[str], *, compares: bool) -> list[Condition]:
    """Read the conditions of a command.

    Args:
        compares: whether the command compares with a baseline; one of each version is read by all commands.

    Raises:
        ConfigError: one is not understood; the message says what is possible.
    """
    conditions = list(map(parse_condition, texts))
    for condition in conditions:
        if isinstance(condition, Threshold) and not compares:
            raise ConfigError(
                f"condition {excerpt(condition.text)} compares two versions, and there is one",
                code="condition",
                remedy="`score` compares files with {against}, and `selfreflect compare` compares runs.",
            )
    return conditions


def parse_condition(text: str) -> Condition:
    """Read one condition.

    Raises:
        ConfigError: it is not one; the message says what is possible.
    """
    match = _SYNTAX.fullmatch(text)
    if match is not None and (match[1] or Side(match[2]).name == "" or match[2] in _level_names()):
        level = _parse_level(text, match)
        if level is not None:
            return level
    return parse_threshold(text)


def _level_names() -> dict[str, tuple[MeasureView | None, str]]:
    """Map each name of a condition on one version to its measure and what of it is compared."""
    names: dict[str, tuple[MeasureView | None, str]] = {name: (None, name) for name in OF_QUESTIONS}
    for key, view in _views().items():
        names[key] = view, "mean"
        names[f"{key}.undefined"] = view, "undefined"
    return names


def _parse_level(text: str, match: re.Match[str]) -> Level | None:
    """Read a condition on one version; None if its name is none of them and ``any`` does not stand there."""
    is_any, name, sign, number, unit = bool(match[1]), match[2], match[3], match[4], match[5] or ""
    names = _level_names()
    if name not in names:
        if is_any:
            known = [known for known, (_, part) in names.items() if part == "mean"]
            raise _unknown(text, name, known, "After any, names are")
        return None
    view, part = names[name]
    if is_any and part != "mean":
        raise ConfigError(
            f"condition {excerpt(text)}: {name} is about all questions, so 'any' cannot stand before it",
            code="condition",
        )
    parsed = _NUMBER.fullmatch(number)
    if parsed is None or (parsed[2] and unit):
        raise ConfigError(
            f"condition {excerpt(text)}: {excerpt(number)} is no number. Write one such as '{name} {sign} "
            f"{'60%' if view is not None and view.is_share else '0.1' if part == 'mean' else '2'}'.",
            code="condition",
        )
    value, unit = float(parsed[1]), parsed[2] or unit
    if part in OF_QUESTIONS:
        _check_suffix(text, name, unit, ("%", "question", "questions"))
    else:
        assert view is not None
        _check_number(text, name, view, value, unit)
    value = value / 100 if unit == "%" else value
    return Level(text.strip(), view, part, is_any, sign, value, unit == "%")


def _check_suffix(text: str, name: str, unit: str, allowed: Sequence[str]) -> None:
    if unit and unit not in allowed:
        raise ConfigError(
            f"condition {excerpt(text)}: {name} is not in {excerpt(unit)}. Write the number alone"
            + (f", or with {allowed[0]}" if allowed else ""),
            code="condition",
        )


def _check_number(text: str, name: str, view: MeasureView, value: float, unit: str) -> None:
    """Refuse a unit that the measure does not have, and a share that must be meant in percent."""
    word = view.measure.unit
    _check_suffix(text, name, unit, ("%",) if word in ("", "%") else (word,))
    if abs(value) >= 1 and not unit and view.is_share:
        raise _meant_in_percent(text, name, f"{value:g}")


def _meant_in_percent(text: str, name: str, number: str) -> ConfigError:
    percent = f"{100 * float(number):g}%"
    return ConfigError(
        f"condition {excerpt(text)}: {name} is a share of 1, and {excerpt(number)} of it would "
        f"be {percent}. Write {excerpt(number + '%')} if you mean percent, or '{percent}' if you "
        "mean that.",
        code="condition",
    )


def _unknown(text: str, name: str, known: Sequence[str], introduction: str = "Names are") -> ConfigError:
    return ConfigError(
        f"condition {excerpt(text)}: there is no {excerpt(name)}.{nearest(name, list(known))} "
        f"{introduction} {', '.join(known)}",
        code="condition",
        names=list(known),
    )


def parse_threshold(text: str) -> Threshold:
    """Read one condition on comparisons.

    Raises:
        ConfigError: it is not one; the message says what is possible.
    """
    match = _SYNTAX.fullmatch(text)
    if match is None or match[1] or match[5] not in (None, "%"):
        raise ConfigError(
            f"condition {excerpt(text)} is not understood. Write a name, one of {' '.join(_OPERATORS)}, and "
            "a number, such as 'worse > 0' or 'recovered < 60%'.",
            code="condition",
        )
    left, right = Side(match[2]), Side(match[4] + (match[5] or ""))
    for side in (left, right):
        number = _NUMBER.fullmatch(side.text)
        if not side.name and (side is left or number is None or number[2] not in ("", "%")):
            keys = list(dict.fromkeys(view.key for view in _views().values()))
            names = [*NAMES, *(f"{key}.{name}" for key in keys for name in NAMES), *_level_names()]
            raise ConfigError(
                f"condition {excerpt(text)}: there is no {excerpt(side.text)}.{nearest(side.text, names)} "
                f"Names are {', '.join(NAMES)}, also after {' or '.join(f'{key}.' for key in keys)}; and, of "
                f"one version, {', '.join((*keys, *OF_QUESTIONS))}",
                code="condition",
                names=names,
            )
    if not right.name:
        _check_unit(text, left, right)
    return Threshold(text.strip(), left, match[3], right)


def _check_unit(text: str, name: Side, number: Side) -> None:
    """Refuse a percentage where something is counted, and a share that must be meant in percent."""
    is_percent = number.text.endswith("%")
    if name.name not in SHARES:
        if is_percent:
            unit = "strategies" if name.name in COUNTS else "questions"
            raise ConfigError(
                f"condition {excerpt(text)}: {name.text} counts {unit} and is no share of them. Write a "
                f"whole number, such as '{name.text} > 0'.",
                code="condition",
            )
        return
    if is_percent and not name.is_share:
        _check_suffix(text, name.text, "%", () if name.view.measure.unit else ("%",))
    if abs(number.number) >= 1 and not is_percent and name.is_share:
        raise _meant_in_percent(text, name.text, number.text)


def _value_text(side: Side, value: float) -> str:
    """Write the value of a name, a share in both units."""
    percent = f" ({100 * value:g}%)" if side.is_share else ""
    return f"{side.text} is {value:g}{percent}"


def check_conditions(conditions: Sequence[Condition], pairs: Pairs) -> tuple[bool, list[str]]:
    """Tell whether a condition holds, with a sentence on each that does or cannot be told.

    Raises:
        DataError: there is no version to look at, or a number is not defined.
    """
    if conditions and not pairs:
        raise DataError(
            f"condition {excerpt(conditions[0].text)}: there is nothing to compare, or nothing was measured",
            code="nothing_to_compare",
        )
    holds = False
    sentences: list[str] = []
    for condition in conditions:
        breaches = condition.breaches(pairs)
        holds = holds or bool(breaches)
        sentences += breaches or condition.untestable(pairs)
    return holds, sentences


def versions(runs: Sequence[RunRecords]) -> Pairs:
    """List every strategy of every run, without a baseline."""
    return [(None, Contender(run, name)) for run in runs for name in run.strategies]
