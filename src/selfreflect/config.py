"""All settings that change results, in one frozen tree. Each field says once its default, its flag and its
values; TOML files fill the same fields."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

import msgspec

from selfreflect.errors import ConfigError, excerpt
from selfreflect.metric.sampling.limits import Limits
from selfreflect.models.openai.endpoint import endpoint
from selfreflect.models.spec import JUDGES, LOCAL_NAMES, kind_of
from selfreflect.prompts import check_known, read_toml
from selfreflect.records import STAGES, Record
from selfreflect.sources.questions import parse_shard


@dataclass(frozen=True)
class Range:
    """Which values a field takes."""

    description: str
    includes: Callable[[float], bool]
    schema: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """The same for a JSON schema, as far as that can say it."""


@dataclass(frozen=True)
class Key:
    """A field that only files set."""

    help: str
    range: Range
    example: Any = 1


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
    range: Range | None = None
    example: Any = None
    """A value for the template of a settings file, if the field has no default."""

    @property
    def name(self) -> str:
        return self.usage.partition(" ")[0]

    @property
    def choices(self) -> list[str]:
        """All values of the field, if the usage lists them in lower case."""
        values = self.usage.partition(" ")[2]
        return values.split("|") if values.islower() else []


POSITIVE = Range("at least 1", lambda value: value >= 1, {"minimum": 1})
ZERO_OR_MORE = Range("0 or more", lambda value: 0 <= value < math.inf, {"minimum": 0})
SHARE = Range("in (0, 1]", lambda value: 0 < value <= 1, {"exclusiveMinimum": 0, "maximum": 1})
CPUS = Range("above 0", lambda value: 0 < value < math.inf, {"exclusiveMinimum": 0})
GPUS = Range(
    "a fraction of one GPU or a whole number",
    lambda value: 0 <= value <= 1 or (value > 1 and value.is_integer()),
    {"minimum": 0},
)


@cache
def notes_of(settings: type[msgspec.Struct]) -> dict[str, Flag | Key]:
    """What is declared about each field of a settings class."""
    notes: dict[str, Flag | Key] = {}
    for field, hint in get_type_hints(settings, include_extras=True).items():
        for note in getattr(hint, "__metadata__", ()):
            notes[field] = note
    return notes


def flags_of(settings: type[msgspec.Struct]) -> dict[str, Flag]:
    """The flags of a settings class by field; fields that only TOML files set have none."""
    return {field: note for field, note in notes_of(settings).items() if isinstance(note, Flag)}


def check_values(settings: msgspec.Struct, section: str = "") -> None:
    """Check every value against its flag or range.

    Raises:
        ConfigError: a value is out of range; the message names the flag, and the key if there is a section.
    """
    defaults = {field.name: field.default for field in msgspec.structs.fields(settings)}
    for field, note in notes_of(type(settings)).items():
        value = getattr(settings, field)
        if value == defaults[field]:
            continue
        key = f"{section}.{field}"
        name = key
        if isinstance(note, Flag):
            name = f"{note.name} ({key})" if section else note.name
        if isinstance(note, Flag) and note.choices and value not in note.choices:
            *others, last = note.choices
            choices = f"{', '.join(others)} or {last}" if others else last
            raise ConfigError(f"{name} must be {choices}, not {excerpt(value)}")
        if note.range is not None and not note.range.includes(value):
            raise ConfigError(f"{name} must be {note.range.description}, not {value}")


# Flags that set a field in several sections.
SEED = Flag("--seed N", "Seed of everything random.")
MODEL = Flag(
    "--model NAME",
    "Model that answers and summarises: smollm2 (embedded), a hub name, a local directory, vllm:NAME, "
    "openai:NAME on a server, or your own function as module:function.",
)
REVISION = Flag("--revision REF", "Commit, tag or branch of a model from the hub.", example="main")
BASE_URL = Flag(
    "--base-url URL",
    "Address of the server for openai:NAME, such as http://localhost:8000/v1. The key is read from "
    "SELFREFLECT_API_KEY, for OpenAI also from OPENAI_API_KEY.",
    default="https://api.openai.com/v1",
    example="http://localhost:8000/v1",
)
MAX_NEW_TOKENS = Flag("--max-new-tokens N", "Maximum tokens per answer.", range=POSITIVE)
TEMPERATURE = Flag(
    "--temperature T",
    "Temperature of answers, and of the fresh ones that strategies draw; the paper's is 1.",
    range=ZERO_OR_MORE,
    example=0.7,
)
TOP_P = Flag(
    "--top-p P",
    "Sample them from the likeliest tokens that have this probability together.",
    range=SHARE,
    example=0.9,
)
THINKING = Flag(
    "--thinking", "Let a reasoning model think; its reasoning is cut off.", negative="--no-thinking"
)


MEASURES = ("selfreflect", "information")


class QuestionsConfig(Record, frozen=True, kw_only=True):
    source: Annotated[
        str,
        Flag(
            "--questions SOURCE",
            "Where questions come from: bundled, demo, a file (json, jsonl, csv, parquet, txt), - for stdin, "
            "natural_questions, trivia_qa, simpleqa, mmlu, truthful_qa, or hf:NAME from the hub.",
        ),
    ] = "bundled"
    limit: Annotated[
        int | None, Flag("--limit N", "Sample only N questions.", range=POSITIVE, example=100)
    ] = None
    part: Annotated[
        str | None,
        Flag(
            "--shard K/N",
            "Take every Nth question from the Kth on, after --limit, so that N jobs share the questions. "
            "Give each job its own --out, and merge them with `selfreflect import`.",
            example="1/16",
        ),
    ] = None
    split: Annotated[
        str | None, Flag("--split NAME", "Split of a data set from the hub.", example="test")
    ] = None
    subset: Annotated[
        str | None, Flag("--subset NAME", "Subset of a data set from the hub.", example="main")
    ] = None
    question_column: Annotated[
        str | None, Flag("--question-column NAME", "Column of the question.", example="question")
    ] = None
    context_column: Annotated[
        str | None,
        Flag(
            "--context-column NAME",
            "Column of a context that the model reads with the question, and the judge does not; by default "
            "context, if there is one.",
            example="context",
        ),
    ] = None
    seed: Annotated[int, SEED] = 0


class AnswersConfig(Record, frozen=True, kw_only=True):
    model: Annotated[str, MODEL] = "smollm2"
    revision: Annotated[str | None, REVISION] = None
    base_url: Annotated[str | None, BASE_URL] = None
    num_answers: Annotated[
        int,
        Flag("--num-answers N", "Answers in each of two halves; 10 is quick, 50 published.", range=POSITIVE),
    ] = 50
    temperature: Annotated[float, TEMPERATURE] = 1.0
    top_p: Annotated[float, TOP_P] = 1.0
    max_new_tokens: Annotated[int, MAX_NEW_TOKENS] = 256
    thinking: Annotated[bool, THINKING] = False
    logprobs: Annotated[
        bool,
        Flag(
            "--logprobs",
            "Store the log-probabilities of each answer's tokens, for estimators of `selfreflect "
            "uncertainty`. Some servers do not return them.",
            negative="--no-logprobs",
        ),
    ] = False
    seed: Annotated[int, SEED] = 0


class SummariesConfig(Record, frozen=True, kw_only=True):
    strategies: Annotated[
        tuple[str, ...],
        Flag(
            "--strategies A,B",
            "How the model summarises its belief: greedy, basic, cot, twostep_cot, sample_and_summarize, "
            "concatenated_answers, or your own as package.module:function.",
        ),
    ] = ("greedy", "basic", "cot", "sample_and_summarize")
    """A run directory does not remember them: others can be added later."""
    model: Annotated[str, MODEL] = "smollm2"
    revision: Annotated[str | None, REVISION] = None
    base_url: Annotated[str | None, BASE_URL] = None
    num_samples: Annotated[
        int,
        Flag("--num-samples N", "Fresh answers that sampling strategies draw per question.", range=POSITIVE),
    ] = 50
    sample_temperature: Annotated[float, TEMPERATURE] = 1.0
    sample_top_p: Annotated[float, TOP_P] = 1.0
    sample_max_new_tokens: Annotated[int, MAX_NEW_TOKENS] = 256
    max_new_tokens: Annotated[
        int, Flag("--summary-tokens N", "Maximum tokens per summary.", range=POSITIVE)
    ] = 4096
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
        str | None,
        Flag("--judge-revision REF", "Commit, tag or branch of a judge from the hub.", example="main"),
    ] = None
    base_url: Annotated[
        str | None,
        Flag(
            "--judge-url URL",
            "Address of the server for vllm+http:NAME in pooling mode, such as http://localhost:8000/v1.",
            example="http://localhost:8000/v1",
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
    measures: Annotated[
        str,
        Flag(
            "--measures A,B",
            "What to measure: selfreflect (the published score), information (what a summary tells of what "
            "the answers would), or both.",
        ),
    ] = "selfreflect,information"
    reader: Annotated[
        str,
        Flag(
            "--reader auto|informed|blind",
            "Whether the judge sees the question when information is measured. auto: blind where the judge "
            "gave the answers itself, without a context, since it knows them already.",
        ),
    ] = "auto"
    controls: Annotated[
        bool,
        Flag(
            "--controls",
            "Also measure what summaries are compared with: nothing, the question repeated, nonsense, and "
            "answers pasted. Not with --budget, --se or --race.",
            negative="--no-controls",
        ),
    ] = True
    budget: Annotated[
        str | None,
        Flag(
            "--budget TOKENS|TIME",
            "Estimate scores from random masked words within a limit per question: judge tokens (20000) or "
            "time (30s, 2m); none scores every word.",
            default="none",
            example="20000",
        ),
    ] = None
    standard_error: Annotated[
        float | None,
        Flag(
            "--se X",
            "Score random words until the standard error of every estimate is at most X.",
            example=0.002,
        ),
    ] = None
    race: Annotated[
        float | None,
        Flag(
            "--race CONFIDENCE",
            "Score random words until the order of a question's summaries is certain at this confidence "
            "(0.95); only close summaries cost more.",
            example=0.95,
        ),
    ] = None
    seed: Annotated[int, SEED] = 0
    """Decides which words come first, if there is a limit."""

    @property
    def measure_names(self) -> frozenset[str]:
        """Which of ``MEASURES`` are wanted."""
        return frozenset(name.strip() for name in self.measures.split(","))

    @property
    def limits(self) -> Limits | None:
        """When to stop scoring words; None to score all of them.

        Raises:
            ConfigError: a limit is out of range.
        """
        return Limits.parse(self.budget, self.standard_error, self.race, self.seed)


class Placement(Record, frozen=True, kw_only=True):
    """How the actors of a stage are laid out on a Ray cluster; None lets model and cluster decide."""

    actors: Annotated[
        int | None, Key("Workers, each with its own copy of the model.", POSITIVE, example=4)
    ] = None
    gpus: Annotated[float | None, Key("GPUs of an actor. A fraction shares a GPU.", GPUS)] = None
    cpus: Annotated[float | None, Key("CPUs of an actor.", CPUS)] = None
    batch_questions: Annotated[
        int | None, Key("Questions that an actor takes at a time.", POSITIVE, example=8)
    ] = None


class RayConfig(Record, frozen=True, kw_only=True):
    """For ``--executor ray``; it changes no results, so a run directory does not remember it."""

    answers: Placement = Placement()
    summaries: Placement = Placement()
    scores: Placement = Placement()


class Price(Record, frozen=True, kw_only=True):
    """What a model costs, in any currency; ``--dry-run`` uses it."""

    input_per_million: Annotated[float, Key("Of a million prompt tokens.", ZERO_OR_MORE, 0.15)]
    output_per_million: Annotated[float, Key("Of a million completion tokens.", ZERO_OR_MORE, 0.6)]


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


def sampling_of(model: str) -> dict[str, Any]:
    """How the demo, ``ask`` and the app sample answers of a model: the embedded one at temperature 0.7 and
    top-p 0.9, since at the paper's temperature of 1 it writes words that do not exist."""
    return {"temperature": 0.7, "top_p": 0.9} if model == "smollm2" else {}


