"""Command ``selfreflect score``: score the summaries of a file or a run directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from selfreflect.cli import options as o
from selfreflect.cli.console import ProgressReporter, check_output, emit, exit_with, say
from selfreflect.cli.options import JUDGING, ItemOptions, Overrides, option, takes
from selfreflect.errors import ConfigError, DataError
from selfreflect.metric.measure import measure_of
from selfreflect.records import Controls, Failure
from selfreflect.report.run_records import RunRecords, answer_halves_p_value, records_in_memory
from selfreflect.run.models import ConfiguredModels, watched_judge
from selfreflect.settings import Config
from selfreflect.sources.files import source_name
from selfreflect.sources.items import Item

if TYPE_CHECKING:
    from selfreflect.metric.measure import Measured
    from selfreflect.report.thresholds import Condition, Pairs


@takes("scores", config_file=True, execution=JUDGING)
def score_command(
    *,
    items: str | None = option(
        "--items FILE", "CSV, parquet, JSON or JSONL of questions with answers and summaries; - for stdin."
    ),
    out: Path | None = option("--out DIR", "Score the summaries of this run directory."),
    reading: ItemOptions,
    against: str | None = option(
        "--against FILE", "Compare with the replies of this file: an earlier version of the same system."
    ),
    output: list[Path] = option(
        "--output FILE",
        "With --items: write a page (.html), the tables (.md; .tex for LaTeX), or one row per question "
        "(.csv). Can be repeated.",
        [],
    ),
    fail_if: list[str] = o.FAIL_IF,
    words: bool = option("--words", "With --json: add distance and bits of every masked word.", False),
    explain: bool = o.EXPLAIN,
    overrides: Overrides,
    dry_run: o.DryRun = False,
    log: o.Log = None,
    json: o.Json = False,
) -> None:
    """Measure how faithfully summaries describe an answer distribution.

    Two measures: how much of the information in the sampled answers a summary recovers (0 % is as good as an
    empty summary, 100 % as good as seeing the answers, below 0 misleads), and the published SelfReflect score
    (0 is perfect, lower is better). The embedded judge, smollm2, does not understand hedges or percentages.

    --items FILE scores a file and stores nothing: "question", "answers" (a list, or answer_1, answer_2, …)
    and "summary". `selfreflect convert FILE` shows how a file is understood. --out DIR scores a run directory
    and stores the results there; repeat the command to resume. Another --judge adds scores beside the others.

    --items new.csv --against old.csv shows which questions got worse. --fail-if exits with 3 if a condition
    holds: 'recovered < 60%' (the mean), 'any recovered < 10%' (a question), 'undefined > 2' (questions; also
    failures and missing), and with --against the conditions of `selfreflect compare`, such as 'worse > 0'. It
    exits with 2 if a value is undefined, unless 'undefined > 2' or the like allows that. ≈ marks estimates.
    """
    if (items is None) == (out is None):
        raise ConfigError(
            "`score` takes either a file or a run directory", code="usage", remedy="Give {items} or {out}."
        )
    conditions = parsed_conditions(fail_if, compares=against is not None)
    if out is not None:
        if words or output or against or reading != ItemOptions():
            raise ConfigError(
                "options that choose items or write files need a file of items",
                code="usage",
                remedy="{limit}, {num_answers}, {column}, {separator}, {words}, {output} and {against} "
                "belong to {items}; `selfreflect report RUN` writes files.",
            )
        from selfreflect.cli.stages import Intent, Show, run_stages

        show = Show(json=json, explain=explain, conditions=conditions)
        run_stages(out, ["scores"], overrides, Intent(), dry_run=dry_run, log=log, show=show)
        return
    assert items is not None
    _check_options(overrides, log)
    sources = _labelled(items, against)
    for source in sources.values():
        check_output(output, source)
    versions = _read_versions(sources, reading, overrides)
    if dry_run:
        from selfreflect.cli.show import show_costs
        from selfreflect.run.dry_run import dry_run_items

        all_items = chain.from_iterable(versions.values())
        show_costs(
            dry_run_items(all_items, overrides.config(), overrides.execution, ProgressReporter()), json
        )
        return
    versions_with_scores = _score(versions, overrides, words=words if json else None)
    _show(versions_with_scores, json=json, explain=explain)
    sentences: list[str] = []
    code = 0
    # lines of JSON alone need not wait for what makes tables
    if conditions:
        from selfreflect.cli.show import verdict

        sentences, code = verdict(conditions, versions_with_scores.pairs)
    # a page begins with what failed, and a terminal ends with it
    _write(output, versions_with_scores, sentences[::-1])
    if log is not None:
        from selfreflect.cli.show import log_result

        for run in versions_with_scores.runs:
            log_result(log, run)
    if conditions:
        from selfreflect.cli.show import exit_with_verdict

        exit_with_verdict(sentences, code)
    exit_with(sum(run.failed for run in versions_with_scores.runs))


@dataclass(frozen=True)
class ScoredVersions:
    """Results of a file and, if given, of its earlier version."""

    new: RunRecords
    old: RunRecords | None = None

    @property
    def runs(self) -> list[RunRecords]:
        """All versions, the earlier first."""
        return [self.new] if self.old is None else [self.old, self.new]

    @property
    def pairs(self) -> Pairs:
        """Each system's new version paired with its earlier version.

        Raises:
            DataError: no system has an earlier version.
        """
        from selfreflect.report.compare import version_pairs
        from selfreflect.report.thresholds import versions

        return versions([self.new]) if self.old is None else version_pairs(self.old, self.new)


def parsed_conditions(fail_if: Sequence[str], *, compares: bool) -> list[Condition]:
    """Parse the conditions of ``--fail-if`` before any work."""
    if not fail_if:
        return []
    from selfreflect.report.thresholds import parse_conditions

    return parse_conditions(fail_if, compares=compares)


def _labelled(items: str, against: str | None) -> dict[str, str]:
    """Label the sources by file name, or by path if two names are equal."""
    if against is None:
        return {source_name(items): items}
    if items == against:
        raise ConfigError(
            "both versions are the same file", code="usage", remedy="Give {against} the earlier version."
        )
    sources = (items, against)
    names = [source_name(source) for source in sources]
    return dict(zip(names if len(set(names)) == 2 else sources, sources, strict=True))


def _check_options(overrides: Overrides, log: str | None) -> None:
    """Refuse options that do not apply to a file before reading it."""
    if log is not None:
        from selfreflect.report.export import check_installed

        check_installed(log)
    if overrides.section("execution").get("executor", "local") != "local":
        raise ConfigError(
            "a file is scored on this machine",
            code="usage",
            remedy="{execution.executor} and {execution.ray_address} belong to {out}.",
        )


def _read_versions(
    sources: Mapping[str, str], reading: ItemOptions, overrides: Overrides
) -> dict[str, Sequence[Item]]:
    """Read the items of each source, and check that the versions are comparable.

    Raises:
        DataError: they have no question or no system in common.
    """
    config = overrides.config()
    # exact scores have no seed in their settings, but the halves of a list of answers have
    seed = overrides.given("scores").get("seed", config.scores.seed)
    versions: dict[str, Sequence[Item]] = {}
    for label, source in sources.items():
        name = label if len(sources) > 1 else ""
        versions[label] = reading.read(source, need_summaries=True, seed=seed, label=name).items
    if not set.intersection(*({item.id for item in version} for version in versions.values())):
        # every condition on differences would hold
        raise DataError("the two versions have no question in common", code="disjoint")
    if len(versions) > 1:
        from selfreflect.report.compare import version_pairs

        # two versions without a common system are refused before anything is measured
        new, old = (item_run(label, config, items, ()) for label, items in versions.items())
        version_pairs(old, new)
    return versions


def _score(
    versions: Mapping[str, Sequence[Item]], overrides: Overrides, *, words: bool | None
) -> ScoredVersions:
    """Score each version's items as they arrive.

    Args:
        words: print the JSON line of each summary, with its words if this is true; None prints nothing.
    """
    config, options = overrides.config(), overrides.execution
    reporter = ProgressReporter()
    measures = ConfiguredModels(config, options, reporter).measures()
    runs = []
    total = sum(len(item.summaries) for items in versions.values() for item in items)
    with reporter.stage("scores", total) as counter:
        for label, items in versions.items():
            results: list[Measured] = []
            for item in items:
                answers, summaries = item.answer_set, item.summary_records
                with watched_judge(measures, reporter, answers, len(summaries)):
                    of_item = measures.measure(item.question_record, answers, summaries)
                results += of_item
                for line in _lines(item, of_item, words) if words is not None else ():
                    emit({"run": label, **line} if len(versions) > 1 else line)
                counter.advance(len(item.summaries))
            runs.append(item_run(label, config, items, results))
    return ScoredVersions(*runs)


def _show(versions: ScoredVersions, *, json: bool, explain: bool) -> None:
    """Print the finding, the questions (worst first) and the results, or comparisons as JSON."""
    if json:
        if versions.old is not None:
            from selfreflect.report.document import comparison_line

            for base, candidate in versions.pairs:
                if base is not None:
                    emit({"comparison": comparison_line(base, candidate)})
        return
    from selfreflect.cli.show import show_results, show_versions
    from selfreflect.report.compare import summary_table

    if versions.old is not None:
        show_versions(versions.runs, versions.pairs, explain)
    else:
        show_results(versions.new, json=False, explain=explain, details=summary_table(versions.new))
    say("For the numbers of every summary add --json; for the numbers of every word add --words too.")


def _write(output: Sequence[Path], versions: ScoredVersions, sentences: Sequence[str]) -> None:
    """Write the files of ``--output``; a page shows the verdict and the earlier version first."""
    if output:
        from selfreflect.cli.report import write_page, write_tables

        by_run = [[run] for run in versions.runs]
        for path in output:
            if path.suffix == ".html":
                write_page(path, by_run, None, verdict=sentences)
            else:
                write_tables(path, by_run)


def _lines(item: Item, results: Sequence[Measured], words: bool) -> Iterator[dict[str, Any]]:
    """Build the JSON line of each summary."""
    from selfreflect.metric.builtin import word_fields

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
    """Build a run from results in memory, for tables and trackers."""
    of_items = chain.from_iterable(item.records for item in items)
    records = records_in_memory(label, chain(of_items, results))
    return replace(records, manifest={"config": {"scores": config.section("scores")}})
