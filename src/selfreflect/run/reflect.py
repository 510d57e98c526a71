"""``selfreflect.reflect``: all stages in memory, without a run directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn

from selfreflect.errors import BackendError, ConfigError, DataError, JudgeError, excerpt, nearest
from selfreflect.flags import checked_value, flags_of
from selfreflect.metric.inputs import (
    checked_question,
    checked_text,
    checked_texts,
    named_texts,
    shuffled_set,
)
from selfreflect.models.base import Generator
from selfreflect.models.function import FunctionGenerator, TextFunction
from selfreflect.prompts import load_prompts
from selfreflect.records import AnswerSample, AnswerSet, Failure, ModelStage, Question, Stage, Summary
from selfreflect.report.reflection import Reflection, Reflections
from selfreflect.report.run_records import records_in_memory
from selfreflect.run.models import ConfiguredModels, Quiet
from selfreflect.run.stages import StageFn, StageSpec, StageTask, stage_fn, strategy_names
from selfreflect.settings import Config, ExecutionOptions, load_config, sampling_of
from selfreflect.settings.sections import FLAGGED
from selfreflect.sources.item_rows import Reading, item_rows
from selfreflect.sources.rows import Row, RowIds, Rows
from selfreflect.strategies import load_strategy
from selfreflect.strategies.driver import Named

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge


@dataclass
class Case:
    """One question with its records so far."""

    where: str
    """Name of the case in messages."""
    question: Question
    answers: AnswerSet | None
    """Answers, or None before drawing."""
    summaries: list[Summary]
    """Summaries, initially the user's."""
    results: list[Any] = field(default_factory=list)
    """Results of measures, and failures."""

    def add(self, result: Any) -> None:
        """Add a record to the case."""
        if isinstance(result, AnswerSet):
            self.answers = result
        elif isinstance(result, Summary):
            self.summaries.append(result)
        else:
            self.results.append(result)

    def reflection(self, strategies: Sequence[str]) -> Reflection:
        """Build the result of the question."""
        records = records_in_memory(
            "reflect", [self.question, *filter(None, [self.answers]), *self.summaries, *self.results]
        )
        scores = dict(records.scores)
        for key in scores.keys() & records.information.keys():
            scores[key] = scores[key].with_information(records.information[key])
        user_names = [summary.name for summary in self.summaries if summary.name not in strategies]
        return Reflection(replace(records, strategies=[*user_names, *strategies], scores=scores))


def make_cases(questions: Any, samples: Any, summaries: Any, context: Any, seed: int) -> list[Case]:
    """Check the arguments of :func:`~selfreflect.run.reflect.reflect`, and make a case per question.

    Args:
        seed: decides, with each question, how its list of samples is shuffled.

    Raises:
        DataError: something in them has a wrong type or cannot be used; the message names the question.
    """
    ids = RowIds()
    if isinstance(questions, str):
        fields = {"question": questions, "samples": samples, "summaries": summaries, "context": context}
        return [_case("the question", fields, ids, seed)]
    # pandas need not be installed, so its class is not asked for
    if is_frame(questions):
        rows = questions.to_dict("records")
    elif isinstance(questions, list | tuple) and any(isinstance(question, Mapping) for question in questions):
        rows = list(questions)
    else:
        if hasattr(questions, "tolist"):
            questions = questions.tolist()
        if not isinstance(questions, list | tuple):
            raise DataError(
                "questions must be a text, a list of texts or of rows, or a pandas data frame, not "
                f"{type(questions).__name__} {excerpt(questions)}"
            )
        columns = {"question": questions, "samples": samples, "summaries": summaries}
        columns["context"] = [context] * len(questions) if isinstance(context, str) else context
        numbered = enumerate(_by_question(columns), start=1)
        return [_case(f"question {number}", fields, ids, seed) for number, fields in numbered]
    if not (samples is None and summaries is None and context == ""):
        raise DataError(
            "samples=..., summaries=... and context=... cannot be given with rows or a data frame: put them "
            "into columns"
        )
    return _row_cases(rows, ids, seed)


def is_frame(value: object) -> bool:
    """Check whether a value is a pandas data frame, without importing pandas."""
    return hasattr(value, "columns") and hasattr(value, "to_dict")


