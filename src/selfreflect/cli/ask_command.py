"""``selfreflect ask``: one question, the answers that a model gives, and a summary of them with its score."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from selfreflect.cli import settings as o
from selfreflect.cli.settings import Overrides, takes
from selfreflect.pipeline.options import ExecutionOptions

if TYPE_CHECKING:
    from selfreflect.report.run_records import RunRecords

Text = Annotated[str, typer.Argument(metavar="QUESTION", help="The question.", show_default=False)]


@takes(
    "answers",
    "summaries",
    "scores",
    only=(
        *("--model", "--base-url", "--num-answers", "--max-new-tokens", "--summary-tokens", "--thinking"),
        *("--judge", "--judge-url", "--seed"),
    ),
    defaults={"--num-answers": 10, "--max-new-tokens": 64, "--summary-tokens": 256},
    execution=("--prompts", "--device", "--trust-remote-code", "--max-connections", "--timeout"),
)
def command(
    *,
    question: Text,
    strategies: o.Strategies = "sample_and_summarize",
    overrides: Overrides,
    options: ExecutionOptions,
    json: o.Json = False,
) -> None:
    """Ask one question, and score the model's own summary.

    Shows the most frequent answers with counts, the model's summary of them, and how faithful that summary
    is: 0 is perfect.
    """
    import tempfile
    from pathlib import Path

    from selfreflect.cli.console import Watcher, emit, exit_with
    from selfreflect.cli.show import print_question
    from selfreflect.cli.stages import fill, strategy_names
    from selfreflect.errors import DataError
    from selfreflect.pipeline.experiment import open_experiment
    from selfreflect.pipeline.records import run_records
    from selfreflect.records import STAGES, Question, question_id

    if not question.strip():
        raise DataError("the question is blank")
    names = strategy_names(strategies)
    stages = STAGES[1:]
    num_answers = overrides.section("answers")["num_answers"]
    config = overrides.plus("summaries", num_samples=2 * num_answers).config()
    record = Question(id=question_id(question), text=question)
    with tempfile.TemporaryDirectory(prefix="selfreflect-ask-") as folder:
        path = Path(folder) / "ask"
        with open_experiment(path, config, stages, options=options, progress=Watcher()) as experiment:
            experiment.run.append(record)
            fill(experiment, stages, names)
            records = run_records(experiment.run)
    if json:
        emit(_to_json(records, record.id))
    else:
        print_question(records, record.id, answers=8)
    exit_with(len(records.failures))


def _to_json(records: RunRecords, question_id: str) -> dict[str, Any]:
    from msgspec import to_builtins

    from selfreflect.report.detail import grouped_answers

    summaries = []
    for strategy, summary, score, failure in records.outcomes(question_id):
        line = {
            "strategy": strategy,
            "text": summary and summary.text,
            "score": score and score.value,
            "stderr": score and score.stderr,
            "judge": score and score.judge,
            "failure": failure and to_builtins(failure),
        }
        summaries.append(line)
    groups = grouped_answers(records, question_id)
    answers = [{"text": group.text, "count": group.count} for group in groups]
    return {"question": records.question(question_id).text, "answers": answers, "summaries": summaries}
