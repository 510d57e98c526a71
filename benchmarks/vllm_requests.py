"""The published scorer's schedule on vLLM: one request per target token, prefix caching, one new token each.

vLLM wants an environment of its own, so this runs in two steps:

    python benchmarks/vllm_requests.py export ITEMS.json requests.json --limit 10 --num-answers 10
    VLLM_CPU_KVCACHE_SPACE=2 VLLM_ENVIRONMENT/bin/python benchmarks/vllm_requests.py run requests.json --model
    DIR

The first also times this project's engine on the same items and machine. vLLM gets all requests of an item at
once, as token ids, and its results are discarded: reading full-vocabulary rows out of it would cost more.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path


def export(items: str, output: Path, limit: int, num_answers: int, skip: int) -> None:
    """Write every request of each item, after timing the engine on it."""
    from selfreflect import Judge, SelfReflect
    from selfreflect.metric.prompts import masked_words, reference_context, summary_context
    from selfreflect.sources.items import read_item_file

    judge = Judge.load("smollm2")
    metric = SelfReflect(judge)
    written = []
    for item in read_item_file(items, limit=limit, num_answers=num_answers, need_summaries=True).items[skip:]:
        words = masked_words(item.masked_out)
        contexts = [reference_context(item.question, item.conditioning)]
        contexts += [summary_context(item.question, text) for text in item.summaries.values()]
        requests = []
        for context in contexts:
            tasks = judge.encode_tasks(
                [context.conversation(word.masked) for word in words], [word.text for word in words]
            )
            for ids, first in tasks:
                requests += [ids[:end] for end in range(first, len(ids))]
        summaries = item.summary_records
        if not written:  # the first pass of a process is slower
            metric.score_records(item.question_record, item.answer_set, summaries[:1])
        started = time.perf_counter()
        metric.score_records(item.question_record, item.answer_set, summaries)
        seconds = time.perf_counter() - started
        written.append({"id": item.id, "requests": requests, "engine_seconds": seconds})
        print(f"{item.id}: {len(requests)} requests, engine {seconds:.1f} s", flush=True)
    output.write_text(json.dumps(written))


def run(requests: Path, model: str) -> None:
    """Time vLLM on each item, with an empty cache at its start."""
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=model, dtype="float32", enable_prefix_caching=True, enforce_eager=True, max_model_len=8192
    )
    one = SamplingParams(max_tokens=1, temperature=1.0)
    llm.generate([{"prompt_token_ids": list(range(10, 200))}], one, use_tqdm=False)
    for item in json.loads(requests.read_text()):
        llm.reset_prefix_cache()
        prompts = [{"prompt_token_ids": ids} for ids in item["requests"]]
        started = time.perf_counter()
        llm.generate(prompts, one, use_tqdm=False)
        seconds = time.perf_counter() - started
        ratio = seconds / item["engine_seconds"]
        print(
            f"{item['id']}: {len(prompts)} requests, vLLM {seconds:.1f} s, {ratio:.2f} x the engine",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    first = commands.add_parser("export")
    first.add_argument("items")
    first.add_argument("output", type=Path)
    first.add_argument("--limit", type=int, default=10)
    first.add_argument("--num-answers", type=int, default=10)
    first.add_argument("--skip", type=int, default=0)
    first.set_defaults(call=export)
    second = commands.add_parser("run")
    second.add_argument("requests", type=Path)
    second.add_argument("--model", required=True)
    second.set_defaults(call=run)
    arguments = vars(parser.parse_args())
    arguments.pop("call")(**arguments)


if __name__ == "__main__":
    main()
