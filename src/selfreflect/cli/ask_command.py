"""``selfreflect ask``: one question, what the model really believes, and a summary of it with its
faithfulness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from selfreflect.cli import options as o

if TYPE_CHECKING:
    from selfreflect.pipeline.experiment import Experiment

Text = Annotated[str, typer.Argument(metavar="QUESTION", help="The question.", show_default=False)]
Strategy = Annotated[
    str, typer.Option("--strategies", metavar="A,B", help="How the model summarises its belief.")
]


def command(
    question: Text,
    model: o.Model = None,
    base_url: o.BaseUrl = None,
    judge: o.Judge = None,
    judge_url: o.JudgeUrl = None,
    num_answers: Annotated[
        int, typer.Option("--num-answers", metavar="N", help="Answers per half; twice as many are drawn.")
    ] = 10,
    strategies: Strategy = "sample_and_summarize",
    max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", help="Tokens at most per answer.")] = 64,
    summary_tokens: Annotated[
        int, typer.Option("--summary-tokens", help="Tokens at most per summary.")
    ] = 256,
    thinking: o.Thinking = None,
    prompts: o.Prompts = None,
    seed: o.Seed = None,
    device: o.Device = "auto",
    trust_remote_code: o.TrustRemoteCode = False,
    max_connections: o.MaxConnections = 16,
    timeout: o.Timeout = 600.0,
    json: o.Json = False,
) -> None:
    """The most frequent kinds of answer with counts, a summary by the model itself, and how faithful that
    summary is (0 is perfect)."""
    import tempfile
    from pathlib import Path

    from selfreflect.cli.stages import experiment, names
    from selfreflect.errors import DataError
    from selfreflect.records import STAGES, Question, question_id

    if not question.strip():
        raise DataError("the question is blank")
    chosen = names(strategies)
    asked = Question(id=question_id(question), text=question)
    common = {
        "model": model,
        "base_url": base_url,
        "max_new_tokens": max_new_tokens,
        "thinking": thinking,
        "seed": seed,
    }
    overrides: dict[str, dict[str, Any]] = {
        "answers": {**common, "num_answers": num_answers},
        "summaries": {
            **common,
            "max_new_tokens": summary_tokens,
            "sample_max_new_tokens": max_new_tokens,
            "num_samples": 2 * num_answers,
        },
        "scores": {"judge": judge, "base_url": judge_url},
    }
    with (
        tempfile.TemporaryDirectory(prefix="selfreflect-ask-") as scratch,
        experiment(
            Path(scratch) / "ask",
            STAGES[1:],
            overrides,
            from_nothing=True,
            device=device,
            trust_remote_code=trust_remote_code,
            max_connections=max_connections,
            timeout=timeout,
            prompts=prompts,
        ) as opened,
    ):
        opened.run.append(asked)
        opened.answers()
        opened.summaries(chosen)
        opened.scores()
        _show(opened, asked.id, json)


def _show(opened: Experiment, key: str, json: bool) -> None:
    import msgspec

    from selfreflect.cli.console import emit
    from selfreflect.cli.show import exit_with, print_question
    from selfreflect.pipeline.experiment import run_records
    from selfreflect.report.detail import question_detail

    records = run_records(opened.run)
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
