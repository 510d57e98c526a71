"""``selfreflect demo``: the whole job on a few bundled questions with the embedded model."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfreflect.cli import settings as o

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
    from selfreflect.cli.stages import fill
    from selfreflect.config import load_config
    from selfreflect.pipeline.experiment import open_experiment
    from selfreflect.pipeline.options import ExecutionOptions
    from selfreflect.pipeline.records import run_records
    from selfreflect.records import STAGES

    say(
        "SelfReflect demo: 8 of the 64 bundled questions, one of each kind, with SmolLM2-135M as model and "
        "judge.\nA model of this size knows little and summarises badly: it shows how everything works, not "
        "good answers or meaningful scores."
    )
    config = load_config(None, DEMO)
    with resources.as_file(resources.files("selfreflect") / "data" / "demo_prompts.toml") as prompts:
        options = ExecutionOptions(prompts=prompts, guesses=5)
        with open_experiment(
            out, config, STAGES, fresh=fresh, options=options, progress=Watcher()
        ) as experiment:
            fill(experiment, STAGES, o.STRATEGIES.split(","))
            records = run_records(experiment.run)
    if json:
        emit_overview(records)
        return
    print_report(records)
    print_question(records, _example(records))
    lines = (
        f"\nEverything is in {where(out)}; run this again to reuse it. What to try next:",
        f"  selfreflect report {where(out)} --output report.html",
        f"  selfreflect compare {where(out)} --baseline greedy",
        '  selfreflect ask "Which planet has the most moons?"',
        "  selfreflect run --questions bundled --num-answers 10 --out runs/bundled",
    )
    for line in lines:
        stdout.print(line, markup=False, soft_wrap=True)


def _example(records: RunRecords) -> str:
    """The question to show in full: one with several right answers, if there is one, tells most."""
    for question in records.questions.values():
        if question.kind == "several right answers":
            return question.id
    return next(iter(records.questions))
