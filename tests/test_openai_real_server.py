"""A real server, ``transformers serve`` with the embedded model on loopback, does what the local generator does with the same model."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from command import environment, run
from fault_server import unused_port
from selfreflect.models.base import Message, Reply, Request, Sampling
from selfreflect.models.hf import HFGenerator
from selfreflect.models.openai import OpenAIGenerator
from selfreflect.store import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

BOTH_WAYS = Request(
    messages=(Message(role="user", content="Is the sky blue? Say yes or no."),), sampling=Sampling(max_new_tokens=1), n=100, seed=1
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded model, told to sample: this server takes that from the model alone, whatever temperature it is sent."""
    from selfreflect.models.demo import model_directory

    folder = tmp_path_factory.mktemp("model")
    for file in model_directory().iterdir():
        (folder / file.name).symlink_to(file)
    settings = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
    (folder / "generation_config.json").unlink()
    (folder / "generation_config.json").write_text(json.dumps({**settings, "do_sample": True}), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def url(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port, log = unused_port(), tmp_path_factory.mktemp("log") / "serve.log"
    serve = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(model)]
    with log.open("wb") as file:
        command = [*serve, "--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "float32"]
        server = subprocess.Popen(command, stdout=file, stderr=file, env=environment())
    try:
        deadline = time.monotonic() + 300
        while not healthy(port):
            assert server.poll() is None, log.read_text(encoding="utf-8")
            assert time.monotonic() < deadline, log.read_text(encoding="utf-8")
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def texts(generator: HFGenerator | OpenAIGenerator, request: Request) -> list[str]:
    [reply] = generator.generate([request])
    assert isinstance(reply, Reply), reply
    assert reply.tokens > 0
    return [completion.text for completion in reply.completions]


def test_greedy_decoding_gives_the_local_text(model: Path, url: str) -> None:
    request = Request(
        messages=(Message(role="user", content="Name a planet of the solar system."),), sampling=Sampling(temperature=0, max_new_tokens=12)
    )
    local = texts(HFGenerator.load(str(model), device="cpu"), request)
    assert texts(OpenAIGenerator.load(f"openai:{model}", url, timeout=300), request) == local
    assert local[0]


def test_samples_are_distributed_as_local_ones(model: Path, url: str) -> None:
    local = texts(HFGenerator.load(str(model), device="cpu"), BOTH_WAYS)
    remote = texts(OpenAIGenerator.load(f"openai:{model}", url, timeout=300), BOTH_WAYS)
    assert len(set(remote)) > 1
    for text in sorted(set(local), key=local.count)[-2:]:
        # three standard errors of the difference of two shares of 100, at their widest
        assert abs(local.count(text) - remote.count(text)) <= 21


def test_a_whole_run_goes_through_it(model: Path, url: str, tmp_path: Path) -> None:
    sizes = "--limit 2 --num-answers 2 --num-samples 2 --max-new-tokens 8 --summary-tokens 16 --strategies greedy,sample_and_summarize"
    server = f"--model openai:{model} --base-url {url} --timeout 300"
    done = run(*f"run --questions bundled {sizes} {server} --device cpu --out {tmp_path / 'r'}".split())
    assert done.code == 0
    stored = Run.load(tmp_path / "r")
    assert (len(stored.answers), len(stored.summaries), len(stored.scores)) == (2, 4, 4)
    assert stored.manifest.models["answers"]["base_url"] == url
