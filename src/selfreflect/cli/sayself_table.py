"""The work behind ``selfreflect sayself eval``: trained models and baselines on the same questions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from selfreflect.cli.console import emit, print_table, say, write_file
from selfreflect.cli.progress import Watcher
from selfreflect.cli.sayself_steps import LabelOptions, adapter_asker, check_judge, open_models
from selfreflect.cli.settings import Overrides
from selfreflect.config import Flag
from selfreflect.errors import ConfigError, DataError
from selfreflect.text import counted

if TYPE_CHECKING:
    from selfreflect.cli.sayself_steps import OpenModel
    from selfreflect.render.table import Table
    from selfreflect.sayself.clusters import ClusteredQuestion
    from selfreflect.sayself.evaluation import Evaluation
    from selfreflect.sayself.statement import StatedBelief
    from selfreflect.sayself.workspace import Adapter
    from selfreflect.uncertainty.asking.asker import Asker
    from selfreflect.uncertainty.correctness import Correctness
    from selfreflect.uncertainty.question import AnsweredQuestion


Measured = Annotated[
    int,
    Flag(
        "--measured N", "Measure how much the reflections of N random questions tell of the model's answers."
    ),
]


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
        ),
    ] = 10
    part: Annotated[
        Literal["dev", "test"],
        Flag("--part", "Questions to compare on: dev to choose among models, test for the final figures."),
    ] = "test"


@dataclass
class _Findings:
    """What one evaluation finds."""

    baselines: list[Evaluation] = field(default_factory=list)
    trained: list[Evaluation] = field(default_factory=list)
    extra: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Further fields of a method's line of JSON."""
    tables: list[Table] = field(default_factory=list)
    answers: dict[str, list[AnsweredQuestion]] = field(default_factory=dict)
    """Answers of each trained model with reflections."""

    def add(self, method: str, name: str, value: Any) -> None:
        self.extra.setdefault(method, {})[name] = value


def evaluate(
    out: Path,
    options: EvaluationOptions,
    overrides: Overrides,
    yes: bool,
    as_json: bool,
) -> None:
    """Print the table of baselines and trained models, and write it to ``evaluation.md``, with all that was
    stated in a file beside it."""
    from selfreflect.render.table import to_markdown
    from selfreflect.sayself.evaluation import difference_table, evaluation_table
    from selfreflect.sayself.workspace import Workspace

    check_judge(options.judge, correctness=options.correctness)
    if options.measured < 0:
        raise ConfigError(f"--measured takes a number of questions, not {options.measured}")
    if options.sampled < 0 or options.sampled == 1:
        raise ConfigError(
            f"--sampled takes 0, or 2 or more, not {options.sampled}: one answer shows no doubt"
        )
    workspace = Workspace(out)
    questions = workspace.parts()[options.part]
    if not questions:
        count = counted(len(workspace.clusters()), "question")
        raise DataError(f"{out} has no {options.part} questions: {count} are too few")
    adapters = workspace.trained()
    for variant in {adapter.variant for adapter in adapters}:
        if workspace.data(variant, "train").exists():
            workspace.examples(variant)  # refuses those of other parts
    results = _Findings()
    with open_models(out, overrides, yes) as open_model:
        _ask_all(options, questions, adapters, open_model, results)
        rows = [*results.baselines, *results.trained]
        title = f"Stated confidence on {len(questions)} {options.part} questions"
        results.tables.append(evaluation_table(rows, title))
        differences = difference_table(results.trained, results.baselines)
        results.tables += [differences] if differences else []
        if options.graded is not None:
            _grade(questions, rows, open_model(options.graded), options.graded, results)
        if options.judge is not None:
            _judge(questions, results, open_model(options.judge), options.judge)
    if options.measured:
        _measure(out, options, questions, results)
    text = "\n".join(map(to_markdown, results.tables))
    if as_json:
        for one in rows:
            emit(_row(one) | results.extra.get(one.method, {}))
    else:
        for table in results.tables:
            print_table(table)
    lines = [line for one in rows for line in one.lines(questions)]
    workspace.write(f"statements-{options.part}.jsonl", lines)
    write_file(workspace.folder / "evaluation.md", text)