SAMPLED_ALIKE = {
    "sample_temperature": "temperature",
    "sample_top_p": "top_p",
    "sample_max_new_tokens": "max_new_tokens",
}
"""Settings of the answers that strategies draw, and those of the answer distribution that they follow."""

_MODEL = ("model", "revision", "base_url")
"""Settings of the answers that say whose they are. Summaries without a model follow them."""


def load_config(
    path: Path | None,
    overrides: Mapping[str, Mapping[str, Any]],
    base: Mapping[str, Mapping[str, Any]] | None = None,
) -> Config:
    """Merge the defaults, ``base`` (what a run directory was made with), the TOML file at ``path``, and
    ``overrides``; the later one wins. Unless one of these says otherwise, summaries are by the model that
    answers, and answers that strategies draw are sampled as the answer distribution is.

    Both mappings are section -> key -> value; an override of None leaves its key alone.

    Raises:
        ConfigError: the file cannot be read, or a key is unknown or has the wrong type or range.
    """
    file = read_config(path) if path else {}
    merged: dict[str, dict[str, Any]] = {}
    for section in Config.__struct_fields__:
        options = {key: value for key, value in overrides.get(section, {}).items() if value is not None}
        merged[section] = {**(base or {}).get(section, {}), **file.get(section, {}), **options}
    if "model" not in merged["summaries"]:  # a summary of one's own belief is by the model that answers
        place = {key: merged["answers"][key] for key in _MODEL if key in merged["answers"]}
        merged["summaries"] = {**place, **merged["summaries"]}
    for own, followed in SAMPLED_ALIKE.items():
        if followed in merged["answers"]:
            merged["summaries"].setdefault(own, merged["answers"][followed])
    if merged["scores"].get("budget") == "none":
        merged["scores"]["budget"] = None
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


