"""Command options built from the settings classes, and the execution of commands.

Every field of :mod:`selfreflect.settings` and of :class:`ExecutionOptions` carries its flag and help.
A command says which of them it takes, and gets one object in place of many parameters::

    @takes("answers", "scores", execution=("--device", "--timeout"))
    def score_command(*, out: o.Out, overrides: Overrides, json: o.Json = False) -> None:
        config, options = overrides.config(), overrides.execution

``--help`` lists the flags where ``overrides`` stands among the parameters. A flag that several sections
share, such as ``--model``, is listed once and sets its field in each of them. In the same way a parameter
whose class is a struct with flags stands for its options, and is given as one object.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
import typer

from selfreflect.cli.console import ReadingProgress, exit_codes, say_notes
from selfreflect.errors import ConfigError
from selfreflect.flags import POSITIVE, Flag, check_values, fields_of, flags_of, types_of
from selfreflect.settings import Config, ExecutionOptions, load_config, read_config
from selfreflect.settings.sections import FLAGGED
from selfreflect.sources.columns import answer_separator, assigned_columns
from selfreflect.text import name_list

if TYPE_CHECKING:
    from selfreflect.sources.items import Item, ItemFile

T = TypeVar("T")
_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def option(usage: str, help: str, default: Any = None) -> Any:
    """Make an option, for a parameter or ``Annotated``: ``option("--limit N", "Take N items.")``.
    The default ``...`` makes it required, or leaves its default to the parameter."""
    name, _, metavar = usage.partition(" ")
    return typer.Option(default, name, metavar=metavar or None, help=help)


def argument(name: str, help: str, default: Any = None) -> Any:
    """Make a positional argument of a command; see :func:`option`."""
    return typer.Argument(default, metavar=name, help=help, show_default=False)


Out = Annotated[Path, option("--out DIR", "Run directory. An existing one is resumed.", ...)]
Fresh = Annotated[
    bool,
    option(
        "--fresh",
        "Start over in an existing run directory. Asks first, and moves its records to a folder backup-TIME "
        "in it.",
        ...,
    ),
]
AddQuestions = Annotated[
    bool,
    option(
        "--add-questions",
        "Add the questions of --questions (or of a larger --limit) that an existing run "
        "directory lacks, and update other columns, such as gold answers. Without this "
        "option, a file with different questions is an error.",
        ...,
    ),
]
Yes = Annotated[
    bool,
    option(
        "--yes",
        "Start without asking. In a terminal you are asked before a run of many texts or one that "
        "costs money, before "
        "using a server that returns one text for every sample, and before --fresh moves records. Without a "
        "terminal, costs are only shown, and the other two cases need --yes.",
        ...,
    ),
]
Runs = Annotated[list[Path], argument("RUN", "Run directories.", ...)]
DryRun = Annotated[
    bool,
    option(
        "--dry-run",
        "Print what is left to do, and its calls, tokens and money. Money needs input_per_million and "
        "output_per_million in [prices.MODEL] of --config. Writes nothing and calls no server; a local "
        "judge is loaded.",
        ...,
    ),
]
Json = Annotated[bool, option("--json", "Print JSON lines to stdout.", ...)]
Log = Annotated[
    Literal["wandb", "mlflow"] | None,
    option(
        "--log",
        "Log settings, means and intervals to Weights & Biases or MLflow, which read their "
        "own environment variables (needs the extra of the same name).",
        ...,
    ),
]
FAIL_IF = option(
    "--fail-if CONDITION",
    "Exit with 3 if this condition holds, such as 'recovered < 60%', 'any recovered < 10%' or "
    "'undefined > 2'. Can be repeated.",
    [],
)
EXPLAIN = option("--explain", "Also print the controls, and what the numbers mean and are based on.", False)
COLUMN = Flag(
    "--column ROLE=NAME",
    "Name a column for a role, as in answer=text. Roles are question, answer, summary, context, id, "
    "confidence and correct; numbered columns with one answer each are answers=A1..A6. Can be repeated.",
)


class ItemOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options that select the items and columns of a file."""

    limit: Annotated[int | None, Flag("--limit N", "Use only the first N items.", range=POSITIVE)] = None
    num_answers: Annotated[
        int | None, Flag("--num-answers N", "Use the first N answers of each half.", range=POSITIVE)
    ] = None
    column: Annotated[list[str] | None, COLUMN] = None
    separator: Annotated[
        str | None,
        Flag(
            "--separator TEXT",
            "Text that separates the answers where one cell holds several, as in ';' (\\n is a line end).",
        ),
    ] = None

    def refuse_columns(self) -> None:
        """Raise ConfigError for options that only a file of items uses."""
        if self.column or self.separator is not None:
            raise ConfigError(
                "bundled items need no columns and no separator",
                code="usage",
                remedy="Leave out {column} and {separator}, or name a file of items.",
            )

    def read(
        self,
        source: str,
        *,
        need_summaries: bool = False,
        take_replies: bool = False,
        allow_few: bool = False,
        seed: int = 0,
        label: str = "",
        keep: Callable[[Item], object] | None = None,
    ) -> ItemFile:
        """Read a file of items, and report progress and notes."""
        from selfreflect.sources.items import read_item_file

        file = read_item_file(
            source,
            limit=self.limit,
            num_answers=self.num_answers,
            columns=assigned_columns(self.column),
            separator=answer_separator(self.separator),
            need_summaries=need_summaries,
            take_replies=take_replies,
            allow_few=allow_few,
            seed=seed,
            progress=ReadingProgress(source),
            keep=keep,
        )
        say_notes([f"{label}: {note}" if label else note for note in file.notes])
        return file


