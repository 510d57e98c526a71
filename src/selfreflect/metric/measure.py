"""Measures: their descriptions, display in reports, and the table of all.

A measure gives every summary of a question a value. Ours are rows of :data:`MEASURES`; another package adds
one by an entry point of the group ``selfreflect.measures``, which names its subclass of :class:`Measure`.
``--measures NAME`` then computes it, a run directory keeps it in ``measurements.jsonl``, and ``--json`` shows
it under its name.

A report asks a measure for all that it shows: :attr:`~Measure.title` over a table, :attr:`~Measure.heading`
over the column of means and :attr:`~Measure.short` in a sentence; :meth:`~Measure.text` for a value and
:meth:`~Measure.difference_text` for a difference; :attr:`~Measure.higher_is_better` for which one is better;
:meth:`~Measure.measurement` for the value of a stored record, with ``undefined`` where it has none and
:meth:`~Measure.reason` in words; :attr:`~Measure.ratio` for how values of several questions become a mean.
No other module needs to know which measures there are.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from selfreflect.errors import ConfigError, SelfReflectError, excerpt, nearest
from selfreflect.plugins import USER_ERRORS, error_text, failures_of, packaged
from selfreflect.records import (
    AnswerSet,
    Control,
    Controls,
    Failure,
    Measurement,
    Question,
    ReaderChoice,
    Sampled,
    Summary,
    SummaryResult,
)
from selfreflect.text import one_line, percent
from selfreflect.traits import traits_of

if TYPE_CHECKING:
    from selfreflect.metric.inputs import Limits
    from selfreflect.metric.scorer import SelfReflect
    from selfreflect.models.judge import Judge


GROUP = "selfreflect.measures"

# reports, tables and records keep this order (measures_of)
MEASURES = {
    "selfreflect": "selfreflect.metric.builtin:PublishedScore",
    "information": "selfreflect.metric.builtin:UsableInformation",
    "claims": "selfreflect.uncertainty.claims.measure:ClaimCoverage",
}
"""The class of each measure, ``module:Class``, imported on use."""

DEFAULT_MEASURES = ("selfreflect", "information")
"""Default measures, with columns in every data frame."""

CHEAP_MEASURES = ("information",)
"""Measures that ``ask``, the demo and the app use with a demonstration judge."""

FAILED = "failed"
"""Code of a measurement whose measure raised an exception, for a retry in the next run."""

# a name becomes a file name, a JSON key and a column
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")

# Keys of JSON lines, columns and names of figures that a measure of another package would
# overwrite.
_RESERVED = frozenset(
    "anchor answers baseline better bits bits_available by cause classes confidence context controls "
    "coverage difference differences estimate estimated estimated_from failure failures halves halves_differ "
    "halves_p_value high id judge kind length losses low means median_words message metadata missing n "
    "no_interval p_value pasted question question_id questions reader recovered recovered_high "
    "recovered_low recovered_n recovered_no_interval run scale score scores sentence shared_phrase "
    "stderr strategy summary summary_text summary_words tells testable text ties token_tasks unclear "
    "undefined undefined_reasons unit untestable value verdict why wins words worse zero".split()
)


@dataclass(frozen=True)
class MeasureItem:
    """A summary to measure, with its question and answers."""

    question: Question
    answers: AnswerSet
    """Answer set with test answers ``masked_out`` and reference answers ``conditioning``."""
    summary: Summary
    judge: Judge | None = None
    """The judge, if any requested measure needs one."""


@dataclass(frozen=True)
class Tools:
    """Models and settings for measuring, loaded once for all questions."""

    metric: SelfReflect | None = None
    """The judge with its engine, cache and limits; None if no measure needs a judge."""
    reader: ReaderChoice = "auto"


@dataclass(frozen=True)
class Work:
    """The texts of one question that one measure measures, with limits."""

    question: Question
    answers: AnswerSet
    summaries: Sequence[Summary]
    other_records: Sequence[Any] = ()
    """The measure's records of the question's other summaries, to sample the same words."""
    controls: Sequence[tuple[Control, str]] = ()
    """Control texts for comparison; several texts of one control are subsets of the answers."""
    limits: Limits | None = None
    """Remaining budget of judge tokens."""
    token_share: float = 1.0
    """Share of a token budget that this measure may spend."""


@dataclass(frozen=True)
class TextLimits:
    """Maximum number of tokens in each text of a question, including unwritten texts."""

    question: Question
    test_answers: Sequence[int]
    reference_answers: Sequence[int]
    summaries: Sequence[int]
    controls: bool
    """Whether the question's controls are measured too."""


