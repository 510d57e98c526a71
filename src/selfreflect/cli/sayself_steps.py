"""The work behind the commands of ``selfreflect sayself``."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

from msgspec import Struct

from selfreflect.cli.answered import AskOptions, FieldOptions, open_asker, open_store, read_questions
from selfreflect.cli.console import say
from selfreflect.cli.options import Overrides
from selfreflect.cli.stages import Intent, run_stages
from selfreflect.errors import ConfigError, excerpt, nearest
from selfreflect.flags import Flag
from selfreflect.pipeline.answered import GOLD
from selfreflect.pipeline.questions import NO_QUESTIONS
from selfreflect.store.layout import MANIFEST
from selfreflect.text import counted, name_list

if TYPE_CHECKING:
    from selfreflect.sayself.clusters import Choice
    from selfreflect.sayself.examples import Variant
    from selfreflect.sayself.training import TrainingPlan
    from selfreflect.store.journal import Journal
    from selfreflect.store.replies import ModelReplies
    from selfreflect.uncertainty.asking.asker import Asker


def sample(out: Path, overrides: Overrides, reasoned: bool, intent: Intent, dry_run: bool = False) -> None:
    """Draw the answers that are missing. Raises ConfigError for a new run without questions."""
    if not overrides.sets("questions", "source") and not (out / MANIFEST).exists():
        raise ConfigError(NO_QUESTIONS)
    with resources.as_file(resources.files("selfreflect") / "data" / "sayself_reasoned.toml") as path:
        if reasoned and overrides.execution.prompts is None:
            execution = {**overrides.section("execution"), "prompts": path}
            sections = {**overrides.sections, "execution": execution}
            overrides = dataclasses.replace(overrides, sections=sections)
        run_stages(out, ["questions", "answers"], overrides, intent, dry_run=dry_run, next_step=False)


class LabelOptions(Struct, frozen=True, kw_only=True):
    """What counts as correct."""

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


class ClusterOptions(LabelOptions, frozen=True, kw_only=True):
    """How answers are compared with each other and with the right ones."""

    classes: Annotated[
        str,
        Flag(
            "--classes RULE",
            "What answers of one cluster share, as `uncertainty` takes it: exact, numeric, jaccard, rouge, "
            "embedding, judge (--judge is asked) or nli:MODEL. An answer joins the first cluster whose first "
            "answer it matches.",
        ),
    ] = "embedding:0.9"


def cluster(out: Path, options: ClusterOptions, overrides: Overrides, yes: bool, gold: str = GOLD) -> None:
    """Write the clusters of a run."""
    from selfreflect.sayself.clusters import cluster_answers
    from selfreflect.sayself.workspace import Workspace
    from selfreflect.store.run import Run
    from selfreflect.uncertainty.classes import ClassRule
    from selfreflect.uncertainty.correctness import Correctness

    check_judge(options.judge, classes=options.classes, correctness=options.correctness)
    stored = Run.load(out).answers.values()
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
    if cut := sum(one.truncated for one in stored):
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


def rationalise(out: Path, writer: str | None, overrides: Overrides, yes: bool) -> None:
    """Write a reflection for each question."""
    from selfreflect.sayself.examples import WITH_EXAMPLES, part_of
    from selfreflect.sayself.rationales import write_rationales
    from selfreflect.sayself.workspace import Workspace

    workspace = Workspace(out)
    clusters = [one for one in workspace.clusters() if part_of(one.question) in WITH_EXAMPLES]
    with open_models(out, overrides, yes) as open_model:
        rationales = write_rationales(clusters, open_model(writer))
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
        others = {"revision"} if on_server or Path(model).is_dir() else set()
        if not on_server:
            others.add("base_url")
        section = self._overrides.section("answers")
        flags = {name: value for name, value in section.items() if name not in others}
        sections = {**self._overrides.sections, "answers": flags}
        return dataclasses.replace(self._overrides, sections=sections)


@contextmanager
def open_models(out: Path, overrides: Overrides, yes: bool) -> Iterator[OpenModel]:
    """Open the file of replies, for any number of models."""
    with open_store(str(out), AskOptions(yes=yes), ["sayself"]) as store:
        yield OpenModel(out, overrides, yes, store)


def check_judge(judge: str | None, *, classes: str = "", correctness: str = "") -> None:
    """Refuse rules that ask a model which nobody named. Raises ConfigError."""
    for flag, rule in (("--classes", classes), ("--correctness", correctness)):
        if rule == "judge" and judge is None:
            raise ConfigError(f"{flag} judge asks a model. Name it with --judge MODEL")


def variant_names(text: str) -> list[Variant]:
    """Read a list of variants. Raises ConfigError."""
    from selfreflect.sayself.examples import VARIANTS

    names = name_list(text)
    for name in names:
        if name not in VARIANTS:
            choices = ", ".join(VARIANTS)
            hint = nearest(name, list(VARIANTS))
            raise ConfigError(f"there is no variant {excerpt(name)}.{hint} Known: {choices}")
    if not names:
        raise ConfigError("--variants names nothing")
    return cast("list[Variant]", list(dict.fromkeys(names)))


def make_data(out: Path, variants: Sequence[Variant], select: Literal["gold", "majority"] | None) -> None:
    """Write the examples of each variant, and which part each question belongs to."""
    from selfreflect.sayself.examples import PARTS, WITH_EXAMPLES, make_examples, part_of
    from selfreflect.sayself.workspace import SplitQuestion, Workspace

    workspace = Workspace(out)
    clusters = workspace.clusters()
    choice: Choice = "gold" if any(question.gold for question in clusters) else "majority"
    if select is not None:
        choice = select
    parts = {question.id: part_of(question.question) for question in clusters}
    splits = [SplitQuestion(question_id=name, part=part) for name, part in parts.items()]
    workspace.write("splits.jsonl", splits)
    sizes = Counter(parts.values())
    say("Questions: " + ", ".join(f"{sizes[part]} {part}" for part in PARTS) + f". Answers: {choice}.")
    rationales = workspace.rationales() if "full" in variants else None
    for variant in variants:
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


def seed_numbers(text: str) -> list[int]:
    """Read a list of seeds. Raises ConfigError."""
    names = name_list(text)
    if not names or not all(name.isascii() and name.isdecimal() and len(name) < 10 for name in names):
        raise ConfigError(f"--seeds takes whole numbers, such as 0,1, not {excerpt(text)}")
    return list(map(int, dict.fromkeys(names)))


def show_plan(plan: TrainingPlan, variants: Sequence[Variant], seeds: Sequence[int]) -> None:
    """Say what would be trained, and with which settings."""
    from selfreflect.sayself.workspace import Workspace

    workspace = Workspace(plan.out)
    settings = dataclasses.asdict(plan.preset)
    limits = {name: value for name, value in settings.items() if name.startswith("most_")}
    for name, value in {**settings["training"], **limits}.items():
        if value != "":
            say(f"{name}: {value}")
    for variant in variants:
        path = workspace.data(variant, "train")
        count = len(workspace.examples(variant)) if path.exists() else 0
        rows = counted(count, "example") if count else f"no examples yet in {path}"
        for seed in seeds:
            say(f"{variant}, seed {seed}: {rows} -> {workspace.adapter(variant, seed).folder}")
            if plan.reinforces(variant):
                target = workspace.adapter(variant, seed, plan.stage).folder
                say(f"{variant}, seed {seed}, reward {plan.reward} -> {target}")


def train(plan: TrainingPlan, variants: Sequence[Variant], seeds: Sequence[int]) -> None:
    """Run both stages for each variant and seed, unless they are done."""
    from selfreflect.sayself.training import fine_tune, reinforce
    from selfreflect.sayself.workspace import Workspace

    check_judge(plan.judge, correctness=plan.correctness)
    Workspace(plan.out).parts()  # refuses overlapping ones
    for variant in variants:
        for seed in seeds:
            say(fine_tune(plan, variant, seed))
            if plan.reinforces(variant):
                opened = partial(open_models, plan.out, Overrides({}), True)
                say(reinforce(plan, variant, seed, opened))