_RUNNING = ("--device", "--device-map", "--executor", "--ray-address", "--trust-remote-code", "--timeout")
GENERATING = ("--prompts", *_RUNNING, "--batch-size", "--max-connections")
"""Execution options of stages in which a model generates texts."""
BATCHED = (*GENERATING, "--write-batch", "--read-batch")
"""Execution options of a single stage in which a model generates texts."""
JUDGING = ("--guesses", *_RUNNING)
"""Execution options of the scores stage."""


def grouping(groups: str) -> Callable[[Sequence[str], str], list[list[int]]]:
    """Return the grouping function of ``--groups``: spelling, same or meaning."""
    if groups == "meaning":
        from selfreflect.models.embed import MeaningGroups

        return MeaningGroups()
    if groups == "same":
        from selfreflect.sameness import same_groups

        return same_groups
    from selfreflect.grouping import group_indices

    def by_spelling(answers: Sequence[str], question: str = "") -> list[list[int]]:
        return group_indices(answers)

    return by_spelling


_FLAGGED: Mapping[str, type[msgspec.Struct]] = {**FLAGGED, "execution": ExecutionOptions}


@dataclass(frozen=True)
class Overrides:
    """Settings from the command line, by section and key."""

    sections: Mapping[str, Mapping[str, Any]]
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Defaults of the command that replace the settings' own."""
    execution_keys: frozenset[str] = frozenset()
    """The execution options that the command has. The settings file may contain others, for other
    commands."""

    @property
    def file(self) -> Path | None:
        """The settings file of ``--config``, if any."""
        return self.section("config").get("file")

    def config(self, base: Mapping[str, Mapping[str, Any]] | None = None) -> Config:
        """Merge all settings: the user's over ``--config``, over ``base``, over the defaults. Raises
        ConfigError if one is unknown or out of range."""
        base = base or {}
        layers = {
            name: {**self.defaults.get(name, {}), **base.get(name, {})} for name in {**self.defaults, **base}
        }
        settings = {name: values for name, values in self.sections.items() if name != "execution"}
        return load_config(self.file, settings, layers)

    def sets(self, section: str, key: str) -> bool:
        """Check whether the command line or the file of ``--config`` sets a key."""
        return key in self.given(section)

    @property
    def execution(self) -> ExecutionOptions:
        """Execution options, with the user's flags over the file of ``--config``. Raises ConfigError if a
        value is out of range."""
        flags = self.section("execution")
        options = dict(self.defaults.get("execution", {}))
        options |= {
            key: value for key, value in self._table("execution").items() if key in self.execution_keys
        }
        options |= flags
        if flags.get("executor") == "local":  # then the file's cluster is not used
            options.pop("ray_address", None)
        return ExecutionOptions(**options)

    def given(self, name: str) -> dict[str, Any]:
        """Collect a section's values from ``--config`` and the command line."""
        return {**self._table(name), **self.section(name)}

    def section(self, name: str) -> Mapping[str, Any]:
        """Return the values that the command line gives for a section."""
        return self.sections.get(name, {})

    def _table(self, name: str) -> dict[str, Any]:
        table: dict[str, Any] = read_config(self.file).get(name, {}) if self.file else {}
        return table

    def name_of(self, name: str) -> str:
        """Name a setting as the user would change it: its key in ``--config``, else its flag."""
        section, _, key = name.rpartition(".")
        # an option goes before the file, so only a key without one is changed in the file
        if section and self.file is not None and key not in self.section(section):
            with suppress(ConfigError):  # the file itself is wrong, and the error says how
                if key in self._table(section):
                    return f"{key} in [{section}] of {self.file}"
        flag = flags_of(_FLAGGED[section]).get(key) if section in _FLAGGED else None
        if flag is None and section:  # only files set it
            return f"{key} in [{section}]"
        return flag.name if flag else f"--{key.replace('_', '-')}"


