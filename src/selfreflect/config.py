"""All settings that change results, in one frozen tree. Each field says once what its default is, how the
command line sets it, and which values it takes; TOML files fill the same fields."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from selfreflect.errors import ConfigError, excerpt, nearest
from selfreflect.models.spec import JUDGES, LOCAL_NAMES, kind_of
from selfreflect.records import STAGES, Record

if TYPE_CHECKING:
    from selfreflect.metric.sampling.limits import Limits


@dataclass(frozen=True)
class Flag:
    """How the command line sets a field, and which values the field takes."""

    usage: str
    """``"--limit N"``, ``"--executor local|ray"``, or ``"--writer"`` for a field that is on or off."""
    help: str
    _: KW_ONLY
    default: str | None = None
    """What ``--help`` shows if the field's own default does not say it."""
    negative: str = ""
    """The flag that turns the field off."""
    at_least: float | None = None

    @property
    def name(self) -> str:
        return self.usage.partition(" ")[0]

    @property
    def choices(self) -> list[str]:
        """All values of the field, if the usage lists them in lower case."""
        values = self.usage.partition(" ")[2]
        return values.split("|") if values.islower() else []


@cache
def flags_of(settings: type[msgspec.Struct]) -> dict[str, Flag]:
    """The flags of a settings class by field; fields that only TOML files set have none."""
    flags = {}
    for field, hint in get_type_hints(settings, include_extras=True).items():
        if get_origin(hint) is Annotated and isinstance(get_args(hint)[1], Flag):
            flags[field] = get_args(hint)[1]
    return flags


def check_values(settings: msgspec.Struct, section: str = "") -> None:
    """Check every value against its flag.

    Raises:
        ConfigError: a value is out of range; the message names the flag, and the key if there is a section.
    """
    defaults = {field.name: field.default for field in msgspec.structs.fields(settings)}
    for field, flag in flags_of(type(settings)).items():
        value = getattr(settings, field)
        if value == defaults[field]:
            continue
        name = f"{flag.name} ({section}.{field})" if section else flag.name
        if flag.choices and value not in flag.choices:
            *others, last = flag.choices
            choices = f"{', '.join(others)} or {last}" if others else last
            raise ConfigError(f"{name} must be {choices}, not {excerpt(value)}")
        if flag.at_least is not None and value < flag.at_least:
            raise ConfigError(f"{name} must be at least {flag.at_least:g}, not {value}")


# Flags that set a field in several sections.
SEED = Flag("--seed N", "Seed of everything random.")
MODEL = Flag(
    "--model NAME",
    "Model that answers and summarises: smollm2 (embedded), a hub name, a local directory, vllm:NAME, or "
    "openai:NAME on a server.",
)
REVISION = Flag("--revision REF", "Commit, tag or branch of a model from the hub.")
BASE_URL = Flag(
    "--base-url URL",
    "Address of the server for openai:NAME, such as http://localhost:8000/v1. The key is read from "
    "SELFREFLECT_API_KEY, for OpenAI also from OPENAI_API_KEY.",
    default="https://api.openai.com/v1",
)
MAX_NEW_TOKENS = Flag("--max-new-tokens N", "Maximum tokens per answer.", at_least=1)
THINKING = Flag(
    "--thinking", "Let a reasoning model think; its reasoning is cut off.", negative="--no-thinking"
)


class QuestionsConfig(Record, frozen=True, kw_only=True):
    source: Annotated[
        str,
        Flag(
            "--questions SOURCE",
            "Where questions come from: bundled, a file (json, jsonl, csv, parquet, txt), - for stdin, "
            "natural_questions, trivia_qa, simpleqa, mmlu, truthful_qa, or hf:NAME from the hub.",
        ),
    ] = "bundled"
    limit: Annotated[int | None, Flag("--limit N", "Sample only N questions.", at_least=1)] = None
    part: Annotated[
        str | None,
        Flag(
            "--shard K/N",
            "Take every Nth question from the Kth on, after --limit, so that N jobs share the questions. "
            "Give each job its own --out, and merge them with `selfreflect import`.",
        ),
    ] = None
    split: Annotated[str | None, Flag("--split NAME", "Split of a data set from the hub.")] = None
    subset: Annotated[str | None, Flag("--subset NAME", "Subset of a data set from the hub.")] = None
    question_column: Annotated[str | None, Flag("--question-column NAME", "Column of the question.")] = None
    seed: Annotated[int, SEED] = 0


class AnswersConfig(Record, frozen=True, kw_only=True):
    model: Annotated[str, MODEL] = "smollm2"
    revision: Annotated[str | None, REVISION] = None
    base_url: Annotated[str | None, BASE_URL] = None
    num_answers: Annotated[
        int, Flag("--num-answers N", "Answers in each of two halves; 10 is quick, 50 published.", at_least=1)
    ] = 50
    temperature: float = 1.0
    top_p: float = 1.0
    max_new_tokens: Annotated[int, MAX_NEW_TOKENS] = 256
    thinking: Annotated[bool, THINKING] = False
    seed: Annotated[int, SEED] = 0


