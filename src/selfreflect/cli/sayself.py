"""``selfreflect sayself``: train a model to state its confidence and the reasons for its doubt."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

from msgspec import Struct
from msgspec.structs import asdict, replace

from selfreflect.cli import options as o
from selfreflect.cli.answered import (
    ASKING,
    AskOptions,
    FieldOptions,
    Gold,
    open_asker,
    open_store,
    read_questions,
)
from selfreflect.cli.console import emit, print_table, say, write_file
from selfreflect.cli.options import GENERATING, Overrides, option, takes, taking
from selfreflect.cli.stages import Intent, run_stages
from selfreflect.errors import ConfigError, DataError, excerpt, unknown_name
from selfreflect.flags import Flag, Range
from selfreflect.run.records import GOLD
from selfreflect.run.resume import no_questions
from selfreflect.store.layout import MANIFEST
from selfreflect.text import counted

if TYPE_CHECKING:
    from selfreflect.store.journal import Journal, ModelReplies
    from selfreflect.train.sayself.clusters import Choice
    from selfreflect.train.sayself.comparison import TrainingPlan
    from selfreflect.train.sayself.examples import Variant
    from selfreflect.uncertainty.asking.asker import Asker

SHORT = "Train a model to state its confidence and why it doubts."
ABOUT = (
    "Train a model to state its confidence and the reasons for its doubt (SaySelf, arXiv 2405.20974): sample "
    "many answers, cluster them, describe what they disagree about, fine-tune on answer, reflection and "
    "confidence, then reinforce the confidence."
)

Out = Annotated[Path, option("--out DIR", "Run directory; the results are in its folder sayself.", ...)]


class SayselfOptions(Struct, frozen=True, kw_only=True):
    """Options of the steps. Each command takes some; `run` passes them on to all."""

    correctness: Annotated[
        str,
        Flag(
            "--correctness RULE",
            "What counts as correct, as `uncertainty` takes it. Use the same rule in all steps.",
        ),
    ] = "squad_f1"
    judge: Annotated[
        str | None,
        Flag(
            "--judge MODEL",
            "Model that decides where --classes or --correctness is judge. `eval` also lets it read how "
            "faithful the reflections are.",
        ),
    ] = None
    classes: Annotated[
        str,
        Flag(
            "--classes RULE",
            "What answers of one cluster share, as `uncertainty` takes it: exact, numeric, jaccard, rouge, "
            "embedding, judge (--judge is asked) or nli:MODEL. An answer joins the first cluster whose first "
            "answer it matches.",
        ),
    ] = "embedding:0.9"
    writer: Annotated[
        str | None,
        Flag(
            "--writer MODEL",
            "Model that writes the reflections, as `run` takes it.",
            default="the one that drew the answers",
        ),
    ] = None
    variants: Annotated[
        tuple[str, ...],
        Flag(
            "--variants A,B",
            "full, no_rationale, plain, rtuning and group; see `selfreflect sayself dataset --help`.",
        ),
    ] = ("full", "no_rationale", "plain", "rtuning", "group")
    select: Annotated[
        Literal["gold", "majority"] | None,
        Flag(
            "--select",
            "Which cluster the model learns to answer with: the one with the right answer (gold, as "
            "published), or the largest, which needs no right answers.",
            default="gold where there are right answers",
        ),
    ] = None
    seeds: Annotated[tuple[str, ...], Flag("--seeds A,B", "Train once with each of these seeds.")] = ("0",)
    preset: Annotated[
        Literal["small", "published", "qwen"],
        Flag(
            "--preset",
            "Hyper-parameters: small (SmolLM2 on a CPU, minutes), published (Mistral-7B as in the paper), "
            "qwen (Qwen2.5-7B on one large GPU).",
        ),
    ] = "small"
    base: Annotated[
        str | None,
        Flag(
            "--base MODEL",
            "Model to train, and the untrained one to compare with: smollm2, a directory or a hub name.",
            default="the preset's; eval: the one that was trained",
        ),
    ] = None
    reward: Annotated[
        Literal["brier", "linear", "rlcr", "none"],
        Flag(
            "--reward",
            "Of the second stage: brier (as published), linear, rlcr, or none to leave the stage out.",
        ),
    ] = "brier"
    graded: Annotated[
        str | None,
        Flag(
            "--graded MODEL",
            "Also count as the published evaluation does: MODEL grades each answer from 1 to 10.",
        ),
    ] = None
    sampled: Annotated[
        int,
        Flag(
            "--sampled N",
            "Let --judge compare reflections with N answers of the trained model itself; 0: with those of "
            "the run, which the untrained one drew.",
            range=Range(
                "0, or 2 or more, since one answer shows no doubt", lambda value: value == 0 or value >= 2
            ),
        ),
    ] = 10
    part: Annotated[
        Literal["dev", "test"],
        Flag("--part", "Questions to compare on: dev to choose among models, test for the final figures."),
    ] = "test"

    def check_judge(self, *rules: str) -> None:
        """Refuse rules that ask a model which nobody named. Raises ConfigError."""
        for name in rules:
            if getattr(self, name) == "judge" and self.judge is None:
                raise ConfigError(
                    f"the rule judge of {name} asks a model",
                    option=name,
                    remedy="Name it with {judge} MODEL.",
                )

    def plan(self, out: Path) -> TrainingPlan:
        """Make the plan of the training with these options."""
        from selfreflect.train.sayself.comparison import TrainingPlan
        from selfreflect.train.trainers import load_preset

        preset = load_preset(self.preset, self.base)
        return TrainingPlan(out, preset, self.reward, self.correctness, self.judge)

    def checked_variants(self) -> list[Variant]:
        """List the variants. Raises ConfigError for a mistyped one."""
        from selfreflect.train.sayself.examples import VARIANTS

        for name in self.variants or [""]:
            if name not in VARIANTS:
                raise unknown_name("variant", name, VARIANTS)
        return cast("list[Variant]", list(dict.fromkeys(self.variants)))

    def arms(self) -> list[tuple[Variant, int]]:
        """List each variant with each seed. Raises ConfigError for a mistyped one."""
        seeds = dict.fromkeys(self.seeds)
        if not seeds or not all(name.isascii() and name.isdecimal() and len(name) < 10 for name in seeds):
            raise ConfigError(
                f"seeds are whole numbers, such as 0,1, not {excerpt(','.join(seeds))}", option="seeds"
            )
        return [(variant, int(seed)) for variant in self.checked_variants() for seed in seeds]


@dataclasses.dataclass(frozen=True)
class OpenModel:
    """Opens models that are asked, each loaded when it is first asked; their replies are kept in the run."""

    _out: Path
    _overrides: Overrides
    _yes: bool
    store: Journal[ModelReplies] | None
    """Of replies; also of verdicts of the class rule ``nli:MODEL``."""

    def __call__(self, model: str | None) -> Asker:
        """Open a model; None is the one that drew the answers. Raises ConfigError if there is none."""
        overrides = self._overrides if model is None else self._flags_for(model)
        options = AskOptions(model=model, yes=self._yes)
        asker = open_asker(str(self._out), options, overrides, ["sayself"], self.store)
        assert asker is not None  # something is asked
        return asker

    def _flags_for(self, model: str) -> Overrides:
        """Leave out the address of a server that only some of several models are on, and the revision of
        others."""
        from selfreflect.models.backend import backend_of

        on_server = backend_of(model).is_remote
        foreign = {"revision"} if on_server or Path(model).is_dir() else set()
        if not on_server:
            foreign.add("base_url")
        section = self._overrides.section("answers")
        flags = {name: value for name, value in section.items() if name not in foreign}
        sections = {**self._overrides.sections, "answers": flags}
        return dataclasses.replace(self._overrides, sections=sections)


@contextmanager
def open_models(out: Path, overrides: Overrides, yes: bool) -> Iterator[OpenModel]:
    """Open the file of replies, for any number of models."""
    with open_store(str(out), AskOptions(yes=yes), ["sayself"]) as store:
        yield OpenModel(out, overrides, yes, store)


@takes("questions", "answers", defaults={"--questions": None}, config_file=True, execution=GENERATING)
def sample_command(
    *,
    out: Out,
    overrides: Overrides,
    reasoned: bool = option(
        "--reasoned", "Let the model write a line of reasoning before each answer.", False
    ),
    add_questions: o.AddQuestions = False,
    yes: o.Yes = False,
    dry_run: o.DryRun = False,
) -> None:
    """Sample many answers to each question.

    This is `selfreflect answers`: --num-answers 50 draws the 100 answers of the paper, and an interrupted
    command is resumed. An answer distribution that exists already can be used as it is.
    """
    if not overrides.sets("questions", "source") and not (out / MANIFEST).exists():
        raise no_questions()
    intent = Intent(add_questions=add_questions, yes=yes)
    with resources.as_file(resources.files("selfreflect") / "data" / "sayself_reasoned.toml") as path:
        if reasoned and overrides.execution.prompts is None:
            execution = {**overrides.section("execution"), "prompts": path}
            sections = {**overrides.sections, "execution": execution}
            overrides = dataclasses.replace(overrides, sections=sections)
        run_stages(out, ["questions", "answers"], overrides, intent, dry_run=dry_run, next_step=False)


@takes("answers", only=("--revision", "--base-url", "--extra-body"), config_file=True, execution=ASKING)
def cluster_command(
    *,
    out: Out,
    options: Annotated[SayselfOptions, taking("correctness", "judge", "classes")],
    gold: Gold = GOLD,
    overrides: Overrides,
    yes: o.Yes = False,
) -> None:
    """Sort the answers of each question into clusters.

    A cluster's share of the answers becomes the confidence. Greedy and in the order of the answers: the first
    answer that has no cluster leads a new one, which takes all answers that match it.
    """
    from selfreflect.store.run import Run
    from selfreflect.train.sayself.clusters import cluster_answers
    from selfreflect.train.sayself.examples import Workspace
    from selfreflect.uncertainty.classes import ClassRule
    from selfreflect.uncertainty.correctness import Correctness

    options.check_judge("classes", "correctness")
    answers = Run.load(out).answers.values()
    questions = read_questions(str(out), FieldOptions(gold=gold))
    with open_models(out, overrides, yes) as open_model:
        asker = open_model(options.judge) if "judge" in (options.classes, options.correctness) else None
        rule = ClassRule(options.classes, "first", asker, open_model.store)
        is_right = Correctness(options.correctness, asker)
        clustered = cluster_answers(questions, rule, is_right)
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
    if cut := sum(answer_set.truncated for answer_set in answers):
        total = sum(len(question.answers) for question in questions)
        say(
            f"{cut} of {total} answers lack their end, and a model would learn to stop there. Sample them "
            "in a new run, with more --max-new-tokens."
        )
    if labelled and not right:
        say(
            f"No answer is right by {is_right.name}. If whole sentences hold a short right answer, take a "
            "lower threshold, such as --correctness squad_f1:0.2."
        )


@takes("answers", only=("--revision", "--base-url", "--extra-body"), config_file=True, execution=ASKING)
def rationale_command(
    *,
    out: Out,
    options: Annotated[SayselfOptions, taking("writer")],
    overrides: Overrides,
    yes: o.Yes = False,
) -> None:
    """Let a model say what it doubts, in the first person.

    It sees one answer of each cluster with its share. What it writes may mention neither numbers nor samples:
    such sentences are left out, and where nothing remains the model is asked once more, or the question is
    dropped. Where all answers agree, a fixed sentence stands. No reply is asked for twice.
    """
    from selfreflect.train.sayself.clusters import write_rationales
    from selfreflect.train.sayself.examples import WITH_EXAMPLES, Workspace, part_of

    workspace = Workspace(out)
    clusters = [item for item in workspace.clusters() if part_of(item.question) in WITH_EXAMPLES]
    with open_models(out, overrides, yes) as open_model:
        rationales = write_rationales(clusters, open_model(options.writer))
    workspace.write("rationales.jsonl", rationales)
    counts: Counter[str] = Counter(rationale.origin for rationale in rationales)
    say(", ".join(f"{counts[name]} {words}" for name, words in _ORIGINS.items()) + ".")


_ORIGINS = {
    "fixed": "questions where all answers agree",
    "model": "reflections as written",
    "repaired": "without some sentences",
    "second": "at the second try",
    "dropped": "dropped",
}


def dataset_command(*, out: Out, options: Annotated[SayselfOptions, taking("variants", "select")]) -> None:
    """Make training data of clusters and rationales.

    Questions are split by their text: half for fine-tuning, others for reinforcement, for choosing, and for
    the final test. Rows hold the published line (question, response) and chat messages (prompt, completion).
    Variants: full (answer, self-reflection, confidence), no_rationale (answer, confidence), plain (answer),
    rtuning (sure or unsure about the model's own answer), group (one confidence for all questions of equal
    agreement).
    """
    from selfreflect.train.sayself.examples import (
        PARTS,
        WITH_EXAMPLES,
        Workspace,
        make_examples,
        part_of,
    )

    names = options.checked_variants()
    workspace = Workspace(out)
    clusters = workspace.clusters()
    choice: Choice = options.select or ("gold" if any(question.gold for question in clusters) else "majority")
    parts = {question.id: part_of(question.question) for question in clusters}
    splits = [{"question_id": name, "part": part} for name, part in parts.items()]
    workspace.write("splits.jsonl", splits)
    sizes = Counter(parts.values())
    say("Questions: " + ", ".join(f"{sizes[part]} {part}" for part in PARTS) + f". Answers: {choice}.")
    rationales = workspace.rationales() if "full" in names else None
    for variant in names:
        dropped: Counter[str] = Counter()
        counts = []
        for part in WITH_EXAMPLES:
            questions = [question for question in clusters if parts[question.id] == part]
            rows, missing = make_examples(questions, rationales, variant, choice)
            workspace.write(f"data/{variant}/{part}.jsonl", rows)
            counts.append(f"{len(rows)} {part}")
            dropped += missing
        left_out = "".join(f"; {count} left out: {reason}" for reason, count in dropped.items())
        say(f"{variant}: {', '.join(counts)} examples{left_out}")


def train_command(
    *,
    out: Out,
    options: Annotated[
        SayselfOptions,
        taking("preset", "base", "reward", "correctness", "judge", "seeds", variants=("full",)),
    ],
    dry_run: bool = option("--dry-run", "Only show what would be trained, and with which settings.", False),
) -> None:
    """Fine-tune a model on the examples, then reinforce the confidence that it states.

    The second stage trains the variants with a confidence by GRPO on questions of their own. Only the tokens
    of the confidence are trained: a model that is also rewarded for its answer learns that a wrong answer
    with confidence 0 pays as much as a right one with 10. A stage that is done is not repeated, and one that
    was interrupted is resumed. Needs the train extra.
    """
    options.check_judge("correctness")
    (show_plan if dry_run else train)(options.plan(out), options.arms())


def show_plan(plan: TrainingPlan, arms: Sequence[tuple[Variant, int]]) -> None:
    """Say what would be trained, and with which settings."""
    from selfreflect.train.sayself.examples import Workspace

    workspace = Workspace(plan.out)
    for name, value in asdict(plan.preset).items():
        for key, setting in (value if isinstance(value, dict) else {"": value}).items():
            say(f"{'.'.join(filter(None, (name, key)))}: {setting}")
    for variant, seed in arms:
        path = workspace.data(variant, "train")
        count = len(workspace.examples(variant)) if path.exists() else 0
        rows = counted(count, "example") if count else f"no examples yet in {path}"
        say(f"{variant}, seed {seed}: {rows} -> {workspace.adapter(variant, seed).folder}")
        if plan.reinforces(variant):
            target = workspace.adapter(variant, seed, plan.reward).folder
            say(f"{variant}, seed {seed}, reward {plan.reward} -> {target}")


def train(plan: TrainingPlan, arms: Sequence[tuple[Variant, int]]) -> None:
    """Run both stages for each variant and seed, unless they are done."""
    from selfreflect.train.sayself.comparison import fine_tune, reinforce
    from selfreflect.train.sayself.examples import Workspace

    Workspace(plan.out).parts()  # refused before `dataset` has split the questions
    for variant, seed in arms:
        say(fine_tune(plan, variant, seed))
        if plan.reinforces(variant):
            say(reinforce(plan, variant, seed, partial(open_models, plan.out, Overrides({}), True)))


@takes("answers", only=("--revision", "--base-url", "--extra-body"), config_file=True, execution=ASKING)
def eval_command(
    *,
    out: Out,
    options: Annotated[SayselfOptions, taking("correctness", "judge", "base", "graded", "sampled", "part")],
    overrides: Overrides,
    yes: o.Yes = False,
    json: o.Json = False,
) -> None:
    """Compare trained models with baselines, on questions that none was trained on.

    Baselines: asked directly (DP), the agreement of the samples (SC), and three rows that need no method:
    always the accuracy, isotonic calibration, and length alone. ece is binned; mae is what the published code
    calls ECE. --judge tells how faithful the reflections are. Trained models are compared with the best
    baseline question by question.
    """
    from selfreflect.table import to_markdown
    from selfreflect.train.sayself.comparison import MethodComparison
    from selfreflect.train.sayself.examples import Workspace
    from selfreflect.uncertainty.correctness import Correctness

    options.check_judge("correctness")
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
        base = options.base or next((adapter.base for adapter in adapters), None)
        comparison.ask(adapters, base, open_model, 0 if options.judge is None else options.sampled)
        comparison.tabulate(f"Stated confidence on {len(questions)} {options.part} questions")
        if options.graded is not None:
            comparison.grade(open_model(options.graded), options.graded)
        if options.judge is not None:
            comparison.judge(open_model(options.judge), options.judge)
    if json:
        for line in comparison.lines():
            emit(line)
    else:
        for table in comparison.tables:
            print_table(table)
    lines = [line for method in comparison.rows for line in method.lines(questions)]
    workspace.write(f"statements-{options.part}.jsonl", lines)
    write_file(workspace.path("evaluation.md"), "\n".join(map(to_markdown, comparison.tables)))


@takes(
    "questions",
    "answers",
    defaults=dict.fromkeys(
        ("--questions", "--model", "--num-answers", "--max-new-tokens", "--temperature", "--top-p")
    ),
    config_file=True,
    execution=GENERATING,
)
def run_command(
    *,
    out: Out,
    options: Annotated[
        SayselfOptions,
        taking(
            *("correctness", "judge", "classes", "writer", "select", "preset", "base", "reward"),
            variants=("full", "no_rationale", "rtuning"),
            seeds=("0", "1"),
        ),
    ],
    overrides: Overrides,
    yes: o.Yes = False,
    json: o.Json = False,
) -> None:
    """Do all steps: sample, cluster, rationale, dataset, train, eval.

    What is sampled, and how, is the preset's choice unless an option says otherwise. With --preset small
    and some hundred questions this takes two CPU cores an hour or two. Run the same command again to resume
    it.
    """
    plan, arms = options.plan(out), options.arms()
    options.check_judge("classes", "correctness")
    defaults = {"answers": {"model": plan.preset.model, **plan.preset.answers}}
    sampling = dataclasses.replace(overrides, defaults={**overrides.defaults, **defaults})
    sample_command(out=out, overrides=sampling, reasoned=plan.preset.reasoned, yes=yes)
    asking = Overrides({"execution": overrides.section("execution")})
    cluster_command(out=out, options=options, overrides=asking, yes=yes)
    if "full" in options.variants:
        rationale_command(out=out, options=options, overrides=asking, yes=yes)
    dataset_command(out=out, options=options)
    train(plan, arms)
    evaluated = replace(options, base=plan.preset.model)
    eval_command(out=out, options=evaluated, overrides=asking, yes=yes, json=json)


# Each step in order, with the example that its help shows
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
