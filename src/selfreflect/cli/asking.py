"""Ask a model about stored answers: which one, what it costs, and where its replies are kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct

from selfreflect.cli.answered import ComparisonOptions, can_compare, make_method
from selfreflect.cli.console import Watcher, agree, can_ask, print_table, say, stderr
from selfreflect.errors import BackendError, ConfigError, excerpt
from selfreflect.flags import Flag
from selfreflect.models.base import ModelSpec
from selfreflect.text import counted, name_list
from selfreflect.uncertainty.asking.asker import SAME_MEANING

if TYPE_CHECKING:
    from selfreflect.cli.settings import Overrides
    from selfreflect.config import Config, Price
    from selfreflect.store.journal import Journal
    from selfreflect.store.replies import ModelReplies
    from selfreflect.uncertainty.asking.asker import Asker, Inquiry
    from selfreflect.uncertainty.assess import Method
    from selfreflect.uncertainty.question import AnsweredQuestion


ASKING = ("--device", "--trust-remote-code", "--batch-size", "--max-connections", "--timeout")
"""Execution options of the model that is asked."""


class AskOptions(Struct, frozen=True, kw_only=True):
    """Which model is asked, where its replies are kept, and whether to confirm before many are wanted."""

    model: Annotated[
        str | None,
        Flag(
            "--model NAME",
            "Model that estimators and judges ask, as `run` takes it (openai:NAME on a server).",
            default="the one that drew the answers of the run",
        ),
    ] = None
    out: Annotated[
        Path | None,
        Flag(
            "--out DIR",
            "Store the replies of the model that is asked, and verdicts of nli:MODEL, in DIR,"
            " and reuse those that are there.",
            default="the run directory; for a file nothing is kept",
        ),
    ] = None
    sample_p_true: Annotated[
        bool,
        Flag(
            "--sample-p-true",
            "Take P(True) as the share of True in 10 replies, without asking for probabilities of tokens.",
        ),
    ] = False
    yes: Annotated[
        bool,
        Flag(
            "--yes",
            "Do not ask for confirmation before many replies are requested, or replies that cost money.",
        ),
    ] = False


def asking(estimators: Sequence[str], comparison: ComparisonOptions) -> list[str]:
    """What asks a model: estimators, classes and correctness."""
    from selfreflect.uncertainty.estimators import choose_estimators

    users = [name for name, one in choose_estimators(estimators).items() if one.needs == "model"]
    users += ["--classes judge"] if comparison.classes == "judge" else []
    return users + (["--correctness judge"] if "judge" in name_list(comparison.correctness or "") else [])


@contextmanager
def open_method(
    source: str,
    questions: Sequence[AnsweredQuestion],
    estimators: Sequence[str],
    comparison: ComparisonOptions,
    options: AskOptions,
    overrides: Overrides,
    *,
    stored_model: str = "",
) -> Iterator[Method]:
    """Make what estimators are assessed with, and open the model that they ask and its stored replies, as
    :func:`open_asker`."""
    users = asking(estimators, comparison)
    if comparison.classes is None and options.model is not None and can_compare(options.model):
        users.append("which answers are the same")
    with open_store(source, options, users, comparison.classes) as store:
        asker = open_asker(source, options, overrides, users, store, stored_model=stored_model)
        yield make_method(questions, comparison, asker, store)


@contextmanager
def open_store(
    source: str, options: AskOptions, users: Sequence[str], classes: str | None = None
) -> Iterator[Journal[ModelReplies] | None]:
    """Open the file that keeps replies of the model that ``users`` ask, and verdicts of the class rule
    ``nli:MODEL``; None where there are none or nobody keeps them."""
    if not users and not (classes or "").startswith("nli:"):
        yield None
        return
    directory = options.out or _directory(source)
    if directory is None:
        say("The replies are not kept; --out DIR would keep them.")
        yield None
        return
    from selfreflect.store.replies import open_replies

    with open_replies(directory) as store:
        try:
            yield store
        except BackendError as error:
            hint = f" Its replies are kept in {directory}; run the same command."
            raise BackendError(f"{error}{hint}") from None


def open_asker(
    source: str,
    options: AskOptions,
    overrides: Overrides,
    users: Sequence[str],
    store: Journal[ModelReplies] | None,
    *,
    stored_model: str = "",
) -> Asker | None:
    """Open the model that ``users``, such as estimators, ask; None without any.

    It is that of the options, that of ``--config``, or the one that drew the run's answers.

    Args:
        stored_model: the model whose stored replies are read where the user names no model. It is not asked.

    Raises:
        ConfigError: there is neither, or the run names code or a server elsewhere that the user did not name.
    """
    if not users:
        return None
    from selfreflect.pipeline.models import ConfiguredModels, stage_model
    from selfreflect.uncertainty.asking.asker import Asker, model_name

    try:
        config = _config(source, options.model, overrides, users)
    except ConfigError:
        if options.model is not None or not stored_model:
            raise
        return _reader(stored_model, store, options.sample_p_true)
    spec = stage_model(config, overrides.execution, "answers")
    is_named = options.model is not None or overrides.sets("answers", "model")
    if stored_model and not is_named and model_name(spec) != stored_model:
        return _reader(stored_model, store, options.sample_p_true)
    watcher = Watcher()
    models = ConfiguredModels(config, overrides.execution, watcher)
    return Asker(
        model_name(spec),
        partial(models.generator, "answers"),
        store,
        confirm=Confirmation(spec, config, options.yes),
        progress=watcher.stage,
        samples_p_true=options.sample_p_true,
    )


def _reader(model: str, store: Journal[ModelReplies] | None, samples_p_true: bool) -> Asker:
    """Look up what a model replied before, without asking it."""
    from selfreflect.uncertainty.asking.asker import Asker

    def refuse(inquiries: Sequence[Inquiry] = ()) -> Any:
        count = counted(len(inquiries), "reply")
        raise ConfigError(
            f"{count} of the model {excerpt(model)} are missing. If it may be asked, name it with --model"
        )

    return Asker(model, refuse, store, confirm=refuse, samples_p_true=samples_p_true)


def _config(source: str, model: str | None, overrides: Overrides, users: Sequence[str]) -> Config:
    """The settings that name the model to ask."""
    from selfreflect.cli.stages import check_named

    if model is not None:
        answers = {**overrides.section("answers"), "model": model}
        overrides = replace(overrides, sections={**overrides.sections, "answers": answers})
    base = {} if overrides.sets("answers", "model") else _run_model(source, users)
    config = overrides.config(base)
    if base:
        names = set(map(str, overrides.given("answers").values()))
        check_named(Path(source), config.answers.model, config.answers.base_url, names)
    return config


def _directory(source: str) -> Path | None:
    """The run directory that a source is, if it is one, and not standard input."""
    return Path(source) if source != "-" and Path(source).is_dir() else None


def _run_model(source: str, users: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The settings of the model that drew a run's answers."""
    names = ", ".join(users)
    directory = _directory(source)
    if directory is None:
        raise ConfigError(f"{names}: a model is asked for that. Name it with --model NAME")
    from selfreflect.store.run import Run

    answers = Run.load(directory).manifest.config.get("answers", {})
    if not answers.get("model"):
        raise ConfigError(
            f"{names}: a model is asked for that, and {directory} does not say which one drew its answers. "
            "Name it with --model NAME"
        )
    return {"answers": {key: answers.get(key) for key in ("model", "revision", "base_url")}}


