"""``selfreflect ask`` and ``selfreflect demo``: one question, and a few bundled ones, through all stages."""

from __future__ import annotations

import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from selfreflect.cli import settings as o
from selfreflect.cli.console import emit, exit_with, say, stdout
from selfreflect.cli.settings import Overrides, argument, option, takes
from selfreflect.cli.show import grouped_answers, print_question, show_results
from selfreflect.cli.stages import fill_run, strategy_names
from selfreflect.config import load_config
from selfreflect.errors import DataError
from selfreflect.pipeline.options import ExecutionOptions
from selfreflect.records import STAGES, Question, question_id
from selfreflect.render.text import printable
from selfreflect.report.run_records import RunRecords
from selfreflect.sources.files import read_text

DEMO: dict[str, dict[str, Any]] = {
    "questions": {"source": "bundled", "limit": 8},
    "answers": {"model": "smollm2", "num_answers": 3, "max_new_tokens": 9},
    "summaries": {"model": "smollm2", "num_samples": 4, "sample_max_new_tokens": 9, "max_new_tokens": 48},
    "scores": {"judge": "smollm2"},
}
"""Small numbers, so that it takes a minute or two on two cores; `selfreflect run` has the published ones."""


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
def ask_command(
    *,
    question: str = argument("QUESTION", "The question.", ...),
    context: str | None = option(
        "--context FILE",
        "A text that the model reads with the question, and the judge does not; - for standard input.",
    ),
    strategies: o.Strategies = "sample_and_summarize",
    overrides: Overrides,
    json: o.Json = False,
) -> None:
    """Ask one question, and score the model's own summary.

    Shows the most frequent answers with counts, the model's summary of them, and how faithful that summary
    is: 0 is perfect.
    """
    if not question.strip():
        raise DataError("the question is blank")
    text = "" if context is None else read_text(context)
    names = strategy_names(strategies)
    num_answers = overrides.section("answers")["num_answers"]
    config = overrides.config({"summaries": {"num_samples": 2 * num_answers}})
    record = Question(id=question_id(question, text), text=question, context=text)
    with tempfile.TemporaryDirectory(prefix="selfreflect-ask-") as folder:
        records = fill_run(
            Path(folder) / "ask", config, STAGES[1:], overrides.execution, names, question=record
        )
    if json:
        _emit_question(records, record.id)
    else:
        print_question(records, record.id, answers=8)
    exit_with(len(records.failures))


def _emit_question(records: RunRecords, id_: str) -> None:
    summaries = []
    for strategy, summary, score, failure, _ in records.outcomes(id_):
        line = {
            "strategy": strategy,
            "text": summary and summary.text,
            "score": score and score.value,
            "stderr": score and score.stderr,
            "judge": score and score.judge,
            "failure": failure and to_builtins(failure),
        }
        summaries.append(line)
    answers = [{"text": text, "count": count} for text, count in grouped_answers(records, id_)]
    question = records.questions[id_]
    emit(
        {
            "question": question.text,
            "context": question.context,
            "answers": answers,
            "summaries": summaries,
        }
    )


def demo_command(out: o.Out = Path("runs/demo"), fresh: o.Fresh = False, json: o.Json = False) -> None:
    """Run all stages on eight bundled questions, in a minute or two.

    Uses the embedded model, SmolLM2-135M. Run it again, and it reuses what is done.
    """
    say(
        "SelfReflect demo: 8 of the 64 bundled questions, one of each kind, with SmolLM2-135M as model and "
        "judge.\nA model of this size knows little and summarises badly: it shows how everything works, not "
        "good answers or meaningful scores."
    )
    with resources.as_file(resources.files("selfreflect") / "data" / "demo_prompts.toml") as prompts:
        options = ExecutionOptions(prompts=prompts, guesses=5)
        config = load_config(None, DEMO)
        records = fill_run(out, config, STAGES, options, o.STRATEGIES.split(","), fresh=fresh)
    show_results(records, json)
    if json:
        return
    example, *others = records.questions.values()
    for question in others:
        if question.kind == "several right answers":  # which tells most
            example = question
            break
    print_question(records, example.id)
    directory = printable(str(out))
    text = f"""
Everything is in {directory}; run this again to reuse it. What to try next:
  selfreflect report {directory} --output report.html
  selfreflect compare {directory} --baseline greedy
  selfreflect ask "Which planet has the most moons?"
  selfreflect run --questions bundled --num-answers 10 --out runs/bundled"""
    stdout.print(text, markup=False, soft_wrap=True)
