"""``selfreflect ask``: one question, the answers that a model gives, and a summary of them with its score."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from selfreflect.cli import options as o
from selfreflect.cli.settings import Overrides, takes
from selfreflect.pipeline.options import ExecutionOptions

if TYPE_CHECKING:
    from selfreflect.pipeline.experiment import Experiment

Text = Annotated[str, typer.Argument(metavar="QUESTION", help="The question.", show_default=False)]


@takes(
    "answers",
    "summaries",
    "scores",
    only=(
        "--model",
        "--base-url",
        "--num-answers",
        "--max-new-tokens",
        "--summary-tokens",
        "--thinking",
        "--judge",
        "--judge-url",
        "--seed",
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
    """Ask a question many times: show the most frequent answers with counts, the model's own summary of them,
    and how faithful that summary is (0 is perfect)."""
    import tempfile
    from pathlib import Path

    from selfreflect.cli.console import Watcher
    from selfreflect.cli.stages import strategy_names
    from selfreflect.errors import DataError
    from selfreflect.pipeline.experiment import open_experiment
    from selfreflect.records import STAGES, Question, question_id

    if not question.strip():
        raise DataError("the question is blank")
    names = strategy_names(strategies)
    num_answers = overrides.section("answers")["num_answers"]
    config = overrides.plus("summaries", num_samples=2 * num_answers).config()
    record = Question(id=question_id(question), text=question)
    with (
        tempfile.TemporaryDirectory(prefix="selfreflect-ask-") as scratch,
        open_experiment(
            Path(scratch) / "ask", config, STAGES[1:], options=options, progress=Watcher()
        ) as experiment,
    ):
        experiment.run.append(record)
        experiment.answers()
        experiment.summaries(names)
        experiment.scores()
        _show(experiment, record.id, json)


def _show(experiment: Experiment, key: str, json: bool) -> None:
    import msgspec

    from selfreflect.cli.console import emit, exit_with
    from selfreflect.cli.show import print_question
    from selfreflect.pipeline.records import run_records
    from selfreflect.report.detail import question_detail

    records = run_records(experiment.run)
    if json:
        detail = question_detail(records, key)
        emit(
            {
                "question": detail.question.text,
                "answers": [{"text": group.text, "count": group.count} for group in detail.groups],
                "summaries": [
                    {
                        "strategy": one.strategy,
                        "text": one.summary and one.summary.text,
                        "score": one.score and one.score.value,
                        "stderr": one.score and one.score.stderr,
                        "judge": one.score and one.score.judge,
                        "failure": one.failure and msgspec.to_builtins(one.failure),
                    }
                    for one in detail.summaries
                ],
            }
        )
    else:
        print_question(records, key, answers=8)
    exit_with(len(records.failures))