@dataclass(frozen=True)
class Scored:
    """Results of a measure for one question."""

    records: Sequence[Any]
    """Records of the summaries, in their order."""
    controls: Mapping[Control, float | None] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the controls' record."""
    tokens: int = 0
    """Tokens spent from a budget."""


class GreedyEstimator(NamedTuple):
    """Uncertainty estimator that measures the greedy answer as if it were the summary."""

    name: str
    part: str
    """Name of a part of the measurement; empty for its value."""
    meaning: str
    variant: str
    source: str
    unit: str
    low: float = 0.0
    high: float = math.inf


class Doubtful(NamedTuple):
    """A value that reports show, although it does not count as a result."""

    value: float
    brief: str
    """Bracketed value with a short reason, as ``(97 %) few answers``, or its parts if out of range, as
    ``(-1.8 of 0.6 bits)``."""
    text: str
    """Value with interval and reason, as ``(97 %, -70 to 238 %) few answers``."""


class Measure:
    """A measure of summaries. Only ``name`` and :meth:`score` are needed.

    Subclasses that share work between the summaries of a question, or keep records of a kind of their own,
    override :meth:`open` and the methods that read those records.

    Controls have fields for our two measures alone, and a budget bounds only these: a measure of another
    package scores every summary, whatever ``--budget`` and ``--controls`` say.
    """

    name = ""
    """Name in ``--measures``, on disk and in JSON: small letters, digits and underscores."""
    unit = ""
    """Unit of values: ``"%"`` for shares in percent, compared in points; else a word or empty."""
    higher_is_better = True
    needs: Collection[str] = ()
    """Requirements: ``"judge"`` for a loaded judge in :meth:`score`."""

    title = ""
    """Title of a table, with the ends of the scale; the name by default."""
    heading = ""
    """Heading of a column of means; the name by default."""
    short = ""
    """Name of the measure within a sentence; the name by default."""
    key = ""
    """Key of the numbers in JSON lines, trackers and conditions; the name by default."""
    figure = ""
    """Prefix of figures' file names; the name by default."""
    rank = 2
    """Rank in reports, lowest first; ties are sorted by name."""
    is_plain = False
    """Whether numbers without a measure's name belong to this one, in JSON lines and conditions."""
    sentence = "mean"
    """Template of the sentence on the best mean."""
    about = ""
    """Description of what the measure asks and how."""
    reading = ""
    """Explanation of a value, with ``{zero}`` for the text at 0 %."""
    reasons: Mapping[str, str] = {}
    """Sentences for codes of undefined measurements."""
    estimators: Sequence[GreedyEstimator] = ()
    """Estimators that ``uncertainty`` reads from a run with this measure."""
    ratio: tuple[str, str] | None = None
    """Parts whose sums form the ratio that is the mean over questions. None: plain means."""

    record: type[Any] = Measurement
    """Type of record in run directories."""
    fails = False
    """Whether a summary without a value has a :class:`~selfreflect.records.Failure` instead of a record."""
    control = ""
    """Field of a :class:`~selfreflect.records.Control` with the value; empty if there is none."""
    budget_share = 1.0
    """Largest share of a token budget if other measures follow; smaller shares go first."""

    @property
    def form(self) -> str:
        """Display format of a value."""
        # z: a share that rounds to zero has no minus sign
        return "z.0%" if self.unit == "%" else ".4f"

    @property
    def is_share(self) -> bool:
        """Whether values are shares, whose differences are shown in points."""
        return self.unit == "%"

    @property
    def is_bundled(self) -> bool:
        """Whether the measure has a record type, keys and columns of its own."""
        return self.record is not Measurement

    @property
    def best(self) -> str:
        """Words for the best value."""
        return "best (highest)" if self.higher_is_better else "best (lowest)"

    @property
    def better(self) -> str:
        """Words for the better side of 0."""
        return "above 0 is better" if self.higher_is_better else "below 0 is better"

    def text(self, value: float) -> str:
        """Format a value for a sentence or page."""
        return percent(value) if self.is_share else format(value, self.form)

    def difference_text(self, mean: float, low: float | None = None, high: float | None = None) -> str:
        """Format a difference and its interval, as ``+39.5 points [+10.0, +65.8]``."""
        # points, because "+5 %" of a share could mean five points or a twentieth
        factor, form, unit = (100, "+z.1f", "points") if self.is_share else (1, f"+z{self.form}", self.unit)
        text = f"{mean * factor:{form}} {unit}".rstrip()
        if low is None or high is None:
            return text
        return f"{text} [{low * factor:{form}}, {high * factor:{form}}]"

    def direction(self, is_higher: bool) -> str:
        """Describe how the first of two strategies that clearly differ compares with the second."""
        if self.ratio and self.is_share:
            return "recovers more than" if is_higher else "recovers less than"
        verdict = "better" if is_higher == self.higher_is_better else "worse"
        return f"is {'higher' if is_higher else 'lower'} ({verdict}) than"

    def reason(self, undefined: str) -> str:
        """Explain in words why a measurement is undefined."""
        return self.reasons.get(undefined, undefined)

    def doubtful(self, record: Any) -> Doubtful | None:
        """Compute the doubtful value of a record without a valid one; None if there is none."""
        return None

    def sentence_values(self, records: Sequence[Any]) -> dict[str, Any]:
        """Collect further values for the template :attr:`sentence`, for one or many summaries."""
        return {}

    def settings_text(self, record: Any) -> str:
        """Describe a record's judge and settings, which must match between compared records."""
        return self.measurement(record).judge or "no judge"

    def sampled(self, record: Any) -> Sampled | None:
        """Return a record's sample of words; None if all words count."""
        return None

    def score(self, item: MeasureItem) -> Measurement:
        """Measure one summary. An exception makes the measurement undefined."""
        raise NotImplementedError

    def open(self, tools: Tools) -> Callable[[Work], Scored]:
        """Return a function that measures one question's summaries."""
        judge = None if tools.metric is None else tools.metric.judge

        def measure(work: Work) -> Scored:
            items = [MeasureItem(work.question, work.answers, summary, judge) for summary in work.summaries]
            return Scored([self._measured(item) for item in items])

        return measure

    def _measured(self, item: MeasureItem) -> Measurement:
        # a measure of another package may raise anything; it must not end the scoring of a run
        try:
            measurement = self.score(item)
            if not isinstance(measurement, Measurement):
                raise TypeError(f"score returned {excerpt(measurement)}, which is not a Measurement")
        except SelfReflectError as error:
            measurement = Measurement(value=None, undefined=FAILED, why=str(error))
        except USER_ERRORS as error:
            measurement = Measurement(value=None, undefined=FAILED, why=error_text(error, None))
        names = {"measure": self.name, "question_id": item.question.id, "summary": item.summary.name}
        judge = item.judge.name if item.judge and "judge" in self.needs else ""
        # set here, so that no measure can store its record under another summary
        return replace(measurement, judge=judge, **names)

    def measurement(self, record: Any) -> Measurement:
        """Convert a stored record of this measure to a :class:`~selfreflect.records.Measurement`."""
        assert isinstance(record, Measurement)
        return record

    def is_current(self, record: Any, settings: Mapping[str, Any]) -> bool:
        """Check whether a stored record is up to date.

        Args:
            settings: of ``[scores]``.
        """
        # all other reasons would only repeat
        return self.measurement(record).undefined != FAILED

    def by_answer(self, record: Any) -> tuple[float | None, ...]:
        """List each test answer's contribution to a value, higher is better.

        None for an answer that was not measured; empty if the record keeps no detail.
        """
        return ()

    def beats_empty(self, record: Any, controls: Controls | None) -> bool:
        """Check whether a summary beats the empty one; also True if that is unknown."""
        return True

    def counts_control(self, controls: Any, name: str) -> bool:
        """Check whether a control should do worse than a summary."""
        # a good summary may tell less than all answers pasted
        return name != "pasted"

    def has_controls(self, controls: Any, settings: Mapping[str, Any]) -> bool:
        """Check whether a question's stored controls include this measure, if it uses controls."""
        return True

    def fields(self, record: Any) -> dict[str, Any]:
        """Build the JSON keys of a summary."""
        measurement = self.measurement(record)
        fields = {
            "value": measurement.value,
            "interval": measurement.interval,
            "parts": measurement.parts,
            "unit": self.unit,
        }
        if measurement.undefined:
            fields |= {
                "undefined": measurement.undefined,
                "why": measurement.why or self.reason(measurement.undefined),
            }
        return {self.name: fields}

    def result_fields(self, numbers: Mapping[str, Any], records: Sequence[Any]) -> dict[str, Any]:
        """Build the JSON keys of a strategy.

        Args:
            numbers: ``mean``, ``low``, ``high``, ``n`` and ``no_interval``.
            records: of the strategy.
        """
        undefined = Counter(self.measurement(record).undefined for record in records)
        undefined.pop("", None)
        return {self.key: {**numbers, "undefined": dict(undefined)}}

    @property
    def columns(self) -> Sequence[str]:
        """Column names in a data frame of results."""
        return (self.name, f"{self.name}_undefined")

    numbers: Collection[str] = ()
    """Further ``columns`` with numbers; the first is always a number."""

    def cells(self, record: Any) -> tuple[Any, ...]:
        """Build the cells of :attr:`columns`."""
        measurement = self.measurement(record)
        return (measurement.value, measurement.undefined or None)

    @property
    def table_columns(self) -> Mapping[str, str]:
        """Column names in the table of questions, with display formats for numbers."""
        numbers = {self.columns[0], *self.numbers}
        return {name: self.form if name in numbers else "" for name in self.columns}

    def table_cells(self, record: Any) -> tuple[Any, ...]:
        """Build the cells of :attr:`table_columns`."""
        return self.cells(record)

    def judge_tokens(self, judge: Judge, work: Work, reader: ReaderChoice) -> int:
        """Count the judge tokens that ``work`` needs."""
        return 0

    def most_judge_tokens(self, judge: Judge, limits: TextLimits) -> int:
        """Compute an upper bound on the judge tokens of a question whose texts are not written yet."""
        return 0

    def typical_tokens(self, answers: Iterable[float], contexts: int) -> float:
        """Estimate the judge's tokens for a question, for the progress reporter.

        Args:
            answers: the tokens of each test answer.
            contexts: summaries, and what they are compared with.
        """
        return 0.0


