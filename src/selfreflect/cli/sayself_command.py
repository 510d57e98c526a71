"""``selfreflect sayself``: train a model to state its confidence and the reasons for its doubt."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from selfreflect.cli import settings as o
from selfreflect.cli.answered import GOLD, Gold, name_list, read_questions
from selfreflect.cli.asking import ASKING, open_asker, open_store
from selfreflect.cli.console import emit, print_table, say, write_file
from selfreflect.cli.progress import Watcher
from selfreflect.cli.settings import GENERATING, Overrides, option, takes
from selfreflect.cli.stages import Intent, run_stages
from selfreflect.errors import ConfigError, DataError, excerpt
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

SHORT = "Train a model to state its confidence and why it doubts."
ABOUT = (
    "Train a model to state its confidence and the reasons for its doubt (SaySelf, arXiv 2405.20974): sample "
    "many answers, cluster them, describe what they disagree about, fine-tune on answer, reflection and "
    "confidence, then reinforce the confidence."
)

Out = Annotated[Path, option("--out DIR", "Run directory; the results are in its folder sayself.", ...)]
Select = StrEnum("Select", ["gold", "majority"])
RewardName = StrEnum("RewardName", ["brier", "linear", "rlcr", "none"])
PresetName = StrEnum("PresetName", ["small", "published", "qwen"])

Classes = Annotated[
    str,
    option(
        "--classes RULE",
        "What answers of one cluster share, as `uncertainty` takes it: exact, numeric, jaccard, rouge, "
        "embedding, judge or nli:MODEL. An answer joins the first cluster whose first answer it matches. "
        "[default: embedding:0.9]",
        ...,
    ),
]
CorrectBy = Annotated[
    str,
    option(
        "--correctness RULE",
        "What counts as correct, as `uncertainty` takes it. [default: squad_f1]",
        ...,
    ),
]
Reasoned = Annotated[
    bool, option("--reasoned", "Let the model write a line of reasoning before each answer.", ...)
]
Selected = Annotated[
    Select | None,
    option(
        "--select",
        "Which cluster the model learns to answer with: the one with the right answer (gold, as published), "
        "or the largest, which needs no right answers. [default: gold where there are right answers]",
        ...,
    ),
]
Variants = Annotated[
    str,
    option(
        "--variants A,B",
        "full, no_rationale, plain, rtuning and group; see `selfreflect sayself dataset --help`.",
        ...,
    ),
]
Seeds = Annotated[str, option("--seeds A,B", "Train once with each of these seeds.", ...)]
Named = Annotated[
    PresetName,
    option(
        "--preset",
        "Hyper-parameters: small (SmolLM2 on a CPU, minutes), published (Mistral-7B as in the paper), qwen "
        "(Qwen2.5-7B on one large GPU).",
        ...,
    ),
]
Rewarded = Annotated[
    RewardName,
    option(
        "--reward",
        "Of the second stage: brier (as published), linear, rlcr, or none to leave the stage out.",
        ...,
    ),
]
Base = Annotated[
    str | None,
    option(
        "--base MODEL", "Model to train: smollm2, a directory or a hub name. [default: the preset's]", ...
    ),
]
Writer = Annotated[
    str | None,
    option(
        "--writer MODEL",
        "Model that writes the reflections, as `run` takes it. [default: the one that drew the answers]",
        ...,
    ),
]


@takes("questions", "answers", defaults={"--questions": None}, config_file=True, execution=GENERATING)
def sample_command(
    *,
    out: Out,
    overrides: Overrides,
    reasoned: Reasoned = False,
    add_questions: o.AddQuestions = False,
    yes: o.Yes = False,
    dry_run: o.DryRun = False,
) -> None:
    """Sample many answers to each question.

    This is `selfreflect answers`: --num-answers 50 draws the 100 answers of the paper, and an interrupted
    command is resumed. An answer distribution that exists already can be used as it is.
    """
    _sample(out, overrides, reasoned, Intent(add_questions=add_questions, yes=yes), dry_run)


def _sample(out: Path, overrides: Overrides, reasoned: bool, intent: Intent, dry_run: bool = False) -> None:
    with resources.as_file(resources.files("selfreflect") / "data" / "sayself_reasoned.toml") as path:
        if reasoned and overrides.execution.prompts is None:
            overrides = _with_section(overrides, "execution", {"prompts": path})
        run_stages(out, ["questions", "answers"], overrides, intent, dry_run=dry_run)


def _with_section(overrides: Overrides, name: str, values: dict[str, Any]) -> Overrides:
    section = {**overrides.section(name), **values}
    return dataclasses.replace(overrides, sections={**overrides.sections, name: section})


def cluster_command(
    out: Out,
    classes: Classes = "embedding:0.9",
    correctness: CorrectBy = "squad_f1",
    gold: Gold = GOLD,
) -> None:
    """Sort the answers of each question into clusters.

    A cluster's share of the answers becomes the confidence. Greedy and in the order of the answers: the first
    answer that has no cluster leads a new one, which takes all answers that match it.
    """
    _cluster(out, classes, correctness, gold)


def _cluster(out: Path, classes: str, correctness: str, gold: str = GOLD) -> None:
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


@takes("answers", only=("--revision", "--base-url"), config_file=True, execution=ASKING)
def rationale_command(*, out: Out, writer: Writer = None, overrides: Overrides, yes: o.Yes = False) -> None:
    """Let a model say what it doubts, in the first person.

    It sees one answer of each cluster with its share. What it writes may mention neither numbers nor samples:
    such sentences are left out, and where nothing remains the model is asked once more, or the question is
    dropped. Where all answers agree, a fixed sentence stands. No reply is asked for twice.
    """
    _rationale(out, writer, overrides, yes)


def _rationale(out: Path, writer: str | None, overrides: Overrides, yes: bool) -> None:
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


def dataset_command(
    out: Out,
    variants: Variants = "full,no_rationale,plain,rtuning,group",
    select: Selected = None,
) -> None:
    """Make training data of clusters and rationales.

    Questions are split by their text: half for fine-tuning, others for reinforcement, for choosing, and for
    the final test. Rows hold the published line (question, response) and chat messages (prompt, completion).
    Variants: full (answer, self-reflection, confidence), no_rationale (answer, confidence), plain (answer),
    rtuning (sure or unsure of the model's own answer), group (one confidence for all questions of equal
    agreement).
    """
    _dataset(out, _variants(variants), select)


def _variants(text: str) -> list[Variant]:
    from selfreflect.errors import nearest
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


def _dataset(out: Path, variants: Sequence[Variant], select: Select | None) -> None:
    from selfreflect.sayself.examples import PARTS, make_examples, part_of
    from selfreflect.sayself.workspace import SplitQuestion, Workspace, by_part

    workspace = Workspace(out)
    clusters = workspace.clusters()
    choice: Choice = "gold" if any(question.gold for question in clusters) else "majority"
    if select is not None:
        choice = cast("Choice", select.value)
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


def train_command(
    out: Out,
    variants: Variants = "full",
    preset: Named = PresetName.small,
    base: Base = None,
    reward: Rewarded = RewardName.brier,
    seeds: Seeds = "0",
    dry_run: bool = option("--dry-run", "Only show what would be trained, and with which settings.", False),
) -> None:
    """Fine-tune a model on the examples, then reinforce the confidence that it states.

    The second stage trains the variants with a confidence by GRPO on questions of their own. Only the tokens
    of the confidence are trained: a model that is also rewarded for its answer learns that a wrong answer
    with confidence 0 pays as much as a right one with 10. A stage that is done is not repeated, and one that
    was interrupted is resumed. Needs the train extra.
    """
    from selfreflect.sayself.presets import PRESETS

    plan = _Training(out, _with_base(PRESETS[preset.value].training, base), reward.value)
    if dry_run:
        _show_plan(plan, _variants(variants), _numbers(seeds))
        return
    _train(plan, _variants(variants), _numbers(seeds))


@dataclasses.dataclass(frozen=True)
class _Training:
    out: Path
    preset: TrainingPreset
    reward: str


def _with_base(preset: TrainingPreset, base: str | None) -> TrainingPreset:
    return preset if base is None else dataclasses.replace(preset, model=base)


def _numbers(text: str) -> list[int]:
    names = name_list(text)
    if not names or not all(name.isascii() and name.isdecimal() and len(name) < 10 for name in names):
        raise ConfigError(f"--seeds takes whole numbers, such as 0,1, not {excerpt(text)}")
    return [int(name) for name in dict.fromkeys(names)]


def _show_plan(plan: _Training, variants: Sequence[Variant], seeds: Sequence[int]) -> None:
    from selfreflect.sayself.workspace import Workspace

    workspace = Workspace(plan.out)
    for name, value in dataclasses.asdict(plan.preset).items():
        say(f"{name}: {value}")
    for variant in variants:
        path = workspace.data(variant, "train")
        rows = len(_rows(path)) if path.exists() else 0
        for seed in seeds:
            say(f"{variant}, seed {seed}: {counted(rows, 'example')} -> {workspace.adapter(variant, seed)}")
            if plan.reward != "none" and variant in _REINFORCED:
                target = workspace.adapter(variant, seed, plan.reward)
                say(f"{variant}, seed {seed}, reward {plan.reward} -> {target}")


_REINFORCED = ("full", "no_rationale", "group")
"""Variants that state a confidence."""


def _rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of examples."""
    import json

    if not path.exists():
        raise DataError(f"{path} is missing. Make it with: selfreflect sayself dataset")
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (ValueError, OSError) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    if not all(isinstance(row, dict) and {"prompt", "completion"} <= row.keys() for row in rows):
        raise DataError(f"{path}: a row lacks 'prompt' or 'completion'. Make it anew with: sayself dataset")
    return rows