def read_config(path: Path) -> dict[str, Any]:
    """Read a settings file: section -> key -> value.

    Raises:
        ConfigError: it cannot be read, or a key is unknown or missing.
    """
    file = read_toml(path)
    _check_keys(path, "", file, Config)
    return file


def _check_keys(path: Path, name: str, table: Any, settings: type[Record]) -> None:
    """Check that a table, and the tables in it, have all keys that a settings class needs, and no others."""
    fields = {field.name: field for field in msgspec.structs.fields(settings)}
    for key, value in _table(path, name, table).items():
        try:
            check_known(path, f"key in [{name}]" if name else "section", key, fields)
        except ConfigError as error:
            misplaced = [key, *value] if isinstance(value, dict) else [key]
            raise ConfigError(f"{error}{_right_places(misplaced)}") from None
        inner = f"{name}.{key}" if name else key
        section = fields[key].type
        if key == "prices":
            for model, price in _table(path, key, value).items():
                _check_keys(path, f"prices.{excerpt(model)}", price, Price)
        elif get_origin(get_type_hints(settings)[key]) is tuple and isinstance(value, str):
            raise ConfigError(f'{path}: {key} in [{name}] is a list, as in {key} = ["greedy", "basic"]')
        elif isinstance(section, type) and issubclass(section, Record):
            _check_keys(path, inner, value, section)
    for key, field in fields.items():
        if field.required and key not in table:
            raise ConfigError(f"{path}: {key} is missing in [{name}]")


