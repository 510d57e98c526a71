"""Make a command's options from the settings' own classes.

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

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_type_hints

import msgspec
import typer
from typer.core import TyperCommand, TyperGroup

from selfreflect.errors import ConfigError, SelfReflectError, excerpt
from selfreflect.flags import POSITIVE, Flag, check_values, fields_of, flags_of
from selfreflect.settings import Config, ExecutionOptions, load_config, read_config, read_execution
from selfreflect.settings.sections import FLAGGED, flag_named
from selfreflect.text import name_list, printable

if TYPE_CHECKING:
    from selfreflect.sources.items import ItemFile

T = TypeVar("T")
_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def option(usage: str, help: str, default: Any = None) -> Any:
    """An option, as the default of a parameter or in ``Annotated``: ``option("--limit N", "Take N items.")``.
    The default ``...`` makes it required, or leaves its default to the parameter."""
    name, _, metavar = usage.partition(" ")
    return typer.Option(default, name, metavar=metavar or None, help=help)


def argument(name: str, help: str, default: Any = None) -> Any:
    """A positional argument of a command, like :func:`option`."""
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
        "option, a file with other questions is an error.",
        ...,
    ),
]
Yes = Annotated[
    bool,
    option(
        "--yes",
        "Do not ask for confirmation: of a run that takes minutes or costs money, of a server"
        " that returns one text for every sample, or of moving records with --fresh. Without "
        "a terminal nothing is asked: costs are only shown, and the other two need --yes.",
        ...,
    ),
]
Runs = Annotated[list[Path], argument("RUN", "Run directories.", ...)]
DryRun = Annotated[
    bool,
    option(
        "--dry-run",
        "Only print what is left to do and what it costs: calls, tokens, time, and money if [prices.MODEL] "
        "in --config sets input_per_million and output_per_million. Writes nothing and calls no server; "
        "local models are loaded.",
        ...,
    ),
]
Json = Annotated[bool, option("--json", "Print JSON lines to stdout.", ...)]
Part = StrEnum("Part", ["guesses", "words"])
"""A part of scores that can be left out; typer takes no list of a Literal."""
Log = Annotated[
    Literal["wandb", "mlflow"] | None,
    option(
        "--log",
        "Log settings, means and intervals to Weights & Biases or MLflow, which read their "
        "own environment variables (needs the extra of the same name).",
        ...,
    ),
]
COLUMN = Flag(
    "--column ROLE=NAME",
    "Name the column of the question, answer, summary, context or id, as in answer=text; numbered columns "
    "with one answer each as answers=A1..A6. Can be repeated.",
)


class ItemOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which items of a file are used, and how its columns are understood."""

    limit: Annotated[int | None, Flag("--limit N", "Take only the first N items.", range=POSITIVE)] = None
    num_answers: Annotated[
        int | None, Flag("--num-answers N", "Use the first N answers of each half.", range=POSITIVE)
    ] = None
    column: Annotated[list[str] | None, COLUMN] = None
    split: Annotated[
        str | None,
        Flag(
            "--split TEXT",
            "What separates the answers where one text holds several, as in ';' (\\n is a line end).",
        ),
    ] = None

    def refuse_columns(self) -> None:
        """Raise ConfigError for what only a file of items has use for."""
        if self.column or self.split is not None:
            raise ConfigError("--column and --split belong to a file of items")

    def read(self, source: str, *, need_summaries: bool = False, seed: int = 0) -> ItemFile:
        """Read a file of items; say now and then how much of it is read, and then what a user should know."""
        from selfreflect.cli.console import ReadingProgress, say_notes
        from selfreflect.sources.columns import answer_separator, assigned_columns
        from selfreflect.sources.items import read_item_file

        file = read_item_file(
            source,
            limit=self.limit,
            num_answers=self.num_answers,
            columns=assigned_columns(self.column),
            separator=answer_separator(self.split),
            need_summaries=need_summaries,
            seed=seed,
            progress=ReadingProgress(source),
        )
        say_notes(file.notes)
        return file


_RUNNING = ("--device", "--device-map", "--executor", "--ray-address", "--trust-remote-code", "--timeout")
GENERATING = ("--prompts", *_RUNNING, "--batch-size", "--max-connections")
"""Execution options of stages whose texts a model generates."""
JUDGING = ("--guesses", "--cache", *_RUNNING)
"""Execution options of the stage that scores."""


