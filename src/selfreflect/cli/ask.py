"""Commands ``selfreflect ask`` and ``selfreflect demo``: one or several questions through all stages."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from rich.text import Text

from selfreflect.cli import options as o
from selfreflect.cli.console import ProgressReporter, emit, exit_with, say, stdout
from selfreflect.cli.options import Overrides, argument, option, takes
from selfreflect.cli.report import write_page
from selfreflect.cli.score import item_run
from selfreflect.cli.stages import Intent, check_strategies, fill_run
from selfreflect.errors import BackendError, DataError, excerpt
from selfreflect.grouping import ordered_groups
from selfreflect.metric.measure import CHEAP_MEASURES, default_measures
from selfreflect.records import STAGES, Question, question_id
from selfreflect.report.run_records import RunRecords
from selfreflect.run.models import ConfiguredModels, stage_model
from selfreflect.settings import Config, ExecutionOptions, load_config, sampling_of
from selfreflect.sources.files import read_text
from selfreflect.sources.items import Item, bundled_items
from selfreflect.text import counted, printable
from selfreflect.traits import traits_of
from selfreflect.uncertainty.question import AnsweredQuestion

if TYPE_CHECKING:
    from selfreflect.cli.show import GroupedAnswers

DEMO: dict[str, dict[str, Any]] = {
    "questions": {"source": "demo"},
    "answers": {"model": "smollm2", "num_answers": 5, "max_new_tokens": 32},
    "summaries": {
        "strategies": ["greedy", "basic", "sample_and_summarize"],
        **{"model": "smollm2", "num_samples": 5, "sample_max_new_tokens": 32, "max_new_tokens": 32},
    },
    "scores": {"judge": "smollm2", "measures": ",".join(CHEAP_MEASURES)},
}
"""Settings with small numbers and the faster measure, for under a minute on two cores; `selfreflect run` has
the published numbers and both measures."""

SHOWN = "trip"
"""The question that the demo prints in full."""


@takes(
    "answers",
    "summaries",
    "scores",
    only=(
        *("--strategies", "--model", "--base-url", "--extra-body", "--num-answers", "--max-new-tokens"),
        *("--summary-tokens", "--logprobs", "--top-logprobs"),
        *("--thinking", "--judge", "--judge-url", "--measures", "--seed", "--temperature", "--top-p"),
    ),
    defaults={
        "--strategies": None,
        "--num-answers": 10,
        "--max-new-tokens": 64,
        "--summary-tokens": 256,
        "--measures": None,
        "--temperature": None,
        "--top-p": None,
    },
    config_file=True,
    execution=("--prompts", "--device", "--trust-remote-code", "--max-connections", "--timeout"),
)
def ask_command(
    *,
    question: str = argument("QUESTION", "The question.", ...),
    context: str | None = option(
        "--context FILE|TEXT",
        "A text that the model reads with the question, and the judge does not, or its file; - for standard "
        "input.",
    ),
    overrides: Overrides,
    classes: str | None = option(
        "--classes RULE",
        "Rule that decides which answers are the same, as in `selfreflect uncertainty`: same, judge (the "
        "model is asked about pairs that the rule same cannot decide), … [default: judge, for at most 2 "
        "pairs per answer; same for the embedded model]",
    ),
    yes: o.Yes = False,
    json: o.Json = False,
) -> None:
    """Ask one question, and measure the model's own summary.

    Shows the most frequent answers with counts, the model's summary of them, how much of the information in
    the answers it recovers, and its SelfReflect score (0 is perfect).

    By default, the embedded model samples at temperature 0.7 and top-p 0.9, and summarises with greedy and
    basic; as the judge, it measures only information. Every other model samples at temperature 1 and top-p 1,
    as in the paper, and summarises with sample_and_summarize; as the judge, it measures both.
    """
    from selfreflect.cli.show import print_question

    if not question.strip():
        raise DataError("the question is blank")
    text = "" if context is None else _read_context(context)
    # read twice: the defaults depend on which model and judge are named
    settings = overrides.config()
    answers = settings.answers
    defaults = {
        "answers": sampling_of(answers.model),
        "summaries": {
            "num_samples": 2 * answers.num_answers,
            "strategies": traits_of(answers.model).strategies,
        },
        "scores": {"measures": ",".join(default_measures(settings.scores.judge))},
    }
    config = overrides.config(defaults)
    check_strategies(config.summaries.strategies)
    record = Question(id=question_id(question, text), text=question, context=text)
    with tempfile.TemporaryDirectory(prefix="selfreflect-ask-") as folder:
        path = Path(folder) / "ask"
        records = fill_run(path, config, STAGES[1:], overrides.execution, Intent(yes=yes), question=record)
    answer_groups = _grouped(records, record, config, overrides.execution, classes)
    if json:
        _emit_question(records, record.id, answer_groups)
    else:
        sampling = config.answers
        halves = f"{2 * sampling.num_answers} answers were sampled, {sampling.num_answers} for each half"
        say(f"{halves}, at temperature {sampling.temperature:g}, top-p {sampling.top_p:g}.")
        print_question(records, record.id, answers=8, grouped=answer_groups)
    exit_with(records.failed)


def _read_context(source: str) -> str:
    # sentences have blanks, and a mistyped path with some is named in the note
    if len(source.split()) > 1 and not os.path.lexists(source):
        say(f"{excerpt(source)} is read as the context itself, because there is no such file.")
        return source.strip()
    return read_text(source)


def _grouped(
    records: RunRecords, question: Question, config: Config, options: ExecutionOptions, classes: str | None
) -> GroupedAnswers | None:
    """Group the answers by meaning; None without a rule or model, or if grouping fails."""
    from selfreflect.cli.show import GroupedAnswers
    from selfreflect.uncertainty.asking.asker import Asker, Inquiry, model_name
    from selfreflect.uncertainty.classes import ClassRule, members_of

    is_default = classes is None
    if question.id not in records.answers or (is_default and traits_of(config.answers.model).is_show_case):
        return None
    reporter = ProgressReporter()

    def tell(inquiries: Sequence[Inquiry]) -> None:
        pairs = counted(len(inquiries), "pair")
        say(f"{config.answers.model} is asked whether {pairs} of its answers mean the same.")

    models = ConfiguredModels(config, options, reporter, known=records.manifest.get("models", {}))
    name = model_name(stage_model(config, options, "answers"))
    asker = Asker(name, lambda: models.generator("answers"), confirm=tell, progress=reporter.stage)
    rule = ClassRule(classes or "judge", asker=asker, bounded=is_default)
    answers = records.answers[question.id].answers
    try:
        labels = rule(AnsweredQuestion(question.id, question.text, question.context, answers))
    except BackendError as error:
        # a rule that the user named is not replaced by another
        if not is_default:
            raise
        say(f"The answers are grouped without the model: {error}")
        return None
    for caveat in rule.caveats:
        say(f"{caveat}.")
    groups = ordered_groups(answers, members_of(labels))
    return GroupedAnswers(rule.name, [(answers[group[0]], len(group)) for group in groups])


def _emit_question(records: RunRecords, id_: str, answer_groups: GroupedAnswers | None) -> None:
    from selfreflect.cli.show import grouped_answers

    by, groups = answer_groups or grouped_answers(records, id_)
    summaries = []
    for outcome in records.outcomes(id_):
        line: dict[str, Any] = {
            "strategy": outcome.strategy,
            "text": outcome.summary and outcome.summary.text,
            # programs read these keys, also where nothing was scored
            **dict.fromkeys(("score", "stderr", "judge")),
            "failure": outcome.failure and to_builtins(outcome.failure),
        }
        for measure in records.measures:
            record = records.results(measure).get((id_, outcome.strategy))
            line |= {} if record is None else measure.fields(record)
        summaries.append(line)
    answers = [{"text": text, "count": count} for text, count in groups]
    question = records.questions[id_]
    line = {"question": question.text, "context": question.context, "answers": answers, "classes_by": by}
    emit({**line, "summaries": summaries})


def demo_command(
    out: o.Out = Path("runs/demo"), fresh: o.Fresh = False, yes: o.Yes = False, json: o.Json = False
) -> None:
    """Demonstrate the measures in a minute: on hand-written summaries, then on a model's.

    The embedded model, SmolLM2-135M, answers ten questions, summarises its answers, and judges the summaries.
    For eight of them it reads evidence that contradicts itself, and that the judge does not see. Run it
    again, and it reuses what is done.
    """
    from selfreflect.cli.show import print_question, show_results

    if not json:
        _measure_by_hand(bundled_items("demo_items")[0])
        _tell(ACT_TWO)
    with resources.as_file(resources.files("selfreflect") / "data" / "demo_prompts.toml") as prompts:
        options = ExecutionOptions(prompts=prompts)
        config = load_config(None, DEMO, {"answers": sampling_of("smollm2")})
        records = fill_run(out, config, STAGES, options, Intent(fresh, yes=yes))
    show_results(records, json)
    if json:
        return
    _tell("\nOne of the questions in full:")
    print_question(records, SHOWN)
    page = out / "report.html"
    write_page(page, [[records]], None)
    path = printable(str(page))
    stdout.print(Text("\nAll ten questions, with every word in colour:"))
    stdout.print(Text(f"open {path} in a browser."), soft_wrap=True)  # a path to be copied


ACT_ONE = """\
1. What is measured, on three summaries written by hand.

