"""``selfreflect sayself``: train a model to state its confidence and the reasons for its doubt."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Struct

from selfreflect.cli import options as o
from selfreflect.cli import sayself_steps as steps
from selfreflect.cli.answered import ASKING, Gold
from selfreflect.cli.console import say
from selfreflect.cli.options import GENERATING, Overrides, option, takes
from selfreflect.cli.sayself_steps import ClusterOptions, LabelOptions
from selfreflect.cli.sayself_table import EvaluationOptions, Measured, evaluate
from selfreflect.cli.stages import Intent
from selfreflect.flags import Flag
from selfreflect.pipeline.answered import GOLD

if TYPE_CHECKING:
    from selfreflect.sayself.training import TrainingPlan

SHORT = "Train a model to state its confidence and why it doubts."
ABOUT = (
    "Train a model to state its confidence and the reasons for its doubt (SaySelf, arXiv 2405.20974): sample "
    "many answers, cluster them, describe what they disagree about, fine-tune on answer, reflection and "
    "confidence, then reinforce the confidence."
)


class TrainingOptions(Struct, frozen=True, kw_only=True):
    """What is trained, and how."""

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
            "Model to train: smollm2, a directory or a hub name.",
            default="the preset's",
        ),
    ] = None
    reward: Annotated[
        Literal["brier", "linear", "rlcr", "none"],
        Flag(
            "--reward",
            "Of the second stage: brier (as published), linear, rlcr, or none to leave the stage out.",
        ),
    ] = "brier"
    train: Annotated[
        Literal["confidence", "all"],
        Flag(
            "--train",
            "Tokens that the second stage trains: the confidence, or all, with the reward for the "
            "statement's own answer; then --reward rlcr also pays for being right.",
        ),
    ] = "confidence"
    fresh: Annotated[
        bool,
        Flag(
            "--fresh",
            "Train adapters anew whose examples or settings have changed, and move the earlier ones to a "
            "folder backup-TIME. Without this option such a change is an error.",
        ),
    ] = False

    def plan(self, out: Path, labels: LabelOptions) -> TrainingPlan:
        """The training with these options."""
        from selfreflect.sayself.presets import PRESETS
        from selfreflect.sayself.training import TrainingPlan

        preset = PRESETS[self.preset].with_base(self.base)
        is_whole = self.train == "all"
        return TrainingPlan(out, preset, self.reward, labels.correctness, labels.judge, is_whole, self.fresh)


class MeasuringOptions(Struct, frozen=True, kw_only=True):
    """How many reflections `run` measures."""

    measured: Measured = 0


Out = Annotated[Path, option("--out DIR", "Run directory; the results are in its folder sayself.", ...)]
Reasoned = Annotated[
    bool, option("--reasoned", "Let the model write a line of reasoning before each answer.", ...)
]
Selected = Annotated[
    Literal["gold", "majority"] | None,
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
    steps.sample(out, overrides, reasoned, Intent(add_questions=add_questions, yes=yes), dry_run)
    if not dry_run:
        say(f"Cluster them: selfreflect sayself cluster --out {shlex.quote(str(out))}")


@takes("answers", only=("--revision", "--base-url", "--extra-body"), config_file=True, execution=ASKING)
def cluster_command(
    *, out: Out, options: ClusterOptions, gold: Gold = GOLD, overrides: Overrides, yes: o.Yes = False
) -> None:
    """Sort the answers of each question into clusters.

    A cluster's share of the answers becomes the confidence. Greedy and in the order of the answers: the first
    answer that has no cluster leads a new one, which takes all answers that match it.
    """
    steps.cluster(out, options, overrides, yes, gold)


_PRESET_SAMPLING = ("--model", "--num-answers", "--max-new-tokens", "--temperature", "--top-p")
"""Options whose defaults are the preset's."""


@takes("answers", only=("--revision", "--base-url", "--extra-body"), config_file=True, execution=ASKING)
def rationale_command(*, out: Out, writer: Writer = None, overrides: Overrides, yes: o.Yes = False) -> None:
    """Let a model say what it doubts, in the first person.

    It sees one answer of each cluster with its share. What it writes may mention neither numbers nor samples:
    such sentences are left out, and where nothing remains the model is asked once more, or the question is
    dropped. Where all answers agree, a fixed sentence stands. No reply is asked for twice.
    """
    steps.rationalise(out, writer, overrides, yes)


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
    steps.make_data(out, steps.variant_names(variants), select)


def train_command(
    *,
    out: Out,
    variants: Variants = "full",
    seeds: Seeds = "0",
    training: TrainingOptions,
    labels: LabelOptions,
    dry_run: bool = option("--dry-run", "Only show what would be trained, and with which settings.", False),
) -> None:
    """Fine-tune a model on the examples, then reinforce the confidence that it states.

    The second stage trains the variants with a confidence by GRPO on questions of their own. Only the tokens
    of the confidence are trained, unless you choose --train all: a model that is also rewarded for its answer
    learns that a wrong answer with confidence 0 pays as much as a right one with 10. A stage that is done is
    not repeated, and one that was interrupted is resumed. Needs the train extra.
    """
    do = steps.show_plan if dry_run else steps.train
    do(training.plan(out, labels), steps.variant_names(variants), steps.seed_numbers(seeds))


@takes("answers", only=("--revision", "--base-url", "--extra-body"), config_file=True, execution=ASKING)
def eval_command(
    *,
    out: Out,
    options: EvaluationOptions,
    overrides: Overrides,
    yes: o.Yes = False,
    json: o.Json = False,
) -> None:
    """Compare trained models with baselines, on questions that none was trained on.

    Baselines: asked directly (DP), the agreement of the samples (SC), and three rows that need no method:
    always the accuracy, isotonic calibration, and length alone. ece is binned; mae is what the published code
    calls ECE. --judge and --measured tell how faithful the reflections are. Trained models are compared with
    the best baseline question by question.
    """
    evaluate(out, options, overrides, yes, json)


@takes(
    "questions",
    "answers",
    defaults={"--questions": None, **dict.fromkeys(_PRESET_SAMPLING)},
    config_file=True,
    execution=GENERATING,
)
def run_command(
    *,
    out: Out,
    training: TrainingOptions,
    clusters: ClusterOptions,
    overrides: Overrides,
    writer: Writer = None,
    variants: Variants = "full,no_rationale,rtuning",
    select: Selected = None,
    seeds: Seeds = "0,1",
    measuring: MeasuringOptions,
    yes: o.Yes = False,
    json: o.Json = False,
) -> None:
    """Do all steps: sample, cluster, rationale, dataset, train, eval.

    What is sampled, and how, is the preset's choice unless an option says otherwise. With --preset small
    and some hundred questions this takes two CPU cores an hour or two. Run the same command again to resume
    it.
    """
    plan = training.plan(out, clusters)
    preset = plan.preset
    defaults = {"answers": preset.sampling()}
    sampling = dataclasses.replace(overrides, defaults={**overrides.defaults, **defaults})
    names = steps.variant_names(variants)
    numbers = steps.seed_numbers(seeds)
    steps.sample(out, sampling, preset.reasoned, Intent(yes=yes))
    asking = Overrides({"execution": overrides.section("execution")})
    steps.cluster(out, clusters, asking, yes)
    if "full" in names:
        steps.rationalise(out, writer, asking, yes)
    steps.make_data(out, names, select)
    steps.train(plan, names, numbers)
    evaluation = EvaluationOptions(
        base=preset.training.model,
        correctness=clusters.correctness,
        judge=clusters.judge,
        measured=measuring.measured,
    )
    evaluate(out, evaluation, asking, yes, json)


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