def _train(plan: _Training, variants: Sequence[Variant], seeds: Sequence[int]) -> None:
    from selfreflect.sayself.workspace import Workspace

    workspace = Workspace(plan.out)
    workspace.parts()  # refuses overlapping ones
    for variant in variants:
        for seed in seeds:
            _fine_tune(plan, workspace, variant, seed)
            if plan.reward != "none" and variant in _REINFORCED:
                _reinforce(plan, workspace, variant, seed)


def _fine_tune(plan: _Training, workspace: Workspace, variant: Variant, seed: int) -> None:
    from selfreflect.sayself.workspace import Adapter
    from selfreflect.train.trainers import fine_tune

    adapter = Adapter(workspace.adapter(variant, seed), variant)
    if adapter.record is not None:
        say(f"{adapter.folder}: done")
        return
    rows = _rows(workspace.data(variant, "train"))
    fine_tune(plan.preset.model, rows, adapter.folder, plan.preset, seed, resume=adapter.has_checkpoint)
    _say_trained(adapter)


def _say_trained(adapter: Adapter) -> None:
    record = adapter.record
    assert record is not None  # training has just written it
    change = record["metrics"]["change"]
    say(f"{adapter.folder}: {counted(record['rows'], 'row')}; the weights moved by {change:.3g}.")
    if change == 0:
        raise DataError(f"{adapter.folder}: training changed no weight, so nothing was learned")


