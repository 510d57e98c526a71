"""Command ``selfreflect sayself``: train a model to state its confidence and reasons for doubt."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from msgspec import Struct

from selfreflect.cli import options as o
from selfreflect.cli.answered import (
    AskOptions,
    FieldOptions,
    open_asker,
    open_store,
    read_questions,
)
from selfreflect.cli.console import emit, print_table, say, write_file
from selfreflect.cli.options import GENERATING, Overrides, option, takes
from selfreflect.cli.stages import Intent, run_stages
from selfreflect.errors import ConfigError, DataError, excerpt, unknown_name
from selfreflect.flags import Flag
from selfreflect.models.backend import backend_of
from selfreflect.run.resume import no_questions
from selfreflect.store.manifest import MANIFEST
from selfreflect.store.run import Run
from selfreflect.table import to_markdown
from selfreflect.text import counted

if TYPE_CHECKING:
    from selfreflect.store.journal import Journal, ModelReplies
    from selfreflect.train.sayself.clusters import Choice, ClusteredQuestion, Rationale
    from selfreflect.train.sayself.comparison import TrainingPlan
    from selfreflect.train.sayself.examples import Part, Variant
    from selfreflect.uncertainty.asking.asker import Asker
    from selfreflect.uncertainty.correctness import Correctness

ABOUT = (
    "Train a model to state its confidence and the reasons for its doubt (SaySelf, arXiv 2405.20974): sample "
    "many answers, cluster them, describe what they disagree about, fine-tune on answer, reflection and "
    "confidence, then reinforce the confidence."
)

Out = Annotated[Path, option("--out DIR", "Run directory; the results are in its folder sayself.", ...)]


class SayselfOptions(Struct, frozen=True, kw_only=True):
    """Options of the training and its comparison."""

    correctness: Annotated[
        str,
        Flag(
            "--correctness RULE",
            "What counts as correct, as in `uncertainty`.",
        ),
    ] = "squad_f1"
    judge: Annotated[
        str | None,
        Flag(
            "--judge MODEL",
            "Model that judges where --classes or --correctness is judge, and that rates how "
            "faithful the reflections are.",
        ),
    ] = None
    classes: Annotated[
        str,
        Flag(
            "--classes RULE",
            "Rule that puts answers into one cluster, as in `uncertainty`: exact, numeric, jaccard, rouge, "
            "embedding, judge (--judge is asked) or nli:MODEL. An answer joins the first cluster whose first "
            "answer it matches.",
        ),
    ] = "embedding:0.9"
    writer: Annotated[
        str | None,
        Flag(
            "--writer MODEL",
            "Model that writes the reflections, as in `run`.",
            default="the one that drew the answers",
        ),
    ] = None
    variants: Annotated[
        tuple[str, ...],
        Flag(
            "--variants A,B",
            "What is learned: full (answer, self-reflection, confidence), no_rationale (answer, confidence), "
            "rtuning (sure or unsure of the model's own answer), group (one confidence for all questions of "
            "equal agreement).",
        ),
    ] = ("full", "no_rationale", "rtuning")
    select: Annotated[
        Literal["gold", "majority"] | None,
        Flag(
            "--select",
            "Which cluster the model learns to answer with: the one with the right answer (gold, as "
            "published), or the largest, which needs no right answers.",
            default="gold where there are right answers",
        ),
    ] = None
    seeds: Annotated[tuple[str, ...], Flag("--seeds A,B", "Train once with each of these seeds.")] = (
        "0",
        "1",
    )
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
            "Model to train, also measured without training for comparison: smollm2, a directory or a "
            "hub name.",
            default="the preset's",
        ),
    ] = None
    reward: Annotated[
        Literal["brier", "linear", "rlcr", "none"],
        Flag(
            "--reward",
            "Reward of the second stage: brier (as published), linear, rlcr, or none to skip the stage.",
        ),
    ] = "brier"

    def check_judge(self) -> None:
        """Refuse correctness rules that need a judge if none is named. Raises ConfigError."""
        for name in ("classes", "correctness"):
            if getattr(self, name) == "judge" and self.judge is None:
                raise ConfigError(
                    f"the rule judge of {name} needs a model to ask",
                    option=name,
                    remedy="Name it with {judge} MODEL.",
                )

    def plan(self, out: Path) -> TrainingPlan:
        """Make the plan of the training with these options."""
        from selfreflect.train.sayself.comparison import TrainingPlan
        from selfreflect.train.trainers import load_preset

        preset = load_preset(self.preset, self.base)
        return TrainingPlan(out, preset, self.reward)

    def arms(self) -> list[tuple[Variant, int]]:
        """List each variant with each seed. Raises ConfigError for an unknown variant."""
        from selfreflect.train.sayself.examples import VARIANTS

        for name in self.variants or [""]:
            if name not in VARIANTS:
                raise unknown_name("variant", name, VARIANTS)
        variants = cast("list[Variant]", list(dict.fromkeys(self.variants)))
        seeds = dict.fromkeys(self.seeds)
        if not seeds or not all(name.isascii() and name.isdecimal() and len(name) < 10 for name in seeds):
            raise ConfigError(
                f"seeds must be whole numbers, such as 0,1, not {excerpt(','.join(seeds))}", option="seeds"
            )
        return [(variant, int(seed)) for variant in variants for seed in seeds]


@dataclasses.dataclass(frozen=True)
class OpenModel:
    """Opener of models, which loads each on first use and stores their responses in the run."""

    _out: Path
    _overrides: Overrides
    _yes: bool
    store: Journal[ModelReplies] | None
    """Journal of responses, and of verdicts of the class rule ``nli:MODEL``."""

    def __call__(self, model: str | None) -> Asker:
        """Open a model; None means the model that drew the answers. Raises ConfigError if there is none."""
        overrides = self._overrides if model is None else self._flags_for(model)
        options = AskOptions(model=model, yes=self._yes)
        asker = open_asker(str(self._out), options, overrides, ["sayself"], self.store)
        assert asker is not None  # something is asked
        return asker

    def correctness(self, options: SayselfOptions) -> Correctness:
        """Build the correctness rule, which may ask the judge."""
        from selfreflect.uncertainty.correctness import Correctness

        asker = self(options.judge) if options.correctness == "judge" else None
        return Correctness(options.correctness, asker)

    def _flags_for(self, model: str) -> Overrides:
        """Remove settings that do not apply to a model: a server's address, or the revision of another
        model."""
        on_server = backend_of(model).is_remote
        foreign = {"revision"} if on_server or Path(model).is_dir() else set()
        if not on_server:
            foreign.add("base_url")
        section = self._overrides.section("answers")
        flags = {name: value for name, value in section.items() if name not in foreign}
        sections = {**self._overrides.sections, "answers": flags}
        return dataclasses.replace(self._overrides, sections=sections)


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
    options: SayselfOptions,
    overrides: Overrides,
    yes: o.Yes = False,
    json: o.Json = False,
) -> None:
    """Train a model to state its confidence, and compare it with baselines.

    Samples many answers to each question, sorts them into clusters, whose shares become confidences, lets a
    model write what it doubts, makes training data from these texts, trains, and compares stated confidences
    on questions that no model was trained on. The preset decides what is sampled and how, unless an option
    does.

    With --preset small and a few hundred questions this takes two CPU cores an hour or two. The same command
    resumes it: no reply is requested twice, and no adapter is trained twice. Needs the train extra.
    """
    from selfreflect.train.sayself.examples import PARTS, part_of

    plan, arms = options.plan(out), options.arms()
    options.check_judge()
    sample(plan, overrides, yes)
    with open_store(str(out), AskOptions(yes=yes), ["sayself"]) as store:
        open_model = OpenModel(out, overrides, yes, store)
        clusters = cluster(out, options, open_model)
        # by their texts: no model is tested on what it has learned
        parts: dict[Part, list[ClusteredQuestion]] = {part: [] for part in PARTS}
        for question in clusters:
            parts[part_of(question.question)].append(question)
        say("Questions: " + ", ".join(f"{len(items):,} {part}" for part, items in parts.items()) + ".")
        if not parts["test"]:
            raise DataError(f"{out} has no test questions: {counted(len(clusters), 'question')} are too few")
        rationales = None
        if "full" in options.variants:
            rationales = reflect(out, parts["train"], open_model(options.writer))
        examples = make_data(plan, parts["train"], rationales, arms, options.select)
        for variant, seed in arms:
            train(plan, examples[variant], parts["rl"], (variant, seed), open_model, options)
        compare(out, parts["test"], open_model, options, plan.preset.model, json=json)


def sample(plan: TrainingPlan, overrides: Overrides, yes: bool) -> None:
    """Sample answers to each question with the preset's settings, as `selfreflect answers` does."""
    if not overrides.sets("questions", "source") and not (plan.out / MANIFEST).exists():
        raise no_questions()
    preset = plan.preset
    defaults = {**overrides.defaults, "answers": {"model": preset.model, **preset.answers}}
    with resources.as_file(resources.files("selfreflect") / "data" / "sayself_reasoned.toml") as path:
        sections = {**overrides.sections}
        if preset.reasoned and overrides.execution.prompts is None:
            sections["execution"] = {**overrides.section("execution"), "prompts": path}
        sampling = dataclasses.replace(overrides, defaults=defaults, sections=sections)
        run_stages(plan.out, ["questions", "answers"], sampling, Intent(yes=yes), next_step=False)