def _table(path: Path, name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: [{name}] must be a table, not {excerpt(value)}.{_right_places([name])}")
    return value


def _right_places(keys: Iterable[str]) -> str:
    """Where keys belong that a user wrote elsewhere, or called as their flags are called."""
    lines = []
    for key in keys:
        places = []
        for section in STAGES:
            for field, flag in flags_of(type(getattr(Config(), section))).items():
                if key in (field, flag.name, flag.name.removeprefix("--").replace("-", "_")):
                    places.append(f"[{section}] {field}")
        if places:
            lines.append(f"\n  {excerpt(key)} is written as {' and '.join(places)}")
    return "".join(lines)


def _check(config: Config) -> None:
    for stage in STAGES:
        check_values(getattr(config, stage), stage)
    for name in RayConfig.__struct_fields__:
        check_values(getattr(config.ray, name), f"ray.{name}")
    for model, price in config.prices.items():
        check_values(price, f"prices.{excerpt(model)}")
    if config.questions.part is not None:
        parse_shard(config.questions.part)
    _check_strategies(config.summaries.strategies)
    _check_generator_url(config.answers)
    if config.answers.logprobs and kind_of(config.answers.model) == "function":
        raise ConfigError(
            f"--logprobs: {excerpt(config.answers.model)} is a function, which returns texts without "
            "log-probabilities. Leave it out, or name another --model."
        )
    _check_generator_url(config.summaries)
    _check_judge(config.scores)
    _check_limits(config.scores)


def _check_strategies(names: tuple[str, ...]) -> None:
    if not names:
        raise ConfigError("--strategies needs at least one name")
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ConfigError(f"--strategies names {excerpt(name)} twice")


def _check_generator_url(section: AnswersConfig | SummariesConfig) -> None:
    if kind_of(section.model) == "openai":
        if section.revision is not None:
            raise ConfigError("--revision does not apply on a server; leave it out with openai:NAME")
        endpoint(section.base_url)
    elif section.base_url is not None:
        name = excerpt(section.model)[1:-1]
        raise ConfigError(f"--base-url needs a model on a server. Did you mean --model openai:{name}?")


def _check_judge(scores: ScoresConfig) -> None:
    if unknown := scores.measure_names - {*MEASURES}:
        raise ConfigError(
            f"--measures must be {' or '.join(MEASURES)}, or both with a comma between them, "
            f"not {excerpt(min(unknown))}"
        )
    kind = kind_of(scores.judge)
    if kind not in JUDGES:
        raise ConfigError(
            f"--judge: {excerpt(scores.judge)} cannot be a judge, because it gives texts and no full logits. "
            f"Name vllm:NAME, vllm+http:NAME, {LOCAL_NAMES}."
        )
    if kind == "vllm+http":
        if scores.base_url is None:
            raise ConfigError(
                "--judge vllm+http:NAME needs the address of its server: --judge-url http://localhost:8000/v1"
            )
        endpoint(scores.base_url)
    elif scores.base_url is not None:
        raise ConfigError(f"--judge-url goes with --judge vllm+http:NAME, not with {excerpt(scores.judge)}")


def _check_limits(scores: ScoresConfig) -> None:
    for field in ("budget", "standard_error", "race"):
        try:
            Limits.parse(**{field: getattr(scores, field)})
        except ConfigError as error:
            raise ConfigError(f"{flags_of(ScoresConfig)[field].name} (scores.{field}): {error}") from None
