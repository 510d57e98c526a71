"""``selfreflect score``: score a file of summaries, or the summaries of a run directory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from selfreflect.cli import options as o
from selfreflect.cli.console import ProgressReporter, emit, exit_with, say
from selfreflect.cli.options import JUDGING, ItemOptions, Overrides, option, takes
from selfreflect.errors import ConfigError
from selfreflect.metric.builtin import word_fields
from selfreflect.metric.measure import measure_of
from selfreflect.records import Controls, Failure
from selfreflect.report.run_records import RunRecords, answer_halves_p_value, records_in_memory
from selfreflect.run.models import ConfiguredModels, watched_judge
from selfreflect.settings import Config
from selfreflect.sources.files import source_name
from selfreflect.sources.items import Item

if TYPE_CHECKING:
    from selfreflect.metric.measure import Measured


@takes("scores", config_file=True, execution=JUDGING)
def score_command(
    *,
    items: str | None = option(
        "--items FILE", "CSV, parquet, JSON or JSONL of questions with answers and summaries; - for stdin."
    ),
    out: Path | None = option("--out DIR", "Score the summaries of this run directory."),
    reading: ItemOptions,
    words: bool = option("--words", "With --json: add distance and bits of every masked word.", False),
    overrides: Overrides,
    dry_run: o.DryRun = False,
    log: o.Log = None,
    json: o.Json = False,
) -> None:
    """Measure how faithfully summaries describe an answer distribution.

    Two measures: how much of the information in the sampled answers a summary recovers (0 % is as good as an
    empty summary, 100 % as good as seeing the answers, below 0 misleads), and the published SelfReflect score
    (0 is perfect, lower is better). --measures takes one of them, --no-controls
    leaves out the controls.
    The embedded judge, smollm2, reads no hedges and no percentages: "most likely A" gets about the same
    numbers as "A". Use a larger judge for summaries that differ in them.

    --items FILE scores a file and stores nothing. Its columns or fields are "question" (or prompt, input),
    "answers" as a list (or samples, responses, generations), answer_1, answer_2, …, or one "answer" per row,
    and "summary" (or summary_NAME, or "summaries": {name: text}). `selfreflect convert FILE` shows how a file
    is understood. --out DIR scores a run directory and stores the results there; after an interruption, run
    the same command to resume. Another --judge, or other settings of scores, add scores beside those that are
    there, and `report` shows them side by side. Without --judge, the first judge goes on.

    With --budget, a random part of the masked words is scored: the same words for all
    summaries of a question, so that their differences stay sharp. Such scores are estimates. They are marked
    with ≈, and "estimate" in the JSON says how many words they come from.
    """
    if (items is None) == (out is None):
        raise ConfigError(
            "nothing or too much to score", code="usage", remedy="Give either {items} or {out}."
        )
    if out is not None:
        if words or reading != ItemOptions():
            raise ConfigError(
                "the words and items of a run directory cannot be chosen",
                code="usage",
                remedy="{limit}, {num_answers}, {column}, {split} and {words} belong to {items}.",
            )
        from selfreflect.cli.stages import Intent, run_stages

        run_stages(out, ["scores"], overrides, Intent(), dry_run=dry_run, log=log, json=json)
        return
    assert items is not None
    if log is not None:
        from selfreflect.report.export import check_installed

        check_installed(log)
    if overrides.section("execution").get("executor", "local") != "local":
        raise ConfigError(
            "a file is scored on this machine",
            code="usage",
            remedy="{execution.executor} and {execution.ray_address} belong to {out}.",
        )
    seed = overrides.config().scores.seed
    file = reading.read(items, need_summaries=True, seed=seed)
    _score(file.items, source_name(items), overrides, words=words, dry_run=dry_run, log=log, json=json)


def _score(
    items: Sequence[Item],
    label: str,
    overrides: Overrides,
    *,
    words: bool,
    dry_run: bool,
    log: str | None,
    json: bool,
) -> None:
    """Score items as they come, or only count what that takes, and exit."""
    config, options = overrides.config(), overrides.execution
    reporter = ProgressReporter()
    if dry_run:
        from selfreflect.cli.show import show_costs
        from selfreflect.run.dry_run import dry_run_items

        show_costs(dry_run_items(items, config, options, reporter), json)
        return
    measures = ConfiguredModels(config, options, reporter).measures()
    results: list[Measured] = []
    with reporter.stage("scores", sum(len(item.summaries) for item in items)) as counter:
        for item in items:
            answers, summaries = item.answer_set, item.summary_records
            with watched_judge(measures, reporter, answers, len(summaries)):
                of_item = measures.measure(item.question_record, answers, summaries)
            results += of_item
            if json:
                for line in _lines(item, of_item, words):
                    emit(line)
            counter.advance(len(item.summaries))
    whole = item_run(label, config, items, results)
    if not json:
        from selfreflect.cli.show import show_results
        from selfreflect.report.measures import summary_table

        show_results(whole, json=False, details=summary_table(whole))
        say("The numbers of every summary: add --json, and --words for those of every word.")
    if log is not None:
        from selfreflect.cli.show import log_result

        log_result(log, whole)
    exit_with(whole.failed)


def _lines(item: Item, results: Sequence[Measured], words: bool) -> Iterator[dict[str, Any]]:
    """Write the JSON line of each summary."""
    by_name: dict[str, list[Any]] = {}
    controls: Controls | None = None
    for result in results:
        if isinstance(result, Controls):
            controls = result
        else:
            name = result.name if isinstance(result, Failure) else result.summary
            by_name.setdefault(name, []).append(result)
    for name, records in by_name.items():
        line: dict[str, Any] = {"id": item.id, "summary": name, "question": item.question}
        line["summary_text"] = item.summaries[name]
        line |= {"halves": item.halved, "halves_p_value": answer_halves_p_value(item.answer_set)}
        if item.metadata:
            line["metadata"] = item.metadata
        for record in records:
            if isinstance(record, Failure):
                line |= {"score": None, "failure": record.kind, "message": record.message}
            elif measure := measure_of(record):
                line |= measure.fields(record)
        if controls is not None:
            line["controls"] = to_builtins(controls.controls)
        if words:
            line |= word_fields(records)
        yield line


def item_run(label: str, config: Config, items: Sequence[Item], results: Sequence[Measured]) -> RunRecords:
    """Make a run of results, as tables and trackers take it."""
    of_items = chain.from_iterable(item.records for item in items)
    records = records_in_memory(label, chain(of_items, results))
    return replace(records, manifest={"config": {"scores": config.section("scores")}})
