"""Command classes of the parser, and help texts with options in groups."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from selfreflect.errors import excerpt
from selfreflect.text import printable

COMMAND_GROUPS: Mapping[str, Mapping[str, str]] = {
    "Look": {
        "demo": "Demonstrate the measures in a minute: on hand-written summaries, then on a model's.",
        "ask": "Ask one question, and measure the model's own summary.",
        "app": "Serve a page in the browser for asking.",
    },
    "Your data": {
        "convert": "Show how a file of questions, answers and summaries is understood.",
        "score": "Measure how faithfully summaries describe an answer distribution.",
        "import": "Turn files into a run directory, or join runs.",
        "export": "Write a run for other programs.",
        "validate": "Test whether a metric can be trusted with your judge.",
    },
    "Runs": {
        "run": "Run all stages: questions, answers, summaries, scores.",
        "questions": "Show the questions of a source, or store them.",
        "answers": "Sample answers to every question.",
        "summarize": "Let the model summarise its own belief.",
        "report": "Show the results of runs, and write tables, a page or figures.",
        "compare": "Compare strategies and runs with a baseline.",
        "config": "Write, check or describe the file of --config.",
        "bench": "Time this package's engine against the published schedule.",
    },
    "Uncertainty": {
        "uncertainty": "Estimate uncertainty from stored answers, with every method on the same answers.",
        "calibrate": "Calibrate an estimator, and find which answers may be shown.",
        "claims": "Split long answers into claims, and count the answers that make or contradict each claim.",
    },
    "Train": {
        "dataset": "Make training data from a run (needs the parquet extra).",
        "sayself": "Train a model to state its confidence and why it doubts.",
    },
    "Serve": {
        "serve": "Serve models over OpenAI's API, with honest answers.",
    },
}
"""Commands by group, each with the first sentence of its help: the list imports no command."""
MODEL, JUDGE, ESTIMATES, DETAILS = "Model", "Judge", "Estimates", "Where it runs, and details"
OPTION_GROUPS: Mapping[str, str] = {
    MODEL: "--model --base-url --num-answers --temperature --max-new-tokens --strategies --base",
    JUDGE: "--judge --measures --controls --budget",
    ESTIMATES: "--estimator --estimators --classes --correctness --gold --confidence --calibrator "
    "--when-unsure --below --method --risk --set --one-call",
    DETAILS: "--seed --judge-url --device --device-map --executor --ray-address --batch-size "
    "--max-connections --timeout --trust-remote-code --guesses --compat --judge-dtype "
    "--judge-revision --revision --extra-body --prompts --write-batch --read-batch --top-p "
    "--num-samples --summary-tokens --logprobs --top-logprobs --thinking --reader --shard --split --subset "
    "--separator --question-column --context-column --log --fresh --add-questions "
    "--similarity --sample-p-true --proxies --band --ask-candidates --ask-hypotheses --ignore-tools "
    "--allow-remote --words --variants --seeds "
    "--groups --parts --ratings --list-metrics --keep-texts --footer --writer --reward",
}
"""Flags by group. Flags not listed here are common. If a help text would be too long, only ``--help-all``
describes the last group."""
COMMON = "Common"
MOST_LINES = 60
"""Maximum number of lines of a help text at 80 columns without ``--help-all``."""
EXAMPLE_LINES = 3
LETTERS = (300, 160, 120, 90, 70, 55)
"""Maximum lengths of shortened sentences in letters; the first one that fits is used."""
ALL = "--help-all"
_NEEDS_ALL = "selfreflect.help_all"
_GROUP_OF = {flag: name for name, flags in OPTION_GROUPS.items() for flag in flags.split()}
# a dot inside of an abbreviation or a file name is followed by no capital letter
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_SENTENCE_END = re.compile(r"(?<=[.;]) (?=[A-Z\[-])")
_DEFAULT = re.compile(r" \[default: [^\]]*\]")
Row = tuple[str, str]


def take_help_all(context: Any, words: list[str]) -> list[str]:
    """Replace ``--help-all`` with ``--help`` and remember to list every option."""
    if ALL not in words:
        return words
    context.meta[_NEEDS_ALL] = True
    return ["--help" if word == ALL else word for word in words]


def write_commands(rows: Sequence[Row], formatter: Any) -> None:
    """Write commands or steps to the help text, by group."""
    texts = dict(rows)
    width = max((len(name) for name in texts), default=0)
    group_names = {name for names in COMMAND_GROUPS.values() for name in names}
    groups = {**COMMAND_GROUPS, "Commands": [name for name in texts if name not in group_names]}
    for title, names in groups.items():
        if pairs := [(name.ljust(width), texts[name]) for name in names if name in texts]:
            with formatter.section(title):
                formatter.write_dl(pairs)


def write_options(command: Any, context: Any, formatter: Any) -> None:
    """Write a command's options by group, shortened to first sentences if the full text is too long."""
    rows: dict[str, list[Row]] = {name: [] for name in (COMMON, *OPTION_GROUPS)}
    for parameter in command.get_params(context):
        if record := parameter.get_help_record(context):
            flag = next((name for name in parameter.opts if name in _GROUP_OF), "")
            rows[_GROUP_OF.get(flag, COMMON)].append(record)
    start = len(formatter.buffer)
    _write_groups(rows, formatter)
    if context.meta.get(_NEEDS_ALL):
        return
    for letters in LETTERS:
        if "".join(formatter.buffer).count("\n") <= MOST_LINES - EXAMPLE_LINES:
            return
        del formatter.buffer[start:]
        _write_short(rows, letters, formatter)