class Confirmation:
    """Shows what a batch of inquiries takes, and asks at a terminal if it is long or may cost money.

    A step of which several batches are asked, such as pairs of answers, is shown once.
    """

    def __init__(self, spec: ModelSpec, config: Config, yes: bool) -> None:
        self._spec = spec
        self._price = config.prices.get(spec.name)
        self._yes = yes
        self._steps: set[str] = set()

    def __call__(self, inquiries: Sequence[Inquiry]) -> None:
        from selfreflect.uncertainty.asking.costs import cost_table

        inquiries = [inquiry for inquiry in inquiries if inquiry.step not in self._steps]
        if not inquiries:
            return
        cost = None if self._price is None else self._price.cost
        print_table(cost_table(inquiries, self._spec.name, cost), stderr)
        self._steps.update(inquiry.step for inquiry in inquiries)
        if any(inquiry.step == SAME_MEANING for inquiry in inquiries):
            say("Further pairs of answers are asked about as long as their classes depend on them.")
        reasons = _reasons(inquiries, self._spec, self._price)
        if not reasons:
            return
        say("; ".join(reasons))
        if can_ask() and not self._yes and not agree("Start?"):
            say("Nothing was asked. The same command asks again; with --yes it does not.")
            raise typer.Exit(130)


def _reasons(inquiries: Sequence[Inquiry], spec: ModelSpec, price: Price | None) -> list[str]:
    """Why somebody should look before the model is asked."""
    from selfreflect.models.backend import backend_of
    from selfreflect.pipeline.costs import MANY_COMPLETIONS

    reasons = []
    if price is not None:
        reasons.append("this costs money")
    elif host := backend_of(spec.name).may_charge(spec.base_url):
        reasons.append(f"{host} may charge for this")
    replies = sum(inquiry.n for inquiry in inquiries)
    if replies >= MANY_COMPLETIONS:
        reasons.append(f"how long {counted(replies, 'reply')} take is not known yet")
    return reasons