def _by_question(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """Split the arguments into one row per question."""
    count = len(columns["question"])
    for name, values in columns.items():
        if values is not None and (not isinstance(values, list | tuple) or len(values) != count):
            raise DataError(f"for a list of {count} questions, {name} must be a list with one entry for each")
    lists = {name: values for name, values in columns.items() if values is not None}
    rows = []
    for number in range(count):
        cells = {name: values[number] for name, values in lists.items()}
        rows.append(dict.fromkeys(columns) | cells)
    return rows


def _cell(value: Any) -> Any:
    """Convert a data frame's cell to a plain value; None if missing."""
    if isinstance(value, Mapping):
        return {str(name): text for name, text in value.items()}
    if isinstance(value, tuple):
        return list(value)
    # NumPy scalars and arrays become plain values
    if not isinstance(value, list | str) and hasattr(value, "tolist"):
        value = value.tolist()
    # pandas writes NaN into an empty cell
    return None if isinstance(value, float) and value != value else value


def _row_cases(rows: Sequence[Any], ids: RowIds, seed: int) -> list[Case]:
    """Read rows as items without required answers."""
    source_rows = []
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            kind = type(row).__name__
            raise DataError(f"row {number} must be a dict like the other rows, not {kind} {excerpt(row)}")
        fields = {str(name): _cell(cell) for name, cell in row.items()}
        source_rows.append(Row("the data", f"row {number}", fields))
    cases = []
    table = Rows(lambda: source_rows, are_kept=True)
    for item in item_rows(table, Reading(need_answers=False)):
        id_ = ids.take(item.row, item.question, item.context, item.id_column)
        answers = item.answer_set(id_, seed)
        if answers.conditioning and not answers.masked_out:
            raise item.row.error("an answer distribution needs at least 2 answers, but only 1 is given")
        question = Question(id=id_, text=item.question, context=item.context, metadata=item.metadata)
        sampled = answers if answers.masked_out else None
        cases.append(Case(item.row.where, question, sampled, _summaries(id_, item.named_summaries)))
    return cases


def _case(where: str, fields: Mapping[str, Any], ids: RowIds, seed: int) -> Case:
    try:
        text = checked_question(fields["question"])
        context = checked_text(fields["context"] or "", "context")
        samples = fields["samples"]
        id_ = ids.take(Row("the questions", where, {}), text, context)
        answers = None if samples is None else shuffled_set(id_, checked_texts(samples, "samples"), seed)
        summaries = {} if fields["summaries"] is None else named_texts(fields["summaries"])
    except (DataError, ValueError) as error:
        raise DataError(f"{where}: {error}") from None
    return Case(where, Question(id=id_, text=text, context=context), answers, _summaries(id_, summaries))


def _summaries(question: str, texts: Mapping[str, str]) -> list[Summary]:
    return [Summary(question_id=question, name=name, text=text) for name, text in texts.items()]


SECTIONS = ("answers", "summaries", "scores")
EXCLUDED = ("model", "judge", "executor", "ray_address")
"""Command line flags that are not settings of :func:`reflect`."""
DEFAULTS = {"num_answers": 10, "max_new_tokens": 64, "summary_tokens": 256}
"""Defaults of ``selfreflect ask``."""
STRATEGIES = ("sample_and_summarize",)


def reflect(
    questions: Any,
    *,
    samples: Any = None,
    summaries: Any = None,
    generate: TextFunction | None = None,
    model: str | Generator | None = None,
    judge: str | Judge = "smollm2",
    context: Any = "",
    strategies: str | Sequence[str | Callable[..., Any]] | None = None,
    workers: int | None = None,
    progress: bool | None = None,
    stream: bool = False,
    **settings: Any,
) -> Any:
    """Sample or accept a model's answers to questions, summarise them, and measure each summary.

    >>> result = reflect("What is the capital of Turkey?", model="smollm2")
    >>> result.classes, result.summaries, result.measures
    >>> reflect("What should I plant?", samples=texts, summaries={"mine": "Radishes, or lettuce."})
    >>> reflect(frame, generate=lambda messages, temperature: my_model(messages, temperature))

    Answers are your ``samples``, or drawn from ``generate`` or ``model``. Summaries are your own
    ``summaries``, and those that the model writes with each of ``strategies``.

    Args:
        questions: a text; a list of texts or of rows (dicts); or a pandas data frame. Rows and frames have
            columns as files of items have: ``question``, ``context``, ``samples``, ``summary``, …; others
            travel along. With one answer per row, rows of a question are joined.
        samples: a list of texts; for a list of questions, a list of them for each. It is shuffled by
            ``seed`` before it is halved.
        summaries: a text, a list of texts, or texts by name; for a list of questions, one of these for each.
        generate: your function from a conversation to texts, see :mod:`selfreflect.models.function`.
        model: a name as for ``--model``, or a loaded generator.
        judge: a name as for ``--judge``, or a loaded judge. The default only shows how everything works.
        context: what the model reads with the question, and the judge does not.
        strategies: names, ``module:function`` or functions; by default ``sample_and_summarize``, or none if
            there are ``summaries``.
        workers: questions for which ``generate`` is called at once, in threads; by default 1, or 16 if it is
            async. Results keep the order of the questions.
        progress: whether to show it; by default on a terminal.
        stream: return an iterator that yields the result of each question as soon as it is there.
        settings: flags of the command line as ``num_answers=10``, ``temperature=0.7``, ``seed=1``,
            ``summary_tokens=256``, ``measures="information"``, ``reader="blind"``, ``budget=20000``,
            ``device="cpu"``.

    Returns:
        A :class:`Reflection` for one question; a list of them for a list, a data frame for a data frame. What
        fails for one question, such as an exception in ``generate``, is in its ``failures``.

    Raises:
        DataError: a question, its samples or its summaries cannot be used; nothing has been computed yet.
        ConfigError: a setting is unknown or makes no sense.
        BackendError, JudgeError: a model cannot be loaded, or gave up before there was any result.
    """
    cases = make_cases(questions, samples, summaries, context, settings.get("seed", 0))
    if generate is not None and model is not None:
        raise ConfigError("give either generate=... or model=..., not both")
    if workers is not None and generate is None:
        raise ConfigError(
            "workers=... belongs to generate=...; for a model, use max_connections and batch_size"
        )
    source = model if generate is None else FunctionGenerator(generate, workers=workers)
    # checked before a model is loaded, which takes seconds
    _check_models(source, judge)
    has_summaries = any(case.summaries for case in cases)
    # summaries of one's own are measured alone unless strategies are named
    if strategies is None:
        strategies = () if source is None or has_summaries else STRATEGIES
    named_strategies = _named(strategies, cases)
    if source is None and named_strategies:
        raise ConfigError("strategies need a model to ask: give generate=... or model=...")
    config, options = _configured(settings, source, judge)
    for case in cases:
        if source is None and case.answers is None:
            raise ConfigError(f"{case.where} has no answers: give samples=..., generate=... or model=...")
    spec = StageSpec("answers", config, load_prompts(options.prompts), options, named_strategies)
    configured = ConfiguredModels(config, options, Quiet())
    models: dict[ModelStage, Any] = {}
    if named_strategies or has_summaries:
        models["scores"] = configured.judge() if isinstance(judge, str) else judge
    if source is not None:
        generator = configured.generator("answers") if isinstance(source, str) else source
        models |= {"answers": generator, "summaries": generator}
    answering = models.get("answers")
    # a function is called for as many questions at once as it has workers
    size = 1 if answering is None else getattr(answering, "workers", spec.batch_size)
    results = _watched(_Reflector(spec, models, size).run(cases), len(cases), progress)
    if stream:
        return results
    collected = Reflections(results)
    if isinstance(questions, str):
        return collected[0]
    return collected.to_pandas() if is_frame(questions) else collected


def reflect_each(questions: Any, **arguments: Any) -> Iterator[Reflection]:
    """Reflect on many questions, and yield each result as soon as it is ready.

    It takes the arguments of :func:`reflect`. They are checked, and models are loaded, before the first
    result is asked for.
    """
    results: Iterator[Reflection] = reflect(questions, stream=True, **arguments)
    return results


class _Reflector:
    """Runner of all stages for batches of questions, with models loaded once.

    Args:
        models: of each stage that there is something to do in.
    """

    def __init__(self, spec: StageSpec, models: Mapping[ModelStage, Any], batch_size: int) -> None:
        self.names = strategy_names(spec.strategies)
        self._batch_size = batch_size
        self._work: dict[ModelStage, StageFn] = {}
        for stage, model in models.items():
            self._work[stage] = stage_fn(replace(spec, stage=stage), model, Quiet())

    def run(self, cases: Sequence[Case]) -> Iterator[Reflection]:
        """Yield the result of each question. If a model gives up, all remaining questions fail."""
        problem: BackendError | JudgeError | None = None
        for index, case in enumerate(cases):
            if problem is None:
                try:
                    if index % self._batch_size == 0:
                        self._answer(cases[index : index + self._batch_size])
                    self._score(case)
                except (BackendError, JudgeError) as error:
                    # with nothing to return yet, the error itself says most
                    if index == 0:
                        raise
                    problem = error
            if problem is not None:
                stage: Stage = "answers" if case.answers is None else "scores"
                question, text = case.question.id, str(problem)
                case.add(
                    Failure(
                        question_id=question, stage=stage, kind="backend", message=text, code=problem.code
                    )
                )
            yield case.reflection(self.names)

    def _answer(self, cases: Sequence[Case]) -> None:
        """Draw the missing answers, and let the model summarise questions with answers."""
        unanswered = [StageTask(question=case.question) for case in cases if case.answers is None]
        self._run("answers", cases, unanswered)
        if self.names:
            names = tuple(self.names)
            answered = [case.question for case in cases if case.answers is not None]
            self._run("summaries", cases, [StageTask(question=item, strategies=names) for item in answered])

    def _score(self, case: Case) -> None:
        if case.answers is not None and case.summaries:
            task = StageTask(
                question=case.question, answers=case.answers, summaries=tuple(case.summaries), controls=True
            )
            self._run("scores", [case], [task])

    def _run(self, stage: ModelStage, cases: Sequence[Case], tasks: Sequence[StageTask]) -> None:
        if not tasks:
            return
        by_id = {case.question.id: case for case in cases}
        for outcome in self._work[stage](tasks):
            for result in outcome.results:
                if not isinstance(result, AnswerSample):  # which its answer set will hold
                    by_id[result.question_id].add(result)


def _watched(results: Iterator[Reflection], total: int, show: bool | None) -> Iterator[Reflection]:
    """Show the number of finished questions on stderr."""
    console = Console(stderr=True)
    if not (console.is_terminal if show is None else show):
        yield from results
        return
    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, redirect_stdout=False, redirect_stderr=False) as bar:
        yield from bar.track(results, total=total, description="questions")


