"""The command line. :func:`main` is the entry point; a command is a function ``NAME_command`` that wires
options to the packages below."""

from __future__ import annotations

import gc
import inspect
import os
import signal
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from io import TextIOWrapper

import typer

from selfreflect.cli.help import COMMAND_GROUPS, Command, Group
from selfreflect.models.local.machine import set_library_defaults

COMMANDS = {
    "demo": "selfreflect demo",
    "ask": 'selfreflect ask "What broke the vase?" --context statements.txt',
    "run": "selfreflect run --questions simpleqa --limit 100 --num-answers 10 --out runs/simpleqa",
    "questions": "selfreflect questions --questions bundled --limit 8",
    "answers": "selfreflect answers --questions my_questions.jsonl --num-answers 10 --out runs/mine",
    "summarize": "selfreflect summarize --strategies greedy,basic --out runs/mine",
    "score": "selfreflect score --items my_summaries.json --judge smollm2 --json",
    "report": "selfreflect report runs/mine --output report.md --output rows.csv",
    "compare": "selfreflect compare runs/mine --baseline greedy",
    "uncertainty": "selfreflect uncertainty my_answers.jsonl --correctness exact,squad_f1",
    "calibrate": "selfreflect calibrate my_answers.jsonl --estimator entropy --save calibrator.json",
    "claims": "selfreflect claims my_long_answers.jsonl --model openai:NAME",
    "dataset": "selfreflect dataset sft runs/mine --max-words 40 --output data/mine",
    "sayself": "selfreflect sayself run --questions questions.json --out runs/sayself",
    "validate": "selfreflect validate my_summaries.json --order 'good>mid>bad' --out validation",
    "bench": "selfreflect bench --items my_summaries.json --limit 10 --output timings",
    "app": "selfreflect app --open",
    "serve": "selfreflect serve --base-url http://localhost:8000/v1 --num-answers 20 --at-least 3",
    "config": "selfreflect config --init settings.toml",
    "convert": "selfreflect convert my_answers.csv --output items.jsonl",
    "import": "selfreflect import --answers test_answers.json --summaries summaries.json --out runs/new",
    "export": "selfreflect export runs/mine --output published_layout",
}
"""Example in each command's help."""

FILES = dict.fromkeys(("app", "serve"), "servers")
FILES |= dict.fromkeys(("run", "questions", "answers", "summarize"), "stages")
FILES |= dict.fromkeys(("config", "convert", "import", "export"), "files")
FILES |= {"demo": "ask", "compare": "report"}
"""Modules of the commands whose module has another name."""

GROUPS = ("sayself",)
"""Commands with a subcommand ``run``, defined by ``ABOUT`` and ``run_command`` in their module."""


def main() -> None:
    """Run the command line of this process."""
    set_library_defaults()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")  # for terminals and files that are not in UTF-8
    # torch and transformers make a million objects when they are imported, and none of them is garbage
    gc.set_threshold(50_000, 20, 100)
    # import only what is called: nothing for the list of commands, all for a shell that completes words
    name = next((word for word in sys.argv[1:] if not word.startswith("-") or word in ("-h", "--help")), "")
    is_list = name not in COMMANDS and "_SELFREFLECT_COMPLETE" not in os.environ
    command_line = application([name] if name in COMMANDS else COMMANDS, is_list=is_list)
    while_idle = signal.getsignal(signal.SIGINT)
    if callable(
        while_idle
    ):  # that of ``__main__``: from here on commands end themselves, and keep their work
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        command_line()
    except KeyboardInterrupt:  # before any command had begun
        sys.exit(130)
    finally:
        if callable(while_idle):
            signal.signal(signal.SIGINT, while_idle)
        gc.freeze()  # spares the search for garbage at exit, which would take a second


def _show_version(flag: bool) -> None:
    if flag:
        from selfreflect import __version__

        typer.echo(f"selfreflect {__version__}")
        raise typer.Exit


def application(commands: Iterable[str] = tuple(COMMANDS), *, is_list: bool = False) -> typer.Typer:
    """Build the command line with the given commands, and import only their modules.

    Args:
        is_list: whether commands are only listed, so that none of them is imported.
    """
    app = typer.Typer(
        name="selfreflect",
        cls=Group,
        help="Sample a language model's answers, let the model summarise its own belief, and score how "
        "faithful the summary is.",
        epilog="Exit codes: 0 done; 1 done, with failures recorded; 2 bad usage or input, or a server that "
        "does not answer (the message says what and where); 3 a condition of --fail-if holds; 70 a bug in "
        "selfreflect; 130 interrupted (finished work is saved).",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # it would take "[default: 50]" for a tag and drop it
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    abouts = {name: about for group in COMMAND_GROUPS.values() for name, about in group.items()}
    for name in commands:
        if is_list:
            app.command(name, short_help=abouts[name])(lambda: None)
            continue
        module = import_module(f"selfreflect.cli.{FILES.get(name, name)}")
        if name in GROUPS:
            group = typer.Typer(
                name=name, cls=Group, help=module.ABOUT, no_args_is_help=True, rich_markup_mode=None
            )
            _add(group, "run", module.run_command, COMMANDS[name])
            app.add_typer(group, name=name, short_help=abouts[name], epilog=f"Example: {COMMANDS[name]}")
        else:
            _add(app, name, getattr(module, f"{name}_command"), COMMANDS[name])
    return app


def _add(app: typer.Typer, name: str, command: Callable[..., None], example: str) -> None:
    from selfreflect.cli.options import runnable

    about = (inspect.getdoc(command) or "").partition("\n\n")[0]
    # the list of commands would cut a help text that is not said to be short
    app.command(name, cls=Command, short_help=about, epilog=f"Example: {example}")(runnable(command))


def _options(
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=_show_version, help="Show the version and exit."
    ),
) -> None:
    """Handle the program's own options, which come before any command."""
