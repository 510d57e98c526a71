"""``selfreflect demo``: the whole job on a few bundled questions with the embedded model."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfreflect.cli import options as o

if TYPE_CHECKING:
    from selfreflect.report.run_records import RunRecords

DEMO: dict[str, dict[str, Any]] = {
    "questions": {"source": "bundled", "limit": 8},
    "answers": {"model": "smollm2", "num_answers": 3, "max_new_tokens": 9},
    "summaries": {"model": "smollm2", "num_samples": 4, "sample_max_new_tokens": 9, "max_new_tokens": 48},
    "scores": {"judge": "smollm2"},
}
"""Small numbers, so that it takes a minute or two on two cores; `selfreflect run` has the published ones."""


def command(out: o.Out = Path("runs/demo"), fresh: o.Fresh = False, json: o.Json = False) -> None:
    """Run all stages on eight bundled questions, in a minute or two.

    Uses the embedded model, SmolLM2-135M. Run it again, and it reuses what is done.
    """
    from selfreflect.cli.console import Watcher, say, stdout, where
    from selfreflect.cli.show import emit_overview, print_question, print_report
    from selfreflect.config import load_config
    from selfreflect.pipeline.experiment import DEFAULT_STRATEGIES, open_experiment
    from selfreflect.pipeline.options import ExecutionOptions
    from selfreflect.pipeline.records import run_records
    from selfreflect.records import STAGES

    config = load_config(None, DEMO)
    say(
        "SelfReflect demo: 8 of the 64 bundled questions, one of each kind, with SmolLM2-135M as model and "
        "as judge."
    )
    say(
        "A model of this size knows little and summarises badly: it is here to show the machinery, not good "
        "answers or meaningful scores."
    )
    prompts = resources.files("selfreflect") / "data" / "demo_prompts.toml"
    with (
        resources.as_file(prompts) as file,
        open_experiment(
            out,
            config,
            STAGES,
            fresh=fresh,
            options=ExecutionOptions(prompts=file, guesses=5),
            progress=Watcher(),
        ) as experiment,
    ):
        experiment.questions()
        experiment.answers()
        experiment.summaries(DEFAULT_STRATEGIES)
        experiment.scores()
        records = run_records(experiment.run)
    if json:
        emit_overview(records)
    else:
        print_report(records)
        print_question(records, _most_telling(records))
        stdout.print(
            f"\nEverything is in {where(out)} (JSON lines; run this again and it is reused). What to try "
            "next:",
            markup=False,
        )
        for example in (
            f"selfreflect report {where(out)} --output report.html",
            f"selfreflect compare {where(out)} --baseline greedy",
            'selfreflect ask "Which planet has the most moons?"',
            "selfreflect run --questions bundled --num-answers 10 --out runs/bundled",
        ):
            stdout.print(f"  {example}", markup=False, soft_wrap=True)


def _most_telling(records: RunRecords) -> str:
    """The question to show in full: one with several right answers, where a summary has something to do."""
    several = [
        question.id for question in records.questions.values() if question.kind == "several right answers"
    ]
    return (several or list(records.questions))[0]