def measure_named(name: str) -> Measure:
    """Look up a measure by name.

    Raises:
        ConfigError: there is none of this name, or that of another package cannot be imported.
    """
    # the table first: entry points are found by reading the metadata of every installed package
    if name not in MEASURES and name not in _entry_points():
        names = measure_names()
        raise ConfigError(
            f"there is no measure {excerpt(name)}.{nearest(name, names)} Known: {', '.join(names)}"
        )
    return _load(name)


def measure_keyed(key: str) -> Measure:
    """Look up a measure by its JSON key or name. Raises the errors of :func:`measure_named`."""
    measures = map(measure_named, measure_names())
    # JSON lines call the measure ``information`` by its key, ``recovered``
    return next((measure for measure in measures if measure.key == key), None) or measure_named(key)


def default_measures(judge: str) -> tuple[str, ...]:
    """Choose a judge's default measures."""
    return CHEAP_MEASURES if traits_of(judge).is_show_case else DEFAULT_MEASURES


def measure_names() -> list[str]:
    """List the names of all measures, built-in ones first."""
    return list(dict.fromkeys([*MEASURES, *_entry_points()]))


def measures_of(names: Collection[str]) -> list[Measure]:
    """Look up measures by name, built-in ones first in the table's order. Raises the errors of
    :func:`measure_named`."""
    ours = [name for name in MEASURES if name in names]
    return [measure_named(name) for name in (*ours, *sorted(set(names) - set(ours)))]


