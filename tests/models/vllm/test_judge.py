"""A judge whose hidden states come from a server: the scores of the local one, or a typed failure."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from command import run, written
from fault_server import HTML, FaultServer, raw, reset, silent, status
from pooling import mean, pooling, unit

from selfreflect.errors import JudgeError
from selfreflect.metric.scorer import SelfReflect
from selfreflect.models.base import ModelSpec
from selfreflect.models.judge import Judge
from selfreflect.models.openai.client import RetryPolicy
from selfreflect.models.openai.endpoint import endpoint
from selfreflect.models.vllm.judge import PoolingServer, load_lm_head
from selfreflect.store.run import Run

ITEM = {
    "question": "What should I plant first?",
    "answers": [
        "Radishes or lettuce.",
        "You can plant basil in a pot.",
        "Lettuce, because it grows quickly.",
        "It is not clear.",
    ],
    "summaries": {"near": "Radishes or lettuce.", "far": "Tomatoes in a garden."},
}
QUICK = RetryPolicy(tries=3, first=0.001, longest=0.002)

TinyJudge = Callable[..., Judge]


def served(judge: Judge, url: str, **fields: Any) -> Judge:
    return Judge.load(f"vllm+http:{judge.name}", base_url=url, device="cpu", **fields)


def refusal(judge: Judge, script: Any) -> str:
    with FaultServer(script) as server, pytest.raises(JudgeError) as raised:
        served(judge, server.url)
    return str(raised.value)


# --- scores


@pytest.mark.parametrize(
    ("architecture", "base64"),
    [
        ("llama", False),
        *((architecture, True) for architecture in ("llama", "gemma2", "mamba")),
        *(pytest.param(name, True, marks=pytest.mark.slow) for name in ("gpt2", "cohere", "granite")),
    ],
)
def test_the_scores_of_the_local_judge(tiny_judge: TinyJudge, architecture: str, base64: bool) -> None:
    local = tiny_judge(architecture)
    with FaultServer(pooling(local, base64=base64)) as server:
        metric = SelfReflect(served(local, server.url), guesses=2)
        found = metric.score(**ITEM)
    expected = SelfReflect(local, guesses=2).score(**ITEM)
    for name, score in found.items():
        assert score.value == pytest.approx(expected[name].value, abs=1e-5)
        assert score.value > 0.001
        for mine, theirs in zip(score.words, expected[name].words, strict=True):
            assert mine.distances == pytest.approx(theirs.distances, abs=1e-5)
            assert [[guess.token for guess in place] for place in mine.guesses] == [
                [g.token for g in place] for place in theirs.guesses
            ]
    assert (found["near"].judge, found["near"].judge_dtype) == (f"vllm+http:{local.name}", "float32")


def test_the_window_is_that_of_the_server_where_it_is_shorter(tiny_judge: TinyJudge) -> None:
    local = tiny_judge("llama")
    with FaultServer(pooling(local, window=60)) as server:
        metric = SelfReflect(served(local, server.url))
        begun = len(server.calls)
        results = metric.score_records(*_records())
        assert len(server.calls) == begun, "nothing is sent that the server would refuse"
    assert {result.kind for result in results} == {"too_long"}  # type: ignore[union-attr]


def _records() -> Any:
    from selfreflect.records import AnswerSet, Question, Summary

    answers = ITEM["answers"]
    drawn = AnswerSet(question_id="q", masked_out=tuple(answers[:2]), conditioning=tuple(answers[2:]))
    return (
        Question(id="q", text=ITEM["question"]),
        drawn,
        [Summary(question_id="q", name="s", text="Lettuce.")],
    )


# --- precision


def test_the_servers_precision_is_seen_in_its_states(tiny_judge: TinyJudge) -> None:
    local = tiny_judge("llama", dtype="bfloat16")
    with FaultServer(pooling(local)) as server:
        judge = served(local, server.url)
        value = SelfReflect(judge).score(**ITEM)["near"].value
        with pytest.raises(JudgeError, match="bfloat16"):
            served(local, server.url, dtype="float32")
    assert judge.lm.dtype == "bfloat16"
    assert torch.equal(
        judge.lm.model.get_output_embeddings().weight, local.lm.model.get_output_embeddings().weight
    )
    # two orders of bfloat16 sums
    assert value == pytest.approx(SelfReflect(local).score(**ITEM)["near"].value, abs=3e-3)


# --- the projection alone


def test_only_the_file_with_the_projection_is_read(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    whole = AutoModelForCausalLM.from_pretrained(tiny.save(tmp_path / "whole", "llama"))
    parts = tmp_path / "parts"
    tiny.save(parts, "llama")
    (parts / "model.safetensors").unlink()
    whole.save_pretrained(parts, max_shard_size="20KB")
    placed = json.loads((parts / "model.safetensors.index.json").read_text())["weight_map"]
    others = {file for file in placed.values() if file != placed["lm_head.weight"]}
    assert others
    for file in others:
        (parts / file).write_bytes(b"damaged")
    lm, _ = load_lm_head(ModelSpec(str(parts), device="cpu", dtype="float32"))
    assert torch.equal(lm.model.get_output_embeddings().weight, whole.lm_head.weight)
    assert sum(weight.numel() for weight in lm.model.parameters()) == whole.lm_head.weight.numel()
    assert lm.window == 2048


# --- what is refused


def test_states_scaled_to_length_one(tiny_judge: TinyJudge) -> None:
    assert "use_activation" in refusal(tiny_judge("llama"), pooling(tiny_judge("llama"), unit))


def test_states_that_are_means_over_the_tokens(tiny_judge: TinyJudge) -> None:
    said = refusal(tiny_judge("llama"), pooling(tiny_judge("llama"), mean))
    assert "hardly depend on the last token" in said
    assert '"seq_pooling_type": "LAST"' in said


@pytest.mark.parametrize(
    ("action", "said"),
    [
        (status(401, "no"), "does not accept the key"),
        (status(404, "no"), "base_url"),
        (status(400, "This model does not support embeddings"), "does not support embeddings"),
        (HTML, "not JSON"),
        (raw(b'{"data": [{"index": 0, "embed'), "did not send embeddings"),
        (raw(b'{"choices": []}'), "pooling mode"),
        (raw(b'{"data": []}'), "returned 0 hidden states for 1 prompts"),
        (raw(b'{"data": [{"index": 0, "embedding": "not base64!"}]}'), "not base64"),
        (raw(b'{"data": [{"index": 0, "embedding": "AAA="}]}'), "not base64"),
    ],
)
def test_what_a_server_may_send_instead_of_states(tiny_judge: TinyJudge, action: Any, said: str) -> None:
    local = tiny_judge("llama")
    models = pooling(local)
    assert said in refusal(local, lambda call: models(call) if call.path.endswith("/models") else action)


def test_a_server_that_stays_down_ends_typed_and_without_the_key(
    tiny_judge: TinyJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SELFREFLECT_API_KEY", "sk-very-secret-0123456789")
    with FaultServer(lambda call: status(500, call.headers["authorization"])) as server:
        pool = PoolingServer("m", endpoint(server.url), retries=QUICK)
        with pytest.raises(JudgeError, match="3 tries") as raised:
            pool.last_states([[3]])
    assert "sk-very" not in str(raised.value)
    assert server.calls[0].headers["authorization"].endswith("0123456789")


# --- commands


def items(folder: Path) -> Path:
    return written(folder / "items.json", [{"id": "a", **ITEM}])


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (status(401, "gone"), "does not accept the key"),
        (reset, "the connection failed"),
        (silent, "no complete response came in time"),
    ],
)
def test_a_run_whose_judge_goes_away_goes_on_at_another_address(
    tiny_judge: TinyJudge, tmp_path: Path, end: Any, why: str
) -> None:
    local, out = tiny_judge("llama"), tmp_path / "run"
    name = f"vllm+http:{local.name}"
    sizes = "--device cpu --timeout 2 --num-answers 2 --max-new-tokens 6 --summary-tokens 8"
    common = f"{sizes} --strategies greedy --measures selfreflect --no-controls --out {out}".split()
    asked = written(tmp_path / "questions.txt", "What grows?\nWhat is it?\n")
    script = pooling(local)
    with FaultServer(script) as server:
        url = server.url.replace("http://", "http://me:hidden-word@")
        # Once the first question is scored, no address is there any more.
        server.script = lambda call: end if (out / "scores.jsonl").exists() else script(call)
        start = ("run", "--questions", asked, "--model", local.name, "--judge", name, "--judge-url", url)
        broken = run(*start, *common)
    assert broken.code == 2
    assert why in broken.said
    assert "1 of 2 scores saved" in broken.said
    assert len(Run.load(out).scores) == 1
    with FaultServer(script) as server:
        again = run("score", "--out", out, "--judge-url", server.url, "--device", "cpu")
    assert again.code == 0
    done = Run.load(out)
    assert len(done.scores) == 2
    assert done.manifest.models["scores"]["name"] == name
    assert "hidden-word" not in (out / "manifest.json").read_text() + broken.stderr + broken.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--judge", "vllm+http:m"], "--judge-url, such as http://localhost:8000/v1"),
        (["--judge", "smollm2", "--judge-url", "http://localhost:1/v1"], "vllm+http:NAME"),
        (["--judge", "vllm+http:m", "--judge-url", "nowhere"], "--judge-url"),
        (["--judge", "vllm+http:", "--judge-url", "http://localhost:1/v1"], "needs the name of a model"),
        (["--judge", "openai:gpt-4o"], "returns texts, not full logits"),
        (["--judge", "vllm:smollm2"], "pip install '.[vllm]'"),
    ],
)
def test_options_that_cannot_work(tmp_path: Path, options: list[str], said: str) -> None:
    outcome = run("score", "--items", items(tmp_path), *options, "--device", "cpu")
    assert outcome.code == 2
    assert said in outcome.said