class SummariesConfig(Record, frozen=True, kw_only=True):
    model: Annotated[str, MODEL] = "smollm2"
    revision: Annotated[str | None, REVISION] = None
    base_url: Annotated[str | None, BASE_URL] = None
    num_samples: Annotated[
        int,
        Flag("--num-samples N", "Fresh answers that sampling strategies draw per question.", at_least=1),
    ] = 50
    sample_max_new_tokens: Annotated[int, MAX_NEW_TOKENS] = 256
    max_new_tokens: Annotated[int, Flag("--summary-tokens N", "Maximum tokens per summary.", at_least=1)] = (
        4096
    )
    thinking: Annotated[bool, THINKING] = False
    seed: Annotated[int, SEED] = 0


class ScoresConfig(Record, frozen=True, kw_only=True):
    judge: Annotated[
        str,
        Flag(
            "--judge NAME",
            "Model that scores; it must give full logits: smollm2, a hub name, a local directory, vllm:NAME "
            "in this process, or vllm+http:NAME on a server.",
        ),
    ] = "smollm2"
    revision: Annotated[
        str | None, Flag("--judge-revision REF", "Commit, tag or branch of a judge from the hub.")
    ] = None
    base_url: Annotated[
        str | None,
        Flag(
            "--judge-url URL",
            "Address of the server for vllm+http:NAME in pooling mode, such as http://localhost:8000/v1.",
        ),
    ] = None
    dtype: Annotated[
        str,
        Flag(
            "--judge-dtype auto|float32|bfloat16|float16",
            "Precision of the judge.",
            default="float32, on CUDA bfloat16",
        ),
    ] = "auto"
    compat: Annotated[
        str, Flag("--compat published", "Add the second BOS token of the published scorer.")
    ] = ""
    budget: Annotated[
        str | None,
        Flag(
            "--budget TOKENS|TIME",
            "Estimate scores from random masked words within a limit per question: judge tokens (20000) or "
            "time (30s, 2m).",
            default="score every word",
        ),
    ] = None
    standard_error: Annotated[
        float | None,
        Flag("--se X", "Score random words until the standard error of every estimate is at most X."),
    ] = None
    race: Annotated[
        float | None,
        Flag(
            "--race CONFIDENCE",
            "Score random words until the order of a question's summaries is certain at this confidence "
            "(0.95); only close summaries cost more.",
        ),
    ] = None
    seed: Annotated[int, SEED] = 0
    """Decides which words come first, if there is a limit."""

    @property
    def limits(self) -> Limits | None:
        """When to stop scoring words; None to score all of them.

        Raises:
            ConfigError: a limit is out of range.
        """
        if (self.budget, self.standard_error, self.race) == (None, None, None):
            return None
        from selfreflect.metric.sampling.limits import Limits

        return Limits.parse(self.budget, self.standard_error, self.race, self.seed)


class Placement(Record, frozen=True, kw_only=True):
    """How the actors of a stage are laid out on a Ray cluster; None lets model and cluster decide."""

    actors: int | None = None
    """Workers, each with its own copy of the model."""
    gpus: float | None = None
    """Per actor. A fraction shares a GPU."""
    cpus: float | None = None
    """Per actor."""
    batch_questions: int | None = None
    """Questions that an actor takes at a time."""


class RayConfig(Record, frozen=True, kw_only=True):
    """For ``--executor ray``; it changes no results, so a run directory does not remember it."""

    answers: Placement = Placement()
    summaries: Placement = Placement()
    scores: Placement = Placement()


class Price(Record, frozen=True, kw_only=True):
    """What a model costs, in any currency; ``--dry-run`` uses it."""

    input_per_million: float
    """Per million prompt tokens."""
    output_per_million: float
    """Per million completion tokens."""


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
    """Merge the defaults, ``base`` (what a run directory was made with), the TOML file at ``path``, and
    ``overrides``; the later one wins.

    Both mappings are section -> key -> value; an override of None leaves its key alone.

    Raises:
        ConfigError: the file cannot be read, or a key is unknown or has the wrong type or range.
    """
    file = _read(path) if path else {}
    merged: dict[str, dict[str, Any]] = {}
    for section in Config.__struct_fields__:
        options = {key: value for key, value in overrides.get(section, {}).items() if value is not None}
        merged[section] = {**(base or {}).get(section, {}), **file.get(section, {}), **options}
    try:
        config = msgspec.convert(merged, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path or 'settings'}: {error}") from None
    _check(config)
    if config.scores.limits is None:
        # Exact scores have no seed: a directory of exact scores can be resumed with any --seed.
        scores = msgspec.structs.replace(config.scores, seed=ScoresConfig().seed)
        config = msgspec.structs.replace(config, scores=scores)
    return config


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """A TOML file whose sections and keys are known."""
    try:
        file = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not a TOML file: {error}") from error
    _check_table(path, "", file, Config)
    return file


