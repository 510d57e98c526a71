"""The options that several commands share: one name for one thing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Questions = Annotated[
    str | None,
    typer.Option(
        "--questions",
        metavar="SOURCE",
        help="bundled, a file (json, jsonl, csv, parquet, txt), - for stdin, natural_questions, trivia_qa, simpleqa, mmlu, truthful_qa, "
        "or hf:NAME.",
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", help="Take only N questions or items.")]
Shard = Annotated[
    str | None,
    typer.Option(
        "--shard",
        metavar="K/N",
        help="Take shard K of N of the questions (after --limit), so that N jobs share them, each with an --out of its own; join them with "
        "`selfreflect import`.",
    ),
]
Split = Annotated[str | None, typer.Option("--split", help="Split of a hub data set.")]
Subset = Annotated[str | None, typer.Option("--subset", help="Subset (configuration) of a hub data set.")]
QuestionColumn = Annotated[
    str | None, typer.Option("--question-column", help="Column that holds the question.")
]
Seed = Annotated[int | None, typer.Option("--seed", help="Seed of everything random. [default: 0]")]
NumAnswers = Annotated[
    int | None,
    typer.Option(
        "--num-answers",
        metavar="N",
        help="Answers per half; twice as many are drawn. [default: 50, as published; quick: 10]",
    ),
]
MaxNewTokens = Annotated[
    int | None, typer.Option("--max-new-tokens", help="Tokens at most per answer. [default: 256]")
]
SummaryTokens = Annotated[
    int | None, typer.Option("--summary-tokens", help="Tokens at most per summary. [default: 4096]")
]
NumSamples = Annotated[
    int | None,
    typer.Option(
        "--num-samples",
        metavar="N",
        help="Fresh samples that sampling strategies draw for themselves. [default: 50]",
    ),
]
Strategies = Annotated[
    str,
    typer.Option(
        "--strategies",
        metavar="A,B",
        help="greedy, basic, cot, twostep_cot, sample_and_summarize, concatenated_answers, or your own as package.module:function.",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="smollm2 (embedded), a hub name, a local directory, vllm:NAME, or openai:NAME on a server. [default: smollm2]",
    ),
]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        "--base-url",
        metavar="URL",
        help="Where openai:NAME is served, such as http://localhost:8000/v1. A key is read from SELFREFLECT_API_KEY, for OpenAI also from "
        "OPENAI_API_KEY. [default: https://api.openai.com/v1]",
    ),
]
MaxConnections = Annotated[
    int,
    typer.Option(
        "--max-connections",
        metavar="N",
        help="Calls to a server under way at a time; with --executor ray, from each actor.",
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="Time that a server has for one response. With all repetitions a call takes three times that.",
    ),
]
Judge = Annotated[
    str | None,
    typer.Option(
        "--judge",
        metavar="NAME",
        help="Model with full logits: smollm2, a hub name, a local directory, or one whose hidden states vLLM computes: vllm:NAME in this "
        "process, vllm+http:NAME on a server. [default: smollm2]",
    ),
]
JudgeUrl = Annotated[
    str | None,
    typer.Option(
        "--judge-url",
        metavar="URL",
        help="Where vllm+http:NAME is served in pooling mode, such as http://localhost:8000/v1.",
    ),
]
Revision = Annotated[
    str | None, typer.Option("--revision", help="Revision (commit, tag, branch) of a model from the hub.")
]
JudgeRevision = Annotated[
    str | None, typer.Option("--judge-revision", help="Revision of a judge from the hub.")
]
JudgeDtype = Annotated[
    str | None,
    typer.Option(
        "--judge-dtype", help="auto, float32, bfloat16 or float16. [default: float32, on CUDA bfloat16]"
    ),
]
Compat = Annotated[
    str | None,
    typer.Option("--compat", help="'published' tokenises with the second BOS of the published scorer."),
]
Budget = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="TOKENS|TIME",
        help="Estimate scores from a random part of the masked words: judge tokens (tree nodes) per question (20000), never exceeded, "
        "or time per question (30s, 2m). [default: score every word]",
    ),
]
StandardError = Annotated[
    float | None,
    typer.Option(
        "--se",
        metavar="X",
        help="Score random words until every estimate has a standard error of at most X against the exact score.",
    ),
]
Race = Annotated[
    float | None,
    typer.Option(
        "--race",
        metavar="CONFIDENCE",
        help="Score random words of a question's summaries until their order is certain at this confidence (0.95): only close ones cost "
        "more.",
    ),
]
Guesses = Annotated[
    int,
    typer.Option(
        "--guesses",
        metavar="K",
        help="Keep the judge's K likeliest tokens in both contexts for every masked token, for the report page.",
    ),
]
Cache = Annotated[
    Path | None,
    typer.Option(
        "--cache",
        metavar="DIR",
        help="Keep what the judge knows after the conditioning answers here (about 1 MB a question for the embedded judge, 4 GB at most), "
        "so that one more summary of a question costs only itself.",
    ),
]
Thinking = Annotated[
    bool | None,
    typer.Option("--thinking/--no-thinking", help="Let a reasoning model think; its trace is removed."),
]
Device = Annotated[str, typer.Option("--device", help="auto, cuda, mps or cpu.")]
Devices = Annotated[
    str,
    typer.Option(
        "--device",
        help="auto, cuda, mps or cpu. Of several GPUs that are visible (CUDA_VISIBLE_DEVICES), each gets a copy of a local model and a "
        "part of the questions.",
    ),
]
DeviceMap = Annotated[
    str | None,
    typer.Option(
        "--device-map",
        metavar="auto",
        help="auto spreads one copy of a local model over all visible GPUs, for models that are too large for one of them.",
    ),
]
Executor = Annotated[
    str,
    typer.Option(
        "--executor",
        metavar="local|ray",
        help="Where the work is done: on this machine, or by actors of a Ray cluster. [ray.answers], [ray.summaries] and [ray.scores] in "
        "--config have their number (actors), gpus and cpus of each, and batch_questions. A run begun with one executor goes on with the "
        "other.",
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        metavar="HOST:PORT",
        help="A running Ray cluster; auto finds the one on this machine. Its machines need selfreflect, the models, and keys of servers in "
        "the environment in which Ray was started there. [default: a cluster on this machine, for this command alone]",
    ),
]
BatchSize = Annotated[
    int | None, typer.Option("--batch-size", help="Sequences decoded together; does not change results.")
]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run code that comes with a model from the hub.")
]
Prompts = Annotated[
    Path | None,
    typer.Option("--prompts", metavar="FILE", help="TOML file that replaces some of the prompts."),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="TOML file with settings; options override it."),
]
Out = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Run directory. An existing one is continued.")
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Delete the records of an existing run directory and start over.")
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable JSON lines on stdout.")]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Only print what is still to do and what it takes: calls, tokens, judge tokens, time, and money where [prices.MODEL] in "
        "--config has input_per_million and output_per_million. Writes no run directory and asks no server; local models are loaded and "
        "tried for some seconds.",
    ),
]
