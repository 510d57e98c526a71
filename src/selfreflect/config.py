"""All settings that change results, in one frozen tree with its defaults. The command line and TOML files are
two ways to fill it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from selfreflect.errors import ConfigError, excerpt, nearest
from selfreflect.metric.sampling.limits import Limits
from selfreflect.records import Record
from selfreflect.sources.shards import part_of


class QuestionsConfig(Record, frozen=True, kw_only=True):
    source: str = "bundled"
    limit: int | None = None
    seed: int = 0
    split: str | None = None
    subset: str | None = None
    question_column: str | None = None
    part: str | None = None
    """``"3/16"``: of several run directories that share the questions, the third of sixteen."""


class AnswersConfig(Record, frozen=True, kw_only=True):
    model: str = "smollm2"
    revision: str | None = None
    base_url: str | None = None
    """Where a model ``openai:NAME`` is served."""
    num_answers: int = 50
    """Per half: twice as many are drawn."""
    temperature: float = 1.0
    top_p: float = 1.0
    max_new_tokens: int = 256
    thinking: bool = False
    seed: int = 0


class SummariesConfig(Record, frozen=True, kw_only=True):
    model: str = "smollm2"
    revision: str | None = None
    base_url: str | None = None
    num_samples: int = 50
    """Fresh samples that sampling strategies draw for themselves."""
    sample_max_new_tokens: int = 256
    max_new_tokens: int = 4096
    thinking: bool = False
    seed: int = 0


class ScoresConfig(Record, frozen=True, kw_only=True):
    judge: str = "smollm2"
    revision: str | None = None
    base_url: str | None = None
    """Where a judge ``vllm+http:NAME`` is served."""
    dtype: str = "auto"
    compat: str = ""
    budget: str | None = None
    """Judge tokens (``"20000"``) or time (``"30s"``, ``"2m"``) per question; without a limit every masked
    word is scored."""
    standard_error: float | None = None
    """Score words until the estimate of every summary is this close to its exact score."""
    race: float | None = None
    """Stop scoring summaries whose order is certain at this confidence."""
    seed: int = 0
    """Which words come first, where there is a limit."""

    @property
    def limits(self) -> Limits | None:
        """When to stop scoring words; None to score all of them.

        Raises:
            ConfigError: a limit is out of range.
        """
        return Limits.parse(self.budget, self.standard_error, self.race, self.seed)


class Placement(Record, frozen=True, kw_only=True):
    """How the actors of a stage are laid out on a Ray cluster. What is left out is chosen for the model and
    the cluster."""

    actors: int | None = None
    """Workers, each with its own copy of the model."""
    gpus: float | None = None
    """Of each actor. A fraction shares a GPU."""
    cpus: float | None = None
    """Of each actor."""
    batch_questions: int | None = None
    """Questions that an actor takes at a time."""


class RayConfig(Record, frozen=True, kw_only=True):
    """For ``--executor ray``; it changes no results, so a run directory does not remember it."""

    answers: Placement = Placement()
    summaries: Placement = Placement()
    scores: Placement = Placement()


class Price(Record, frozen=True, kw_only=True):
    """What a model costs, in any one currency; ``--dry-run`` reckons with it."""

    input_per_million: float
    """For a million prompt tokens."""
    output_per_million: float
    """For a million completion tokens."""


class Config(Record, frozen=True, kw_only=True):
    """One section per stage, actors and prices. A run directory keeps the sections of the stages it was made
    with, and refuses others."""

    questions: QuestionsConfig = QuestionsConfig()
    answers: AnswersConfig = AnswersConfig()
    summaries: SummariesConfig = SummariesConfig()
    scores: ScoresConfig = ScoresConfig()
    ray: RayConfig = RayConfig()
    prices: dict[str, Price] = msgspec.field(default_factory=dict)
    """By the name of the model, as ``--model`` takes it."""

    def section(self, name: str) -> dict[str, Any]:
        """One section as plain values."""
        plain: dict[str, Any] = msgspec.to_builtins(getattr(self, name))
        return plain


def load_config(
    path: Path | None,
    overrides: Mapping[str, Mapping[str, Any]],
    base: Mapping[str, Mapping[str, Any]] | None = None,
) -> Config:
    """The defaults, overlaid by ``base`` (what a run directory was made with), by the TOML file at ``path``,
    and by ``overrides``.

    Both mappings are section -> key -> value; an override of None leaves its key alone.

    Raises:
        ConfigError: the file cannot be read, or a key is unknown or has the wrong type or range.
    """
    merged = _read(path) if path else {}
    known = {field.name: field.type for field in msgspec.structs.fields(Config)}
    for section, values in merged.items():
        where = str(path)
        _check_known(where, "section", section, list(known))
        if not isinstance(values, dict):
            raise ConfigError(f"{where}: [{section}] must be a table, not {excerpt(values)}")
        if section == "prices":
            _check_prices(where, values)
            continue
        if section == "ray":
            _check_ray(where, values)
            continue
        for key in values:
            _check_known(where, f"key in [{section}]", key, _keys(known[section]))
    merged = {name: {**(base or {}).get(name, {}), **merged.get(name, {})} for name in known}
    for section, given in overrides.items():
        merged.setdefault(section, {}).update(
            {key: value for key, value in given.items() if value is not None}
        )
    try:
        config = msgspec.convert(merged, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path or 'settings'}: {error}") from None
    _check_ranges(config)
    if not limited(config.scores):
        # Exact scores have no seed: a directory of theirs goes on with any --seed.
        config = msgspec.structs.replace(
            config, scores=msgspec.structs.replace(config.scores, seed=ScoresConfig().seed)
        )
    return config


def limited(scores: ScoresConfig) -> bool:
    """Whether scores are estimated from a part of the words."""
    return (scores.budget, scores.standard_error, scores.race) != (None, None, None)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not a TOML file: {error}") from error


def _check_known(where: str, what: str, name: str, known: list[str]) -> None:
    if name not in known:
        raise ConfigError(
            f"{where}: unknown {what}: {excerpt(name)}. Known: {', '.join(known)}.{nearest(name, known)}"
        )


def _keys(section: type[Record]) -> list[str]:
    return [field.name for field in msgspec.structs.fields(section)]


def _check_ray(where: str, stages: dict[str, Any]) -> None:
    for stage, values in stages.items():
        _check_known(where, "section of [ray]", stage, _keys(RayConfig))
        if not isinstance(values, dict):
            raise ConfigError(f"{where}: [ray.{stage}] must be a table, not {excerpt(values)}")
        for key in values:
            _check_known(where, f"key in [ray.{stage}]", key, _keys(Placement))


def _check_prices(where: str, prices: dict[str, Any]) -> None:
    for model, price in prices.items():
        if not isinstance(price, dict):
            raise ConfigError(
                f"{where}: the price of {excerpt(model)} must be a table [prices.{excerpt(model)}], not {excerpt(price)}"
            )
        for key in price:
            _check_known(where, f"key in the price of {excerpt(model)}", key, _keys(Price))
        for key in _keys(Price):
            value = price.get(key)
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
                given = "is missing" if value is None else f"must be 0 or more, not {excerpt(value)}"
                raise ConfigError(f"{where}: {key} in the price of {excerpt(model)} {given}")


def _check_ranges(config: Config) -> None:
    counts = {
        "questions.limit": 1 if config.questions.limit is None else config.questions.limit,
        "answers.num_answers": config.answers.num_answers,
        "answers.max_new_tokens": config.answers.max_new_tokens,
        "summaries.num_samples": config.summaries.num_samples,
        "summaries.max_new_tokens": config.summaries.max_new_tokens,
        "summaries.sample_max_new_tokens": config.summaries.sample_max_new_tokens,
    }
    for name, count in counts.items():
        if count < 1:
            raise ConfigError(f"{name} must be at least 1, not {count}")
    if not 0 <= config.answers.temperature < float("inf"):
        raise ConfigError(f"answers.temperature must be 0 or more, not {config.answers.temperature}")
    if not 0 < config.answers.top_p <= 1:
        raise ConfigError(f"answers.top_p must be in (0, 1], not {config.answers.top_p}")
    for stage in _keys(RayConfig):
        _check_placement(f"ray.{stage}", getattr(config.ray, stage))
    for name, section in (("answers", config.answers), ("summaries", config.summaries)):
        _check_server(name, section)
    if config.questions.part is not None:
        part_of(config.questions.part)
    _check_judge(config.scores)
    _check_limits(config.scores)
    for name, value, choices in (
        ("scores.dtype", config.scores.dtype, ["auto", "float32", "bfloat16", "float16"]),
        ("scores.compat", config.scores.compat, ["", "published"]),
    ):
        if value not in choices:
            raise ConfigError(f"{name} must be one of {choices}, not {value!r}")


def _check_placement(name: str, wanted: Placement) -> None:
    for key, count in (("actors", wanted.actors), ("batch_questions", wanted.batch_questions)):
        if count is not None and count < 1:
            raise ConfigError(f"{name}.{key} must be at least 1, not {count}")
    if wanted.cpus is not None and not 0 < wanted.cpus < float("inf"):
        raise ConfigError(f"{name}.cpus must be above 0, not {wanted.cpus}")
    if wanted.gpus is not None and not (
        0 <= wanted.gpus <= 1 or (wanted.gpus > 1 and wanted.gpus.is_integer())
    ):
        raise ConfigError(f"{name}.gpus must be a fraction of one GPU or a whole number, not {wanted.gpus}")


def _check_server(name: str, section: AnswersConfig | SummariesConfig) -> None:
    from selfreflect.models.openai.endpoint import endpoint
    from selfreflect.models.spec import kind_of

    if kind_of(section.model) == "openai":
        endpoint(section.base_url)
        if section.revision is not None:
            raise ConfigError(
                f"{name}.revision: a server says nothing of revisions. Leave --revision out with openai:NAME."
            )
    elif section.base_url is not None:
        raise ConfigError(
            f"{name}.base_url is for a model openai:NAME, and {excerpt(section.model)} is none. Leave one of them out."
        )


def _check_judge(scores: ScoresConfig) -> None:
    from selfreflect.models.openai.endpoint import endpoint
    from selfreflect.models.spec import kind_of

    if kind_of(scores.judge) == "vllm+http":
        if scores.base_url is None:
            raise ConfigError(
                "a judge vllm+http:NAME needs the address of its server: --judge-url http://localhost:8000/v1"
            )
        endpoint(scores.base_url)
    elif scores.base_url is not None:
        raise ConfigError(
            f"--judge-url is for a judge vllm+http:NAME, and {excerpt(scores.judge)} is none. Leave one of them out."
        )


def _check_limits(scores: ScoresConfig) -> None:
    try:
        _ = scores.limits
    except ConfigError as error:
        raise ConfigError(f"scores: {error}") from None
