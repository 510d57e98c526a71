"""Conditions of ``--fail-if``: on one version (``recovered < 60%``) or on comparisons (``worse > 0``).

A condition is a name, one comparison and a number. What is undefined never passes: a condition that does not
hold stays undecided where a value that it speaks of is undefined, unless another condition says how many may
be, such as ``undefined > 2``.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from selfreflect.errors import ConfigError, DataError, excerpt, nearest
from selfreflect.metric.measure import Measure, measure_named, measure_names
from selfreflect.removed import BETWEEN_NAMES
from selfreflect.report.compare import Comparison, Contender, common_measures, compare
from selfreflect.report.measures import run_measures, undefined_of, values_of
from selfreflect.report.results import StrategyResult, strategy_results
from selfreflect.report.run_records import RunRecords
from selfreflect.stats import FEWEST_TESTED
from selfreflect.text import counted, one_line

COUNTS = ("better", "worse", "unclear", "untestable")
"""Counts of strategies that clearly differ from the baseline or do not, including those with too few
questions."""
NUMBERS: Mapping[str, Callable[[Comparison], float | None]] = {
    "difference": lambda comparison: comparison.paired.difference.mean,
    "low": lambda comparison: comparison.paired.difference.low,
    "high": lambda comparison: comparison.paired.difference.high,
    "p_value": lambda comparison: comparison.paired.p_value,
    "n": lambda comparison: comparison.paired.difference.n,
    "wins": lambda comparison: comparison.paired.wins,
    "ties": lambda comparison: comparison.paired.ties,
    "losses": lambda comparison: comparison.paired.losses,
}
"""Numbers of each strategy's comparison with the baseline; the last four count questions."""
_SHARES = ("difference", "low", "high", "p_value")
COMPARED = (*COUNTS, *NUMBERS)

OF_QUESTIONS = ("undefined", "failures", "missing")
"""Questions of one version: those with an undefined value, those that failed, and those without a result."""

_MEAN, _ANY = "mean", "any"

_QUOTED = 5
"""Number of questions named in a sentence."""

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

Pairs = Sequence[tuple[Contender | None, Contender]]
"""Each version with its baseline, if any."""


class ConditionValue(NamedTuple):
    """Value of a name for one version, or for all versions."""

    subject: str
    """Subject of the value; empty for a count of all strategies."""
    value: float | None
    text: str
    gaps: Mapping[str, str] = {}
    """Reasons for undefined parts, by the name of the condition that allows them."""
    caution: str = ""
    """Caution about limits of the value."""

    @property
    def finding(self) -> str:
        """The value in words, with its subject."""
        return f"{self.text}{f' for {self.subject}' if self.subject else ''}"


