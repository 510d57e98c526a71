"""Commands ``convert``, ``import``, ``export`` and ``config``: files of other programs and of settings."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from msgspec import to_builtins
from rich.text import Text

from selfreflect.cli import options as o
from selfreflect.cli.console import (
    check_file,
    emit,
    exit_with,
    open_output,
    refuse_run_directory,
    say,
    say_next_step,
    stdout,
    write_file,
    write_folder,
)
from selfreflect.cli.options import ItemOptions, Json, Overrides, argument, option
from selfreflect.cli.stages import check_strategies
from selfreflect.errors import ConfigError, DataError, excerpt
from selfreflect.metric.measure import DEFAULT_MEASURES, measures_of
from selfreflect.records import AnswerSet, Measurement, Question, Summary, dump_line
from selfreflect.run.records import records_by_judge, run_items
from selfreflect.run.resume import scoring_label, scoring_name
from selfreflect.settings import Config, load_config, schema, template
from selfreflect.settings.sections import FLAGGED
from selfreflect.sources.items import Item, ItemFile, to_plain
from selfreflect.sources.layouts.published import published_files, read_published
from selfreflect.store.merge import JoinedScoring, merge_runs
from selfreflect.store.run import Run
from selfreflect.text import counted, listed, one_line, printable


def convert_command(
    *,
    file: str = argument("FILE", "CSV, parquet, JSON, JSONL, a log of inspect_ai, or - for stdin.", ...),
    output: Path | None = option("--output FILE", "Write the items as JSONL."),
    overwrite: bool = option("--overwrite", "Replace an existing file.", False),
    json: Json = False,
    reading: ItemOptions,
) -> None:
    """Show how a file of questions, answers and summaries is understood.

    It may hold one row per question, with a list of answers or columns answer_1, answer_2, …, or one row per
    answer; summaries may be missing. Logs of inspect_ai (.eval, .json), samples of lm-eval and layouts that
    installed packages add work too. With --output, the items are written one per line, for `selfreflect score
    --items` and `selfreflect import --items`.
    """
    if output is not None:
        if output.suffix != ".jsonl":
            raise ConfigError(
                f"{output}: the name must end in .jsonl", code="suffix", remedy="Give {output} another name."
            )
        if output.exists() and not overwrite:
            raise DataError(
                f"{output} is already there", code="exists", remedy="Use another name, or {overwrite}."
            )
        check_file(output, file)
    # replies are taken as score does, which reads the same file
    if output is None:
        items = reading.read(file, take_replies=True, allow_few=True, keep=lambda item: None)
    else:
        with open_output(output) as stream:
            items = reading.read(
                file,
                take_replies=True,
                keep=lambda item: stream.write(f"{dump_line(to_plain(item))}\n".encode()),
            )
    if json:
        emit(_described(items))
    else:
        _show(items)
    if output is None:
        say("Write these items as JSONL with: --output items.jsonl")
        return
    if items.summaries:
        say(f"Score the file: selfreflect score --items {output}")
    else:
        say(f"Let a model summarise the answers: selfreflect import --items {output} --out DIR")


def _described(file: ItemFile) -> dict[str, Any]:
    """Describe a file's layout, columns and counts as JSON."""
    counts = {
        "questions": file.sizes.total(),
        "answers": sum(file.sizes.elements()),
        "summaries": file.summaries.total(),
    }
    layout = {"layout": file.layout_name, "description": file.layout, "columns": file.columns}
    return layout | counts | {"ignored": file.ignored, "notes": file.notes}


def _show(file: ItemFile) -> None:
    names: dict[str, list[str]] = {}  # a file may have dozens of columns with an answer each
    for name, role in file.columns.items():
        if name not in file.ignored:
            names.setdefault(role, []).append(one_line(name, 40))
    read = [f"{listed(columns)} = {role}" for role, columns in names.items()]
    ignored = ", ".join(one_line(name, 40) for name in file.ignored) or "nothing"
    for line in (
        f"{file.name}: {file.layout} (layout {file.layout_name})",
        f"columns: {'; '.join(read)}",
        f"ignored: {ignored}",
        f"\n{file.counts}",
    ):
        stdout.print(Text(line), soft_wrap=True)
    _show_item(file.items[0])