def _ask_all(
    options: EvaluationOptions,
    questions: Sequence[ClusteredQuestion],
    adapters: Sequence[Adapter],
    open_model: OpenModel,
    results: _Findings,
) -> None:
    """Let every method state its confidences."""
    from selfreflect.sayself import evaluation as ev
    from selfreflect.uncertainty.correctness import Correctness

    label = Correctness(
        options.correctness, open_model(options.judge) if options.correctness == "judge" else None
    )
    base = options.base or next((one.base for one in adapters), None)
    agreed = _labelled("agreement of samples (SC)", questions, ev.agreement(questions), label)
    direct = ev.ask_directly(questions, open_model(base))
    results.baselines += [agreed, _labelled("asked directly (DP)", questions, direct, label)]
    results.baselines += ev.reference_rows(agreed)
    for adapter in adapters:
        asker = adapter_asker(open_model, adapter)
        if adapter.variant == "rtuning":
            statements = ev.ask_whether_sure(questions, agreed.statements, asker)  # as it was trained
        else:
            statements = ev.ask_statements(questions, asker)
        name = adapter.folder.name
        results.trained.append(_labelled(name, questions, statements, label))
        is_compared = options.judge is not None or options.measured > 0
        if options.sampled and is_compared and any(one.reflection for one in statements):
            subset = questions if options.judge is not None else _sample(questions, options.measured)
            results.answers[name] = ev.draw_answers(subset, asker, options.sampled)


def _labelled(
    method: str,
    questions: Sequence[ClusteredQuestion],
    statements: Sequence[StatedBelief],
    label: Correctness,
) -> Evaluation:
    from selfreflect.sayself.evaluation import Evaluation, label_statements

    return Evaluation(method, tuple(statements), label_statements(questions, statements, label))


def _grade(
    questions: Sequence[ClusteredQuestion],
    rows: Sequence[Evaluation],
    asker: Asker,
    grader: str,
    results: _Findings,
) -> None:
    """Add the figures of the published code."""
    from selfreflect.sayself.published import grade_answers, published_figures, published_table

    figures = []
    for one in rows:
        if not one.baseline:
            figures.append(published_figures(one, grade_answers(questions, one.statements, asker)))
            results.add(one.method, "published", figures[-1].to_dict())
    results.tables.append(published_table(figures, grader))


def _judge(questions: Sequence[ClusteredQuestion], results: _Findings, asker: Asker, judge: str) -> None:
    """Add how faithful the reflections are to a judge."""
    from selfreflect.sayself.evaluation import faithfulness_inquiries
    from selfreflect.sayself.faithfulness import faithfulness_table, own_clusters
    from selfreflect.sayself.published import read_score

    scores = {}
    for one in _reflecting(results.trained):
        clusters = own_clusters(questions, results.answers.get(one.method, []))
        replies = asker.ask(faithfulness_inquiries(clusters, one.statements))
        read = [score for score in map(read_score, replies) if isinstance(score, float)]
        scores[one.method] = (len(replies), read)
        mean = sum(read) / len(read) if read else None
        results.add(one.method, "faithfulness", {"mean": mean, "read": len(read), "asked": len(replies)})
    results.tables.append(faithfulness_table(scores, judge))


def _reflecting(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """Those with a self-reflection."""
    return [one for one in evaluations if any(statement.reflection for statement in one.statements)]


def _sample(questions: Sequence[ClusteredQuestion], number: int) -> list[ClusteredQuestion]:
    """Random questions, the same whenever there are the same."""
    return random.Random(0).sample(questions, min(number, len(questions)))


def _measure(
    out: Path, options: EvaluationOptions, questions: Sequence[ClusteredQuestion], results: _Findings
) -> None:
    """Add how much the reflections of each model tell of its answers, on the same random questions."""
    from selfreflect.config import load_config
    from selfreflect.pipeline.models import ConfiguredModels, load_measures
    from selfreflect.pipeline.options import ExecutionOptions
    from selfreflect.sayself.faithfulness import answer_sets, measure_reflections, told_table
    from selfreflect.store.run import Run

    sample = _sample(questions, options.measured)
    places = {question.id: place for place, question in enumerate(questions)}
    config = load_config(None, {"scores": {"judge": options.measured_by}})
    execution, watcher = ExecutionOptions(), Watcher()
    judge = ConfiguredModels(config, execution, watcher).judge()
    measures = load_measures(judge, config, execution, watcher)
    of_run = {one.question_id: one for one in Run.load(out).answers.values()}
    reflecting = _reflecting(results.trained)
    for one in reflecting:
        texts = [one.statements[places[question.id]] for question in sample]
        answers = answer_sets(results.answers[one.method]) if one.method in results.answers else of_run
        figures = measure_reflections(measures, sample, texts, answers)
        results.tables.append(told_table(figures, f"What {one.method} tells of the sampled answers"))
        results.add(one.method, "told", figures.means())
    if not reflecting:
        say("No trained model stated a self-reflection, so there is nothing to measure.")


def _row(one: Evaluation) -> dict[str, Any]:
    confidences, labels, _ = one.pairs()
    measures = {name: asdict(value) for name, value in one.measures().items()}
    return {
        "method": one.method,
        "baseline": one.baseline,
        "n": len(labels),
        "without_confidence": dict(one.without_confidence),
        "accuracy": None if one.baseline else one.accuracy,
        "mean_confidence": sum(confidences) / len(confidences) if confidences else None,
        **measures,
    }