@dataclass(frozen=True)
class Name:
    """The named quantity of a condition."""

    text: str
    part: str
    """A word of :data:`COMPARED` or :data:`OF_QUESTIONS`, ``mean``, or ``any`` for each question's value."""
    measure: Measure | None = None
    """The measure; None for counts over all measures and for the default of comparisons."""

    @property
    def is_share(self) -> bool:
        """Whether values are shares of 1; plug-in measures follow their unit."""
        is_share = self.measure is None or self.measure.is_share or self.measure.is_bundled
        return self.part == "p_value" or (self.part in (*_SHARES, _MEAN, _ANY) and is_share)

    @property
    def units(self) -> Sequence[str]:
        """Units that a condition's number may have."""
        if self.part in COUNTS:
            return ()
        if self.part in OF_QUESTIONS:
            return ("%", "question", "questions")
        if self.part in NUMBERS and self.part not in _SHARES:
            return ("question", "questions")
        unit = "%" if self.measure is None else self.measure.unit
        return ("%",) if self.is_share or not unit else (unit,)

    def read(self, pairs: Pairs, *, as_share: bool) -> list[ConditionValue]:
        """Read the value for each version, or for all strategies together.

        Args:
            as_share: give counts of questions as shares of all.

        Raises:
            DataError: the measure was not measured.
        """
        if self.part not in COMPARED:
            return [self._of_version(side, as_share) for _, side in pairs]
        comparisons = [self._compare(base, side) for base, side in pairs if base is not None]
        if self.part in NUMBERS:
            return list(map(self._of_comparison, comparisons))
        untestable = [comparison for comparison in comparisons if not comparison.is_testable]
        if self.part == "untestable":
            return [ConditionValue("", len(untestable), f"{self.text} is {len(untestable)}")]
        count = [comparison.verdict for comparison in comparisons].count(self.part)
        # the number of unclear ones includes those that cannot be tested
        if self.part == "unclear":
            untestable = []
        # equal questions count: they could have differed, so a test could have found something on six
        few = [each for each in untestable if each.paired.difference.n < FEWEST_TESTED]
        gap, caution = ("; ".join(each.sentence for each in group) for group in (few, untestable))
        gaps = {"untestable": gap} if gap else {}
        return [ConditionValue("", count, f"{self.text} is {count}", gaps, caution)]

    def _compare(self, base: Contender, candidate: Contender) -> Comparison:
        measures = common_measures(base, [candidate])
        if self.measure is not None and self.measure not in measures:
            raise DataError(
                f"{self.measure.key!r} was not measured in all of these runs, so {self.text} cannot be "
                "checked",
                code="not_measured",
            )
        # a name alone is about the measure whose keys need no prefix, if any question has it
        results = [
            compare(base, candidate, measure) for measure in ([self.measure] if self.measure else measures)
        ]
        with_questions = [result for result in results if result.paired.difference.n]
        plain = [result for result in results if result.measure.is_plain]
        has_plain = any(result.paired.difference.n for result in plain)
        return with_questions[0] if len(with_questions) == 1 and not has_plain else (plain or results)[0]

    def _of_comparison(self, comparison: Comparison) -> ConditionValue:
        value = NUMBERS[self.part](comparison)
        # no wins on no question is no result
        if self.part != "n" and not comparison.paired.difference.n:
            value = None
        text = "" if value is None else f"{self.text} is {value:g}"
        if value is not None and self.is_share:
            text += f" ({100 * value:g} %)"
        gaps = {"untestable": comparison.sentence} if value is None else {}
        return ConditionValue(subject_of(comparison.candidate), value, text, gaps)

    def _of_version(self, side: Contender, as_share: bool) -> ConditionValue:
        subject = subject_of(side)
        result = _result(side)
        if self.part not in OF_QUESTIONS:
            measure = self.measured(side)
            mean = result.estimate(measure).mean
            text = ""
            if mean is not None:  # 59.9 % is below 60 %, and no 60 %
                text = f"it is {100 * mean:.4g} %" if measure.is_share else f"it is {measure.text(mean)}"
            return ConditionValue(subject, mean, text, _gaps(side, measure, result))
        if self.part == "undefined":
            measures = run_measures(side.run) if self.measure is None else [self.measured(side)]
            # a question that lacks several measures counts once
            count = len(
                set().union(*(undefined_of(measure, side.run, side.strategy) for measure in measures))
            )
        else:
            count = result.failures if self.part == "failures" else result.missing
        value = count / max(1, result.due) if as_share else float(count)
        return ConditionValue(subject, value, f"it is {count:,} of {result.due:,}")

    def measured(self, side: Contender) -> Measure:
        """Return the condition's measure. Raises DataError if the version lacks it."""
        assert self.measure is not None
        if self.measure not in run_measures(side.run):
            raise DataError(
                f"{self.measure.name!r} was not measured for {subject_of(side)}, so {self.text} cannot be "
                "checked",
                code="not_measured",
                remedy="{scores.measures} chooses what is measured.",
            )
        return self.measure


def _result(side: Contender) -> StrategyResult:
    return next(result for result in strategy_results(side.run) if result.strategy == side.strategy)


def _gaps(side: Contender, measure: Measure, result: StrategyResult) -> dict[str, str]:
    """Describe how many questions of a version lack a value."""
    counts = {"undefined": len(undefined_of(measure, side.run, side.strategy)), "missing": result.missing}
    of_all = f"of {counted(result.due, 'question')} of {subject_of(side)}"
    return {
        name: f"{count:,} {of_all} {'has' if count == 1 else 'have'} no value ({name})"
        for name, count in counts.items()
        if count
    }


