"""``selfreflect run``: all stages, one after the other."""

from __future__ import annotations

from typing import Any

from selfreflect.cli import options as o

STRATEGIES = "greedy,basic,cot,sample_and_summarize"


def command(
    out: o.Out,
    questions: o.Questions = None,
    limit: o.Limit = None,
    shard: o.Shard = None,
    split: o.Split = None,
    subset: o.Subset = None,
    question_column: o.QuestionColumn = None,
    model: o.Model = None,
    revision: o.Revision = None,
    base_url: o.BaseUrl = None,
    num_answers: o.NumAnswers = None,
    max_new_tokens: o.MaxNewTokens = None,
    strategies: o.Strategies = STRATEGIES,
    num_samples: o.NumSamples = None,
    summary_tokens: o.SummaryTokens = None,
    thinking: o.Thinking = None,
    prompts: o.Prompts = None,
    judge: o.Judge = None,
    judge_url: o.JudgeUrl = None,
    judge_revision: o.JudgeRevision = None,
    judge_dtype: o.JudgeDtype = None,
    compat: o.Compat = None,
    budget: o.Budget = None,
    standard_error: o.StandardError = None,
    race: o.Race = None,
    guesses: o.Guesses = 0,
    cache: o.Cache = None,
    seed: o.Seed = None,
    config: o.ConfigFile = None,
    fresh: o.Fresh = False,
    device: o.Devices = "auto",
    device_map: o.DeviceMap = None,
    executor: o.Executor = "local",
    ray_address: o.RayAddress = None,
    batch_size: o.BatchSize = None,
    trust_remote_code: o.TrustRemoteCode = False,
    max_connections: o.MaxConnections = 16,
    timeout: o.Timeout = 600.0,
    dry_run: o.DryRun = False,
    json: o.Json = False,
) -> None:
    """Questions to answers to summaries to scores, in a run directory that any later command continues."""
    from selfreflect.cli.stages import experiment, finish, names
    from selfreflect.records import STAGES

    chosen = names(strategies)
    overrides: dict[str, dict[str, Any]] = {
        "questions": {
            "source": questions,
            "limit": limit,
            "split": split,
            "subset": subset,
            "question_column": question_column,
            "part": shard,
            "seed": seed,
        },
        "answers": {
            "model": model,
            "revision": revision,
            "base_url": base_url,
            "num_answers": num_answers,
            "max_new_tokens": max_new_tokens,
            "thinking": thinking,
            "seed": seed,
        },
        "summaries": {
            "model": model,
            "revision": revision,
            "base_url": base_url,
            "num_samples": num_samples,
            "sample_max_new_tokens": max_new_tokens,
            "max_new_tokens": summary_tokens,
            "thinking": thinking,
            "seed": seed,
        },
        "scores": {
            "judge": judge,
            "base_url": judge_url,
            "revision": judge_revision,
            "dtype": judge_dtype,
            "compat": compat,
            "budget": budget,
            "standard_error": standard_error,
            "race": race,
            "seed": seed,
        },
    }
    with experiment(
        out,
        STAGES,
        overrides,
        config=config,
        fresh=fresh,
        device=device,
        device_map=device_map,
        executor=executor,
        ray_address=ray_address,
        batch_size=batch_size,
        trust_remote_code=trust_remote_code,
        max_connections=max_connections,
        timeout=timeout,
        prompts=prompts,
        guesses=guesses,
        cache=cache,
        dry_run=dry_run,
    ) as opened:
        opened.questions()
        opened.answers()
        opened.summaries(chosen)
        opened.scores()
        finish(opened, json)