def cluster(out: Path, options: SayselfOptions, open_model: OpenModel) -> list[ClusteredQuestion]:
    """Cluster the answers of each question greedily, in order."""
    from selfreflect.train.sayself.clusters import cluster_answers
    from selfreflect.train.sayself.examples import Workspace
    from selfreflect.uncertainty.classes import ClassRule

    answers = Run.load(out).answers.values()
    questions = read_questions(str(out), FieldOptions())
    judge = open_model(options.judge) if options.classes == "judge" else None
    is_right = open_model.correctness(options)
    rule = ClassRule(options.classes, judge, open_model.store)
    clustered = cluster_answers(questions, rule, is_right)
    Workspace(out).write("clusters.jsonl", clustered)
    sizes = [len(question.clusters) for question in clustered]
    with_gold = [question for question in clustered if question.gold]
    right = sum(question.choose("gold") is not None for question in with_gold)
    say(
        f"{counted(len(clustered), 'question')}: {sum(sizes) / len(sizes):.1f} clusters on average, "
        f"{sizes.count(1)} with a single one. In {right} of {len(with_gold)} questions with a right answer, "
        "a cluster contains it."
    )
    if cut := sum(answer_set.truncated for answer_set in answers):
        total = sum(len(question.answers) for question in questions)
        say(
            f"{cut:,} of {total:,} answers were cut off, and a model would learn to stop at the same point. "
            "Sample them in a new run, with a higher --max-new-tokens."
        )
    if with_gold and not right:
        say(
            f"No answer is right by {is_right.name}. If answers are whole sentences around a short right "
            "answer, use a lower threshold, such as --correctness squad_f1:0.2."
        )
    return clustered