@dataclass
class ConditionOutcome:
    """Outcome of a condition on one or more versions. It passes if it neither holds nor has gaps."""

    condition: Condition
    holds: list[str] = field(default_factory=list)
    """Sentences on values that meet the condition."""
    findings: list[str] = field(default_factory=list)
    """Values that do not meet the condition."""
    gaps: list[tuple[str, str]] = field(default_factory=list)
    """Reasons for undefined values, each with the name of a condition that allows it."""


@dataclass(frozen=True)
class Condition:
    """A condition: name, operator and number."""

    text: str
    name: Name
    operator: str
    limit: float
    as_share: bool = False
    """Whether a count of questions is compared as a share of all."""

    def is_met_by(self, value: float) -> bool:
        """Check whether a value meets the condition."""
        return _OPERATORS[self.operator](value, self.limit)

    def decide(self, pairs: Pairs) -> ConditionOutcome:
        """Find values that meet the condition, or reasons why it is undecided.

        Raises:
            DataError: its measure was not measured.
        """
        if self.name.part == _ANY:
            return self._decide_questions(pairs)
        outcome = ConditionOutcome(self)
        for value in self.name.read(pairs, as_share=self.as_share):
            outcome.gaps += value.gaps.items()
            if value.value is None:
                if not value.gaps:
                    outcome.gaps.append(("", f"no question of {value.subject} has a value"))
                continue
            outcome.findings += filter(None, (value.finding, value.caution))
            if self.is_met_by(value.value):
                outcome.holds.append(f"{self.text} holds: {value.finding}")
        return outcome

    def _decide_questions(self, pairs: Pairs) -> ConditionOutcome:
        """Decide a condition on any question, naming the worst questions first."""
        outcome = ConditionOutcome(self)
        for _, side in pairs:
            measure = self.name.measured(side)
            values = values_of(measure, side.run, side.strategy)
            shares = {id_: values.of_question(id_) or 0.0 for id_ in values.values}
            outcome.gaps += _gaps(side, measure, _result(side)).items()
            far_first = sorted(shares, key=lambda id_: -abs(shares[id_] - self.limit))
            texts = {
                id_: f"{measure.text(shares[id_])} for {excerpt(one_line(side.run.questions[id_].text, 60))}"
                for id_ in far_first
            }
            ids = [id_ for id_ in far_first if self.is_met_by(shares[id_])]
            of_all = f"{counted(len(shares), 'question')} of {subject_of(side)}"
            if ids:
                rest = f" and {len(ids) - _QUOTED} more" if len(ids) > _QUOTED else ""
                quoted = ", ".join(texts[id_] for id_ in ids[:_QUOTED])
                outcome.holds.append(f"{self.text} holds on {len(ids):,} of {of_all}: {quoted}{rest}")
            elif texts:
                outcome.findings.append(f"none of {of_all}; closest is {texts[far_first[-1]]}")
        return outcome

    def allows(self, condition: Condition, gap: str) -> bool:
        """Check whether this condition limits the number of ``condition``'s undefined values."""
        return self.name.measure in (None, condition.name.measure) and self.name.part == gap


def subject_of(side: Contender) -> str:
    """Name a strategy and its run, or the system of a file's responses."""
    name = one_line(side.run.display_name(side.strategy), 60)
    label = one_line(side.run.label, 60)
    return name if name == label else f"{name} of {label}"


def check_conditions(conditions: Sequence[Condition], pairs: Pairs) -> list[ConditionOutcome]:
    """Decide conditions on pairs of versions. Gaps that another condition allows are ignored.

    Raises:
        DataError: there is no version to look at, or a measure was not measured.
    """
    if conditions and not pairs:
        raise DataError(
            f"condition {excerpt(conditions[0].text)}: there is nothing to compare, or nothing was measured",
            code="nothing_to_compare",
        )
    outcomes = [condition.decide(pairs) for condition in conditions]
    for outcome in outcomes:
        gaps = [] if outcome.holds else dict.fromkeys(outcome.gaps)
        outcome.gaps = [
            gap for gap in gaps if not any(other.allows(outcome.condition, gap[0]) for other in conditions)
        ]
    return outcomes


def versions(runs: Sequence[RunRecords]) -> Pairs:
    """List every strategy of all runs, without a baseline."""
    return [(None, Contender(run, name)) for run in runs for name in run.strategies]


