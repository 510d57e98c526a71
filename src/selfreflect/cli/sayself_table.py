"""The work behind ``selfreflect sayself eval``: trained models and baselines on the same questions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from selfreflect.cli.console import Watcher, emit, print_table, say, write_file
from selfreflect.cli.options import Overrides
from selfreflect.cli.sayself_steps import LabelOptions, check_judge, open_models
from selfreflect.errors import DataError
from selfreflect.flags import ZERO_OR_MORE, Flag, Range
from selfreflect.text import counted

if TYPE_CHECKING:
    from selfreflect.sayself.comparison import MethodComparison

Measured = Annotated[
    int,
    Flag(
        "--measured N",
        "Measure how much the reflections of N random questions tell of the model's answers.",
        range=ZERO_OR_MORE,
    ),
]
_SAMPLED = Range("0, or 2 or more, since one answer shows no doubt", lambda value: value == 0 or value >= 2)


class EvaluationOptions(LabelOptions, frozen=True, kw_only=True):
    """What is compared, and how."""

    measured: Measured = 0
    base: Annotated[
        str | None,
        Flag(
            "--base MODEL",
            "Untrained model that is asked directly.",
            default="the one that was trained",
        ),
    ] = None
    graded: Annotated[
        str | None,
        Flag(
            "--graded MODEL",
            "Also count as the published evaluation does: MODEL grades each answer from 1 to 10.",
        ),
    ] = None
    measured_by: Annotated[str, Flag("--measured-by MODEL", "The local model that measures them.")] = (
        "smollm2"
    )
    sampled: Annotated[
        int,
        Flag(
            "--sampled N",
            "Compare reflections, for --judge and --measured, with N answers of the trained model itself; 0: "
            "with those of the run, which the untrained one drew.",
            range=_SAMPLED,
        ),
    ] = 10
    part: Annotated[
        Literal["dev", "test"],
        Flag("--part", "Questions to compare on: dev to choose among models, test for the final figures."),
    ] = "test"


def evaluate(out: Path, options: EvaluationOptions, overrides: Overrides, yes: bool, as_json: bool) -> None:
    """Print the table of baselines and trained models, and write it to ``evaluation.md``, with all that was
    stated in a file beside it."""
    from selfreflect.sayself.comparison import MethodComparison
    from selfreflect.sayself.workspace import Workspace
    from selfreflect.table import to_markdown
    from selfreflect.uncertainty.correctness import Correctness

    check_judge(options.judge, correctness=options.correctness)
    workspace = Workspace(out)
    questions = workspace.parts()[options.part]
    if not questions:
        count = counted(len(workspace.clusters()), "question")
        raise DataError(f"{out} has no {options.part} questions: {count} are too few")
    adapters = workspace.trained()
    for variant in {adapter.variant for adapter in adapters}:
        if workspace.data(variant, "train").exists():
            workspace.examples(variant)  # refuses those of other parts
    with open_models(out, overrides, yes) as open_model:
        asker = open_model(options.judge) if options.correctness == "judge" else None
        comparison = MethodComparison(questions, Correctness(options.correctness, asker))
        base = options.base or next((one.base for one in adapters), None)
        drawn = options.measured if options.judge is None else len(questions)
        comparison.ask(adapters, base, open_model, drawn, options.sampled)
        comparison.tabulate(f"Stated confidence on {len(questions)} {options.part} questions")
        if options.graded is not None:
            comparison.grade(open_model(options.graded), options.graded)
        if options.judge is not None:
            comparison.judge(open_model(options.judge), options.judge)
    if options.measured:
        _measure(out, options, comparison)
    if as_json:
        for line in comparison.lines():
            emit(line)
    else:
        for table in comparison.tables:
            print_table(table)
    lines = [line for one in comparison.rows for line in one.lines(questions)]
    workspace.write(f"statements-{options.part}.jsonl", lines)
    write_file(workspace.path("evaluation.md"), "\n".join(map(to_markdown, comparison.tables)))


def _measure(out: Path, options: EvaluationOptions, comparison: MethodComparison) -> None:
    """Load the judge of ``--measured-by``, and measure the reflections of each model."""
    from selfreflect.pipeline.models import ConfiguredModels
    from selfreflect.settings import ExecutionOptions, load_config
    from selfreflect.store.run import Run

    config = load_config(None, {"scores": {"judge": options.measured_by}})
    watcher = Watcher()
    measures = ConfiguredModels(config, ExecutionOptions(), watcher).measures()
    of_run = {one.question_id: one for one in Run.load(out).answers.values()}
    if not comparison.measure(measures, options.measured, of_run, watcher.stage):
        say("No trained model stated a self-reflection, so there is nothing to measure.")