def _write_groups(rows: Mapping[str, Sequence[Row]], formatter: Any) -> None:
    for title, options in rows.items():
        if options:
            with formatter.section(title):
                formatter.write_dl(options, col_max=24)


def _write_short(rows: Mapping[str, Sequence[Row]], letters: int, formatter: Any) -> None:
    """Write the first sentence of each option within a limit, and names for the last group."""
    short_rows = {
        title: [(usage, _first_sentence(text, letters)) for usage, text in options]
        for title, options in rows.items()
        if title != DETAILS
    }
    short_rows[COMMON].append((ALL, "Show all options, and each in full."))
    _write_groups(short_rows, formatter)
    flags = [name for usage, _ in rows[DETAILS] for name in _FLAG.findall(usage)]
    if flags:
        with formatter.section(f"{DETAILS} ({ALL} explains them)"):
            width = formatter.width - formatter.current_indent
            for line in textwrap.wrap(", ".join(flags), width, break_on_hyphens=False):
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def _first_sentence(text: str, letters: int) -> str:
    """Shorten a help text to one sentence of limited length, with a short default."""
    required = "  [required]" if text.endswith("[required]") else ""
    defaults = _DEFAULT.findall(text)
    text = _DEFAULT.sub("", text.removesuffix("[required]")).strip()
    sentence = _SENTENCE_END.split(text)[0].rstrip(";")
    if len(sentence) > letters:
        cut = max(sentence.rfind(mark, 0, letters) for mark in (", ", "; ", ": ", " ("))
        cut = cut if cut > 0 else sentence.rfind(" ", 0, letters)
        sentence = f"{sentence[:cut]} …"
    default = next((text for text in defaults if len(text) < letters // 2), "")
    return sentence + default + required


def refuse_removed(ctx: Any, word: str) -> None:
    """Refuse removed flags, steps and arguments, with advice on what to do instead."""
    from selfreflect.removed import FLAGS

    if advice := FLAGS.get((ctx.info_name, word)):
        kind = "an option" if word.startswith("-") else "there"
        raise typer.BadParameter(f"{word} is no longer {kind}. {advice}")


class Command(TyperCommand):
    """A command that explains removed flags."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_options(self, ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        args = take_help_all(ctx, args)
        flags = {flag for parameter in self.params for flag in (*parameter.opts, *parameter.secondary_opts)}
        for position, word in enumerate(args):
            flag = word.partition("=")[0]
            # a first word may be a step that an earlier version had
            if flag not in flags and (flag.startswith("--") or not position):
                refuse_removed(ctx, flag)
        takes_words = any(isinstance(parameter, TyperArgument) for parameter in self.params)
        # a file is easily typed where others take an argument
        if "--items" in flags and not takes_words and args and not args[0].startswith("-"):
            raise typer.BadParameter(f"{excerpt(args[0])} is not an option. Name a file with --items FILE")
        with _escaped_errors():
            return super().parse_args(ctx, args)


class Group(TyperGroup):
    """A group of commands."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = [(name, command.get_short_help_str(200)) for name, command in self.commands.items()]
        write_commands(rows, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args:
            refuse_removed(ctx, args[0])
        with _escaped_errors():
            return super().parse_args(ctx, take_help_all(ctx, args))


@contextmanager
def _escaped_errors() -> Iterator[None]:
    """Escape control characters in errors, which repeat what the user typed or pasted."""
    try:
        yield
    except typer.TyperException as error:
        if isinstance(message := getattr(error, "message", None), str):
            error.message = printable(message.removeprefix("Value error, "))  # pydantic's words
        raise