def measure_of(record: Any) -> Measure | None:
    """Find the measure of a stored record; None if there is none or its package is missing."""
    if isinstance(record, Measurement):
        # the package of this measure may be gone; its records stay on disk, and reports skip them
        return _load(record.measure) if record.measure in measure_names() else None
    return next(
        (measure for measure in measures_of(DEFAULT_MEASURES) if type(record) is measure.record), None
    )


# one object for each measure, so that measures may be compared by identity
@cache
def _load(name: str) -> Measure:
    measure: Measure
    if name in MEASURES:
        measure = resolve_name(MEASURES[name])()
    else:
        # importing and constructing it runs another package's code, which may raise anything
        with failures_of(f"the measure {excerpt(name)} of another package"):
            measure = _entry_points()[name]()()
            if not isinstance(measure, Measure):
                raise TypeError(f"{excerpt(measure)} is not a Measure")
            # headings and figures take these texts as they are
            for field_name in ("unit", "title", "heading", "short", "about", "reading"):
                text = getattr(measure, field_name)
                if (line := one_line(text)) != text:
                    setattr(measure, field_name, line)
    # two packages could give their classes the same name; entry points are unique
    measure.name = name
    for field_name in ("title", "heading", "short", "key", "figure"):
        setattr(measure, field_name, getattr(measure, field_name) or name)
    return measure


