"""The work behind the commands of ``selfreflect sayself``."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from selfreflect.cli.answered import GOLD, name_list, read_questions
from selfreflect.cli.asking import open_asker, open_store
from selfreflect.cli.console import emit, print_table, say, write_file
from selfreflect.cli.progress import Watcher
from selfreflect.cli.settings import Overrides
from selfreflect.cli.stages import Intent, run_stages
from selfreflect.errors import ConfigError, DataError, excerpt, nearest
from selfreflect.text import counted

if TYPE_CHECKING:
    from selfreflect.render.table import Table
    from selfreflect.sayself.clusters import Choice, ClusteredQuestion
    from selfreflect.sayself.evaluation import Evaluation
    from selfreflect.sayself.examples import Variant
    from selfreflect.sayself.rewards import RewardKind
    from selfreflect.sayself.statement import Statement
    from selfreflect.sayself.workspace import Adapter, Workspace
    from selfreflect.train.presets import TrainingPreset
    from selfreflect.uncertainty.asking.asker import Asker


def sample(out: Path, overrides: Overrides, reasoned: bool, intent: Intent, dry_run: bool = False) -> None:
    """Draw the answers that are missing."""
    with resources.as_file(resources.files("selfreflect") / "data" / "sayself_reasoned.toml") as path:
        if reasoned and overrides.execution.prompts is None:
            overrides = _with_section(overrides, "execution", {"prompts": path})
        run_stages(out, ["questions", "answers"], overrides, intent, dry_run=dry_run)


def _with_section(overrides: Overrides, name: str, values: dict[str, Any]) -> Overrides:
    section = {**overrides.section(name), **values}
    return dataclasses.replace(overrides, sections={**overrides.sections, name: section})


def cluster(out: Path, classes: str, correctness: str, gold: str = GOLD) -> None:
    """Write the clusters of a run."""
    from selfreflect.sayself.clusters import cluster_answers
    from selfreflect.sayself.workspace import Workspace
    from selfreflect.uncertainty.classes import ClassRule
    from selfreflect.uncertainty.correctness import Correctness

    questions = read_questions(str(out), gold)
    clustered = cluster_answers(questions, ClassRule(classes, "first"), Correctness(correctness))
    Workspace(out).write("clusters.jsonl", clustered)
    sizes = [len(question.clusters) for question in clustered]
    agreed = sum(size == 1 for size in sizes)
    labelled = [question for question in clustered if question.gold]
    right = sum(question.choose("gold") is not None for question in labelled)
    say(
        f"{counted(len(clustered), 'question')}: {sum(sizes) / len(sizes):.1f} clusters on average, "
        f"{agreed} with a single one. A cluster has the right answer in {right} of {len(labelled)} questions "
        "that name one."
    )


def rationalise(out: Path, writer: str | None, overrides: Overrides, yes: bool) -> None:
    """Write a reflection for each question."""
    from selfreflect.sayself.rationales import count_origins, write_rationales
    from selfreflect.sayself.workspace import Workspace

    workspace = Workspace(out)
    clusters = workspace.clusters()
    with _asker(out, writer, overrides, yes) as asker:
        rationales = write_rationales(clusters, asker)
    workspace.write("rationales.jsonl", rationales)
    counts = count_origins(rationales)
    say(", ".join(f"{counts[name]} {words}" for name, words in _ORIGINS.items()) + ".")


_ORIGINS = {
    "fixed": "questions where all answers agree",
    "model": "reflections as written",
    "repaired": "without some sentences",
    "second": "at the second try",
    "dropped": "dropped",
}


@contextmanager
def _asker(out: Path, model: str | None, overrides: Overrides, yes: bool) -> Iterator[Asker]:
    overrides = _with_section(overrides, "asking", {"yes": yes})
    users = ["sayself"]
    with open_store(str(out), overrides, users, None) as store:
        asker = open_asker(str(out), model, overrides, users, store)
        assert asker is not None  # something is asked
        yield asker


@contextmanager
def _adapter_asker(out: Path, adapter: Adapter, overrides: Overrides, yes: bool) -> Iterator[Asker]:
    """Ask a trained model. Its replies are kept under what its training left behind, so that one that is
    trained anew in the same folder is asked anew."""
    with _asker(out, str(adapter.folder), overrides, yes) as asker:
        digest = hashlib.sha256(json.dumps(adapter.record, sort_keys=True).encode()).hexdigest()[:12]
        asker.model = f"{asker.model} trained {digest}"
        yield asker


def variant_names(text: str) -> list[Variant]:
    """Read a list of variants. Raises ConfigError."""
    from selfreflect.sayself.examples import VARIANTS

    names = name_list(text)
    for name in names:
        if name not in VARIANTS:
            known = ", ".join(VARIANTS)
            hint = nearest(name, list(VARIANTS))
            raise ConfigError(f"there is no variant {excerpt(name)}.{hint} Known: {known}")
    if not names:
        raise ConfigError("--variants names nothing")
    return cast("list[Variant]", list(dict.fromkeys(names)))


def make_data(out: Path, variants: Sequence[Variant], select: str | None) -> None:
    """Write the examples of each variant, and which part each question belongs to."""
    from selfreflect.sayself.examples import PARTS, make_examples, part_of
    from selfreflect.sayself.workspace import SplitQuestion, Workspace, by_part

    workspace = Workspace(out)
    clusters = workspace.clusters()
    choice: Choice = "gold" if any(question.gold for question in clusters) else "majority"
    if select is not None:
        choice = cast("Choice", select)
    parts = {question.id: part_of(question.question) for question in clusters}
    splits = [SplitQuestion(question_id=name, part=part) for name, part in parts.items()]
    workspace.write("splits.jsonl", splits)
    sizes = by_part(parts, clusters)
    say("Questions: " + ", ".join(f"{sizes[part]} {part}" for part in PARTS) + f". Answers: {choice}.")
    rationales = workspace.rationales() if "full" in variants else {}
    for variant in variants:
        dropped: dict[str, int] = {}
        written = []
        for part in ("train", "dev"):
            questions = [question for question in clusters if parts[question.id] == part]
            rows, missing = make_examples(questions, rationales, variant, choice)
            workspace.write(f"data/{variant}/{part}.jsonl", rows)
            written.append(f"{len(rows)} {part}")
            for reason, count in missing.items():
                dropped[reason] = dropped.get(reason, 0) + count
        left_out = "".join(f"; {count} left out: {reason}" for reason, count in dropped.items())
        say(f"{variant}: {', '.join(written)} examples{left_out}")


@dataclasses.dataclass(frozen=True)
class TrainingPlan:
    """What both stages of training need to know."""

    out: Path
    preset: TrainingPreset
    reward: str
    """``none`` leaves out the second stage."""
    correctness: str


def with_base(preset: TrainingPreset, base: str | None) -> TrainingPreset:
    """Train another model with the same settings."""
    return preset if base is None else dataclasses.replace(preset, model=base)


def seed_numbers(text: str) -> list[int]:
    """Read a list of seeds. Raises ConfigError."""
    names = name_list(text)
    if not names or not all(name.isascii() and name.isdecimal() and len(name) < 10 for name in names):
        raise ConfigError(f"--seeds takes whole numbers, such as 0,1, not {excerpt(text)}")
    return [int(name) for name in dict.fromkeys(names)]


def show_plan(plan: TrainingPlan, variants: Sequence[Variant], seeds: Sequence[int]) -> None:
    """Say what would be trained, and with which settings."""
    from selfreflect.sayself.workspace import Workspace

    workspace = Workspace(plan.out)
    for name, value in dataclasses.asdict(plan.preset).items():
        say(f"{name}: {value}")
    for variant in variants:
        rows = len(workspace.examples(variant)) if workspace.data(variant, "train").exists() else 0
        for seed in seeds:
            say(f"{variant}, seed {seed}: {counted(rows, 'example')} -> {workspace.adapter(variant, seed)}")
            if plan.reward != "none" and variant in _REINFORCED:
                target = workspace.adapter(variant, seed, plan.reward)
                say(f"{variant}, seed {seed}, reward {plan.reward} -> {target}")


_REINFORCED = ("full", "no_rationale", "group")
"""Variants that state a confidence."""


def train(plan: TrainingPlan, variants: Sequence[Variant], seeds: Sequence[int]) -> None:
    """Run both stages for each variant and seed, unless they are done."""
    from selfreflect.sayself.workspace import Workspace

    workspace = Workspace(plan.out)
    workspace.parts()  # refuses overlapping ones
    for variant in variants:
        for seed in seeds:
            _fine_tune(plan, workspace, variant, seed)
            if plan.reward != "none" and variant in _REINFORCED:
                _reinforce(plan, workspace, variant, seed)


def _fine_tune(plan: TrainingPlan, workspace: Workspace, variant: Variant, seed: int) -> None:
    from selfreflect.sayself.workspace import Adapter
    from selfreflect.train.trainers import fine_tune

    adapter = Adapter(workspace.adapter(variant, seed), variant)
    if adapter.record is not None:
        say(f"{adapter.folder}: done")
        return
    rows = workspace.examples(variant)
    fine_tune(plan.preset.model, rows, adapter.folder, plan.preset, seed, resume=adapter.has_checkpoint)
    _say_trained(adapter)


def _say_trained(adapter: Adapter) -> None:
    record = adapter.record
    assert record is not None  # training has just written it
    change = record["metrics"]["change"]
    say(f"{adapter.folder}: {counted(record['rows'], 'row')}; the weights moved by {change:.3g}.")
    if change == 0:
        raise DataError(f"{adapter.folder}: training changed no weight, so nothing was learned")


def _reinforce(plan: TrainingPlan, workspace: Workspace, variant: Variant, seed: int) -> None:
    from selfreflect.sayself.reinforcement import reinforcement_rows
    from selfreflect.sayself.rewards import StatedConfidenceReward
    from selfreflect.sayself.workspace import Adapter
    from selfreflect.train.trainers import reinforce
    from selfreflect.uncertainty.correctness import Correctness

    adapter = Adapter(workspace.adapter(variant, seed, plan.reward), variant)
    if adapter.record is not None:
        say(f"{adapter.folder}: done")
        return
    start = Adapter(workspace.adapter(variant, seed), variant)
    with _adapter_asker(plan.out, start, Overrides({}), True) as asker:
        rows = reinforcement_rows(workspace.parts()["rl"], asker, Correctness(plan.correctness))
    reinforce(
        plan.preset.model,
        rows,
        StatedConfidenceReward(cast("RewardKind", plan.reward)),
        adapter.folder,
        plan.preset,
        seed,
        adapter=start.folder,
        resume=adapter.has_checkpoint,
    )
    _say_trained(adapter)


def evaluate(
    out: Path,
    base: str | None,
    correctness: str,
    judge: str | None,
    told: int,
    overrides: Overrides,
    yes: bool,
    as_json: bool,
) -> None:
    """Print the table of baselines and trained models, and write it to ``evaluation.md``."""
    from selfreflect.render.table import to_markdown
    from selfreflect.sayself import evaluation as ev
    from selfreflect.sayself.workspace import Workspace
    from selfreflect.uncertainty.correctness import Correctness

    workspace = Workspace(out)
    questions = workspace.parts()["test"]
    if not questions:
        raise DataError(
            f"{out} has no test questions: {counted(len(workspace.clusters()), 'question')} are too few"
        )
    label = Correctness(correctness)
    evaluations: list[Evaluation] = []

    def add(method: str, statements: Sequence[Any]) -> None:
        labels = ev.label_statements(questions, statements, label)
        evaluations.append(ev.Evaluation(method, tuple(statements), labels))

    add("agreement of samples (SC)", ev.agreement(questions))
    trained = workspace.trained()
    with _asker(out, base or next((one.base for one in trained), None), overrides, yes) as asker:
        direct = ev.ask_directly(questions, asker)
    add("asked directly (DP)", direct)
    faithful: list[tuple[str, Any]] = []
    for adapter in trained:
        with _adapter_asker(out, adapter, overrides, yes) as asker:
            if adapter.variant == "rtuning":
                statements = ev.ask_whether_sure(questions, direct, asker)
            else:
                statements = ev.ask_statements(questions, asker)
        add(adapter.folder.name, statements)
        if any(statement.reflection for statement in statements):
            faithful.append((adapter.folder.name, statements))
    evaluations += ev.reference_rows(evaluations[0])
    table = ev.evaluation_table(evaluations, f"Stated confidence on {len(questions)} test questions")
    if judge is not None:
        for name, statements in faithful:
            with _asker(out, judge, overrides, yes) as asker:
                replies = asker.ask(ev.faithfulness_inquiries(questions, statements))
            say(_faithfulness(name, ev.read_scores(replies), judge))
    tables = [table]
    if told:
        tables += [_measured(out, name, questions[:told], texts[:told]) for name, texts in faithful]
    if as_json:
        for one in evaluations:
            emit(_row(one))
        return
    for one_table in tables:
        print_table(one_table)
    write_file(workspace.folder / "evaluation.md", "\n".join(map(to_markdown, tables)))


def _measured(
    out: Path, name: str, questions: Sequence[ClusteredQuestion], statements: Sequence[Statement]
) -> Table:
    """How much the reflections of a model tell of the run's answers, to the embedded judge."""
    from selfreflect.config import load_config
    from selfreflect.pipeline.models import ConfiguredModels, load_measures
    from selfreflect.pipeline.options import ExecutionOptions
    from selfreflect.sayself.faithfulness import measure_reflections, told_table
    from selfreflect.store.run import Run

    config = load_config(None, {"scores": {"judge": "smollm2"}})
    options, watcher = ExecutionOptions(), Watcher()
    judge = ConfiguredModels(config, options, watcher).judge()
    measures = load_measures(judge, config, options, watcher)
    answers = {one.question_id: one for one in Run.load(out).answers.values()}
    told = measure_reflections(measures, questions, statements, answers)
    return told_table(told, f"What {name} tells of the sampled answers")


def _faithfulness(name: str, scores: Sequence[Any], judge: str) -> str:
    numbers = [score for score in scores if isinstance(score, float)]
    if not numbers:
        return f"{name}: {judge} gave no score for any of {counted(len(scores), 'reflection')}."
    mean = sum(numbers) / len(numbers)
    return (
        f"{name}: reflections are faithful {mean:.2f} of 1 to {judge} ({len(numbers)} of {len(scores)} read)."
    )


def _row(one: Evaluation) -> dict[str, Any]:
    confidences, labels, _ = one.pairs()
    measures = {name: dataclasses.asdict(value) for name, value in one.measures().items()}
    return {
        "method": one.method,
        "baseline": one.baseline,
        "n": len(labels),
        "without_confidence": dict(one.without_confidence),
        "accuracy": None if one.baseline else one.accuracy,
        "mean_confidence": sum(confidences) / len(confidences) if confidences else None,
        **measures,
    }