SmolLM2-135M, a small embedded model, read a text that contradicts itself and was asked the question below \
20 times. Its answers differ, and a summary should say so: "honest" names both possibilities, "single" one, \
"wrong" neither.

To see how well each does, a judge reads the summary, but not the text, and predicts ten of the answers. A \
summary that recovers 80 % helps the judge 80 % as much as the other ten answers do; at 0 % it helps no more \
than an empty one. Wording that all answers share counts too.\
"""

ACT_TWO = """\

2. The model's own summaries.

The same model now answers ten questions, ten times each. For eight of them it reads contradictory evidence; \
two are everyday questions.

Three strategies make a summary: greedy uses the model's ordinary answer, basic asks it for every possible \
answer, and sample_and_summarize shows it five new answers to merge. A model of this size often names one \
answer and leaves out the other, and the shares show what that costs.
"""


def _measure_by_hand(item: Item) -> None:
    """Measure an item's hand-written summaries with controls, and print all results."""
    from selfreflect.cli.show import print_question

    _tell(ACT_ONE)
    config = load_config(None, {"scores": DEMO["scores"]})
    measures = ConfiguredModels(config, ExecutionOptions(), ProgressReporter()).measures()
    results = measures.measure(item.question_record, item.answer_set, item.summary_records)
    print_question(item_run("written by hand", config, [item], results), item.id, answers=4)


def _tell(text: str) -> None:
    stdout.print(Text(printable(text)))