_ORIGINS = {
    "fixed": "questions where all answers agree",
    "model": "reflections as written",
    "repaired": "without some sentences",
    "second": "at the second try",
    "dropped": "dropped",
}


def reflect(out: Path, questions: Sequence[ClusteredQuestion], writer: Asker) -> dict[str, Rationale]:
    """Write first-person rationales for doubt with a model, by question id."""
    from selfreflect.train.sayself.clusters import write_rationales
    from selfreflect.train.sayself.examples import Workspace

    rationales = write_rationales(questions, writer)
    Workspace(out).write("rationales.jsonl", rationales)
    counts: Counter[str] = Counter(rationale.origin for rationale in rationales)
    say(", ".join(f"{counts[name]} {words}" for name, words in _ORIGINS.items()) + ".")
    return {rationale.question_id: rationale for rationale in rationales}


def make_data(
    plan: TrainingPlan,
    questions: Sequence[ClusteredQuestion],
    rationales: Mapping[str, Rationale] | None,
    arms: Sequence[tuple[Variant, int]],
    select: Choice | None,
) -> dict[Variant, list[dict[str, Any]]]:
    """Make and write the training data of each variant."""
    from selfreflect.train.sayself.examples import Workspace, make_examples

    choice: Choice = select or ("gold" if any(question.gold for question in questions) else "majority")
    examples = {}
    for variant in dict.fromkeys(variant for variant, _ in arms):
        rows, missing = make_examples(questions, rationales, variant, choice)
        Workspace(plan.out).write(f"data/{variant}/train.jsonl", rows)
        left_out = "".join(f"; {count} left out: {reason}" for reason, count in missing.items())
        say(f"{variant}: {counted(len(rows), 'example')} of {choice} answers{left_out}")
        examples[variant] = rows
    return examples


def train(
    plan: TrainingPlan,
    rows: Sequence[dict[str, Any]],
    questions: Sequence[ClusteredQuestion],
    arm: tuple[Variant, int],
    open_model: OpenModel,
    options: SayselfOptions,
) -> None:
    """Fine-tune a variant on examples, then reinforce its confidence on other questions."""
    from selfreflect.train.sayself.comparison import fine_tune, reinforce

    say(fine_tune(plan, rows, *arm))
    if plan.reinforces(arm[0]):
        say(reinforce(plan, questions, *arm, open_model, open_model.correctness(options)))


def compare(
    out: Path,
    questions: Sequence[ClusteredQuestion],
    open_model: OpenModel,
    options: SayselfOptions,
    base: str,
    *,
    json: bool,
) -> None:
    """Compare trained models with baselines, and print and write the tables."""
    from selfreflect.train.sayself.comparison import SAMPLES, MethodComparison
    from selfreflect.train.sayself.examples import Workspace

    workspace = Workspace(out)
    comparison = MethodComparison(questions, open_model.correctness(options))
    comparison.ask(workspace.trained(), base, open_model, 0 if options.judge is None else SAMPLES)
    comparison.tabulate(f"Stated confidence on {len(questions)} test questions")
    if options.judge is not None:
        comparison.judge(open_model(options.judge), options.judge)
    if json:
        for line in comparison.lines():
            emit(line)
    else:
        for table in comparison.tables:
            print_table(table)
    lines = [line for method in comparison.rows for line in method.lines(questions)]
    workspace.write("statements-test.jsonl", lines)
    write_file(workspace.path("evaluation.md"), "\n".join(map(to_markdown, comparison.tables)))
