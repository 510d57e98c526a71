"""``selfreflect score``: score a file of summaries, or the summaries of a run directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selfreflect.cli import options as o

if TYPE_CHECKING:
    from selfreflect.config import Config
    from selfreflect.pipeline.options import ExecutionOptions
    from selfreflect.records import AnswerSet, Failure, Question, Score, Summary
    from selfreflect.sources.items import Item

Items = Annotated[
    str | None,
    typer.Option(
        "--items",
        metavar="FILE",
        help="JSON list or JSONL of questions with answers and summaries; - for stdin.",
    ),
]
MaybeOut = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Score the summaries of this run directory.")
]
Devices = Annotated[
    str,
    typer.Option(
        "--device",
        help="auto, cuda, mps or cpu. With --out, each of several visible GPUs (CUDA_VISIBLE_DEVICES) gets a copy of a local judge "
        "and a part of the questions.",
    ),
]
Words = Annotated[bool, typer.Option("--words", help="With --json: add the distance of every masked word.")]


def command(
    items: Items = None,
    out: MaybeOut = None,
    judge: o.Judge = None,
    judge_url: o.JudgeUrl = None,
    judge_revision: o.JudgeRevision = None,
    judge_dtype: o.JudgeDtype = None,
    compat: o.Compat = None,
    limit: o.Limit = None,
    num_answers: Annotated[
        int | None, typer.Option("--num-answers", metavar="N", help="Use the first N answers of each half.")
    ] = None,
    words: Words = False,
    budget: o.Budget = None,
    standard_error: o.StandardError = None,
    race: o.Race = None,
    seed: o.Seed = None,
    guesses: o.Guesses = 0,
    cache: o.Cache = None,
    config: o.ConfigFile = None,
    device: Devices = "auto",
    device_map: o.DeviceMap = None,
    executor: o.Executor = "local",
    ray_address: o.RayAddress = None,
    timeout: o.Timeout = 600.0,
    trust_remote_code: o.TrustRemoteCode = False,
    dry_run: o.DryRun = False,
    json: o.Json = False,
) -> None:
    """Score how faithfully summaries describe an answer distribution: 0 is perfect, lower is better.

    With --items FILE, nothing is stored; each record is {"id"?, "question", "answers": [...], "summaries":
    {name: text}}, or has "masked_out_task_answers" and "conditioning_answers" in place of "answers". With
    --out DIR, the summaries of a run directory are scored into it, and an interrupted run goes on where it
    stopped.

    With --budget, --se or --race a random part of the masked words is scored, the same for all summaries of a
    question, so that their differences stay sharp. Such scores are estimates: they are shown behind ≈, and
    say in "estimate" how many words they come from.
    """
    from selfreflect.cli.stages import experiment, finish
    from selfreflect.config import load_config
    from selfreflect.pipeline.options import ExecutionOptions

    wanted: dict[str, Any] = {
        "judge": judge,
        "base_url": judge_url,
        "revision": judge_revision,
        "dtype": judge_dtype,
        "compat": compat,
    }
    wanted |= {"budget": budget, "standard_error": standard_error, "race": race, "seed": seed}
    if (items is None) == (out is None):
        raise typer.BadParameter("give either --items FILE or --out DIR")
    if items is not None and (executor != "local" or ray_address is not None):
        raise typer.BadParameter("--executor and --ray-address belong to --out DIR")
    if out is not None and (limit is not None or num_answers is not None or words):
        raise typer.BadParameter("--limit, --num-answers and --words belong to --items FILE")
    if out is not None:
        with experiment(
            out,
            ["scores"],
            {"scores": wanted},
            config=config,
            device=device,
            device_map=device_map,
            executor=executor,
            ray_address=ray_address,
            timeout=timeout,
            trust_remote_code=trust_remote_code,
            guesses=guesses,
            cache=cache,
            dry_run=dry_run,
        ) as opened:
            opened.scores()
            finish(opened, json)
        return
    assert items is not None
    options = ExecutionOptions(
        device=device,
        device_map=device_map,
        timeout=timeout,
        trust_remote_code=trust_remote_code,
        guesses=guesses,
        cache=cache,
    )
    _score_items(
        items, limit, num_answers, load_config(config, {"scores": wanted}), options, words, dry_run, json
    )


def _score_items(
    source: str,
    limit: int | None,
    num_answers: int | None,
    settings: Config,
    options: ExecutionOptions,
    words: bool,
    dry_run: bool,
    json: bool,
) -> None:
    from selfreflect.cli.console import Watcher, emit
    from selfreflect.cli.costs import show_costs
    from selfreflect.cli.show import exit_with, print_report
    from selfreflect.pipeline.dry_run import dry_run_items
    from selfreflect.pipeline.experiment import load_judge, load_metric
    from selfreflect.records import Failure, Score
    from selfreflect.sources.items import read_items

    found = read_items(source, limit=limit, num_answers=num_answers)
    watcher = Watcher()
    if dry_run:
        records: list[Question | AnswerSet | Summary] = []
        for item in found:
            records += [item.question_record, item.answer_set, *item.summary_records]
        show_costs(dry_run_items(records, settings, options, watcher), json)
        return
    metric = load_metric(load_judge(settings, options, watcher), settings, options, watcher)
    results: list[Score | Failure] = []
    with watcher.stage("scores", sum(len(item.summaries) for item in found)) as counter:
        for item in found:
            for result in metric.score_records(item.question_record, item.answer_set, item.summary_records):
                results.append(result)
                if json:
                    emit(_line(result, words))
            counter.advance(len(item.summaries))
    if not json:
        print_report(
            _records(
                source,
                found,
                [r for r in results if isinstance(r, Score)],
                [r for r in results if isinstance(r, Failure)],
            )
        )
    exit_with(sum(isinstance(result, Failure) for result in results))


def _line(result: Score | Failure, words: bool) -> dict[str, Any]:
    """What ``--json`` prints of one summary."""
    import msgspec

    from selfreflect.records import Failure

    if isinstance(result, Failure):
        return {
            "id": result.question_id,
            "summary": result.name,
            "score": None,
            "failure": result.kind,
            "message": result.message,
        }
    line = {
        "id": result.question_id,
        "summary": result.summary,
        "score": result.value,
        "stderr": result.stderr,
        "token_tasks": result.token_tasks,
        "judge": result.judge,
    }
    if result.compat:
        line["compat"] = result.compat
    if result.estimate is not None:
        line["estimate"] = msgspec.to_builtins(result.estimate)
    if words:
        line["warnings"] = list(result.warnings)
        line["answer_means"] = list(result.answer_means)
        line["words"] = [{**msgspec.to_builtins(word), "mean": word.mean} for word in result.words]
    return line


def _records(source: str, items: list[Item], scores: list[Score], failures: list[Failure]) -> Any:
    from selfreflect.report.overview import RunRecords

    summaries = [summary for item in items for summary in item.summary_records]
    return RunRecords(
        label="standard input" if source == "-" else Path(source).name,
        strategies=list(dict.fromkeys(summary.name for summary in summaries)),
        questions={item.id: item.question_record for item in items},
        answers={},
        summaries={(summary.question_id, summary.name): summary for summary in summaries},
        scores={(score.question_id, score.summary): score for score in scores},
        failures=failures,
    )
