"""``selfreflect summarize``: let a model summarise its own belief, with one or several strategies."""

from __future__ import annotations

from selfreflect.cli import options as o
from selfreflect.cli.run_command import STRATEGIES


def command(
    out: o.Out,
    strategies: o.Strategies = STRATEGIES,
    model: o.Model = None,
    revision: o.Revision = None,
    base_url: o.BaseUrl = None,
    num_samples: o.NumSamples = None,
    max_new_tokens: o.MaxNewTokens = None,
    summary_tokens: o.SummaryTokens = None,
    thinking: o.Thinking = None,
    prompts: o.Prompts = None,
    seed: o.Seed = None,
    config: o.ConfigFile = None,
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
    """Make the summaries that a run directory lacks. Strategies can be added later; their scores then cost
    only themselves."""
    from selfreflect.cli.stages import experiment, finish, names

    chosen = names(strategies)
    made = {
        "model": model,
        "revision": revision,
        "base_url": base_url,
        "num_samples": num_samples,
        "sample_max_new_tokens": max_new_tokens,
        "max_new_tokens": summary_tokens,
        "thinking": thinking,
        "seed": seed,
    }
    with experiment(
        out,
        ["summaries"],
        {"summaries": made},
        config=config,
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
        opened.summaries(chosen)
        finish(opened, json)