def _check_models(source: Any, judge: Any) -> None:
    if not (source is None or isinstance(source, str) or hasattr(source, "generate")):
        advice = " Give a function as generate=..." if callable(source) else ""
        raise ConfigError(f"a model must be a name or a loaded generator, not {excerpt(source)}.{advice}")
    if isinstance(judge, str):
        return
    from selfreflect.models.judge import Judge

    if not isinstance(judge, Judge):
        raise ConfigError(f"a judge must be a name, or made like Judge.load('smollm2'), not {excerpt(judge)}")


def _named(strategies: Any, cases: Sequence[Case]) -> tuple[Named, ...]:
    """Map strategies by name, checking that each exists."""
    if isinstance(strategies, str) or callable(strategies):
        strategies = [strategies]
    if not isinstance(strategies, list | tuple):
        raise ConfigError(f"strategies must be a list of names or functions, not {excerpt(strategies)}")
    named_strategies: list[Named] = []
    for strategy in strategies:
        if callable(strategy):
            named_strategies.append((getattr(strategy, "__name__", type(strategy).__name__), strategy))
        else:
            load_strategy(checked_text(strategy, "a strategy"))
            named_strategies.append(strategy)
    names = strategy_names(named_strategies)
    given_names = {summary.name for case in cases for summary in case.summaries}
    for name in names:
        if names.count(name) > 1 or name in given_names:
            raise ConfigError(f"the name {excerpt(name)} is given twice; it must identify one summary")
    return tuple(named_strategies)


