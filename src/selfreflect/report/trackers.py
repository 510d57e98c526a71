"""Send the results of a run to an experiment tracker: Weights & Biases or MLflow.

Where they go is the trackers' own business: their environment variables name the server, project and key.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

from selfreflect.errors import DataError, MissingExtraError
from selfreflect.report.measures import run_measures
from selfreflect.report.results import strategy_results
from selfreflect.report.run_records import RunRecords
from selfreflect.stats import Estimate
from selfreflect.text import one_line, printable, without_credentials

PROJECT = "selfreflect"
"""Name of the project or experiment, if the environment names none."""

_LONGEST_LABEL = 120


def check_installed(tracker: str) -> None:
    """Raise MissingExtraError if the package of a tracker is not installed."""
    if find_spec(tracker) is None:
        raise MissingExtraError(f"--log {tracker}", tracker)


def log_run(tracker: str, run: RunRecords) -> str:
    """Log means with their intervals, counts and settings of a run as one run of a tracker.

    Args:
        tracker: a key of ``TRACKERS``.

    Returns:
        Where the tracker put it.

    Raises:
        MissingExtraError: its package is not installed.
        DataError: the tracker refused, for example without a key.
    """
    check_installed(tracker)
    with redirect_stdout(sys.stderr):  # where MLflow greets, and JSON lines go
        # a directory's name may hold bytes that are no text, on which both trackers fail
        label = one_line(run.label, _LONGEST_LABEL)
        return without_credentials(TRACKERS[tracker](label, flat_settings(run), flat_results(run)))


def flat_results(run: RunRecords) -> dict[str, float]:
    """List every number of a run's strategies as ``STRATEGY/NUMBER``; what is undefined is left out."""
    numbers: dict[str, float | None] = {"questions": len(run.questions), "failures": len(run.failures)}
    for result in strategy_results(run):
        name = _key(result.strategy, numbers)
        for measure in run_measures(run):
            numbers |= _with_ends(f"{name}/{measure.key}", result.estimate(measure))
        numbers |= {
            f"{name}/bits": result.bits,
            f"{name}/bits_available": result.bits_available,
            f"{name}/median_words": result.median_words,
            f"{name}/failures": result.failures,
        }
    return {name: float(value) for name, value in numbers.items() if value is not None}


def _with_ends(name: str, estimate: Estimate) -> dict[str, float | None]:
    ends = {f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return {name: estimate.mean, **ends, f"{name}_n": estimate.n or None}


def flat_settings(run: RunRecords) -> dict[str, Any]:
    """List the settings and models of a run as ``SECTION.KEY``; a manifest holds no secrets."""
    settings: dict[str, Any] = {"scores.zero": run.zero, "scores.scale": run.scale} if run.information else {}
    for section in ("config", "models"):
        for stage, values in run.manifest.get(section, {}).items():
            if isinstance(values, Mapping):
                prefix = stage if section == "config" else f"{stage}.model"
                settings |= {f"{prefix}.{key}": value for key, value in values.items()}
    return {_key(name, {}): value for name, value in settings.items() if value not in (None, "")}


def _key(name: str, taken_names: Mapping[str, Any]) -> str:
    """Make a name of letters, digits and ``_.-``, which every tracker takes and none reads as a path."""
    # two names that differ by such characters alone would overwrite each other
    key = re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:100].strip(".") or "_"
    number = 2
    unique = key
    while any(name.startswith(f"{unique}/") for name in taken_names):
        unique = f"{key}-{number}"
        number += 1
    return unique


def _log_wandb(label: str, settings: Mapping[str, Any], results: Mapping[str, float]) -> str:
    import wandb

    try:
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        with wandb.init(project=project, name=label, config=dict(settings), job_type="report") as logged:
            logged.summary.update(dict(results))
            return str(logged.url or logged.dir)
    except (wandb.Error, OSError, UnicodeError) as error:
        raise _refused("wandb", error) from None


def _log_mlflow(label: str, settings: Mapping[str, Any], results: Mapping[str, float]) -> str:
    import mlflow

    try:
        if not os.environ.keys() & {"MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID"}:
            mlflow.set_experiment(PROJECT)
        with mlflow.start_run(run_name=label) as logged:
            mlflow.log_params({name: printable(str(value))[:500] for name, value in settings.items()})
            mlflow.log_metrics(dict(results))
            return f"run {logged.info.run_id} at {mlflow.get_tracking_uri()}"
    except (mlflow.MlflowException, OSError) as error:
        advice = "MLFLOW_TRACKING_URI names the server; a local database needs the whole mlflow package."
        raise _refused("mlflow", error, advice) from None


def _refused(tracker: str, error: Exception, advice: str = "") -> DataError:
    message = f"{tracker}: {without_credentials(str(error))}"
    return DataError(message, code="tracker", remedy=advice, tracker=tracker)


TRACKERS: Mapping[str, Callable[[str, Mapping[str, Any], Mapping[str, float]], str]] = MappingProxyType(
    {"wandb": _log_wandb, "mlflow": _log_mlflow}
)