def _reinforce(plan: _Training, workspace: Workspace, variant: Variant, seed: int) -> None:
    from selfreflect.sayself.reinforcement import reinforcement_rows
    from selfreflect.sayself.rewards import StatedConfidenceReward
    from selfreflect.sayself.workspace import Adapter
    from selfreflect.train.trainers import reinforce
    from selfreflect.uncertainty.correctness import Correctness

    adapter = Adapter(workspace.adapter(variant, seed, plan.reward), variant)
    if adapter.record is not None:
        say(f"{adapter.folder}: done")
        return
    start = workspace.adapter(variant, seed)
    with _asker(plan.out, str(start), Overrides({}), True) as asker:
        rows = reinforcement_rows(workspace.parts()["rl"], asker, Correctness("squad_f1"))
    reinforce(
        plan.preset.model,
        rows,
        StatedConfidenceReward(cast("RewardKind", plan.reward)),
        adapter.folder,
        plan.preset,
        seed,
        adapter=start,
        resume=adapter.has_checkpoint,
    )
    _say_trained(adapter)


@takes("answers", only=("--revision", "--base-url"), config_file=True, execution=ASKING)
def eval_command(
    *,
    out: Out,
    base: Base = None,
    correctness: CorrectBy = "squad_f1",
    judge: str | None = option(
        "--judge MODEL", "Also let this model read how faithful the reflections are.", None
    ),
    measured: int = option(
        "--measured N",
        "Measure how much the reflections of the first N test questions tell of the sampled answers.",
        0,
    ),
    overrides: Overrides,
    yes: o.Yes = False,
    json: o.Json = False,
) -> None:
    """Compare trained models with baselines, on questions that none was trained on.

    Baselines: asked directly (DP), the agreement of the samples (SC), and three rows that need no method:
    always the accuracy, isotonic calibration, and length alone. ece is binned; mae is what the published code
    calls ECE.
    """
    _evaluate(out, base, correctness, judge, measured, overrides, yes, json)