def _show_item(item: Item) -> None:
    """Print an item in full."""
    lines = [f"\nThe first question, {printable(item.id)}:", f"  {printable(item.question)}"]
    if item.context:
        lines.append(f"  context: {printable(item.context)}")
    for heading, answers in (("test", item.masked_out), ("reference", item.conditioning)):
        lines.append(f"  {counted(len(answers), f'{heading} answer')}:")
        lines += [f"    {printable(answer) if answer.strip() else '(blank)'}" for answer in answers]
    for name, text in item.summaries.items():
        lines.append(f"  summary {one_line(name)}: {printable(text)}")
    for name, value in item.metadata.items():
        lines.append(f"  {one_line(name)}: {printable(str(value))}")
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip(" ")))
        stdout.print(Text(line.replace("\n", f"\n{indent}")), soft_wrap=True)


def import_command(
    *,
    out: o.Out,
    runs: list[Path] = argument(
        "RUN", "Run directories of one question set (--shard) to join into a new one.", []
    ),
    questions: Path | None = option("--questions FILE", "questions.json of the published tool."),
    answers: Path | None = option("--answers FILE", "test_answers.json of the published tool."),
    summaries: Path | None = option("--summaries FILE", "summaries.json of the published tool."),
    items: str | None = option(
        "--items FILE",
        "Questions with answers, and maybe summaries: CSV, parquet, JSON, JSONL, a log of inspect_ai (.eval) "
        "or samples of lm-eval. `selfreflect convert FILE` shows how a file is understood.",
    ),
    reading: ItemOptions,
) -> None:
    """Turn files into a run directory, or join runs.

    Answers without summaries are fine: `selfreflect summarize --out DIR` lets a model write them. Then score
    them with `selfreflect score --out DIR`, and compare them with other runs.
    """
    published = (questions, answers, summaries)
    if [items is not None, any(published), bool(runs)].count(True) != 1:
        raise ConfigError(
            "give one thing to import: a file of items, published files, or run directories",
            code="usage",
            remedy="Give {items}, or some of {questions}, {answers} and {summaries}, or run directories.",
        )
    if items is None and reading != ItemOptions():
        raise ConfigError(
            "options that choose items need a file of items",
            code="usage",
            remedy="{num_answers}, {limit}, {column} and {separator} belong to {items}.",
        )
    if runs:
        _join(runs, out)
        return
    if items is None:
        _add(out, chain(*read_published(*published)))
        return
    found = reading.read(items).items
    if bare := sum(bool(item.token_values.logprobs and not item.token_values.tokens) for item in found):
        say(
            f"log-probabilities of {counted(bare, 'question')} left out: a run keeps them only "
            "together with 'tokens'"
        )
    _add(out, chain.from_iterable(item.records for item in found))


def _add(out: Path, records: Iterable[Question | AnswerSet | Summary]) -> None:
    """Write the records that a run directory lacks."""
    with Run.open(out, {}) as run:
        for line in run.repairs:
            say(line)
        run.append_all(record for record in records if not _is_stored(record, run))
        say(
            f"{out}: {counted(len(run.questions), 'question')}, {counted(len(run.answers), 'answer set')}, "
            f"{counted(len(run.summaries), 'summary')}"
        )
        say_next_step(out, run)


def _is_stored(record: Question | AnswerSet | Summary, run: Run) -> bool:
    if isinstance(record, Question):
        return record.id in run.questions
    if isinstance(record, AnswerSet):
        return record.question_id in run.answers
    return (record.question_id, record.name) in run.summaries


def _join(runs: Sequence[Path], out: Path) -> None:
    merged = merge_runs(runs, out, name_scoring=scoring_name, defaults=to_builtins(Config()))
    counts = merged.records
    measured = [
        f"{counts[measure.record]} by {measure.name}"
        for measure in measures_of(DEFAULT_MEASURES)
        if counts[measure.record]
    ]
    if further := counts[Measurement]:
        measured.append(f"{further} by further measures")
    say(
        f"{out}: {counted(counts[Question], 'question')}, {counted(counts[AnswerSet], 'answer set')}, "
        f"{counted(counts[Summary], 'summary')}, measured: {', '.join(measured) or 'none'}"
    )
    if merged.repeated:
        id_, (first, second) = next(iter(merged.repeated.items()))
        say(
            f"{len(merged.repeated):,} questions are in several directories, such as {excerpt(id_)} in "
            f"{first} "
            f"and {second}; records of the first were kept."
        )
    if merged.unfinished:
        say(
            f"{counted(merged.unfinished, 'question')} had only some of their answers (partial/), which were "
            "left out: finish the directories first to keep them; otherwise they are drawn again."
        )
    missing = (merged.total_questions or 0) - counts[Question]
    if missing > 0:
        shards = ", ".join(map(str, merged.absent))
        reason = f": no directory holds shard {shards}" if shards else ""
        say(f"{missing:,} of {merged.total_questions:,} questions are missing{reason}.")
    _say_scorings(merged.scorings, len(set(runs)), out)


