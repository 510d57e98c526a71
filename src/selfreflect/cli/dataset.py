"""Command ``selfreflect dataset``: training data from a run directory."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from selfreflect.cli import options as o
from selfreflect.cli.console import emit, refuse_run_directory, say, write_folder
from selfreflect.cli.options import Overrides, argument, option
from selfreflect.errors import ConfigError, DataError, excerpt
from selfreflect.flags import flags_of
from selfreflect.metric.measure import measure_keyed
from selfreflect.report.measures import any_measures
from selfreflect.report.run_records import RunRecords
from selfreflect.run.records import records_by_judge, run_prompts, scorings_by
from selfreflect.store.run import Run
from selfreflect.text import counted
from selfreflect.train.folder import parse_percentages, training_files
from selfreflect.train.rows import BUILDERS, KINDS_OF, Kind, RowOptions, TrainingRows, is_named


def dataset_command(
    *,
    kind: Kind = argument("KIND", "What the rows are for.", ...),
    run: Path = argument("RUN", "Run directory.", ...),
    output: Path = option("--output DIR", "Folder for the data set.", ...),
    options: RowOptions,
    overrides: Overrides,
    judge: str | None = option("--judge NAME", "Judge whose measures count, if several scored the run."),
    parts: str = option("--parts A,B,C", "Percentages of train, dev and test.", "70,10,20"),
    overwrite: bool = option("--overwrite", "Replace an existing data set.", False),
    json: o.Json = False,
) -> None:
    """Make training data from a run (needs the parquet extra).

    sft: the best summary of each question under a limit of length. dpo: pairs of a better and a worse one,
    about equally long. grpo: prompts with the answers that a reward reads. Questions are split by their text,
    so that all data sets agree; README.md in the folder says how it was made and what was left out. Train on
    it with TRL, as `trl sft --config recipes/sft.yaml` does. `selfreflect run --strategies
    basic#1-8` draws summaries to choose from.
    """
    percentages = parse_percentages(parts)
    directory = Run.load(run)
    refuse_run_directory(output)
    scorings = scorings_by(records_by_judge(directory, run.resolve().name), judge, run)
    row_options = _row_options(kind, options, overrides.section("options"), scorings)
    records = _scoring(kind, scorings, row_options.measure)
    _check_strategies(records, options.strategies)
    prompts = run_prompts(directory, "summaries")
    result = BUILDERS[kind](records, prompts, row_options)
    if not result.rows:
        rows = "pairs" if kind == "dpo" else "rows"
        raise DataError(
            f"{run}: no {rows}. {_reasons(result)}".strip(),
            code="no_rows",
            remedy=_advice(kind, run, records),
        )
    instruction = (options.instruction or prompts.basic["user"]).replace("{question}", "").strip()
    origin = _origin(kind, records, run, row_options.measure, instruction)
    files = training_files(kind, result, list(records.questions.values()), row_options, origin, percentages)
    write_folder(output, files, overwrite)
    if json:
        emit(
            {
                "output": str(output),
                "rows": len(result.rows),
                "dropped": result.dropped,
                "dropped_texts": result.dropped_texts,
                "notes": result.notes,
            }
        )
    _say_outcome(output, records, result)


def _row_options(
    kind: Kind, options: RowOptions, user_options: Mapping[str, Any], scorings: list[RunRecords]
) -> RowOptions:
    """Check the options, and choose a measure if none is given."""
    for name in user_options:
        if kind not in KINDS_OF.get(name, {kind}):
            kinds = " and ".join(sorted(KINDS_OF[name]))
            raise ConfigError(f"{flags_of(RowOptions)[name].name} belongs to {kinds}, not to {kind}")
    if options.instruction is not None and not options.instruction.strip():
        raise ConfigError("the instruction is blank", option="instruction")
    measure = measure_keyed(options.measure) if "measure" in user_options else any_measures(scorings)[0]
    return replace(options, measure=measure.key)


def _scoring(kind: Kind, scorings: list[RunRecords], key: str) -> RunRecords:
    """Choose the one judge whose scores include the measure, since judges are not comparable."""
    # the rows of the other kinds hold no measure
    if kind not in ("sft", "dpo"):
        return scorings[0]
    usable = [run for run in scorings if run.results(measure_keyed(key))]
    if len(usable) > 1:
        judges = "; ".join(run.judge for run in usable)
        raise ConfigError(f"several judges scored this run: {judges}", remedy="Choose one with {judge}.")
    return usable[0] if usable else scorings[0]


def _check_strategies(run: RunRecords, names: tuple[str, ...] | None) -> None:
    for name in names or ():
        if not any(is_named(strategy, [name]) for strategy in run.strategies):
            strategies = ", ".join(run.strategies) or "none"
            raise ConfigError(f"the run has no summaries by {excerpt(name)}. It has: {strategies}")


def _advice(kind: Kind, path: Path, run: RunRecords) -> str:
    """Suggest the next step when there are no rows."""
    directory = shlex.quote(str(path))
    if not run.answers:
        return f"Draw answers: selfreflect answers --out {directory}"
    if kind == "grpo":
        return "See `selfreflect dataset --help` for what becomes a row."
    if not run.summaries:
        return f"Draw summaries: selfreflect summarize --strategies basic#1-8 --out {directory}"
    if not run.measures:
        return f"Score them: selfreflect score --out {directory}"
    if cut_off := _advice_on_length(run):
        return cut_off
    if kind == "dpo":
        return f"Draw more summaries: selfreflect run --strategies basic#1-8 --out {directory}"
    return "See `selfreflect dataset --help` for what becomes a row."


def _advice_on_length(run: RunRecords) -> str:
    """Suggest a shorter length if most summaries were cut off; otherwise return an empty string."""
    cut = sum(summary.truncated for summary in run.summaries.values())
    if 2 * cut <= len(run.summaries):
        return ""
    return (
        f"{cut:,} of {len(run.summaries):,} summaries were cut off: sample them in a new run, with a higher "
        "--summary-tokens or with a prompt that asks for less"
    )


def _reasons(result: TrainingRows) -> str:
    parts = [f"{counted(count, 'question')}: {reason}" for reason, count in result.dropped.most_common()]
    parts += [f"{counted(count, 'text')}: {reason}" for reason, count in result.dropped_texts.most_common()]
    return "; ".join(parts) + ". " if parts else ""


def _origin(kind: Kind, run: RunRecords, path: Path, key: str, instruction: str) -> dict[str, str]:
    """Describe where the rows come from, for the card of the data set."""
    facts = {"run": path.resolve().name, "model": ", ".join(sorted(run.models)), "instruction": instruction}
    judge = run.judge or ", ".join(run.judges)
    if kind == "grpo":
        return facts | ({"judge": judge} if judge else {})
    results = run.results(measure_keyed(key)).values()
    readers = sorted({record.reader for record in results if getattr(record, "reader", None)})
    scale = {"reader": ", ".join(readers), "zero": run.zero, "scale": run.scale} if readers else {}
    return {**facts, "judge": judge, **scale}


def _say_outcome(output: Path, run: RunRecords, result: TrainingRows) -> None:
    questions = len({row["question_id"] for row in result.rows})
    say(f"wrote {output}: {counted(len(result.rows), 'row')} of {counted(questions, 'question')}")
    for note in result.notes:
        say(f"  {note}")
    if result.dropped or result.dropped_texts:
        say(f"Left out: {_reasons(result).strip()}")
    if "cut off at the limit of tokens" in result.dropped_texts and (advice := _advice_on_length(run)):
        say(f"{advice}.")