def _evaluate(
    out: Path,
    base: str | None,
    correctness: str,
    judge: str | None,
    told: int,
    overrides: Overrides,
    yes: bool,
    json: bool,
) -> None:
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
        with _asker(out, str(adapter.folder), overrides, yes) as asker:
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
    if json:
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


@takes("questions", "answers", defaults={"--questions": None}, config_file=True, execution=GENERATING)
def run_command(
    *,
    out: Out,
    preset: Named = PresetName.small,
    overrides: Overrides,
    writer: Writer = None,
    base: Base = None,
    classes: Classes = "embedding:0.9",
    correctness: CorrectBy = "squad_f1",
    variants: Variants = "full,no_rationale,rtuning",
    select: Selected = None,
    reward: Rewarded = RewardName.brier,
    seeds: Seeds = "0,1",
    yes: o.Yes = False,
    json: o.Json = False,
) -> None:
    """Do all steps: sample, cluster, rationale, dataset, train, eval.

    With --preset small and some hundred questions this takes two CPU cores an hour or two. Run the same
    command again to resume it.
    """
    from selfreflect.sayself.presets import PRESETS

    chosen = PRESETS[preset.value]
    training = _with_base(chosen.training, base)
    defaults = {
        "answers": {
            "model": training.model,
            "num_answers": chosen.num_answers,
            "max_new_tokens": chosen.max_new_tokens,
            "temperature": chosen.temperature,
            "top_p": chosen.top_p,
        }
    }
    sampling = dataclasses.replace(overrides, defaults={**overrides.defaults, **defaults})
    names = _variants(variants)
    numbers = _numbers(seeds)
    _sample(out, sampling, chosen.reasoned, Intent(yes=yes))
    _cluster(out, classes, correctness)
    asking = Overrides({"execution": {}})
    if "full" in names:
        _rationale(out, writer, asking, yes)
    _dataset(out, names, select)
    _train(_Training(out, training, reward.value), names, numbers)
    _evaluate(out, training.model, correctness, None, 0, asking, yes, json)


STEPS: dict[str, tuple[Callable[..., None], str]] = {
    "run": (run_command, "selfreflect sayself run --questions questions.json --out runs/sayself"),
    "sample": (sample_command, "selfreflect sayself sample --questions questions.json --out runs/sayself"),
    "cluster": (cluster_command, "selfreflect sayself cluster --out runs/sayself"),
    "rationale": (
        rationale_command,
        "selfreflect sayself rationale --out runs/sayself --writer openai:gpt-4o",
    ),
    "dataset": (dataset_command, "selfreflect sayself dataset --out runs/sayself --select majority"),
    "train": (train_command, "selfreflect sayself train --out runs/sayself --variants full,no_rationale"),
    "eval": (eval_command, "selfreflect sayself eval --out runs/sayself"),
}
"""Each step in order, with the example that its help shows."""