@cache
def _entry_points() -> dict[str, Callable[[], Any]]:
    """Map the measures of other packages to their loaders, by name."""
    return dict(packaged(GROUP, _objection))


def _objection(name: str) -> str:
    """Explain why another package's measure cannot have a name; empty if it can."""
    if not _NAME.fullmatch(name):
        return (
            "the name of a measure has at most 40 lower-case letters, digits and underscores, and "
            "begins with a letter"
        )
    return "results already have a key or a file with this name" if name in _RESERVED else ""


Measured = SummaryResult | Controls | Failure


class Measures:
    """Measures of one question's summaries, run one after the other.

    Args:
        metric: its limits hold for all measures together. Under limits, controls are not measured. None if no
            wanted measure needs a judge.
        wanted_names: names of measures, as in ``--measures``.
        reader: who reads the summaries, see :func:`~selfreflect.metric.information.choose_reader`.

    Raises:
        ConfigError: a measure does not exist, or its package fails.
    """

    def __init__(
        self,
        metric: SelfReflect | None,
        *,
        wanted_names: Collection[str] = DEFAULT_MEASURES,
        controls: bool = True,
        reader: ReaderChoice = "auto",
    ) -> None:
        self.metric = metric
        self.wanted = measures_of(wanted_names)
        self.limits = None if metric is None else metric.limits
        # controls are six texts or more per question, and would take most of a budget
        self.controls = controls and self.limits is None
        tools = Tools(metric, reader)
        self._measure = {measure.name: measure.open(tools) for measure in self.wanted}

    def measure(
        self,
        question: Question,
        answers: AnswerSet,
        summaries: Sequence[Summary],
        *,
        missing: Mapping[str, Sequence[Summary]] | None = None,
        other_records: Mapping[str, Sequence[Any]] | None = None,
        controls: bool = True,
    ) -> list[Measured]:
        """Measure the summaries of one question.

        Args:
            missing: by measure, the summaries that lack it; by default ``summaries`` lack all.
            other_records: by measure, its records of other summaries of the question. Under limits no
                summary is measured by more words or answers than these, so that all stay comparable.
            controls: measure the controls, if they are wanted at all.

        Returns:
            By measure, a record for each of its summaries; then the controls.
        """
        # what prompts need takes long to load, and --help lists measures
        from selfreflect.metric.texts import control_texts

        texts = control_texts(question.text, answers.conditioning) if controls and self.controls else []
        limits = self.limits
        scored_by: dict[str, Scored] = {}
        # the cheap ones go first, so that the rest of a budget is for the costly
        order = sorted(self.wanted, key=lambda measure: measure.budget_share)
        for rank, measure in enumerate(order, start=1):
            targets = summaries if missing is None else missing.get(measure.name, ())
            of_controls = texts if measure.control else []
            if not targets and not of_controls:
                continue
            work = Work(
                question,
                answers,
                targets,
                (other_records or {}).get(measure.name, ()),
                of_controls,
                limits,
                # nobody comes after the last one, so it may spend the rest
                measure.budget_share if rank < len(order) else 1.0,
            )
            scored_by[measure.name] = self._measure[measure.name](work)
            if limits is not None:
                limits = limits.less(scored_by[measure.name].tokens)
        # records are stored in the order of the table, not of the work
        results: list[Measured] = []
        for measure in self.wanted:
            results += scored_by[measure.name].records if measure.name in scored_by else ()
        if texts and any(measure.control for measure in self.wanted):
            results.append(self._controls(question, list(dict(texts)), scored_by))
        return results

    def _controls(
        self, question: Question, controls: Sequence[Control], scored_by: Mapping[str, Scored]
    ) -> Controls:
        # only measures that need a judge have controls
        assert self.metric is not None
        # the scale of today; a measure may overwrite it with the one that it read
        facts: dict[str, Any] = {"zero": "empty", "anchor": "distinct"}
        values: dict[Control, dict[str, float | None]] = {control: {} for control in controls}
        for measure in self.wanted:
            if measure.control:
                facts |= scored_by[measure.name].facts
                for control, value in scored_by[measure.name].controls.items():
                    values[control][measure.control] = value
        return Controls(
            question_id=question.id,
            controls=tuple(replace(control, **fields) for control, fields in values.items()),
            **self.metric.judge.origin,
            **facts,
        )