def _check_table(path: Path, name: str, table: Any, settings: type[Record]) -> None:
    """Check that a table, and the tables in it, have only keys that a settings class knows."""
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: [{name}] must be a table, not {excerpt(table)}")
    types = {field.name: field.type for field in msgspec.structs.fields(settings)}
    for key, value in table.items():
        if key not in types:
            kind = f"key in [{name}]" if name else "section"
            names = f"Known: {', '.join(types)}.{nearest(key, list(types))}"
            raise ConfigError(f"{path}: unknown {kind}: {excerpt(key)}. {names}")
        inner = f"{name}.{key}" if name else key
        if key == "prices":
            _check_prices(path, value)
        elif isinstance(types[key], type) and issubclass(types[key], Record):
            _check_table(path, inner, value, types[key])


def _check_prices(path: Path, prices: Any) -> None:
    if not isinstance(prices, dict):
        raise ConfigError(f"{path}: [prices] must be a table, not {excerpt(prices)}")
    for model, price in prices.items():
        name = f"prices.{excerpt(model)}"
        _check_table(path, name, price, Price)
        for key in msgspec.structs.fields(Price):
            if key.name not in price:
                raise ConfigError(f"{path}: {key.name} is missing in [{name}]")
            value = price[key.name]
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
                raise ConfigError(f"{path}: {key.name} in [{name}] must be 0 or more, not {excerpt(value)}")


def _check(config: Config) -> None:
    for stage in STAGES:
        check_values(getattr(config, stage), stage)
    if config.questions.part is not None:
        from selfreflect.sources.shards import parse_shard

        parse_shard(config.questions.part)
    if not 0 <= config.answers.temperature < math.inf:
        raise ConfigError(f"answers.temperature must be 0 or more, not {config.answers.temperature}")
    if not 0 < config.answers.top_p <= 1:
        raise ConfigError(f"answers.top_p must be in (0, 1], not {config.answers.top_p}")
    _check_generator_url(config.answers)
    _check_generator_url(config.summaries)
    _check_judge(config.scores)
    _check_limits(config.scores)
    for section in RayConfig.__struct_fields__:
        _check_placement(f"ray.{section}", getattr(config.ray, section))


def _check_generator_url(section: AnswersConfig | SummariesConfig) -> None:
    if kind_of(section.model) == "openai":
        if section.revision is not None:
            raise ConfigError("--revision does not apply on a server; leave it out with openai:NAME")
        _check_url(section.base_url)
    elif section.base_url is not None:
        raise ConfigError(f"--base-url goes with --model openai:NAME, not with {excerpt(section.model)}")


def _check_judge(scores: ScoresConfig) -> None:
    kind = kind_of(scores.judge)
    if kind not in JUDGES:
        raise ConfigError(
            f"--judge: {excerpt(scores.judge)} cannot be a judge, because an API gives no full logits. Name "
            f"vllm:NAME, vllm+http:NAME, {LOCAL_NAMES}."
        )
    if kind == "vllm+http":
        if scores.base_url is None:
            raise ConfigError(
                "--judge vllm+http:NAME needs the address of its server: --judge-url http://localhost:8000/v1"
            )
        _check_url(scores.base_url)
    elif scores.base_url is not None:
        raise ConfigError(f"--judge-url goes with --judge vllm+http:NAME, not with {excerpt(scores.judge)}")


def _check_url(base_url: str | None) -> None:
    from selfreflect.models.openai.endpoint import endpoint

    endpoint(base_url)


def _check_limits(scores: ScoresConfig) -> None:
    for field in ("budget", "standard_error", "race"):
        value = getattr(scores, field)
        if value is None:
            continue
        from selfreflect.metric.sampling.limits import Limits

        try:
            Limits.parse(**{field: value})
        except ConfigError as error:
            raise ConfigError(f"{flags_of(ScoresConfig)[field].name} (scores.{field}): {error}") from None


def _check_placement(name: str, placement: Placement) -> None:
    for key in ("actors", "batch_questions"):
        count = getattr(placement, key)
        if count is not None and count < 1:
            raise ConfigError(f"{name}.{key} must be at least 1, not {count}")
    cpus, gpus = placement.cpus, placement.gpus
    if cpus is not None and not 0 < cpus < math.inf:
        raise ConfigError(f"{name}.cpus must be above 0, not {cpus}")
    if gpus is not None and not (0 <= gpus <= 1 or (gpus > 1 and gpus.is_integer())):
        raise ConfigError(f"{name}.gpus must be a fraction of one GPU or a whole number, not {gpus}")
