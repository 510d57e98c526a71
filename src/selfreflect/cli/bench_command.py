"""``selfreflect bench``: time this project's engine against the published schedule."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selfreflect.cli import options as o

if TYPE_CHECKING:
    from selfreflect.bench.result import Result
    from selfreflect.cli.console import Watcher
    from selfreflect.models.judge import Judge
    from selfreflect.sources.items import Item

Items = Annotated[
    str | None,
    typer.Option(
        "--items",
        metavar="FILE",
        help="Items as `score --items` reads them; - for stdin. [default: four that are bundled]",
    ),
]
Only = Annotated[
    str,
    typer.Option(
        "--only",
        metavar="A,B,C",
        help="a: one request per target token; b: the same in batches; c: this engine.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", metavar="DIR", help="Write bench.json, scaling.csv and the curves here."),
]
RandomModel = Annotated[
    str | None,
    typer.Option(
        "--random-model",
        metavar="SHAPE",
        help="Random weights in the shape of qwen2.5-7b (or tiny) instead of a judge's.",
    ),
]


def command(
    items: Items = None,
    judge: o.Judge = None,
    judge_revision: o.JudgeRevision = None,
    judge_dtype: o.JudgeDtype = None,
    random_model: RandomModel = None,
    limit: o.Limit = None,
    num_answers: Annotated[
        int | None, typer.Option("--num-answers", metavar="N", help="Use the first N answers of each half.")
    ] = None,
    only: Only = "a,b,c",
    scaling: Annotated[
        bool,
        typer.Option("--scaling/--no-scaling", help="Also vary the size of made-up items, for some minutes."),
    ] = True,
    output: Output = None,
    device: o.Device = "auto",
    trust_remote_code: o.TrustRemoteCode = False,
    json: o.Json = False,
) -> None:
    """Time three schedules on the same items and judge, and check that they give the same distances.

    (a) the published algorithm: one request per target token, with an ideal prefix cache, one at a time; (b)
    the same requests in batches of the best size; (c) this project's engine. Prints how many times faster (c)
    is, the tokens computed, the share of the machine's own speed in matrix products, the memory, and how cost
    grows. Exit code 1: the distances differ. Run it on an idle machine.
    """
    from selfreflect.cli.console import Watcher, say
    from selfreflect.errors import DataError
    from selfreflect.models.spec import kind_of

    letters = _letters(only)
    if random_model is not None and (judge is not None or judge_revision is not None):
        raise typer.BadParameter("--random-model takes the place of --judge")
    if judge is not None and kind_of(judge) in ("vllm", "vllm+http"):
        raise typer.BadParameter(
            "bench times the engine of this package, and --judge vllm... runs another one"
        )
    found = _items(items, limit, num_answers)
    if output is not None:
        _made(output)
    watcher = Watcher()
    chosen = _judge(
        random_model,
        {"judge": judge, "revision": judge_revision, "dtype": judge_dtype},
        device,
        trust_remote_code,
        watcher,
    )
    from selfreflect.bench.measure import Bench, steps
    from selfreflect.bench.scaling import points

    bench = Bench(chosen, letters)
    curves = list(points(_items(None, None, None))) if scaling else []
    try:
        with watcher.stage("bench", steps(letters, len(found) + len(curves))) as counter:

            def keep() -> None:
                if output is not None:
                    _write_figures(bench.result, output)

            bench.advance, bench.keep = counter.advance, keep
            bench.run(found, curves)
    except KeyboardInterrupt:
        say(
            "interrupted; what had been measured:"
            if bench.result.items
            else "interrupted before the first item was measured."
        )
        _show(bench.result, json, output)
        raise typer.Exit(130) from None
    except DataError:
        _show(bench.result, json, output)
        raise
    _show(bench.result, json, output)
    if bench.result.disagreeing:
        raise typer.Exit(1)


def _letters(only: str) -> tuple[str, ...]:
    from selfreflect.bench.result import SCHEDULES

    given = [letter.strip() for letter in only.split(",")]
    if unknown := [letter for letter in given if letter not in SCHEDULES]:
        raise typer.BadParameter(f"--only takes some of {', '.join(SCHEDULES)}, not {unknown[0]!r}")
    return tuple(letter for letter in SCHEDULES if letter in given)


def _items(source: str | None, limit: int | None, num_answers: int | None) -> list[Item]:
    from selfreflect.sources.items import read_items

    if source is not None:
        return read_items(source, limit=limit, num_answers=num_answers)
    with resources.as_file(resources.files("selfreflect") / "data" / "bench_items.json") as bundled:
        return read_items(bundled, limit=limit, num_answers=num_answers)


def _judge(
    random_model: str | None,
    wanted: dict[str, str | None],
    device: str,
    trust_remote_code: bool,
    watcher: Watcher,
) -> Judge:
    from selfreflect.config import load_config
    from selfreflect.pipeline.experiment import ExecutionOptions, load_judge

    options = ExecutionOptions(device=device, trust_remote_code=trust_remote_code)
    config = load_config(None, {"scores": wanted})
    if random_model is None:
        return load_judge(config, options, watcher)
    from selfreflect.bench.random_model import random_judge

    return random_judge(
        random_model,
        device=options.device,  # type: ignore[arg-type]  # ExecutionOptions has checked it
        dtype=config.scores.dtype,  # type: ignore[arg-type]  # load_config has checked it
    )


def _show(result: Result, json: bool, output: Path | None) -> None:
    from selfreflect.bench.result import figures
    from selfreflect.bench.tables import (
        agreement,
        efficiency_table,
        item_table,
        scaling_table,
        schedule_table,
    )
    from selfreflect.cli.console import emit, say
    from selfreflect.cli.show import print_table

    if not result.items:
        return
    if json:
        emit(figures(result))
    else:
        print_table(item_table(result))
        print_table(schedule_table(result))
        if "c" in result.only:
            print_table(efficiency_table(result))
        if result.scaling:
            print_table(scaling_table(result))
    say(("error: " if result.disagreeing else "") + agreement(result))
    say(", ".join(f"{name} {value}" for name, value in result.machine.items()))
    if output is not None:
        _write(result, output)


def _write(result: Result, folder: Path) -> None:
    from selfreflect.bench.figure import draw
    from selfreflect.bench.tables import scaling_table
    from selfreflect.cli.console import say
    from selfreflect.cli.show import where
    from selfreflect.errors import MissingExtraError
    from selfreflect.render.table import to_csv

    written = [_write_figures(result, folder)]
    if result.scaling:
        (folder / "scaling.csv").write_text(to_csv(scaling_table(result)), encoding="utf-8", newline="")
        written.append(folder / "scaling.csv")
        try:
            written += draw(result, folder)
        except MissingExtraError as error:
            say(f"no picture: {error}")
    say("wrote " + ", ".join(map(where, written)))


def _write_figures(result: Result, folder: Path) -> Path:
    """All figures so far: written after each item, so that hours of timing survive whatever ends them."""
    from selfreflect.bench.result import figures
    from selfreflect.records import dump_line

    path = folder / "bench.json"
    path.write_text(dump_line(figures(result)) + "\n", encoding="utf-8")
    return path


def _made(folder: Path) -> None:
    """Before hours of timing, not after them."""
    from selfreflect.errors import DataError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be made: {error.strerror}") from error
