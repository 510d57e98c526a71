"""``selfreflect answers``: draw answer distributions into a run directory."""

from __future__ import annotations

import typer

from selfreflect.cli import options as o


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
    thinking: o.Thinking = None,
    prompts: o.Prompts = None,
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
    """Sample 2N answers per question: N to be masked and N to condition on. Without --questions, the
    directory's own are used."""
    from selfreflect.cli.stages import experiment, finish
    from selfreflect.records import Stage

    if questions is None and (limit, shard, split, subset, question_column) != (None,) * 5:
        raise typer.BadParameter(
            "--limit, --shard, --split, --subset and --question-column belong to --questions SOURCE"
        )
    asked = {"source": questions, "limit": limit, "part": shard, "split": split, "subset": subset}
    asked |= {"question_column": question_column, "seed": seed}
    drawn = {
        "model": model,
        "revision": revision,
        "base_url": base_url,
        "num_answers": num_answers,
        "max_new_tokens": max_new_tokens,
        "thinking": thinking,
        "seed": seed,
    }
    stages: list[Stage] = ["answers"] if questions is None else ["questions", "answers"]
    with experiment(
        out,
        stages,
        {"questions": asked, "answers": drawn},
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
        dry_run=dry_run,
    ) as opened:
        if questions is not None:
            opened.questions()
        opened.answers()
        finish(opened, json)
