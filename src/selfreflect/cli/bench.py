"""Command ``selfreflect bench``: time this project's engine against the published schedule."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from selfreflect.cli import options as o
from selfreflect.cli.console import (
    ProgressReporter,
    emit,
    make_folder,
    print_table,
    say,
)
from selfreflect.cli.options import ItemOptions, Overrides, option, takes
from selfreflect.errors import ConfigError, excerpt, unknown_name
from selfreflect.models.backend import backend_of
from selfreflect.records import dump_line
from selfreflect.removed import SCHEDULE_B
from selfreflect.run.models import stage_model
from selfreflect.sources.items import bundled_items

if TYPE_CHECKING:
    from selfreflect.bench import BenchResult

SCHEDULES = ("a", "c")


@takes(
    "scores",
    only=("--judge", "--judge-revision", "--judge-dtype"),
    execution=("--device", "--trust-remote-code"),
)
def bench_command(
    *,
    items: str | None = option(
        "--items FILE", "Items as `score --items` reads them; - for stdin. [default: four bundled items]"
    ),
    reading: ItemOptions,
    overrides: Overrides,
    only: str = option("--only A,C", "a: one request per target token; c: this engine.", "a,c"),
    output: Path | None = option("--output DIR", "Write bench.json here."),
    json: o.Json = False,
) -> None:
    """Time this package's engine against the published schedule.

    Runs two schedules on the same items and judge: (a) the published algorithm, one request per target
    token, one at a time, with an ideal prefix cache; (c) this package's engine. Prints how many times faster
    (c) is, its share of the machine's peak speed and its memory; then how fast 20 and 50 answers to one
    question are drawn, against transformers' generate. Exits with 1 if the distances differ. Run it on an
    idle machine.
    """
    letters = list(map(str.strip, only.split(",")))
    if "b" in letters:
        raise ConfigError(f"schedule b is no longer timed. {SCHEDULE_B}", code="removed")
    for letter in letters:
        if letter not in SCHEDULES:
            raise unknown_name("schedule", letter, SCHEDULES)
    config, options = overrides.config(), overrides.execution
    if not backend_of(config.scores.judge).is_torch:
        name = excerpt(config.scores.judge)
        raise ConfigError(f"bench times this package's engine, but judge {name} runs in a different engine")
    if items is None:
        reading.refuse_columns()
        timed_items = bundled_items("bench_items", limit=reading.limit, num_answers=reading.num_answers)
    else:
        timed_items = reading.read(items, need_summaries=True).items
    if output is not None:
        make_folder(output)
    reporter = ProgressReporter()
    # what imports torch is imported only now: it takes seconds, and a wrong option should not wait for it
    from selfreflect.bench import Bench, to_json
    from selfreflect.models.judge import Judge
    from selfreflect.models.local.loading import load_causal_lm

    spec = stage_model(config, options, "scores")
    judge = Judge(load_causal_lm(spec, reporter.note, library=True), compat=config.scores.compat)
    bench = Bench(judge, timed_items, [letter for letter in SCHEDULES if letter in letters])
    result = bench.result
    try:
        with reporter.stage("bench", len(bench)) as counter:
            for _ in bench.run():
                counter.advance()
                # after each item, so that hours of timing survive a crash
                if output is not None:
                    text = dump_line(to_json(result)) + "\n"
                    (output / "bench.json").write_text(text, encoding="utf-8")
    except KeyboardInterrupt:
        say("Interrupted. Finished items:" if result.items else "Interrupted before the first item finished.")
        raise typer.Exit(130) from None
    finally:
        if result.items:
            _show(result, json)
            if output is not None:
                say(f"wrote {output / 'bench.json'}")
    if result.disagreeing:
        raise typer.Exit(1)


def _show(result: BenchResult, json: bool) -> None:
    from selfreflect.bench import agreement, decoding_table, item_table, to_json

    if json:
        emit(to_json(result))
    else:
        print_table(item_table(result))
        if result.decoding:
            print_table(decoding_table(result))
    say(("error: " if result.disagreeing else "") + agreement(result))
    say(", ".join(f"{name} {value}" for name, value in result.machine.items()))