def _say_scorings(scorings: Sequence[JoinedScoring], count: int, out: Path) -> None:
    """Report the judges whose scores are incomplete."""
    for scoring in scorings:
        if len(scoring.paths) == count:
            continue
        judge = shlex.quote(str(scoring.settings.get("judge", "")))
        say(
            f"Scores are incomplete: judge {scoring_label(scoring.settings)} scored in "
            f"{len(scoring.paths)} of {count} "
            f"directories. Add the rest with: selfreflect score --out {shlex.quote(str(out))} --judge {judge}"
        )


def export_command(
    run: Path = argument("RUN", "Run directory.", ...),
    output: Path = option("--output DIR", "Directory for the files.", ...),
    format: Literal["published", "datasets", "items"] = option(
        "--format",
        "What to write: published (questions.json, test_answers.json and summaries.json of the published "
        "tool), datasets (a folder with a card, for datasets.load_dataset; needs the "
        "parquet extra), or items (items.jsonl, for score --items).",
        "published",
    ),
    suffix: str = option(
        "--suffix TEXT",
        "With --format published: append this to names of summaries, as the published tool does.",
        "_summary",
    ),
    overwrite: bool = option("--overwrite", "Replace existing files.", False),
) -> None:
    """Write a run for other programs.

    The scorer of the published tool reads questions.json, test_answers.json and summaries.json. A data set
    has the parts answers and summaries, with the results of every judge.
    """
    records = Run.load(run)
    refuse_run_directory(output)
    repeated: list[str] = []
    if format == "published":
        columns = (records.questions.values(), records.answers.values(), records.summaries.values())
        files, repeated = published_files(*columns, suffix)
    elif format == "items":
        lines = [dump_line(to_plain(item)) + "\n" for item in run_items(records)]
        files = {"items.jsonl": "".join(lines).encode()}
    else:
        from selfreflect.report.export import dataset_files

        name = run.resolve().name
        files = dataset_files(records_by_judge(records, name), name)
    write_folder(output, files, overwrite)
    say(f"wrote {output}: {', '.join(dict.fromkeys(name.partition('/')[0] for name in files))}")
    if repeated:
        say(
            f"{len(repeated):,} questions were left out, because this layout tells questions apart by their "
            f"text, and earlier questions have the same texts: {', '.join(repeated)}"
        )
    exit_with(len(repeated))


def config_command(
    *,
    file: Path | None = argument("[FILE]", "The file of settings; with --init, selfreflect.toml by default."),
    init: bool = option("--init", "Write FILE with every key, its comment and its default.", False),
    check: bool = option("--check", "Check FILE, and print what differs from the defaults.", False),
    schema_: bool = option("--schema", "Print the JSON schema, for editors and programs.", False),
) -> None:
    """Write, check or describe the file of --config.

    The file holds every setting that changes results, strategies and source of the questions included, and
    in [execution] where the work is done, so that `selfreflect run --config FILE --out DIR` needs nothing
    else. Without options, print what --init writes.
    """
    if init + check + schema_ > 1:
        raise ConfigError(
            "several actions are named at once",
            code="usage",
            remedy="Give one of {init}, {check} and {schema}.",
        )
    if (file is None and check) or (file is not None and not (init or check)):
        raise ConfigError(
            "no action is named",
            code="usage",
            remedy="Write a file with {init} FILE, or check one with {check} FILE.",
        )
    if file is not None and check:
        _check(file)
    elif init:
        _write(file or Path("selfreflect.toml"))
    elif schema_:
        print(json.dumps(schema(), indent=2))
    else:
        print(template())


def _write(path: Path) -> None:
    if path.exists():
        raise ConfigError(f"{path} exists. Name another file, or remove it first.")
    write_file(path, template())
    say(f"Edit the file, then run: selfreflect run --config {path} --out runs/NAME")


def _check(path: Path) -> None:
    try:
        config = load_config(path, {})
    except ConfigError as error:
        # the mistake is in the file, so the message names its keys and no flags
        name_of = Overrides({"config": {"file": path}}).name_of
        raise ConfigError(error.worded(name_of), code=error.code, **error.fields) from None
    check_strategies(config.summaries.strategies)
    defaults = Config()
    count = 0
    for section in FLAGGED:
        default = defaults.section(section)
        for key, value in config.section(section).items():
            if value != default[key]:
                line = f"[{section}] {key} = {json.dumps(value, ensure_ascii=False)}"
                stdout.print(Text(one_line(line)), soft_wrap=True)
                count += 1
    say(f"{path} is valid: {count} of its settings differ from the defaults.")