def grouping(groups: str) -> Callable[[Sequence[str], str], list[list[int]]]:
    """What ``--groups spelling``, ``same`` or ``meaning`` groups answers to a question with."""
    if groups == "meaning":
        from selfreflect.models.embedder import MeaningGroups

        return MeaningGroups()
    if groups == "same":
        from selfreflect.sameness import same_groups

        return same_groups
    from selfreflect.grouping import group_indices

    def by_spelling(answers: Sequence[str], question: str = "") -> list[list[int]]:
        return group_indices(answers)

    return by_spelling


@dataclass(frozen=True)
class Overrides:
    """What a user set on the command line, by section and key."""

    sections: Mapping[str, Mapping[str, Any]]
    defaults: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    """What the command takes in place of the settings' own defaults."""
    execution_keys: frozenset[str] = frozenset()
    """The execution options that the command has. Others in the file are for other commands."""

    @property
    def file(self) -> Path | None:
        """The file of ``--config``."""
        return self.section("config").get("file")

    def config(self, base: Mapping[str, Mapping[str, Any]] | None = None) -> Config:
        """All settings: the user's, over those of the file of ``--config``, of ``base``, and the defaults.
        Raises ConfigError if one is unknown or out of range."""
        base = base or {}
        sections = {**self.defaults, **base}
        layers = {name: {**self.defaults.get(name, {}), **base.get(name, {})} for name in sections}
        settings = {name: values for name, values in self.sections.items() if name != "execution"}
        return load_config(self.file, settings, layers)

    def sets(self, section: str, key: str) -> bool:
        """Whether the command line or the file of ``--config`` sets a key."""
        return key in self.given(section)

    @property
    def execution(self) -> ExecutionOptions:
        """How and where the work is done: the user's flags, over the file of ``--config``. Raises ConfigError
        if a value is out of range."""
        table = read_execution(self.file) if self.file else {}
        options = dict(self.defaults.get("execution", {}))
        options |= {key: value for key, value in table.items() if key in self.execution_keys}
        options |= self.section("execution")
        if self.section("execution").get("executor") == "local":  # then the file's cluster is not used
            options.pop("ray_address", None)
        return ExecutionOptions(**options)

    def given(self, name: str) -> dict[str, Any]:
        """What the file of ``--config`` and the command line set in one section."""
        table = read_config(self.file).get(name, {}) if self.file else {}
        return {**table, **self.section(name)}

    def section(self, name: str) -> Mapping[str, Any]:
        """What the command line sets in one section."""
        return self.sections.get(name, {})


@dataclass
class _Option:
    flag: Flag
    type: Any
    default: Any
    """What ``--help`` shows."""
    fields: list[tuple[str, str]]
    """The (section, field) pairs that it sets."""
    value: Any = None
    """The command's own default; None for the settings' own."""

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
        default = option(usage, text)
        type_ = str if self.is_list or self.is_table else self.type
        return inspect.Parameter(self.name, _KEYWORD, default=default, annotation=type_ | None)