@dataclass
class _Option:
    flag: Flag
    type: Any
    default: Any
    """Value that ``--help`` shows."""
    fields: list[tuple[str, str]]
    """The (section, field) pairs that the option sets."""

    @property
    def name(self) -> str:
        return self.flag.name.removeprefix("--").replace("-", "_")

    @property
    def is_list(self) -> bool:
        return self.type in (tuple[str, ...], tuple[str, ...] | None)

    @property
    def is_table(self) -> bool:
        return bool(self.type == dict[str, Any] | None)

    def parameter(self) -> inspect.Parameter:
        usage, text = self.flag.usage, self.flag.help
        if self.flag.negative:
            usage += f"/{self.flag.negative}"
        default = self.flag.default or self.default
        if isinstance(default, float):
            default = f"{default:g}"
        elif isinstance(default, tuple):
            default = ",".join(default)
        if default not in (None, "") and not isinstance(default, bool):
            text += f" [default: {default}]"
        plain = str if self.is_list or self.is_table else self.type
        return inspect.Parameter(self.name, _KEYWORD, default=option(usage, text), annotation=plain | None)

    def parsed(self, value: Any) -> Any:
        if self.is_table:
            with suppress(msgspec.DecodeError):  # the check of the value says what is wrong
                return msgspec.json.decode(value)
        return tuple(name_list(value)) if self.is_list else value


# By flag.
_Options = dict[str, _Option]


def takes(
    *sections: str,
    only: Collection[str] | None = None,
    defaults: Mapping[str, Any] | None = None,
    config_file: bool = False,
    execution: Collection[str] = (),
    whole: Collection[str] = (),
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Add options for settings to a command, passed as its parameter ``overrides``.

    Args:
        sections: sections of the settings.
        only: flags of the sections that the command takes, if not all.
        defaults: by flag, what the command takes in place of a field's own default.
        config_file: whether the command takes ``--config``.
        execution: flags of ``ExecutionOptions``.
        whole: further sections of the settings, of which the command takes every flag.
    """
    options = _options({name: FLAGGED[name] for name in whole}, None)
    options |= _options({name: FLAGGED[name] for name in sections}, only)
    if config_file:
        flag = Flag("--config FILE", "TOML file with settings; options override it.")
        options[flag.name] = _Option(flag, Path, None, [("config", "file")])
    options |= _options({"execution": ExecutionOptions}, execution)
    # defaults of the command go below the file of --config, not into the options
    values: dict[str, dict[str, Any]] = {}
    for name, default in (defaults or {}).items():
        options[name].default = default
        for section, key in options[name].fields if default is not None else ():
            values.setdefault(section, {})[key] = default

    def decorate(command: Callable[..., T]) -> Callable[..., T]:
        command.settings = options, values  # type: ignore[attr-defined]
        return command

    return decorate


def runnable(command: Callable[..., T]) -> Callable[..., T]:
    """Wrap a command for typer, with plain options and an exit code at the end."""
    options, defaults = getattr(command, "settings", ({}, {}))
    execution_keys = frozenset(
        key for entry in options.values() for section, key in entry.fields if section == "execution"
    )
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    structs: dict[str, tuple[type[msgspec.Struct], _Options]] = {}
    for name, parameter in signature.parameters.items():
        kind = parameter.annotation
        if kind is Overrides:
            parameters += map(_Option.parameter, options.values())
        elif inspect.isclass(kind) and issubclass(kind, msgspec.Struct):
            structs[name] = kind, _options({name: kind}, None)
            parameters += map(_Option.parameter, structs[name][1].values())
        else:
            parameters.append(parameter.replace(kind=_KEYWORD))

    @functools.wraps(command)
    def with_settings(**values: Any) -> T:
        # looked up first: what follows takes the settings out of the values
        source = values.get("source")
        # a command stores its work in --out, or in the run directory that it reads
        reads_directory = isinstance(source, str) and os.path.isdir(source)  # noqa: PTH112 (Path raises errors)
        keeps_work = reads_directory or values.get("out") is not None
        fields = _take(options, values)
        for _, struct_options in structs.values():
            fields |= _take(struct_options, values)
        overrides = Overrides(fields, defaults, execution_keys)
        if "overrides" in signature.parameters:
            values["overrides"] = overrides
        with exit_codes(keeps_work, overrides.name_of):
            for name, (kind, _) in structs.items():
                values[name] = kind(**fields.get(name, {}))
                check_values(values[name])
            return command(**values)

    with_settings.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return with_settings


def _take(options: _Options, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Remove the user's values from ``values``, and return them by section and field."""
    fields: dict[str, dict[str, Any]] = {}
    for entry in options.values():
        value = values.pop(entry.name)
        # typer gives an empty list for an option that was not given
        if value is not None and value != []:
            for section, key in entry.fields:
                fields.setdefault(section, {})[key] = entry.parsed(value)
    return fields


def _options(classes: Mapping[str, type[msgspec.Struct]], only: Collection[str] | None) -> _Options:
    """Make the options of settings classes, given by section."""
    options: _Options = {}
    for section, settings in classes.items():
        types = types_of(settings)
        fields = fields_of(settings)
        for key, flag in flags_of(settings).items():
            if only is None or flag.name in only:
                entry = options.setdefault(flag.name, _Option(flag, types[key], fields[key].default, []))
                entry.fields.append((section, key))
    if unknown := {*(only or ())} - options.keys():
        raise ValueError(f"{', '.join(classes)} have no {', '.join(sorted(unknown))}")
    return options