def parse_conditions(texts: Sequence[str], *, compares: bool) -> list[Condition]:
    """Parse a command's conditions.

    Args:
        compares: whether the command compares with a baseline; one of each version is read by all commands.

    Raises:
        ConfigError: one is not understood; the message says what is possible.
    """
    conditions = list(map(parse_condition, texts))
    for condition in conditions:
        if condition.name.part in COMPARED and not compares:
            raise ConfigError(
                f"condition {excerpt(condition.text)} compares two versions, but only one is given",
                code="condition",
                remedy="`score` compares files with {against}, and `selfreflect compare` compares runs.",
            )
    return conditions


def _names() -> dict[str, Name]:
    """Map names to quantities; measures go by name and by JSON key."""
    measures = [measure_named(name) for name in measure_names()]
    names = {part: Name(part, part) for part in (*OF_QUESTIONS, *COMPARED)}
    by_key = {measure.key: measure for measure in measures}
    for key, measure in {**by_key, **{measure.name: measure for measure in measures}}.items():
        names |= {key: Name(key, _MEAN, measure), f"any {key}": Name(f"any {key}", _ANY, measure)}
        for part in ("undefined", *COMPARED):
            names[f"{key}.{part}"] = Name(f"{key}.{part}", part, measure)
    return names


def parse_condition(text: str) -> Condition:
    """Parse one condition.

    Raises:
        ConfigError: it is not one; the message says what is possible.
    """
    match = _SYNTAX.fullmatch(text)
    if match is None:
        raise _refused(
            text,
            f"it cannot be read. Write a name, one of {' '.join(_OPERATORS)}, and a number, such as "
            "'worse > 0' or 'recovered < 60%'.",
        )
    name = _named(text, f"{'any ' if match[1] else ''}{match[2]}", _names())
    if match[4] in _names():
        raise _refused(text, f"{BETWEEN_NAMES} Write a number after {match[3]}, such as 'worse > 0'.")
    number = _NUMBER.fullmatch(match[4])
    if number is None or (number[2] and match[5]):
        example = "60%" if name.is_share else "2"
        raise _refused(
            text, f"{excerpt(match[4])} is not a number. Write one such as '{name.text} > {example}'."
        )
    unit = number[2] or match[5] or ""
    _check_unit(text, name, number[1], unit)
    value = float(number[1]) / (100 if unit == "%" else 1)
    return Condition(text.strip(), name, match[3], value, as_share=unit == "%")


def _named(text: str, name: str, names: Mapping[str, Name]) -> Name:
    if name in names:
        return names[name]
    keys = list(dict.fromkeys(entry.measure.key for entry in names.values() if entry.measure is not None))
    listed_keys = ", ".join(keys)
    raise _refused(
        text,
        f"there is no {excerpt(name)}.{nearest(name, list(names))} A condition on a comparison can name "
        f"{', '.join(COMPARED)}, also as in '{keys[-1]}.worse'; a condition on one version can name "
        f"{listed_keys}, {', '.join(OF_QUESTIONS)}, and '{_ANY} {keys[-1]}'",
        names=list(names),
    )


def _check_unit(text: str, name: Name, number: str, unit: str) -> None:
    """Refuse units that do not fit the name, and shares above 1 without a percent sign."""
    if unit and unit not in name.units:
        if unit == "%" and name.part in COMPARED and name.part not in _SHARES:
            counts = "strategies" if name.part in COUNTS else "questions"
            raise _refused(
                text,
                f"{name.text} counts {counts} and is not a share of them. Write a whole number, such as "
                f"'{name.text} > 0'.",
            )
        with_unit = f", or with {name.units[0]}" if name.units else ""
        raise _refused(text, f"{name.text} is not in {excerpt(unit)}. Write the number alone{with_unit}")
    if abs(float(number)) >= 1 and not unit and name.is_share:
        percent = excerpt(f"{number}%")
        raise _refused(text, f"{name.text} is a share of 1: write {percent} or {float(number) / 100:g}")


def _refused(text: str, message: str, **fields: Any) -> ConfigError:
    return ConfigError(f"condition {excerpt(text)}: {message}", code="condition", **fields)