def takes(
    *sections: str,
    only: Collection[str] | None = None,
    defaults: Mapping[str, Any] | None = None,
    config_file: bool = False,
    execution: Collection[str] = (),
    whole: Collection[str] = (),
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Give a command options for some settings, as its parameter ``overrides``, and for the fields of structs
    among its parameters.

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
    execution_options = _options({"execution": ExecutionOptions}, execution)
    execution_keys = frozenset(field for each in execution_options.values() for _, field in each.fields)
    options |= execution_options
    for name, default in (defaults or {}).items():
        options[name].default = options[name].value = default

    own_values: dict[str, dict[str, Any]] = {}
    for each in options.values():
        if each.value is not None:
            for section, field in each.fields:
                own_values.setdefault(section, {})[field] = each.value

    def decorate(command: Callable[..., T]) -> Callable[..., T]:
        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        structs: dict[str, dict[str, _Option]] = {}
        for parameter in signature.parameters.values():
            if parameter.annotation is Overrides:
                parameters += map(_Option.parameter, options.values())
            elif inspect.isclass(parameter.annotation) and issubclass(parameter.annotation, msgspec.Struct):
                structs[parameter.name] = _options({parameter.name: parameter.annotation}, None)
                parameters += map(_Option.parameter, structs[parameter.name].values())
            else:
                parameters.append(parameter.replace(kind=_KEYWORD))

        @functools.wraps(command)
        def with_overrides(**values: Any) -> T:
            fields = _taken(options, values)
            for name, own in structs.items():
                fields |= _taken(own, values)
                values[name] = signature.parameters[name].annotation(**fields.get(name, {}))
                check_values(values[name])
            overrides = Overrides(fields, own_values, execution_keys)
            if "overrides" in signature.parameters:
                values["overrides"] = overrides
            try:
                return command(**values)
            except SelfReflectError as error:
                if overrides.file is not None:
                    from selfreflect.settings.places import flags_in_file

                    message = error.worded(flag_named)
                    error.args = (flags_in_file(message, overrides.file, fields),)
                    error.remedy = ""
                raise

        with_overrides.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return with_overrides

    return decorate


def _taken(options: Mapping[str, _Option], values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Take out of ``values`` what the user set, by section and field."""
    fields: dict[str, dict[str, Any]] = {}
    for option in options.values():
        value = values.pop(option.name)
        if value is None or value == []:  # not given, or not once
            continue
        if option.is_list:
            value = tuple(name_list(value))
        elif option.is_table:
            try:
                value = msgspec.json.decode(value, type=dict[str, Any])
            except msgspec.DecodeError:
                raise ConfigError(f"{option.flag.name} must be a JSON object, not {excerpt(value)}") from None
        for section, field in option.fields:
            fields.setdefault(section, {})[field] = value
    return fields


def _options(classes: Mapping[str, type[msgspec.Struct]], only: Collection[str] | None) -> dict[str, _Option]:
    """The options for the fields of some classes, by flag."""
    options: dict[str, _Option] = {}
    for section, settings in classes.items():
        types = get_type_hints(settings)
        fields = fields_of(settings)
        for field, flag in flags_of(settings).items():
            if only is None or flag.name in only:
                option = options.setdefault(flag.name, _Option(flag, types[field], fields[field].default, []))
                option.fields.append((section, field))
    if unknown := {*(only or ())} - options.keys():
        raise ValueError(f"{', '.join(classes)} have no {', '.join(sorted(unknown))}")
    return options


RENAMED = {"--part": "--shard", "--engine": "--executor"}
"""These work for one release more, with a hint."""


def refuse_removed(command: str, args: Sequence[str]) -> None:
    """Raise BadParameter for a flag that a command had once, with what to do instead."""
    from selfreflect.removed import FLAGS

    for flag in (argument.partition("=")[0] for argument in args):
        if (command, flag) in FLAGS:
            raise typer.BadParameter(f"{flag} is no longer an option. {FLAGS[command, flag]}") from None


class Command(TyperCommand):
    """A command that also takes its flags under their former names."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        flags = {flag for parameter in self.params for flag in parameter.opts}
        new_args = []
        for argument, following in pairwise([*args, ""]):
            flag, equals, value = argument.partition("=")
            if argument == "--shard" and "--device-map" in flags and not re.match(r"\d", following):
                # it used to spread a model over GPUs, and took no value
                raise typer.BadParameter(
                    "to spread a model over all visible GPUs, use --device-map auto. "
                    "--shard K/N now splits the questions, as in --shard 3/16."
                )
            if RENAMED.get(flag) in flags:
                typer.echo(f"{flag} is now called {RENAMED[flag]}; the old name will be removed.", err=True)
                argument = RENAMED[flag] + equals + value
            new_args.append(argument)
        with escaped_errors():
            try:
                return super().parse_args(ctx, new_args)
            except typer.TyperException as error:
                refuse_removed(ctx.info_name, args)
                message = getattr(error, "message", "")
                if "--items" in flags and message.startswith("Got unexpected extra argument"):
                    error.message = f"{message}. Name a file of items with --items FILE"
                raise


class Group(TyperGroup):
    """Several commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with escaped_errors():
            return super().parse_args(ctx, args)


@contextmanager
def escaped_errors() -> Iterator[None]:
    """Escape what a terminal would obey in errors, which repeat what was typed, or pasted."""
    try:
        yield
    except typer.TyperException as error:
        if isinstance(message := getattr(error, "message", None), str):
            error.message = printable(message.removeprefix("Value error, "))  # pydantic's words
        raise
