"""``selfreflect score``: score a file of summaries, or the summaries of a run directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from selfreflect.cli import settings as o
from selfreflect.cli.console import Watcher, emit, exit_with
from selfreflect.cli.settings import JUDGING, Overrides, option, takes
from selfreflect.errors import ConfigError
from selfreflect.pipeline.models import ConfiguredModels, load_metric
from selfreflect.records import Failure, Score
from selfreflect.sources.items import Item, read_items


@takes("scores", config_file=True, execution=JUDGING)
def score_command(
    *,
    items: str | None = option(
        "--items FILE", "JSON list or JSONL of questions with answers and summaries; - for stdin."
    ),
    out: Path | None = option("--out DIR", "Score the summaries of this run directory."),
    limit: o.NumItems = None,
    num_answers: o.NumAnswers = None,
    words: bool = option("--words", "With --json: add the distance of every masked word.", False),
    overrides: Overrides,
    dry_run: o.DryRun = False,
    json: o.Json = False,
) -> None:
    """Score summaries: 0 is perfect, lower is better.

    The score says how faithfully a summary describes an answer distribution. --items FILE scores a file
    and stores nothing: each record is {"id"?, "question", "answers": [...], "summaries": {name: text}}, or
    has "masked_out_task_answers" and "conditioning_answers" instead of "answers". --out DIR scores a run
    directory and stores the scores there; after an interruption, run the same command to resume.

    With --budget, --se or --race, a random part of the masked words is scored: the same words for all
    summaries of a question, so that their differences stay sharp. Such scores are estimates. They are marked
    with ≈, and "estimate" in the JSON says how many words they come from.
    """
    if (items is None) == (out is None):
        raise ConfigError("give either --items FILE or --out DIR")
    if out is not None:
        if limit is not None or num_answers is not None or words:
            raise ConfigError("--limit, --num-answers and --words belong to --items FILE")
        from selfreflect.cli.stages import run_stages

        run_stages(out, ["scores"], overrides, dry_run=dry_run, json=json)
        return
    assert items is not None
    config, options = overrides.config(), overrides.execution
    if options.executor != "local":
        raise ConfigError("--executor and --ray-address belong to --out DIR")
    records = read_items(items, limit=limit, num_answers=num_answers)
    watcher = Watcher()
    if dry_run:
        from selfreflect.cli.costs import show_costs
        from selfreflect.pipeline.dry_run import dry_run_items

        show_costs(dry_run_items(records, config, options, watcher), json)
        return
    judge = ConfiguredModels(config, options, watcher).judge()
    metric = load_metric(judge, config, options, watcher)
    results: list[Score | Failure] = []
    with watcher.stage("scores", sum(len(item.summaries) for item in records)) as counter:
        for item in records:
            for result in metric.score_records(item.question_record, item.answer_set, item.summary_records):
                results.append(result)
                if json:
                    emit(_line(result, words))
            counter.advance(len(item.summaries))
    if not json:
        _show("standard input" if items == "-" else Path(items).name, records, results)
    exit_with(sum(isinstance(result, Failure) for result in results))


def _line(result: Score | Failure, words: bool) -> dict[str, Any]:
    """The JSON line of one summary."""
    if isinstance(result, Failure):
        line: dict[str, Any] = {"id": result.question_id, "summary": result.name, "score": None}
        return {**line, "failure": result.kind, "message": result.message}
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
        line["estimate"] = to_builtins(result.estimate)
    if words:
        line["warnings"] = list(result.warnings)
        line["answer_means"] = list(result.answer_means)
        line["words"] = [{**to_builtins(word), "mean": word.mean} for word in result.words]
    return line


def _show(label: str, items: Sequence[Item], results: Sequence[Score | Failure]) -> None:
    from selfreflect.cli.show import show_results
    from selfreflect.report.run_records import RunRecords

    summaries = [summary for item in items for summary in item.summary_records]
    scores = [result for result in results if isinstance(result, Score)]
    records = RunRecords(
        label=label,
        strategies=list(dict.fromkeys(summary.name for summary in summaries)),
        questions={item.id: item.question_record for item in items},
        answers={},
        summaries={(summary.question_id, summary.name): summary for summary in summaries},
        scores={(score.question_id, score.summary): score for score in scores},
        failures=[result for result in results if isinstance(result, Failure)],
    )
    show_results(records, json=False)