@cache
def _keywords() -> dict[str, list[tuple[str, str]]]:
    """Map each keyword to the (section, field) pairs that its flag sets."""
    keywords: dict[str, list[tuple[str, str]]] = {}
    for section in (*SECTIONS, "execution"):
        settings = ExecutionOptions if section == "execution" else FLAGGED[section]
        for name, flag in flags_of(settings).items():
            keyword = flag.name.removeprefix("--").replace("-", "_")
            if keyword not in EXCLUDED:
                keywords.setdefault(keyword, []).append((section, name))
    return keywords


def _configured(
    settings: Mapping[str, Any], source: str | Generator | None, judge: str | Judge
) -> tuple[Config, ExecutionOptions]:
    """Build the settings of all stages. Raises ConfigError for unknown names or wrong values."""
    keywords = _keywords()
    sections: dict[str, dict[str, Any]] = {name: {} for name in (*SECTIONS, "execution")}
    sampling: Mapping[str, Mapping[str, Any]] = {}
    if isinstance(source, str):
        sections["answers"]["model"] = sections["summaries"]["model"] = source
        sampling = sampling_of(source)
    if isinstance(judge, str):
        sections["scores"]["judge"] = judge
    count = settings.get("num_answers") or DEFAULTS["num_answers"]
    # as many fresh answers as were drawn, so that summaries see a like distribution
    samples = {"num_samples": 2 * count if isinstance(count, int) else count}
    for name, value in {**DEFAULTS, **samples, **settings}.items():
        if name not in keywords:
            names = ", ".join(sorted(keywords))
            raise ConfigError(
                f"unknown setting {excerpt(name)}.{nearest(name, list(keywords))} Known: {names}"
            )
        # one keyword may set a field in several sections, as its flag does
        for section, key in keywords[name] if value is not None else ():
            sections[section][key] = value
    # checked like flags of the command line
    execution = {
        key: checked_value(ExecutionOptions, key, value, f"execution.{key}")
        for key, value in sections.pop("execution").items()
    }
    return load_config(None, sections, sampling), ExecutionOptions(**execution)
